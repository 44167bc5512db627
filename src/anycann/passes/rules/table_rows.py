"""One-hot vectors times weights are rows of the weights, and what is then computed of each row alone is computed of the table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir

from anycann.graph.evaluate import evaluate_node
from anycann.graph.registry import OPSET, static_type
from anycann.passes.rules.rule import Rule, constant_of, new_constant, new_node, typed_node
from anycann.support.records import dataclass


@dataclass(frozen=True)
class _Chosen:
    """Which of `count` places of a one-hot vector is 1; none where the number is out of range. `wraps`: -1 is the last."""

    numbers: ir.Value
    count: int
    wraps: bool


class OneHotProduct(Rule):
    """MatMul(Cast(Equal(i, [0 .. n - 1])), w) -> Gather(w and a row of zeros, i, or n where i is no row); so OneHot(i, n, [0, 1])."""

    anchors = frozenset({("", "MatMul")})

    def check(self, node: ir.Node) -> str | None:
        chosen, weights = _chosen(node.inputs[0]), constant_of(node.inputs[1])
        if chosen is None:
            return ""
        if weights is None or weights.ndim != 2 or static_type(node.outputs[0]) is None:
            return "the weights are no known matrix"
        return None if np.isfinite(weights).all() else "a weight is infinite or no number, and 0 times that is no number"

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        chosen, weights, type_ = _chosen(node.inputs[0]), constant_of(node.inputs[1]), static_type(node.outputs[0])
        assert chosen is not None
        assert weights is not None
        assert type_ is not None
        nodes: list[ir.Node] = []

        def add(op_type: str, inputs: list[ir.Value], dtype: ir.DataType | None = None) -> ir.Value:
            nodes.append(new_node(op_type, inputs, f"{node.name}/{op_type}{len(nodes)}", chosen.numbers))
            if dtype is not None:
                nodes[-1].outputs[0].type = ir.TensorType(dtype)
            return nodes[-1].outputs[0]

        def number(value: int) -> ir.Value:
            assert chosen.numbers.dtype is not None
            return new_constant(graph, f"{node.name}/{value}", np.array(value, chosen.numbers.dtype.numpy()))

        count, zero, row = number(chosen.count), number(0), chosen.numbers
        if chosen.wraps:
            row = add("Where", [add("Less", [row, zero], ir.DataType.BOOL), add("Add", [row, count]), row])
        inside = add(
            "And", [add("GreaterOrEqual", [row, zero], ir.DataType.BOOL), add("Less", [row, count], ir.DataType.BOOL)], ir.DataType.BOOL
        )
        row = add("Where", [inside, row, count])
        shape = new_constant(graph, f"{node.name}/shape", np.array(type_.shape[:-1], np.int64))
        nodes.append(typed_node("Reshape", [row, shape], f"{node.name}/rows", row, type_.shape[:-1]))
        table = new_constant(graph, f"{node.name}/table", np.concatenate([weights, np.zeros_like(weights[:1])]))
        return [*nodes, ir.Node("", "Gather", [table, nodes[-1].outputs[0]], name=node.name)]


_INTEGERS = frozenset({ir.DataType.INT32, ir.DataType.INT64})


def _chosen(value: ir.Value | None) -> _Chosen | None:
    """What a value is the one-hot form of, along its last axis."""
    node = None if value is None else value.producer()
    if node is None or node.domain != "":
        return None
    if node.op_type == "OneHot":
        return _of_one_hot(node)
    source = node.inputs[0].producer() if node.op_type == "Cast" and node.inputs[0] is not None else None
    return _of_equal(source) if source is not None and source.domain == "" and source.op_type == "Equal" else None


def _of_one_hot(node: ir.Node) -> _Chosen | None:
    numbers, type_ = node.inputs[0], static_type(node.outputs[0])
    values = constant_of(node.inputs[2])
    if numbers is None or type_ is None or numbers.dtype not in _INTEGERS or values is None or values.tolist() != [0, 1]:
        return None
    last = node.attributes.get_int("axis", -1) in (-1, len(type_.shape) - 1)
    return _Chosen(numbers, type_.shape[-1], wraps=True) if last and static_type(numbers) is not None else None


def _of_equal(node: ir.Node) -> _Chosen | None:
    for number in (0, 1):
        places, numbers = constant_of(node.inputs[number]), node.inputs[1 - number]
        type_ = None if numbers is None else static_type(numbers)
        if places is None or numbers is None or type_ is None or numbers.dtype not in _INTEGERS or places.ndim == 0:
            continue
        counts = places.size == places.shape[-1] and np.array_equal(places.reshape(-1), np.arange(places.size))
        if counts and len(type_.shape) >= places.ndim and type_.shape[-1] == 1:
            return _Chosen(numbers, places.size, wraps=False)
    return None


class FunctionOfRows(Rule):
    """f(Gather(table, i), c) -> Gather(f(table, c), i), where f takes each element alone and the table has no more of them.

    Several operands may be rows, if they have the same numbers.
    """

    anchors = frozenset(
        ("", name)
        for name in (
            *("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Neg", "Abs", "Exp", "Log", "Sqrt", "Reciprocal", "Tanh", "Sigmoid", "Relu"),
            *("Erf", "Gelu", "HardSwish", "HardSigmoid", "LeakyRelu", "Elu", "Softplus", "Softsign"),
        )
    )

    def check(self, node: ir.Node) -> str | None:
        gathers = [gather for gather in map(_rows_of, node.inputs) if gather is not None]
        if not gathers:
            return ""
        table, result = constant_of(gathers[0].inputs[0]), static_type(node.outputs[0])
        assert table is not None
        if result is None or result != static_type(gathers[0].outputs[0]):
            return "the result is of another type than the rows"
        if any(gather.inputs[1] is not gathers[0].inputs[1] or _size(gather) != table.shape for gather in gathers):
            return "its operands are different rows"
        others = [constant_of(value) for value in node.inputs if _rows_of(value) is None]
        if any(other is None or (other.size > 1 and (other.size,) != other.shape[-1:]) for other in others):
            return "not every other operand is known and alike for all rows"
        return None if table.size <= np.prod(result.shape) else "the table has more elements than the result"

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        rows = [_rows_of(value) for value in node.inputs]
        gather = next(row for row in rows if row is not None)
        operands = [_operand(value if row is None else row.inputs[0], row is None) for value, row in zip(node.inputs, rows, strict=True)]
        proto = ir.to_proto(node)
        assert isinstance(proto, onnx.NodeProto)
        (table,) = evaluate_node(proto, OPSET, operands)
        assert isinstance(table, np.ndarray)
        known = new_constant(graph, f"{node.name}/table", table)
        return [ir.Node("", "Gather", [known, gather.inputs[1]], name=node.name)]


def _size(gather: ir.Node) -> tuple[int, ...]:
    table = constant_of(gather.inputs[0])
    return () if table is None else table.shape


def _operand(value: ir.Value | None, is_other: bool) -> np.ndarray:
    known = constant_of(value)
    assert known is not None
    return known.reshape(-1) if is_other and known.ndim else known


def _rows_of(value: ir.Value | None) -> ir.Node | None:
    """The Gather of whole rows of a known matrix of floats that makes a value."""
    node = None if value is None else value.producer()
    if node is None or node.domain != "" or node.op_type != "Gather" or node.attributes.get_int("axis", 0) != 0:
        return None
    table = constant_of(node.inputs[0])
    return node if table is not None and table.ndim == 2 and table.dtype == np.float32 else None

"""Writes the nodes of the GE graph one after the other, knowing the type of every value as far as it can be told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from anycann.graph.evaluate import evaluate_node
from anycann.graph.infer import infer_outputs
from anycann.graph.registry import OPSET, library
from anycann.graph.sources import set_sources

FOLDED_ELEMENTS = 4096  # values of at most so many elements are computed at once: sizes, axes, paddings
_SIZED = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0}  # operator -> the operand that holds the sizes of its result


class Builder:
    """The graph that grows. `source` is the name of TensorFlow's node that is being converted: new nodes are named after it.

    outer: the builder of the graph that has this one as the body of a loop; constants are the outermost graph's.
    """

    def __init__(self, outer: Builder | None = None) -> None:
        self.source: str = outer.source if outer is not None else ""
        self.graph = ir.Graph([], [], nodes=[], opset_imports={"": OPSET}, name=f"{self.source}/body" if outer is not None else None)
        self._root: Builder = outer._root if outer is not None else self
        self._count = 0
        self._small: dict[tuple[str, tuple[int, ...], bytes], ir.Value] = {}
        self._named: set[str] = set()

    def input(self, name: str, dtype: np.dtype, shape: Sequence[int | None] | None) -> ir.Value:
        """A new input of the graph; None: an open size, or an open rank."""
        value = ir.Value(name=name, type=ir.TensorType(ir.DataType.from_numpy(dtype)), shape=None if shape is None else ir.Shape(shape))
        self.graph.inputs.append(value)
        return value

    def parameter(self, what: str, dtype: np.dtype, shape: Sequence[int | None] | None) -> ir.Value:
        """A new input of the body of a loop."""
        return self.input(self._name(what), dtype, shape)

    def constant(self, array: object, dtype: object = None) -> ir.Value:
        """A value known beforehand; small ones are kept once."""
        if self._root is not self:
            return self._root.constant(array, dtype)
        known = np.ascontiguousarray(array, dtype).reshape(np.shape(array))  # type: ignore[call-overload]
        key = (str(known.dtype), known.shape, known.tobytes()) if known.size <= 64 and known.dtype != object else None
        if key is not None and key in self._small:
            return self._small[key]
        tensor = ir.tensor(known, name=self._name("constant"))
        value = ir.Value(name=tensor.name, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor)  # type: ignore[arg-type]
        self.graph.register_initializer(value)
        if key is not None:
            self._small[key] = value
        return value

    def op(self, op_type: str, *inputs: ir.Value | None, **attributes: object) -> ir.Value:
        """The result of a new node."""
        return self.ops(op_type, *inputs, outputs=1, **attributes)[0]

    def ops(self, op_type: str, *inputs: ir.Value | None, outputs: int = 1, **attributes: object) -> list[ir.Value]:
        """The results of a new node; constants where it computes with few numbers that are known."""
        node = ir.Node("", op_type, inputs, list(ir.convenience.convert_attributes(attributes)), num_outputs=outputs)  # type: ignore[arg-type]
        node.name = self._name(op_type)
        set_sources(node, [self.source])
        for number, value in enumerate(node.outputs):
            value.name = f"{node.name}:{number}"
        if _is_foldable(node):
            return [self.constant(array) for array in self._folded(node)]
        for value, found in zip(node.outputs, infer_outputs(node, library()), strict=True):
            value.type = found.type
            value.shape = None if found.shape is None else ir.Shape(found.shape)
        _rank_of_sizes(node)
        self.graph.append(node)
        return list(node.outputs)

    def select(self, condition: ir.Value, then: ir.Value, otherwise: ir.Value) -> ir.Value:
        """One of two computed values by a condition of one element; they may differ in shape."""
        branches = {"then_branch": self._handing_on(then), "else_branch": self._handing_on(otherwise)}
        node = ir.Node("", "If", [condition], [ir.AttrGraph(name, graph) for name, graph in branches.items()], name=self._name("If"))
        set_sources(node, [self.source])
        (result,) = node.outputs
        result.name, result.type = f"{node.name}:0", then.type
        result.shape = _common_shape(then, otherwise)
        self.graph.append(node)
        return result

    def loop(self, trips: ir.Value | None, condition: ir.Value, initial: Sequence[ir.Value], body: ir.Graph) -> list[ir.Value]:
        """The results of a Loop. body: as the operator wants it, the condition first among its outputs, what is stacked behind."""
        results = body.outputs[1:]
        node = ir.Node("", "Loop", [trips, condition, *initial], [ir.AttrGraph("body", body)], num_outputs=len(results))
        node.name = self._name("Loop")
        set_sources(node, [self.source])
        known = None if trips is None else known_array(trips)
        for number, (made, result) in enumerate(zip(node.outputs, results, strict=True)):
            made.name, made.type, sizes = f"{node.name}:{number}", result.type, sizes_of(result)
            if number < len(initial) and not known:  # there may be no turn
                sizes = sizes_of(body.inputs[2 + number])
            elif number >= len(initial) and sizes is not None:
                sizes = (None if known is None else int(known), *sizes)
            made.shape = None if sizes is None else ir.Shape(sizes)
        self.graph.append(node)
        return list(node.outputs)

    def name_last(self, name: str) -> None:
        """The last node of those that a node of TensorFlow became takes its name, if none has it: a condition is converted twice."""
        taken = self._root._named
        if len(self.graph) and (self.graph[-1].name or "").startswith(f"{name}/") and name not in taken:
            self.graph[-1].name = name
            taken.add(name)

    def copy(self, value: ir.Value) -> ir.Value:
        """A value of this graph, whatever graph `value` is of."""
        node = self._identity(value)
        self.graph.append(node)
        return node.outputs[0]

    def _handing_on(self, value: ir.Value) -> ir.Graph:
        node = self._identity(value)
        return ir.Graph([], list(node.outputs), nodes=[node], name=f"{node.name}/body")

    def _identity(self, value: ir.Value) -> ir.Node:
        node = ir.Node("", "Identity", [value], name=self._name("Identity"))
        node.outputs[0].name, node.outputs[0].type, node.outputs[0].shape = f"{node.name}:0", value.type, value.shape
        set_sources(node, [self.source])
        return node

    def _folded(self, node: ir.Node) -> Iterable[np.ndarray]:
        known = [None if v is None or v.const_value is None else v.const_value.numpy() for v in node.inputs]
        return [np.asarray(array) for array in evaluate_node(ir.to_proto(node), OPSET, known)]

    def _name(self, what: str) -> str:
        self._root._count += 1
        return f"{self.source}/{what}_{self._root._count}"


def known_array(value: ir.Value) -> np.ndarray | None:
    """The array of a value that is known beforehand."""
    return None if value.const_value is None else value.const_value.numpy()


def sizes_of(value: ir.Value) -> tuple[int | None, ...] | None:
    """Sizes of a value, None for open ones; None for an unknown rank."""
    return None if value.shape is None else tuple(size if isinstance(size, int) else None for size in value.shape)


def _is_foldable(node: ir.Node) -> bool:
    present = [value for value in node.inputs if value is not None]
    return bool(present) and all(v.const_value is not None and v.const_value.size <= FOLDED_ELEMENTS for v in present)


def _rank_of_sizes(node: ir.Node) -> None:
    """A result whose sizes are computed has at least as many as there are numbers."""
    number = _SIZED.get(node.op_type)
    if number is None or node.outputs[0].shape is not None:
        return
    operand = node.inputs[number]
    length = None if operand is None else sizes_of(operand)
    if length is not None and len(length) == 1 and length[0] is not None:
        node.outputs[0].shape = ir.Shape([None] * length[0])


def _common_shape(one: ir.Value, other: ir.Value) -> ir.Shape | None:
    sizes = common_sizes(sizes_of(one), sizes_of(other))
    return None if sizes is None else ir.Shape(sizes)


def common_sizes(first: Sequence[int | None] | None, second: Sequence[int | None] | None) -> tuple[int | None, ...] | None:
    """Sizes that both have; those that differ are open."""
    if first is None or second is None or len(first) != len(second):
        return None
    return tuple(a if a == b else None for a, b in zip(first, second, strict=True))

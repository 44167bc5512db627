"""A loop that sums up rows of a table, some for each turn, is a matrix product: which rows are in which bag, times the rows.

Loop(n, true) { i -> ReduceSum(Gather(table, ids[begins[i] : ends[i]])) }      before: each turn has another shape, that only running tells
MatMul(begins <= place < ends, Gather(table, ids))                             after: EmbeddingBag with bounds that are computed
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.rules.rule import constant_of, new_constant
from anycann.passes.unroll import known_turns

MOST_PLACES = 1 << 20  # of the matrix that says what is in which bag; beyond that the loop does less


@dataclass(frozen=True)
class _Bags:
    """What a loop computes: `count` bags of rows of `table`, bag i those numbered by `ids` from begins[i] to before ends[i]."""

    table: ir.Value
    ids: ir.Value
    begins: ir.Value
    ends: ir.Value
    count: int
    mean: bool


def sum_bags(graph: ir.Graph, loop: ir.Node) -> list[ir.Node] | None:
    """The nodes that took the place of `loop` in `graph`; None, and nothing is done, for another loop."""
    bags = _bags(loop)
    ids = None if bags is None else static_type(bags.ids)
    if bags is None or ids is None or not 0 < ids.shape[0] * bags.count <= MOST_PLACES:
        return None
    writer = _Writer(graph, loop.name or "bags")
    begins, ends = (writer.bounds(value, bags.count, ids.shape[0]) for value in (bags.begins, bags.ends))
    places = writer.number(np.arange(ids.shape[0]))
    inside = writer.add("And", writer.add("GreaterOrEqual", places, begins), writer.add("Less", places, ends))
    matrix = writer.add("CastLike", inside, bags.table)
    result = writer.add("MatMul", matrix, writer.add("Gather", bags.table, bags.ids))
    if bags.mean:
        result = writer.add("Div", result, writer.add("ReduceSum", matrix, writer.number(np.array([1]))))
    graph.insert_before(loop, writer.nodes)
    loop.outputs[0].replace_all_uses_with(result, replace_graph_outputs=True)
    graph.remove(loop, safe=True)
    return writer.nodes


def _bags(loop: ir.Node) -> _Bags | None:
    body, count = loop.attributes["body"].as_graph(), known_turns(loop)
    if count is None or len(loop.inputs) != 2 or len(body.outputs) != 2 or loop.outputs[0].name is None:
        return None
    total = _made_by(body.outputs[1], body, "ReduceSum", "ReduceMean")
    if total is None or total.attributes.get_int("keepdims", 1) != 0 or not _is_first_axis(total, 1):
        return None
    rows = _made_by(total.inputs[0], body, "Gather")
    part = None if rows is None or rows.attributes.get_int("axis", 0) != 0 else _made_by(rows.inputs[1], body, "Slice")
    if rows is None or part is None or not _is_first_axis(part, 3) or len(part.inputs) > 4:
        return None
    begins, ends = (_turns_entry(value, body) for value in part.inputs[1:3])
    table, ids = rows.inputs[0], part.inputs[0]
    known = constant_of(table)
    if known is None or known.ndim != 2 or known.dtype != np.float32 or not np.isfinite(known).all():  # 0 times infinity is no number
        return None
    if begins is None or ends is None or table is None or ids is None or _size(ids, body) is None:
        return None
    if any((size := _size(value, body)) is None or size < count for value in (begins, ends)):
        return None
    return _Bags(table, ids, begins, ends, count, total.op_type == "ReduceMean")


def _made_by(value: ir.Value | None, body: ir.Graph, *op_types: str) -> ir.Node | None:
    """The node of the body that makes a value, if it is one of these."""
    node = None if value is None else value.producer()
    return node if node is not None and node.graph is body and not node.domain and node.op_type in op_types else None


def _is_first_axis(node: ir.Node, operand: int) -> bool:
    axes = _known(node.inputs[operand]) if operand < len(node.inputs) else None
    return axes is not None and axes.reshape(-1).tolist() == [0]


def _known(value: ir.Value | None) -> np.ndarray | None:
    """A value that is known, also where a Constant of a body makes it."""
    node, known = None if value is None else value.producer(), constant_of(value)
    tensor = None if node is None or node.op_type != "Constant" else node.attributes.get_tensor("value", None)
    return known if known is not None or tensor is None else tensor.numpy()


def _turns_entry(value: ir.Value | None, body: ir.Graph) -> ir.Value | None:
    """v, if the value is v[i] as a vector of one element, i the number of the turn."""
    lifted = _made_by(value, body, "Unsqueeze")
    entry = None if lifted is None or not _is_first_axis(lifted, 1) else _made_by(lifted.inputs[0], body, "Gather")
    if entry is None or entry.attributes.get_int("axis", 0) != 0 or entry.inputs[1] is not body.inputs[0]:
        return None
    return entry.inputs[0]


def _size(value: ir.Value, body: ir.Graph) -> int | None:
    """The length of a vector of integers from outside of the loop."""
    type_, maker = static_type(value), value.producer()
    outside = value not in body.inputs and (maker is None or maker.graph is not body)
    return type_.shape[0] if outside and type_ is not None and len(type_.shape) == 1 and type_.dtype.name == "int64" else None


class _Writer:
    """Appends nodes of one output."""

    def __init__(self, graph: ir.Graph, name: str):
        self._graph, self._name, self.nodes = graph, name, list[ir.Node]()
        self._numbers = 0

    def add(self, op_type: str, *inputs: ir.Value) -> ir.Value:
        node = ir.node(op_type, list(inputs), name=f"{self._name}/{op_type}{len(self.nodes)}")
        node.outputs[0].name = f"{node.name}:0"
        self.nodes.append(node)
        return node.outputs[0]

    def number(self, array: np.ndarray) -> ir.Value:
        self._numbers += 1
        return new_constant(self._graph, f"{self._name}/number{self._numbers}", array)

    def bounds(self, value: ir.Value, count: int, extent: int) -> ir.Value:
        """The first `count` of the bounds as Slice takes them, one a row: negative ones from the end, all within 0..extent."""
        zero, most = self.number(np.array(0)), self.number(np.array(extent))
        first = self.add("Slice", value, self.number(np.array([0])), self.number(np.array([count])))
        wrapped = self.add("Where", self.add("Less", first, zero), self.add("Add", first, most), first)
        return self.add("Unsqueeze", self.add("Clip", wrapped, zero, most), self.number(np.array([1])))

"""A loop that sums up rows of a table, some for each turn, is a matrix product: which rows are in which bag, times the rows. Bags known
to be equally large are sums of blocks.

Loop(n, true) { i -> ReduceSum(Gather(table, ids[begins[i] : ends[i]])) }      before: each turn has another shape, that only running tells
MatMul(begins <= place < ends, Gather(table, ids))                             after: EmbeddingBag with bounds that are computed
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.loop_counters import known_through_casts
from anycann.passes.loop_values import source_of
from anycann.passes.node_writer import NodeWriter
from anycann.passes.rules.rule import constant_of
from anycann.passes.unroll import known_turns
from anycann.support.records import dataclass
from anycann.te import dtypes

MOST_PLACES = 1 << 20  # of the matrix that says what is in which bag; beyond that the loop does less


@dataclass(frozen=True)
class _Bounds:
    """One end of all bags: `count` elements of a vector, from element `first` on."""

    vector: ir.Value
    first: int

    def known(self, count: int) -> np.ndarray | None:
        """The numbers, if the vector is known."""
        known = constant_of(self.vector)
        return None if known is None else known[self.first : self.first + count]


@dataclass(frozen=True)
class _Bags:
    """What a loop computes: `count` bags of `rows`, or of those numbered by `ids` if it is given; bag i from begins[i] to before ends[i].

    mean: sums are divided by the number of rows, of an empty bag by 1 if `guarded`, else by 0. keep: a bag has an axis of one row.
    """

    rows: ir.Value
    ids: ir.Value | None
    begins: _Bounds
    ends: _Bounds
    count: int
    mean: bool
    guarded: bool
    keep: bool

    @property
    def places(self) -> ir.Value:
        """What has an element, or a row, for each place that bounds count."""
        return self.rows if self.ids is None else self.ids


def sum_bags(graph: ir.Graph, loop: ir.Node) -> list[ir.Node] | None:
    """The nodes that took the place of `loop` in `graph`; None, and nothing is done, for another loop."""
    bags = _bags(loop)
    places = None if bags is None else static_type(bags.places)
    if bags is None or places is None or not 0 < places.shape[0] * bags.count <= MOST_PLACES:
        return None
    writer = NodeWriter(graph, loop.name or "bags")
    size = _equal_bags(bags, places.shape[0])
    if size is None and not _is_finite(bags.rows):
        return None
    result = _by_product(writer, bags, places.shape[0]) if size is None else _by_reshaping(writer, bags, size)
    if bags.keep:
        result = writer.add("Unsqueeze", result, writer.number(np.array([1])))
    graph.insert_before(loop, writer.nodes)
    loop.outputs[0].replace_all_uses_with(result, replace_graph_outputs=True)
    graph.remove(loop, safe=True)
    return writer.nodes


def _equal_bags(bags: _Bags, extent: int) -> int | None:
    """The size of all bags, if they are known to follow one another, be equally large and leave no place out."""
    begins, ends = bags.begins.known(bags.count), bags.ends.known(bags.count)
    if begins is None or ends is None or extent % bags.count:
        return None
    size = extent // bags.count
    edges = np.arange(0, extent + 1, size)
    return size if np.array_equal(begins, edges[:-1]) and np.array_equal(ends, edges[1:]) else None


def _by_reshaping(writer: NodeWriter, bags: _Bags, size: int) -> ir.Value:
    rows = bags.rows if bags.ids is None else writer.add("Gather", bags.rows, bags.ids)
    blocks = writer.add("Reshape", rows, writer.number(np.array([bags.count, size, -1])))
    return writer.add("ReduceMean" if bags.mean else "ReduceSum", blocks, writer.number(np.array([1])), keepdims=0)


def _by_product(writer: NodeWriter, bags: _Bags, extent: int) -> ir.Value:
    begins, ends = (_bounds(writer, value, bags.count, extent) for value in (bags.begins, bags.ends))
    places = writer.number(np.arange(extent))
    inside = writer.add("And", writer.add("GreaterOrEqual", places, begins), writer.add("Less", places, ends))
    matrix = writer.add("CastLike", inside, bags.rows)
    result = writer.add("MatMul", matrix, bags.rows if bags.ids is None else writer.add("Gather", bags.rows, bags.ids))
    if not bags.mean:
        return result
    size = writer.add("ReduceSum", matrix, writer.number(np.array([1])))
    return writer.add("Div", result, writer.add("Max", size, writer.number(np.array(1, np.float32))) if bags.guarded else size)


def _bounds(writer: NodeWriter, bounds: _Bounds, count: int, extent: int) -> ir.Value:
    """The bounds as Slice takes them, one a row: negative ones from the end, all within 0..extent."""
    zero, most = writer.number(np.array(0)), writer.number(np.array(extent))
    first = writer.add("Slice", bounds.vector, writer.number(np.array([bounds.first])), writer.number(np.array([bounds.first + count])))
    wrapped = writer.add("Where", writer.add("Less", first, zero), writer.add("Add", first, most), first)
    return writer.add("Unsqueeze", writer.add("Clip", wrapped, zero, most), writer.number(np.array([1])))


# ---- what a loop computes
def _bags(loop: ir.Node) -> _Bags | None:
    body, count = loop.attributes["body"].as_graph(), known_turns(loop)
    if count is None or len(loop.inputs) != 2 or len(body.outputs) != 2 or loop.outputs[0].name is None:
        return None
    total, guard = _guarded(body.outputs[1])
    if total is None or not _is_first_axis(total, 1):
        return None
    gathered = _made_by(total.inputs[0], "Gather")
    part = _made_by(total.inputs[0] if gathered is None else gathered.inputs[1], "Slice")
    if part is None or not _is_along_first_axis(part) or (guard is not None and set(guard) != set(part.inputs[1:3])):
        return None
    rows, ids = (part.inputs[0], None) if gathered is None else (gathered.inputs[0], part.inputs[0])
    begins, ends = (_turns_entry(value, body, count) for value in part.inputs[1:3])
    if rows is None or begins is None or ends is None or not _is_matrix(rows, body) or (ids is not None and _size(ids, body) is None):
        return None
    if gathered is not None and gathered.attributes.get_int("axis", 0) != 0:
        return None
    keep, mean = total.attributes.get_int("keepdims", 1) == 1, total.op_type == "ReduceMean"
    return _Bags(rows, ids, begins, ends, count, mean, guard is not None, keep)


def _guarded(value: ir.Value) -> tuple[ir.Node | None, tuple[ir.Value | None, ...] | None]:
    """What sums a bag up, and of which bounds an If compares both first, so that an empty bag is zeros; None without one."""
    guard = _made_by(value, "If")
    if guard is None:
        return _made_by(value, "ReduceSum", "ReduceMean"), None
    test = _made_by(guard.inputs[0], "Equal")
    empty, full = (guard.attributes[branch].as_graph().outputs[0] for branch in ("then_branch", "else_branch"))
    zeros = known_through_casts(source_of(empty))
    if test is None or zeros is None or zeros.any():
        return None, None
    return _made_by(full, "ReduceSum", "ReduceMean"), tuple(test.inputs)


def _made_by(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """The node that makes a value, if it is one of these."""
    node = None if value is None else source_of(value).producer()
    return node if node is not None and not node.domain and node.op_type in op_types else None


def _is_first_axis(node: ir.Node, operand: int) -> bool:
    axes = known_through_casts(node.inputs[operand]) if operand < len(node.inputs) else None
    return axes is not None and axes.reshape(-1).tolist() == [0]


def _is_along_first_axis(part: ir.Node) -> bool:
    """Whether a Slice, of one bound at either end, cuts the first axis in steps of one."""
    axes_are_first = len(part.inputs) < 4 or part.inputs[3] is None or _is_first_axis(part, 3)
    step = known_through_casts(part.inputs[4]) if len(part.inputs) > 4 and part.inputs[4] is not None else np.array(1)
    return axes_are_first and step is not None and step.reshape(-1).tolist() == [1]


def _turns_entry(value: ir.Value | None, body: ir.Graph, count: int) -> _Bounds | None:
    """The v[first : first + count], if the value of turn i is v[first + i] as a vector of one element."""
    lifted, part = _made_by(value, "Unsqueeze"), _made_by(value, "Slice")
    if lifted is not None and _is_first_axis(lifted, 1):
        entry = _made_by(lifted.inputs[0], "Gather")
        if entry is None or entry.attributes.get_int("axis", 0) != 0:
            return None
        vector, first, one = entry.inputs[0], _behind_turn(entry.inputs[1], body), True
    elif part is not None and _is_along_first_axis(part):
        vector, first = part.inputs[0], _behind_turn(part.inputs[1], body)
        one = first is not None and _behind_turn(part.inputs[2], body) == first + 1
    else:
        return None
    size = None if vector is None else _size(vector, body)
    if vector is None or first is None or first < 0 or not one or size is None or size < first + count:
        return None
    return _Bounds(vector, first)


def _behind_turn(value: ir.Value | None, body: ir.Graph) -> int | None:
    """c, if the value is the number of the turn and c."""
    if value is None or value is body.inputs[0]:
        return None if value is None else 0
    node = value.producer()
    if node is None or node.domain:
        return None
    if node.op_type in ("Identity", "CastLike", "Reshape", "Unsqueeze") or (node.op_type == "Cast" and value.dtype == ir.DataType.INT64):
        return _behind_turn(node.inputs[0], body)
    if node.op_type != "Add":
        return None
    for one, other in (node.inputs, reversed(node.inputs)):
        known, first = known_through_casts(other), _behind_turn(one, body)
        if known is not None and known.size == 1 and first is not None:
            return first + int(known.reshape(-1)[0])
    return None


def _is_outside(value: ir.Value, body: ir.Graph) -> bool:
    return value.graph not in (body, *body.subgraphs())


def _size(value: ir.Value, body: ir.Graph) -> int | None:
    """The length of a vector of integers from outside of the loop."""
    type_ = static_type(value) if _is_outside(value, body) else None
    return type_.shape[0] if type_ is not None and len(type_.shape) == 1 and type_.dtype is dtypes.int64 else None


def _is_matrix(value: ir.Value, body: ir.Graph) -> bool:
    """Whether a value from outside of the loop is a matrix of float32."""
    type_ = static_type(value) if _is_outside(value, body) else None
    return type_ is not None and len(type_.shape) == 2 and type_.dtype is dtypes.float32


def _is_finite(value: ir.Value | None) -> bool:
    """Whether no element can be infinite or no number: 0 times one of those is no number."""
    known, node = constant_of(value), None if value is None else value.producer()
    if known is not None:
        return bool(np.isfinite(known).all())
    return node is not None and not node.domain and node.op_type == "Gather" and _is_finite(node.inputs[0])

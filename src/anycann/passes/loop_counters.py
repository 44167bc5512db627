"""A loop that counts itself has a trip count.

Loop(, true, 0) of a body that goes on while i + 1 < n, i the carried number   ->  Loop(max(1, n), true) of a body that reads its turn
Loop(most, 0 < n, 0) of the same body                                          ->  Loop(min(max(0, most), max(0, n)), true)

So `while i < n` is exported, and EmbeddingBag by PyTorch's newer exporter. A known trip count makes a loop native, or no loop at all.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from anycann.passes.loop_values import Carried, body_of, carried_of, source_of
from anycann.passes.node_writer import NodeWriter
from anycann.passes.rules.rule import constant_of
from anycann.support.records import dataclass

INTEGERS = (ir.DataType.INT64, ir.DataType.INT32)


@dataclass(frozen=True)
class _Counting:
    """A carried integer that rises by one each turn from `first` while it is below `limit`. least: turns there are in any case."""

    carried: Carried
    first: ir.Value
    limit: ir.Value
    least: int


def count_turns(graph: ir.Graph) -> list[str]:
    """Give the Loops of `graph` that count their turns a trip count, in place. Says which."""
    lines = []
    for node in list(graph):
        if (node.domain, node.op_type) == ("", "Loop") and (counting := _counting(node)) is not None:
            _count(graph, node, counting)
            lines.append(f"Loop {node.name} has a trip count")
    return lines


def _counting(loop: ir.Node) -> _Counting | None:
    body = body_of(loop)
    test = _made_by(source_of(body.outputs[0]), "Less", "Greater")
    if test is None:
        return None
    next_, limit = test.inputs if test.op_type == "Less" else reversed(test.inputs)
    if next_ is None or limit is None or limit in body.inputs or _is_made_in(limit, body):
        return None
    for one in carried_of(loop):
        if one.first is not None and source_of(one.handed_on) is source_of(next_) and _rises_by_one(one, one.first):
            least = _least_turns(loop, one.first, limit)
            return None if least is None else _Counting(one, one.first, limit, least)
    return None


def _made_by(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    node = None if value is None else value.producer()
    return node if node is not None and not node.domain and node.op_type in op_types else None


def _is_made_in(value: ir.Value, body: ir.Graph) -> bool:
    producer = value.producer()
    return value in body.initializers.values() or (producer is not None and producer.graph is body)


def _rises_by_one(one: Carried, first: ir.Value) -> bool:
    """Whether a turn hands on its own integer plus one."""
    if first.dtype not in INTEGERS:
        return False
    step = _made_by(source_of(one.handed_on), "Add")
    operands = [] if step is None else [known_through_casts(value) for value in step.inputs]
    if step is None or not any(value is not None and source_of(value) is one.given for value in step.inputs):
        return False
    shapes = ((), (1,)) if first.shape is not None and len(first.shape) == 1 else ((),)
    return any(known is not None and known.shape in shapes and known.item() == 1 for known in operands)


def known_through_casts(value: ir.Value | None) -> np.ndarray | None:
    """A value that is known, also where a Constant of a body makes it, or a cast follows it."""
    known = constant_of(value)
    node = None if known is not None or value is None else value.producer()
    if node is None or node.domain:
        return known
    if node.op_type == "Constant":
        tensor = node.attributes.get_tensor("value", None)
        return None if tensor is None else tensor.numpy()
    return known_through_casts(node.inputs[0]) if node.op_type in ("Identity", "Cast", "CastLike") else None


def _least_turns(loop: ir.Node, first: ir.Value, limit: ir.Value) -> int | None:
    """1 if the first turn is run in any case, 0 if it is asked for as all others are; None where something else decides."""
    going = loop.inputs[1]
    known = np.array(True) if going is None else known_through_casts(going)
    if known is not None:
        return 1 if known.all() else None
    test = _made_by(going, "Less", "Greater")
    if test is None:
        return None
    begin, most = test.inputs if test.op_type == "Less" else reversed(test.inputs)
    return 0 if _are_same(begin, first) and _are_same(most, limit) else None


def _are_same(a: ir.Value | None, b: ir.Value) -> bool:
    if a is b:
        return True
    known, other = known_through_casts(a), known_through_casts(b)
    return known is not None and other is not None and np.array_equal(known, other)


def _count(graph: ir.Graph, loop: ir.Node, counting: _Counting) -> None:
    """Put the trip count in, and the number of the turn in the place of the carried number."""
    first, one, writer = counting.first, counting.carried, NodeWriter(graph, f"{loop.name}/turns")
    scalar = writer.number(np.array([], np.int64))
    begin, end = (writer.add("Reshape", writer.add("Cast", value, to=ir.DataType.INT64), scalar) for value in (first, counting.limit))
    turns = writer.add("Max", writer.add("Sub", end, begin), writer.number(np.array(counting.least)))
    if loop.inputs[0] is not None:
        most = writer.add("Max", writer.add("Reshape", loop.inputs[0], scalar), writer.number(np.array(0)))
        turns = writer.add("Min", turns, most)
    last = writer.add("Add", first, writer.add("CastLike", turns, first))
    going = writer.number(np.array(True))
    graph.insert_before(loop, writer.nodes)
    one.last.replace_all_uses_with(last, replace_graph_outputs=True)
    _read_turn(body_of(loop), one, first, NodeWriter(graph, f"{loop.name}/turn"))
    loop.replace_input_with(0, turns)
    loop.replace_input_with(1, going)


def _read_turn(body: ir.Graph, one: Carried, first: ir.Value, writer: NodeWriter) -> None:
    """All who read the carried number in the body read what the turn's number makes of it; the body always goes on."""
    number, known = body.inputs[0], constant_of(first)
    if known is None or known.dtype != np.int64 or known.shape != () or known != 0:
        number = writer.add("Add", first, writer.add("CastLike", number, first))
    for user, place in tuple(one.given.uses()):
        user.replace_input_with(place, number)
    goes_on = writer.add("Identity", body.inputs[1])
    body.insert_before(body[0], writer.nodes)
    body.outputs[0] = goes_on

"""A loop of few turns whose shapes change from turn to turn becomes its turns, one after the other.

Loop(3, true) { i -> Gather(x[begins[i] : ends[i]]) }      before: each turn is compiled for the shapes it meets, and run apart
Gather(x[0 : 4])  Gather(x[4 : 5])  Gather(x[5 : 9])       after: all shapes are known; EmbeddingBag is exported as such a loop
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from anycann.passes.rules.rule import new_constant

MOST_TURNS, MOST_NODES = 64, 512  # more of them take longer to compile than they save
SHAPED_BY = {"Slice": 1, "Reshape": 1, "Expand": 1, "Tile": 1, "Pad": 1, "Range": 0, "ConstantOfShape": 0}  # the first operand that says so


def unroll(graph: ir.Graph, loop: ir.Node) -> list[ir.Node] | None:
    """The nodes that took the place of `loop` in `graph`; None, and nothing is done, for a loop that stays."""
    turns, body = known_turns(loop), loop.attributes["body"].as_graph()
    if turns is None or not 0 < turns <= min(MOST_TURNS, MOST_NODES // max(len(body), 1)) or not _changes_shapes(body):
        return None
    made, carried = list[ir.Node](), [value for value in loop.inputs[2:] if value is not None]
    rows: list[list[ir.Value]] = [[] for _ in body.outputs[1 + len(carried) :]]
    for turn in range(turns):
        nodes, results = _turn(graph, body, turn, carried, f"{loop.name}/{turn}")
        made += nodes
        carried, given = results[: len(carried)], results[len(carried) :]
        for kept, result in zip(rows, given, strict=True):
            kept.append(result)
    graph.insert_before(loop, made)
    for kept, output in zip(rows, loop.outputs[len(carried) :], strict=True):
        stacked = _stacked(graph, kept, output.name or "")
        graph.insert_before(loop, stacked)
        made += stacked
        carried.append(stacked[-1].outputs[0])
    for output, value in zip(loop.outputs, carried, strict=True):
        output.replace_all_uses_with(value, replace_graph_outputs=True)
    graph.remove(loop, safe=True)
    return made


def known_turns(loop: ir.Node) -> int | None:
    """How often the body runs, if that is known."""
    count, going, body = loop.inputs[0], loop.inputs[1], loop.attributes["body"].as_graph()
    if count is None or count.const_value is None or not (going is None or _is_true(going, body)) or not _is_true(body.outputs[0], body):
        return None
    return int(count.const_value.numpy().reshape(-1)[0])


def _is_true(value: ir.Value, body: ir.Graph) -> bool:
    """Whether a condition is known to hold: a constant, or the one that each turn is given."""
    if value is body.inputs[1]:
        return True
    if value.const_value is not None:
        return bool(value.const_value.numpy().all())
    node = value.producer()
    if node is None or node.domain or node.op_type not in ("Identity", "Cast", "Constant"):
        return False
    if node.op_type == "Constant":
        known = node.attributes.get_tensor("value", None)
        return known is not None and bool(known.numpy().all())
    return node.inputs[0] is not None and _is_true(node.inputs[0], body)


def _changes_shapes(body: ir.Graph) -> bool:
    """Whether a shape follows from the number of the turn, and none from what is only known when it runs; and no turn has a body."""
    if any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for node in body for a in node.attributes.values()):
        return False
    shaping = [(node, SHAPED_BY[node.op_type]) for node in body if not node.domain and node.op_type in SHAPED_BY]
    sources = [_sources(value, body) for node, first in shaping for value in node.inputs[first:]]
    return {body.inputs[0]} in sources and all(source <= {body.inputs[0]} for source in sources)


def _sources(value: ir.Value | None, body: ir.Graph) -> set[ir.Value]:
    """The values that are not known before a loop runs which decide a value; sizes are taken for known."""
    found, seen, waiting = set[ir.Value](), set[ir.Value](), [value]
    while waiting:
        value = waiting.pop()
        if value is None or value.const_value is not None or value in seen:
            continue
        seen.add(value)
        node = value.producer()
        if node is None or node.graph is not body:
            found.add(value)
        elif node.domain or node.op_type not in ("Shape", "Size"):
            waiting += node.inputs
    return found


def _turn(graph: ir.Graph, body: ir.Graph, turn: int, carried: Sequence[ir.Value], name: str) -> tuple[list[ir.Node], list[ir.Value]]:
    """The nodes of one turn, and what it gives but for the condition."""
    copy = body.clone(allow_outer_scope_values=True)
    for value in list(copy.initializers.values()):
        del copy.initializers[value.name or ""]
        value.name = f"{name}/{value.name}"
        graph.register_initializer(value)
    values = (new_constant(graph, f"{name}/turn", np.array(turn)), new_constant(graph, f"{name}/goes_on", np.array(True)), *carried)
    given = dict(zip(copy.inputs, values, strict=True))
    results, nodes = [given.get(value, value) for value in copy.outputs[1:]], list(copy)
    copy.outputs.clear()
    for old, new in given.items():
        old.replace_all_uses_with(new)
    copy.remove(nodes)
    for node in nodes:
        node.name = f"{name}/{node.name}"
        for output in node.outputs:
            output.name = f"{name}/{output.name}"
    return nodes, results


def _stacked(graph: ir.Graph, rows: Sequence[ir.Value], name: str) -> list[ir.Node]:
    """One array of what the turns gave."""
    axis = new_constant(graph, f"{name}/axis", np.array([0]))
    lifted = [ir.node("Unsqueeze", [row, axis], name=f"{name}/row{number}") for number, row in enumerate(rows)]
    together = ir.node("Concat", [node.outputs[0] for node in lifted], {"axis": 0}, name=f"{name}/rows")
    for node in (*lifted, together):
        node.outputs[0].name = f"{node.name}:0"
    return [*lifted, together]

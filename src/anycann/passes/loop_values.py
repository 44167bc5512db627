"""What a Loop or Scan carries for nothing is carried no more.

Loop(n, c, x, w) of a body that hands w on as it is    ->  Loop(n, c, x), the body uses the w outside: a weight is known while compiling
Loop(n, c, x, s) of a body that never reads s, where nobody reads the s that comes out  ->  Loop(n, c, x)

Exporters that turn a program's loop into an operator carry every variable the loop's text names, weights among them.
"""

from __future__ import annotations

import onnx_ir as ir

from anycann.support.records import dataclass


@dataclass(frozen=True)
class Carried:
    """One carried value: what it begins as, what a turn of the body gets and gives, and what is left after the last."""

    first: ir.Value | None
    given: ir.Value
    handed_on: ir.Value
    last: ir.Value


def drop_carried_values(graph: ir.Graph) -> list[str]:
    """Take values out of the Loops and Scans of `graph` that every turn leaves as they are, or that nobody reads. Says which."""
    lines = []
    for node in list(graph):
        if node.domain == "" and node.op_type in ("Loop", "Scan"):
            dropped = _unchanged(node, graph) | _unread(node)
            if dropped:
                lines.append(f"{node.op_type} {node.name} carries {len(dropped)} values less")
                _without(node, dropped)
    return lines


def _unchanged(node: ir.Node, graph: ir.Graph) -> set[int]:
    """The values that are the same in every turn, now used from outside by all who read them."""
    found = {i: one for i, one in enumerate(carried_of(node)) if one.first is not None and source_of(one.handed_on) is one.given}
    for one in found.values():
        assert one.first is not None
        _read_instead(one.given, one.first, body_of(node))
        _read_instead(one.last, one.first, graph)
    return set(found)


def _unread(node: ir.Node) -> set[int]:
    return {
        number for number, one in enumerate(carried_of(node)) if not any(v.uses() or v.is_graph_output() for v in (one.given, one.last))
    }


def source_of(value: ir.Value) -> ir.Value:
    """What `value` is a copy of."""
    while (producer := value.producer()) is not None and producer.domain == "" and producer.op_type == "Identity":
        source = producer.inputs[0]
        if source is None:
            break
        value = source
    return value


def _read_instead(value: ir.Value, other: ir.Value, graph: ir.Graph) -> None:
    """All who use `value` in `graph` and the graphs within use `other`; an output becomes a copy, for a graph may only give its own."""
    for user, number in tuple(value.uses()):
        user.replace_input_with(number, other)
    for inner, number in _outputs(value, graph):
        copy = ir.Node("", "Identity", [other], name=f"{value.name}/copy")
        copy.outputs[0].name, copy.outputs[0].type, copy.outputs[0].shape = value.name, value.type, value.shape
        inner.append(copy)
        inner.outputs[number] = copy.outputs[0]


def _outputs(value: ir.Value, graph: ir.Graph) -> list[tuple[ir.Graph, int]]:
    """Where `value` is an output: the graph, or one within, and the number."""
    return [(inner, n) for inner in (graph, *graph.subgraphs()) for n, output in enumerate(inner.outputs) if output is value]


# ---- the places of carried values
def body_of(node: ir.Node) -> ir.Graph:
    """What a Loop or Scan repeats."""
    return node.attributes["body"].as_graph()


def _offsets(node: ir.Node) -> tuple[int, int]:
    """Where carried values begin among inputs (the node's and the body's alike), and among the body's outputs."""
    return (2, 1) if node.op_type == "Loop" else (0, 0)


def carried_of(node: ir.Node) -> list[Carried]:
    """The carried values of a Loop or Scan."""
    body, (taken, made) = body_of(node), _offsets(node)
    count = len(node.inputs) - taken - (node.attributes.get_int("num_scan_inputs", 0) if node.op_type == "Scan" else 0)
    return [Carried(node.inputs[taken + i], body.inputs[taken + i], body.outputs[made + i], node.outputs[i]) for i in range(count)]


def _without(node: ir.Node, dropped: set[int]) -> None:
    """Put a node without these carried values in the place of `node`."""
    body, (taken, made), graph = body_of(node), _offsets(node), node.graph
    assert graph is not None
    body.inputs[:] = [v for i, v in enumerate(body.inputs) if i - taken not in dropped]
    body.outputs[:] = [v for i, v in enumerate(body.outputs) if i - made not in dropped]
    inputs = [v for i, v in enumerate(node.inputs) if i - taken not in dropped]
    kept = [v for i, v in enumerate(node.outputs) if i not in dropped]
    new = ir.Node("", node.op_type, inputs, list(node.attributes.values()), num_outputs=len(kept), name=node.name)
    graph.insert_before(node, new)
    for old, value in zip(kept, new.outputs, strict=True):
        value.name, value.type, value.shape = old.name, old.type, old.shape
        for inner, number in _outputs(old, graph):
            inner.outputs[number] = value
        old.replace_all_uses_with(value)
    graph.remove(node, safe=True)

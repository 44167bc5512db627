"""What every turn of a Loop or Scan would compute again from the same values is computed once, before it.

Loop(n, c, x) of a body that has Tanh(MatMul(f, w) + x), f from outside  ->  p = MatMul(f, w), Loop(n, c, x) with Tanh(p + x)

Attention over features that a decoder reads in each step is such a product. Runs behind `loop_values.py`, which lets the body use what
every turn hands on as it is from outside.
"""

from __future__ import annotations

import onnx_ir as ir

_RANDOM = frozenset({"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"})


def move_invariants(graph: ir.Graph) -> list[str]:
    """Move nodes of the bodies of `graph`'s Loops and Scans before them, in place. Says how many."""
    lines = []
    for node in list(graph):
        if node.domain == "" and node.op_type in ("Loop", "Scan"):
            moved = _move(node, node.attributes["body"].as_graph(), graph)
            if moved:
                lines.append(f"{moved} nodes of {node.op_type} {node.name} are computed once")
    return lines


def _move(loop: ir.Node, body: ir.Graph, graph: ir.Graph) -> int:
    inside = {value for node in body for value in node.outputs} | set(body.inputs) | set(body.initializers.values())
    count = 0
    for node in list(body):
        if not _is_invariant(node, inside):
            continue
        body.remove(node)
        graph.insert_before(loop, node)
        inside.difference_update(node.outputs)
        for value in node.outputs:
            value.name = f"{loop.name}/{value.name}"
        count += 1
    return count


def _is_invariant(node: ir.Node, inside: set[ir.Value]) -> bool:
    """True for a node that reads computed values, none of which is the body's, and gives the same for them each time."""
    if node.domain != "" or node.op_type in _RANDOM or any(value.is_graph_output() for value in node.outputs):
        return False
    if any(attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for attribute in node.attributes.values()):
        return False
    read = [value for value in node.inputs if value is not None]
    return not any(value in inside for value in read) and any(not _is_known(value) for value in read)


def _is_known(value: ir.Value) -> bool:
    """Known values are folded where they are read."""
    producer = value.producer()
    return value.const_value is not None or (producer is not None and producer.op_type == "Constant")

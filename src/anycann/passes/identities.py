"""Nodes that hand on their operand as it is: what exporters write for sizes that might have been others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.rules.rule import constant_of


def remove_identities(graph: ir.Graph) -> list[str]:
    """Identity(x) -> x, as a Slice of all of x, also where it is an output of the graph and a node makes x.

    Concat(x, e) -> x where e has nothing along the axis, such as the keys of earlier tokens before there are any. onnx_ir's pass fails on
    values of an outer graph.
    """
    removed = 0
    for node in list(graph):
        if node.domain == "" and node.op_type == "Concat":
            _drop_empty(node)
        if _is_identity(node) and _hand_on(node, graph):
            graph.remove(node, safe=True)
            removed += 1
    return [f"{removed} nodes removed"]


def _drop_empty(node: ir.Node) -> None:
    """Leave those operands of a Concat that add to its axis, if some do."""
    axis = node.attributes["axis"].as_int()
    kept = [value for value in node.inputs if (type_ := static_type(value)) is None or type_.shape[axis] != 0]
    if 0 < len(kept) < len(node.inputs):
        for number, value in enumerate(kept):
            node.replace_input_with(number, value)
        node.resize_inputs(len(kept))


def _is_identity(node: ir.Node) -> bool:
    changes_nothing = _CHANGES_NOTHING.get(node.op_type) if node.domain == "" else None
    return changes_nothing is not None and changes_nothing(node)


def _casts_nothing(node: ir.Node) -> bool:
    source = node.inputs[0]
    return source is not None and source.dtype is not None and source.dtype == node.attributes["to"].as_int()


def _keeps_type(node: ir.Node) -> bool:
    """Enough for what keeps the order of the elements, or repeats all of them."""
    type_ = static_type(node.inputs[0])
    return type_ is not None and type_ == static_type(node.outputs[0])


def _slices_nothing(node: ir.Node) -> bool:
    if len(node.inputs) < 5 or node.inputs[4] is None:
        return _keeps_type(node)
    steps = constant_of(node.inputs[4])
    return steps is not None and bool((steps > 0).all()) and _keeps_type(node)


def _transposes_nothing(node: ir.Node) -> bool:
    order = node.attributes.get_ints("perm", ())
    return bool(order) and list(order) == sorted(order)


def _is_alone(node: ir.Node) -> bool:
    return len(node.inputs) == 1


_CHANGES_NOTHING: Mapping[str, Callable[[ir.Node], bool]] = {
    "Identity": lambda node: True,
    "Cast": _casts_nothing,
    "Slice": _slices_nothing,
    "Transpose": _transposes_nothing,
    "Expand": _keeps_type,
    "Tile": _keeps_type,
    "Reshape": _keeps_type,
    "Flatten": _keeps_type,
    "Concat": _is_alone,
    "Sum": _is_alone,
    "Max": _is_alone,
    "Min": _is_alone,
}


def _hand_on(node: ir.Node, graph: ir.Graph) -> bool:
    """Let the operand of an Identity take its place; False where the graph would return an input, a constant, or one value twice."""
    source, result = node.inputs[0], node.outputs[0]
    assert source is not None
    if result.is_graph_output():
        producer = source.producer()
        if producer is None or producer.graph is not graph or source.is_graph_output() or list(graph.outputs).count(result) > 1:
            return False
        graph.outputs[list(graph.outputs).index(result)] = source
        source.type, source.shape = source.type or result.type, source.shape or result.shape
        result.name, source.name = None, result.name
    result.replace_all_uses_with(source)
    return True

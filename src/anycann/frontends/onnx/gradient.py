"""`ai.onnx.preview.training.Gradient` becomes the nodes that compute the gradient: reverse differentiation, one rule an operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from anycann.frontends.onnx.edit import Edit
from anycann.graph.sources import describe
from anycann.support.errors import ModelError, UnsupportedError

DOMAIN = "ai.onnx.preview.training"
Backward: TypeAlias = Callable[[Edit, ir.Node, ir.Value], Sequence[ir.Value | None]]


def expand_gradients(graph: ir.Graph) -> None:
    """Replace every Gradient node of the main graph, in place.

    Raises UnsupportedError where an operator between xs and y has no rule, or where inputs are other values than xs names.
    """
    for node in [node for node in graph if node.domain == DOMAIN and node.op_type == "Gradient"]:
        _expand(graph, node)


def _expand(graph: ir.Graph, node: ir.Node) -> None:
    values = {
        value.name: value for value in [*graph.inputs, *graph.initializers.values(), *(out for other in graph for out in other.outputs)]
    }
    names = [*node.attributes["xs"].as_strings(), *(node.attributes["zs"].as_strings() if "zs" in node.attributes else ())]
    y_name = node.attributes["y"].as_string()
    if y_name not in values:
        raise ModelError(f"{describe(node)}: y is {y_name!r}, which nothing computes")
    if [value.name if value is not None else "" for value in node.inputs] != names:
        raise UnsupportedError(f"{describe(node)}: the gradient at other values than xs and zs themselves is not implemented")
    edit = Edit(graph, node)
    y = values[y_name]
    ones = edit.before("ConstantOfShape", [edit.before("Shape", [y])], {"value": ir.Tensor(np.ones(1, np.float32))})
    gradients = {y: edit.before("CastLike", [ones, y])}
    for other in reversed(_before(graph, node)):
        if any(output in gradients for output in other.outputs):
            _step_back(edit, other, gradients)
    for index, output in enumerate(node.outputs):
        x = node.inputs[index]
        gradient = None if x is None else gradients.get(x)
        edit.replace_output(index, edit.before("Identity", [gradient or edit.before("Sub", [x, x])]))
        assert not output.uses()
    edit.remove()


def _before(graph: ir.Graph, node: ir.Node) -> list[ir.Node]:
    nodes = list(graph)
    return [other for other in nodes[: nodes.index(node)] if other.op_type not in ("Constant", "Shape")]


def _step_back(edit: Edit, node: ir.Node, gradients: dict[ir.Value, ir.Value]) -> None:
    """Add to `gradients` what `node` passes back from its output to its inputs."""
    if node.domain or node.op_type not in BACKWARD:
        raise UnsupportedError(f"{describe(node)} has no gradient here; {sorted(BACKWARD)} have")
    given = BACKWARD[node.op_type](edit, node, gradients[node.outputs[0]])
    for value, gradient in zip(node.inputs, given, strict=True):
        if value is not None and gradient is not None:
            gradients[value] = edit.before("Add", [gradients[value], gradient]) if value in gradients else gradient


def _summed(edit: Edit, gradient: ir.Value, node: ir.Node, index: int) -> ir.Value:
    """`gradient`, summed over the axes along which input `index` was broadcast. Shapes must be known when they differ in rank or size."""
    own, shape = _shape(node.inputs[index]), _shape(node.outputs[0])
    if own is None or shape is None:
        raise UnsupportedError(f"{describe(node)}: its gradient needs operands of known shapes")
    aligned = [1] * (len(shape) - len(own)) + own
    axes = [axis for axis, size in enumerate(shape) if aligned[axis] != size]
    total = edit.before("ReduceSum", [gradient, edit.constant(axes)]) if axes else gradient
    return total if shape == own else edit.before("Reshape", [total, edit.constant(own)])


def _shape(value: ir.Value | None) -> list[int] | None:
    """The shape of a value: stated, or broadcast from the operands of its operator (all of BACKWARD are elementwise)."""
    if value is None:
        return None
    if value.shape is not None:
        return None if any(not isinstance(size, int) for size in value.shape) else [int(size) for size in value.shape]  # type: ignore[arg-type]
    producer = value.producer()
    shapes = [_shape(operand) for operand in producer.inputs] if producer is not None and producer.op_type in BACKWARD else [None]
    return None if any(shape is None for shape in shapes) else list(np.broadcast_shapes(*shapes))


def _add(edit: Edit, node: ir.Node, dy: ir.Value) -> Sequence[ir.Value]:
    return [_summed(edit, dy, node, 0), _summed(edit, dy, node, 1)]


def _subtract(edit: Edit, node: ir.Node, dy: ir.Value) -> Sequence[ir.Value]:
    return [_summed(edit, dy, node, 0), _summed(edit, edit.before("Neg", [dy]), node, 1)]


def _multiply(edit: Edit, node: ir.Node, dy: ir.Value) -> Sequence[ir.Value]:
    a, b = node.inputs
    return [_summed(edit, edit.before("Mul", [dy, b]), node, 0), _summed(edit, edit.before("Mul", [dy, a]), node, 1)]


def _divide(edit: Edit, node: ir.Node, dy: ir.Value) -> Sequence[ir.Value]:
    quotient, b = edit.before("Div", [dy, node.inputs[1]]), node.outputs[0]
    return [_summed(edit, quotient, node, 0), _summed(edit, edit.before("Neg", [edit.before("Mul", [quotient, b])]), node, 1)]


BACKWARD: dict[str, Backward] = {
    "Add": _add,
    "Sub": _subtract,
    "Mul": _multiply,
    "Div": _divide,
    "Identity": lambda edit, node, dy: [dy],
    "Neg": lambda edit, node, dy: [edit.before("Neg", [dy])],
    "Exp": lambda edit, node, dy: [edit.before("Mul", [dy, node.outputs[0]])],
    "Log": lambda edit, node, dy: [edit.before("Div", [dy, node.inputs[0]])],
}

"""x[:, a:b] = v as exporters write it, by indices whose number only running can tell, is a choice between two values of known shape."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.rules.rule import Rule, constant_of, new_constant, typed_node

_SAME_ELEMENTS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Identity"})


class WriteRange(Rule):
    """ScatterElements(x, Tile(Reshape(Range(a, b, 1))), Expand(v, Shape(Slice(x, a, b)))) -> Where(a <= place < b, v, x).

    What Paddle's set_value becomes. The scatter wants as many indices as updates, so that what is tiled has the shape of the slice:
    the range along one axis, every place along the others.
    """

    anchors = frozenset({("", "ScatterElements")})

    def check(self, node: ir.Node) -> str | None:
        data, place = node.inputs[0], _made_by(node.inputs[1], "Tile")
        type_, ends = None if data is None else static_type(data), None if place is None else _range_of(place.inputs[0])
        update = _made_by(node.inputs[2], "Expand")
        if ends is None or update is None or node.attributes.get_string("reduction", "none") != "none":
            return ""
        if type_ is None or any((end_type := static_type(end)) is None or end_type.shape for end in ends):
            return "the shape of what is written to is not known"
        axis = node.attributes.get_int("axis", 0) % len(type_.shape)
        assert place is not None
        if not _lies_along(place.inputs[0], axis, len(type_.shape)):
            return "its indices do not lie along the axis"
        if not _is_shape_of_slice(update.inputs[1], type_.shape, axis):
            return "its updates are not as large as a slice of what is written to"
        value = static_type(update.inputs[0])
        if value is None or len(value.shape) > len(type_.shape):
            return "the shape of what is written is not known"
        whole = [1] * (len(type_.shape) - len(value.shape)) + list(value.shape)
        return None if whole[axis] == 1 else "what is written differs along the axis"

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        data, place, update = node.inputs[0], _made_by(node.inputs[1], "Tile"), _made_by(node.inputs[2], "Expand")
        assert data is not None
        assert place is not None
        assert update is not None
        ends, type_ = _range_of(place.inputs[0]), static_type(data)
        assert ends is not None
        assert type_ is not None
        axis, rank = node.attributes.get_int("axis", 0) % len(type_.shape), len(type_.shape)
        size = type_.shape[axis]
        along = [size if number == axis else 1 for number in range(rank)]
        dtype = np.int32 if ends[0].dtype == ir.DataType.INT32 else np.int64
        places = new_constant(graph, f"{node.name}/places", np.arange(size, dtype=dtype).reshape(along))
        extent = new_constant(graph, f"{node.name}/extent", np.array(size, dtype))
        zero = new_constant(graph, f"{node.name}/zero", np.array(0, dtype))
        nodes: list[ir.Node] = []

        def add(what: str, op_type: str, inputs: list[ir.Value], shape: Sequence[int], dtype: ir.DataType | None) -> ir.Value:
            assert dtype is not None
            nodes.append(typed_node(op_type, inputs, f"{node.name}/{what}", inputs[0], shape))
            nodes[-1].outputs[0].type = ir.TensorType(dtype)
            return nodes[-1].outputs[0]

        counted = []
        for name, end in zip(("begin", "end"), ends, strict=True):
            below = add(f"{name}/below", "Less", [end, zero], (), ir.DataType.BOOL)
            above = add(f"{name}/above", "Add", [end, extent], (), places.dtype)
            counted.append(add(name, "Where", [below, above, end], (), places.dtype))
        behind = add("behind", "GreaterOrEqual", [places, counted[0]], along, ir.DataType.BOOL)
        before = add("before", "Less", [places, counted[1]], along, ir.DataType.BOOL)
        inside = add("inside", "And", [behind, before], along, ir.DataType.BOOL)
        return [*nodes, ir.Node("", "Where", [inside, update.inputs[0], data], name=node.name)]


def _made_by(value: ir.Value | None, op_type: str) -> ir.Node | None:
    node = None if value is None else value.producer()
    return node if node is not None and node.domain == "" and node.op_type == op_type else None


def _range_of(value: ir.Value | None) -> tuple[ir.Value, ir.Value] | None:
    """Begin and end of the integers one apart that `value` holds, whatever its shape."""
    node = None if value is None else value.producer()
    while node is not None and node.domain == "" and node.op_type in _SAME_ELEMENTS:
        value = node.inputs[0]
        node = None if value is None else value.producer()
    made = _made_by(value, "Range")
    if made is None:
        return None
    begin, end, step = made.inputs
    one = constant_of(step)
    plain = one is not None and one.dtype.kind == "i" and one.reshape(-1).tolist() == [1]
    return (begin, end) if begin is not None and end is not None and plain else None


def _lies_along(value: ir.Value | None, axis: int, rank: int) -> bool:
    """True for a Reshape of so many axes to one everywhere but along `axis`."""
    node = _made_by(value, "Reshape")
    shape = None if node is None else constant_of(node.inputs[1])
    return shape is not None and shape.tolist() == [-1 if number == axis else 1 for number in range(rank)]


def _is_shape_of_slice(value: ir.Value | None, shape: Sequence[int], axis: int) -> bool:
    """True for Shape(Slice(x)) where x has this shape and is cut along `axis` only."""
    asked = _made_by(value, "Shape")
    if asked is None or asked.attributes.get_int("start", 0) != 0 or "end" in asked.attributes:
        return False
    cut = _made_by(asked.inputs[0], "Slice")
    type_ = None if cut is None or cut.inputs[0] is None else static_type(cut.inputs[0])
    if cut is None or type_ is None or tuple(type_.shape) != tuple(shape) or len(cut.inputs) < 4:
        return False
    axes = constant_of(cut.inputs[3])
    return axes is not None and [int(each) % len(shape) for each in axes.reshape(-1)] == [axis]

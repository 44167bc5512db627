"""A convolution of lines, written as one of images of a single row: what follows it reads lines, so that it may be one kernel with it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.rules.rule import Rule, constant_of, new_constant, new_node, typed_node


class ConvolutionOfLines(Rule):
    """Squeeze(Conv(x, w)) -> Conv(Reshape(x), w), without the dimension of size 1, which no tap and no padding is along.

    TensorFlow's one-dimensional convolutions are exported so. The Squeeze keeps them apart from bias and activation: it needs the result
    row by row, where the convolution leaves blocks of channels.
    """

    anchors = frozenset({("", "Squeeze"), ("", "Reshape")})

    def check(self, node: ir.Node) -> str | None:
        convolution = _convolution(node)
        if convolution is None:
            return ""
        weights = constant_of(convolution.inputs[1])
        if static_type(convolution.inputs[0]) is None or static_type(convolution.outputs[0]) is None or weights is None:
            return "the sizes of the convolution, or its weights, are not known"
        if len(convolution.outputs[0].uses()) > 1 or convolution.outputs[0].is_graph_output():
            return "the images are also used elsewhere"
        if convolution.attributes.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            return "its padding is not written out"
        if not _lies_in_rows(convolution.inputs[0]):
            return "its input may lie in blocks of channels, as an image"
        return None if _left_out(node, convolution) is not None else ""

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        convolution = _convolution(node)
        assert convolution is not None
        x, weights, axis = convolution.inputs[0], constant_of(convolution.inputs[1]), _left_out(node, convolution)
        source = static_type(x)
        assert x is not None
        assert weights is not None
        assert source is not None
        assert axis is not None
        shape = _without(source.shape, axis)
        before = _before(x, shape)
        target = new_constant(graph, f"{convolution.name}/lines", np.array(shape, np.int64))
        lines = [] if before is not None else [typed_node("Reshape", [x, target], f"{convolution.name}/reshaped", x, shape)]
        taps = new_constant(graph, f"{convolution.name}/taps", weights.reshape(_without(weights.shape, axis)))
        operands = [before or lines[0].outputs[0], taps, *convolution.inputs[2:]]
        made = new_node("Conv", operands, convolution.name or "Conv", node.outputs[0])
        made.attributes.update({a.name: a for a in _attributes(convolution, axis - 2)})
        return [*lines, made]


def _convolution(node: ir.Node) -> ir.Node | None:
    """The convolution over two or three dimensions whose result a node takes one dimension from."""
    source = None if node.inputs[0] is None else node.inputs[0].producer()
    if source is None or source.domain != "" or source.op_type != "Conv":
        return None
    result, image = static_type(node.outputs[0]), static_type(source.outputs[0])
    return source if result is None or image is None or len(result.shape) == len(image.shape) - 1 >= 3 else None


_VIEWS = frozenset({"Unsqueeze", "Reshape", "Squeeze"})


def _lies_in_rows(value: ir.Value | None) -> bool:
    """Whether whoever makes a value leaves it row-major anyhow."""
    maker = None if value is None else value.producer()
    return maker is None or (maker.domain == "" and maker.op_type in _VIEWS | {"Transpose"})


def _before(value: ir.Value, shape: tuple[int, ...]) -> ir.Value | None:
    """The value of this shape that an exporter made an image of."""
    maker = value.producer()
    source = None if maker is None or maker.op_type not in _VIEWS else maker.inputs[0]
    type_ = static_type(source)
    return source if type_ is not None and tuple(type_.shape) == shape else None


def _left_out(node: ir.Node, convolution: ir.Node) -> int | None:
    """The spatial axis of size 1 that is not there in the result of `node`, and along which nothing happens."""
    types = [static_type(value) for value in (convolution.inputs[0], convolution.outputs[0], node.outputs[0])]
    weights = constant_of(convolution.inputs[1])
    assert weights is not None
    source, image, result = types
    if source is None or image is None or result is None:
        return None
    pads = convolution.attributes.get_ints("pads", (0,) * 2 * (len(image.shape) - 2))
    for axis in reversed(range(2, len(image.shape))):
        padded = pads[axis - 2] or pads[axis - 2 + len(pads) // 2]
        single = source.shape[axis] == weights.shape[axis] == image.shape[axis] == 1 and not padded
        if single and _without(image.shape, axis) == tuple(result.shape):
            return axis
    return None


def _without(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def _attributes(convolution: ir.Node, axis: int) -> list[ir.Attr]:
    """Those of the convolution, without spatial axis `axis`."""
    found = [ir.AttrInt64("group", convolution.attributes.get_int("group", 1))]
    for name in ("kernel_shape", "strides", "dilations"):
        if name in convolution.attributes:
            found.append(ir.AttrInt64s(name, _without(convolution.attributes.get_ints(name), axis)))
    if "pads" in convolution.attributes:
        pads = convolution.attributes.get_ints("pads")
        begins, ends = pads[: len(pads) // 2], pads[len(pads) // 2 :]
        found.append(ir.AttrInt64s("pads", (*_without(begins, axis), *_without(ends, axis))))
    return found

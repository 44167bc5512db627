"""Images that are made of sequences of pixels, and sequences of images: axes move between pixels, not between all of a plane at once.

The channels of a sequence [N, pixels, C] lie together, as they do in an image that is stored NHWC: what moves its axes is then no copy.
"""

from __future__ import annotations

from collections.abc import Sequence
import math

import numpy as np
import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.rules.rule import Rule, new_constant, new_node, typed_node

_TURNED = (0, 2, 1)
Shape = tuple[int, ...]


class ImageOfSequence(Rule):
    """Reshape<N, C, *size>(Transpose<0, 2, 1>(x)) -> Transpose<0, last, 1, ...>(Reshape<N, *size, C>(x))."""

    anchors = frozenset({("", "Reshape")})

    def check(self, node: ir.Node) -> str | None:
        inner = _producer(node.inputs[0], "Transpose")
        if inner is None or tuple(inner.attributes.get_ints("perm", ())) != _TURNED:
            return ""
        turned, image = _shape(inner.outputs[0]), _shape(node.outputs[0])
        if turned is None or image is None or not _is_cut(turned, image):
            return "its pixels are not the last axis of the transpose"
        return "the transpose is also used elsewhere" if _is_shared(inner.outputs[0]) else None

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        inner = _producer(node.inputs[0], "Transpose")
        image = _shape(node.outputs[0])
        assert inner is not None
        assert image is not None
        shape = (image[0], *image[2:], image[1])
        pixels = _reshaped(graph, inner.inputs[0], f"{node.name}/pixels", node.outputs[0], shape)
        order = [0, len(image) - 1, *range(1, len(image) - 1)]
        return [pixels, new_node("Transpose", pixels.outputs, node.name or "Transpose", node.outputs[0], {"perm": order})]


class SequenceOfImage(Rule):
    """Transpose<0, 2, 1>(Reshape<N, C, pixels>(x)) -> Reshape<N, pixels, C>(Transpose<0, 2, ..., 1>(x)) of an image x."""

    anchors = frozenset({("", "Transpose")})

    def check(self, node: ir.Node) -> str | None:
        inner = _producer(node.inputs[0], "Reshape")
        if inner is None or tuple(node.attributes.get_ints("perm", ())) != _TURNED:
            return ""
        image, turned = _shape(inner.inputs[0]), _shape(inner.outputs[0])
        if image is None or turned is None or not _is_cut(turned, image):
            return "its rows are not the planes of an image"
        return "the sequence is also used elsewhere" if _is_shared(inner.outputs[0]) else None

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        inner = _producer(node.inputs[0], "Reshape")
        assert inner is not None
        image, result = _shape(inner.inputs[0]), _shape(node.outputs[0])
        assert image is not None
        assert result is not None
        order = [0, *range(2, len(image)), 1]
        shape = [image[axis] for axis in order]
        turned = typed_node("Transpose", [inner.inputs[0]], f"{node.name}/pixels", node.outputs[0], shape, perm=order)
        return [turned, _reshaped(graph, turned.outputs[0], node.name or "Reshape", node.outputs[0], result)]


def _producer(value: ir.Value | None, op_type: str) -> ir.Node | None:
    node = None if value is None else value.producer()
    return node if node is not None and (node.domain, node.op_type) == ("", op_type) else None


def _shape(value: ir.Value | None) -> Shape | None:
    type_ = None if value is None else static_type(value)
    return None if type_ is None else type_.shape


def _is_cut(turned: Shape, image: Shape) -> bool:
    """True if an image [N, C, *size] has the elements of [N, C, pixels] in their order."""
    return len(image) > 3 and image[:2] == turned[:2] and math.prod(image[2:]) == turned[2] and 0 not in image


def _is_shared(value: ir.Value) -> bool:
    return len(value.uses()) > 1 or value.is_graph_output()


def _reshaped(graph: ir.Graph, value: ir.Value | None, name: str, like: ir.Value, shape: Sequence[int]) -> ir.Node:
    target = new_constant(graph, f"{name}/shape", np.array(shape, np.int64))
    return typed_node("Reshape", [value, target], name, like, shape)

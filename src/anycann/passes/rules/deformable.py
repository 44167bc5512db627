"""A deformable convolution is one of 1 x 1 over the taps that were moved; an unpooling puts elements where they were taken from."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import onnx_ir as ir

from anycann.graph.ops.deformable import MOVED_TAPS
from anycann.graph.ops.device import DOMAIN
from anycann.graph.registry import static_type
from anycann.passes.rules.rule import Rule, constant_of, new_constant, typed_node


class MovedConvolution(Rule):
    """DeformConv(x, w, offsets, b, mask) -> Conv(MovedTaps(x, offsets, mask), w as 1 x 1, b)."""

    anchors = frozenset({("", "DeformConv")})

    def check(self, node: ir.Node) -> str | None:
        types = [None if value is None else static_type(value) for value in (*node.inputs[:3], node.outputs[0])]
        if any(type_ is None for type_ in types):
            return "its shapes are only known when it runs"
        if constant_of(node.inputs[1]) is None:
            return "its weights are computed"
        return None if all(type_ is not None and len(type_.shape) == 4 for type_ in types) else "it has not two spatial axes"

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        weights, result, name = constant_of(node.inputs[1]), static_type(node.outputs[0]), node.name or "DeformConv"
        source, like = static_type(node.inputs[0]), node.outputs[0]
        assert weights is not None
        assert result is not None
        assert source is not None
        group, kernel = node.attributes.get_int("group", 1), weights.shape[2:]
        lists = {key: node.attributes.get_ints(key, default) for key, default in (("strides", (1, 1)), ("dilations", (1, 1)))}
        attributes = [
            ir.AttrInt64s("kernel_shape", kernel),
            *(ir.AttrInt64s(key, value) for key, value in lists.items()),
            ir.AttrInt64s("pads", node.attributes.get_ints("pads", (0, 0, 0, 0))),
            ir.AttrInt64("group", group),
            ir.AttrInt64("offset_group", node.attributes.get_int("offset_group", 1)),
        ]
        mask = node.inputs[4:5]
        moved = ir.Node(DOMAIN, MOVED_TAPS, [node.inputs[0], node.inputs[2], *mask], attributes, name=f"{name}/moved")
        moved.outputs[0].type, moved.outputs[0].name = like.type, f"{name}/moved:0"
        moved.outputs[0].shape = ir.Shape((source.shape[0], source.shape[1] * prod(kernel), *result.shape[2:]))
        flat = weights.reshape(*weights.shape[:2], -1).swapaxes(1, 2).reshape(len(weights), -1, 1, 1)
        taps = new_constant(graph, f"{name}/taps", flat)
        bias = [value for value in node.inputs[3:4] if value is not None]
        return [moved, typed_node("Conv", [moved.outputs[0], taps, *bias], name, like, result.shape, group=group, kernel_shape=[1, 1])]


class ScatterOfUnpool(Rule):
    """MaxUnpool(x, places) -> Reshape(ScatterElements(zeros, Reshape(places), Reshape(x)))."""

    anchors = frozenset({("", "MaxUnpool")})

    def check(self, node: ir.Node) -> str | None:
        source, result = static_type(node.inputs[0]), static_type(node.outputs[0])
        if source is None or result is None:
            return "its shapes are only known when it runs"
        return "its result has a shape of its own, in which its places do not count" if len(node.inputs) > 2 else None

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        source, result, name, like = static_type(node.inputs[0]), static_type(node.outputs[0]), node.name or "MaxUnpool", node.outputs[0]
        assert source is not None
        assert result is not None
        line, nodes = new_constant(graph, f"{name}/line", np.array([-1], np.int64)), list[ir.Node]()
        for value in node.inputs:
            assert value is not None
            nodes.append(typed_node("Reshape", [value, line], f"{name}/line{len(nodes)}", value, [prod(source.shape)]))
        zeros = new_constant(graph, f"{name}/zeros", np.zeros(prod(result.shape), source.dtype.numpy))
        shape = new_constant(graph, f"{name}/shape", np.array(result.shape, np.int64))
        elements, places = (made.outputs[0] for made in nodes)
        scattered = typed_node("ScatterElements", [zeros, places, elements], name, like, [prod(result.shape)])
        return [*nodes, scattered, typed_node("Reshape", [scattered.outputs[0], shape], f"{name}/shaped", like, result.shape)]

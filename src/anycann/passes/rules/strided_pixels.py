"""A convolution of single pixels that skips pixels, written as one of all pixels of a smaller image: rows go on from one to the next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.rules.rule import Rule, constant_of, new_constant, new_node, typed_node
from anycann.te import dtypes

# With fewer outputs, taking the pixels costs about what it saves: 64 -> 64 channels onto 28 x 28 took 1.05 times as long, 128 -> 128 onto
# 14 x 14 0.98, 64 -> 128 onto 56 x 56 0.93.
_LEAST_INPUTS, _LEAST_OUTPUTS = 64, 128


class StridedPixels(Rule):
    """Conv(x, w, b?) with 1 x 1 taps and strides (s, t) -> Conv(Slice(x, every s-th row, every t-th column), w, b?) with strides 1.

    With strides a tile ends with its row, which the registers seldom divide, and half of what a line of the cache holds is skipped. Of the
    time on one thread with AVX2, 256 -> 512 channels onto 28 x 28 took 0.94, 512 -> 1024 onto 14 x 14 0.92, 1024 -> 2048 onto 7 x 7 0.91,
    taking the pixels included.
    """

    anchors = frozenset({("", "Conv")})

    def check(self, node: ir.Node) -> str | None:
        strides = node.attributes.get_ints("strides", ())
        if len(strides) != 2 or max(strides) == 1:
            return ""
        x, result, weights = static_type(node.inputs[0]), static_type(node.outputs[0]), constant_of(node.inputs[1])
        if weights is None or weights.shape[2:] != (1, 1):
            return ""
        if x is None or result is None or x.dtype is not dtypes.float32 or 0 in result.shape:
            return "it is no convolution of known sizes and float32, or there is nothing to compute"
        if node.attributes.get_int("group", 1) != 1 or any(node.attributes.get_ints("pads", ())):
            return "it has groups or padding"
        outputs, inputs = weights.shape[:2]
        return None if inputs >= _LEAST_INPUTS and outputs >= _LEAST_OUTPUTS else "it has few channels for each pixel that would be taken"

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        x, type_, result = node.inputs[0], static_type(node.inputs[0]), static_type(node.outputs[0])
        assert x is not None
        assert type_ is not None
        assert result is not None
        name, strides = node.name or node.op_type, node.attributes.get_ints("strides", ())
        numbers = {"starts": (0, 0), "ends": type_.shape[2:], "axes": (2, 3), "steps": strides}
        parts = [new_constant(graph, f"{name}/{what}", np.array(values, np.int64)) for what, values in numbers.items()]
        taken = typed_node("Slice", [x, *parts], f"{name}/pixels", x, (*type_.shape[:2], *result.shape[2:]))
        return [taken, new_node("Conv", [taken.outputs[0], *node.inputs[1:]], name, node.outputs[0])]

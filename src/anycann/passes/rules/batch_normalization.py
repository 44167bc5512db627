"""Batch normalization behind a convolution disappears into its weights.

y = (x - mean) / sqrt(var + eps) * scale + shift   with x = conv(a, w) + b   is   conv(a, w * f) + ((b - mean) * f + shift),
f = scale / sqrt(var + eps).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from anycann.passes.rules.rule import Rule, constant_of, new_constant, new_node


class FoldBatchNormalization(Rule):
    """BatchNormalization(Conv(x, w, b), scale, shift, mean, var) -> Conv(x, w', b')."""

    anchors = frozenset({("", "BatchNormalization")})

    def check(self, node: ir.Node) -> str | None:
        convolution = _producer(node)
        if convolution is None or convolution.op_type != "Conv" or convolution.domain:
            return "its input is not a convolution"
        if len(convolution.outputs[0].uses()) != 1 or convolution.outputs[0].is_graph_output():
            return "the convolution's result is also used elsewhere"
        if any(constant_of(v) is None for v in (*node.inputs[1:5], convolution.inputs[1])):
            return "its parameters are not all constants"
        if len(convolution.inputs) > 2 and convolution.inputs[2] is not None and constant_of(convolution.inputs[2]) is None:
            return "the bias of the convolution is computed at run time"
        if any(output.uses() for output in node.outputs[1:]):
            return "its running statistics are used"
        return None

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        convolution = _producer(node)
        assert convolution is not None
        scale, shift, mean, variance = (np.asarray(constant_of(v), np.float64) for v in node.inputs[1:5])
        factor = scale / np.sqrt(variance + node.attributes.get_float("epsilon", 1e-5))
        weights = constant_of(convolution.inputs[1])
        assert weights is not None
        old_bias = constant_of(convolution.inputs[2]) if len(convolution.inputs) > 2 else None
        bias = ((0.0 if old_bias is None else old_bias) - mean) * factor + shift
        scaled = weights * factor.reshape(-1, *[1] * (weights.ndim - 1))
        w = new_constant(graph, f"{convolution.name}/weights", scaled.astype(weights.dtype))
        b = new_constant(graph, f"{convolution.name}/bias", bias.astype(weights.dtype))
        fused = new_node("Conv", [convolution.inputs[0], w, b], convolution.name or "Conv", node.outputs[0])
        for attribute in convolution.attributes.values():
            fused.attributes.add(attribute)
        return [fused]


def _producer(node: ir.Node) -> ir.Node | None:
    return node.inputs[0].producer() if node.inputs[0] is not None else None

"""A dynamically quantised LSTM runs as the float LSTM its weights stand for.

com.microsoft's DynamicQuantizeLSTM rounds X and H to eight bits at every step to save multiplications. The layer that is made here finds
that R is whole numbers of a step, keeps large ones as such (`recurrent_packing.py`), and is told by `rounds_states` that it may multiply
them with an H of sixteen bits (`recurrent_words.py`), and W with rows of X of eight (`rounded_product.py`), each with a scale of its own:
nearer to the network that was quantised.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from anycann.passes.rules.rule import Rule, constant_of, new_constant

X, W, R, W_SCALE, W_ZERO, R_SCALE, R_ZERO = 0, 1, 2, 8, 9, 10, 11
KEPT = frozenset({"activations", "activation_alpha", "activation_beta", "clip", "direction", "hidden_size", "input_forget"})


class DequantizeLSTM(Rule):
    """DynamicQuantizeLSTM(x, w, r, ..., scales and zero points) -> LSTM(x, (w - zero) * scale, (r - zero) * scale, ...)."""

    anchors = frozenset({("com.microsoft", "DynamicQuantizeLSTM")})
    early = True

    def check(self, node: ir.Node) -> str | None:
        if any(constant_of(node.inputs[n]) is None for n in (W, R, W_SCALE, W_ZERO, R_SCALE, R_ZERO)):
            return "its weights are not all constants"
        return None

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        w = new_constant(graph, f"{node.name}/W", _widened(node, W, W_SCALE, W_ZERO))
        r = new_constant(graph, f"{node.name}/R", _widened(node, R, R_SCALE, R_ZERO))
        attributes = [attribute for attribute in node.attributes.values() if attribute.name in KEPT]
        layer = ir.Node("", "LSTM", [node.inputs[X], w, r, *node.inputs[3:8]], attributes, num_outputs=len(node.outputs), name=node.name)
        layer.metadata_props["rounds_states"] = "1"
        return [layer]


def _widened(node: ir.Node, number: int, scale_number: int, zero_number: int) -> np.ndarray:
    """[directions, inputs, gates] as ONNX's float [directions, gates, inputs]; scales and zero points are one a direction or one a gate."""
    quantised, scale, zero = (constant_of(node.inputs[n]) for n in (number, scale_number, zero_number))
    assert quantised is not None
    assert scale is not None
    assert zero is not None
    directions = quantised.shape[0]
    shift = zero.astype(np.float32).reshape(directions, 1, -1)
    widened = (quantised.astype(np.float32) - shift) * scale.astype(np.float32).reshape(directions, 1, -1)
    return np.ascontiguousarray(widened.swapaxes(1, 2))

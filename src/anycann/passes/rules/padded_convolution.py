"""Zeros around an image in front of a convolution are the convolution's own padding; but a wide kernel reads them from memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.rules.rule import Rule, constant_of, new_constant, new_node, typed_node

# Along a row. At a border each pixel has its own taps: beyond this tiles are not written out for all of them, and pixels go one by one.
_WIDE_TAPS = 18


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
        if _is_wide(node):
            return "its kernel is wide, and reads padding from memory"
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


class PaddingOfWideConvolution(Rule):
    """Conv(x, w, b?) with padding of its rows -> Conv(Pad(x), w, b?), where a row of w has many taps.

    Then all pixels read all taps, and tiles of them share each weight. Of the time on one thread, 250 channels of 50 pixels by 32 taps to
    2000 took 0.65, 256 to 256 channels of 200 by 31 taps 0.72, 64 of 40 by 25 taps 0.58, 31 x 31 taps of 28 x 28 pixels a channel 0.47;
    but one channel 0.94 to 1.01, 31 taps a channel of lines 0.7 to 1.2, and images of 17 x 17 taps 1.2 to 1.5.
    """

    anchors = frozenset({("", "Conv")})

    def check(self, node: ir.Node) -> str | None:
        if not _is_wide(node):
            return ""
        x, weights = static_type(node.inputs[0]), static_type(node.inputs[1])
        pads = node.attributes.get_ints("pads", ())
        if x is None or weights is None or not pads or pads[len(pads) // 2 - 1] + pads[-1] == 0:
            return "its rows are not padded, or their size is not known"
        if node.attributes.get_string("auto_pad", "NOTSET") != "NOTSET":
            return "its padding is not written out"
        if x.shape[1] == 1 or (weights.shape[1] == 1 and len(x.shape) == 3):
            return "the lines of a channel have taps of their own"
        maker = node.inputs[0].producer() if node.inputs[0] is not None else None
        return None if maker is None or maker.op_type != "DequantizeLinear" else "its image is dequantised, which is not stored"

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        x, type_ = node.inputs[0], static_type(node.inputs[0])
        assert x is not None
        assert type_ is not None
        pads = list(node.attributes.get_ints("pads"))
        last, name = len(pads) // 2 - 1, node.name or "Conv"
        counts = new_constant(graph, f"{name}/edges", np.array((pads[last], pads[-1]), np.int64))
        axes = new_constant(graph, f"{name}/edges_of", np.array([-1], np.int64))
        wider = (*type_.shape[:-1], type_.shape[-1] + pads[last] + pads[-1])
        pad = typed_node("Pad", [x, counts, None, axes], f"{name}/padded", x, wider)
        pads[last] = pads[-1] = 0
        made = new_node("Conv", [pad.outputs[0], *node.inputs[1:]], name, node.outputs[0])
        made.attributes.update({a.name: a for a in node.attributes.values() if a.name != "pads"})
        made.attributes.add(ir.AttrInt64s("pads", pads))
        return [pad, made]


def _is_wide(convolution: ir.Node) -> bool:
    weights = static_type(convolution.inputs[1])
    return weights is not None and weights.shape[-1] > _WIDE_TAPS


def _edges(pad: ir.Node) -> np.ndarray | None:
    """int64[2, rank]: elements before and behind each axis, if they are known."""
    type_, counts = static_type(pad.inputs[0]), constant_of(pad.inputs[1])
    axes = constant_of(pad.inputs[3]) if len(pad.inputs) > 3 and pad.inputs[3] is not None else np.arange(len(type_.shape) if type_ else 0)
    if type_ is None or counts is None or axes is None:
        return None
    edges = np.zeros((2, len(type_.shape)), np.int64)
    edges[:, axes] = counts.reshape(2, -1)
    return edges

"""Taps of a convolution that only ever meet its padding are left out: kernels that are wider than what is around them."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.rules.rule import Rule, constant_of, new_constant, new_node


class UnreadTaps(Rule):
    """Conv(x, w, b?) -> Conv(x, w of the taps that some result reads pixels by, b?) with less padding.

    Dilated convolutions of small images have such taps, and 3 x 3 ones of a line. Weights of the others then lie one behind the other: 224
    to 488 channels of 5 taps onto one pixel take 0.68 of the time, 170 to 304 of 5 x 5 with stride 2 onto two lines of 3 pixels 0.82.
    """

    anchors = frozenset({("", "Conv")})

    def check(self, node: ir.Node) -> str | None:
        weights = constant_of(node.inputs[1])
        if weights is None or static_type(node.inputs[0]) is None or static_type(node.outputs[0]) is None:
            return ""
        if node.attributes.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            return ""
        return None if any(cut != (0, 0) for cut in _cuts(node)) else ""

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        weights, cuts, name = constant_of(node.inputs[1]), _cuts(node), node.name or "Conv"
        assert weights is not None
        kept = tuple(slice(begin, extent - end) for (begin, end), extent in zip(cuts, weights.shape[2:], strict=True))
        taps = new_constant(graph, f"{name}/taps", weights[(slice(None), slice(None), *kept)])
        made = new_node("Conv", [node.inputs[0], taps, *node.inputs[2:]], name, node.outputs[0])
        made.attributes.update({a.name: a for a in node.attributes.values() if a.name not in ("pads", "kernel_shape", "auto_pad")})
        pads, dilations = _of_axes(node, "pads", 0), _of_axes(node, "dilations", 1)
        less = [
            cut * dilation for cut, dilation in zip([begin for begin, _ in cuts] + [end for _, end in cuts], dilations * 2, strict=True)
        ]
        made.attributes.add(ir.AttrInt64s("pads", [pad - part for pad, part in zip(pads, less, strict=True)]))
        return [made]


def _of_axes(node: ir.Node, name: str, default: int) -> list[int]:
    """An attribute with a number for each spatial axis; of padding, before all axes and then behind them."""
    rank = len(static_type(node.inputs[0]).shape) - 2  # type: ignore[union-attr]
    return list(node.attributes.get_ints(name, (default,) * (2 * rank if name == "pads" else rank)))


def _cuts(node: ir.Node) -> list[tuple[int, int]]:
    """Of each spatial axis how many taps can go, before and behind those that are read, with their padding."""
    x, result, weights = static_type(node.inputs[0]), static_type(node.outputs[0]), constant_of(node.inputs[1])
    assert x is not None
    assert result is not None
    assert weights is not None
    pads, rank = _of_axes(node, "pads", 0), len(x.shape) - 2
    strides, dilations = _of_axes(node, "strides", 1), _of_axes(node, "dilations", 1)
    sizes = zip(x.shape[2:], result.shape[2:], weights.shape[2:], strides, dilations, pads[:rank], pads[rank:], strict=True)
    return [_cut(*of_axis) for of_axis in sizes]


def _cut(pixels: int, results: int, taps: int, stride: int, dilation: int, before: int, behind: int) -> tuple[int, int]:
    """Those of one axis; none where no tap reads a pixel."""
    places = [tap * dilation - before for tap in range(taps)]  # of the first result, which the others follow by strides
    read = [any(0 <= place + stride * result < pixels for result in range(results)) for place in places]
    if not any(read):
        return 0, 0
    first, last = read.index(True), taps - 1 - read[::-1].index(True)
    return min(first, before // dilation), min(taps - 1 - last, behind // dilation)

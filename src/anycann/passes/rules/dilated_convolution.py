"""A convolution whose taps are apart, written as one whose taps are neighbours: of every d-th pixel, which Winograd's algorithm knows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.rules.rule import Rule, constant_of, new_constant, new_node, typed_node
from anycann.support.records import dataclass
from anycann.te import dtypes

_TAPS = 3
_TILE = 4  # pixels of Winograd's tiles along an axis
_PRODUCTS = (_TILE + _TAPS - 1) ** 2  # of a tile, for each pair of channels
_MOST_PRODUCTS = 0.65  # of those of the taps inside the image
_LEAST_TILES = 48  # for which the transformed weights are read once
_LEAST_CHANNELS = 32  # C M / (C + M): products for each element that is moved


class DilatedConvolution(Rule):
    """Conv(x, w) with dilations (d, e) -> Conv(phases of x, w) of d e images, put together again.

    Pixel (i d + p, j e + q) reads only pixels of the same p and q: each (p, q) is an image of its own. Of the time on one thread with AVX2,
    256 channels of 33 x 33 with dilation 2 took 0.5, with dilation 4 0.75, 512 of 28 x 28 0.45, moving the pixels included.
    """

    anchors = frozenset({("", "Conv")})

    def check(self, node: ir.Node) -> str | None:
        dilations = node.attributes.get_ints("dilations", ())
        if len(dilations) != 2 or max(dilations) == 1:
            return ""
        x, result, weights = static_type(node.inputs[0]), static_type(node.outputs[0]), constant_of(node.inputs[1])
        if x is None or result is None or weights is None or 0 in result.shape:
            return "sizes or weights are not known, or there is nothing to compute"
        if x.dtype is not dtypes.float32 or weights.shape[2:] != (_TAPS, _TAPS) or node.attributes.get_int("group", 1) != 1:
            return "Winograd's algorithm does not know it"
        if any(step != 1 for step in node.attributes.get_ints("strides", (1, 1))):
            return "it takes steps"
        if node.attributes.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            return "its padding is not written out"
        if prod(weights.shape[:2]) < _LEAST_CHANNELS * sum(weights.shape[:2]):
            return "it has few channels for each pixel that would be moved"
        axes, images = _axes(node), x.shape[0] * prod(dilations)
        if images * prod(axis.tiles for axis in axes) < _LEAST_TILES:
            return "there are few pixels for its weights"
        products = _PRODUCTS * prod(axis.phases * axis.tiles for axis in axes)
        return None if products < _MOST_PRODUCTS * prod(axis.taps for axis in axes) else "its phases fill few tiles"

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        x, type_, result = node.inputs[0], static_type(node.inputs[0]), static_type(node.outputs[0])
        assert x is not None
        assert type_ is not None
        assert result is not None
        rows, columns = _axes(node)
        batch, channels, filters, images = type_.shape[0], type_.shape[1], result.shape[1], rows.phases * columns.phases * type_.shape[0]
        chain = _Chain(graph, node.name or "Conv", x)
        edges = (rows.before, columns.before, rows.behind, columns.behind)
        if any(edges):
            padded = (batch, channels, rows.size * rows.phases, columns.size * columns.phases)
            chain.then("Pad", "padded", padded, chain.sizes("edges", edges), None, chain.sizes("edges_of", (2, 3)))
        chain.reshape("apart", (batch, channels, rows.size, rows.phases, columns.size, columns.phases))
        chain.transpose("phases", _TO_PHASES)
        chain.reshape("images", (images, channels, rows.size, columns.size))
        pads = [rows.zeros, columns.zeros, rows.zeros_behind, columns.zeros_behind]
        chain.then("Conv", "of_phases", (images, filters, rows.results, columns.results), *node.inputs[1:], pads=pads)
        chain.reshape("of_images", (rows.phases, columns.phases, batch, filters, rows.results, columns.results))
        chain.transpose("together", _FROM_PHASES)
        chain.reshape("image", (batch, filters, rows.results * rows.phases, columns.results * columns.phases))
        parts = chain.sizes("starts", (0, 0)), chain.sizes("ends", result.shape[2:]), chain.sizes("axes", (2, 3))
        return [*chain.nodes, new_node("Slice", [chain.value, *parts], node.name or "Conv", node.outputs[0])]


# image, channel, row, its phase, column, its phase -> phases first
_TO_PHASES, _FROM_PHASES = (3, 5, 0, 1, 2, 4), (2, 3, 4, 0, 5, 1)


class _Chain:
    """Nodes that each read the one before."""

    def __init__(self, graph: ir.Graph, name: str, value: ir.Value):
        self.graph, self.name, self.value = graph, name, value
        self.nodes: list[ir.Node] = []

    def then(self, op_type: str, what: str, shape: Sequence[int], *operands: ir.Value | None, **attributes: object) -> None:
        node = typed_node(op_type, [self.value, *operands], f"{self.name}/{what}", self.value, shape, **attributes)
        self.nodes.append(node)
        self.value = node.outputs[0]

    def reshape(self, what: str, shape: Sequence[int]) -> None:
        self.then("Reshape", what, shape, self.sizes(f"{what}_sizes", shape))

    def transpose(self, what: str, order: Sequence[int]) -> None:
        type_ = static_type(self.value)
        assert type_ is not None
        self.then("Transpose", what, [type_.shape[axis] for axis in order], perm=list(order))

    def sizes(self, what: str, numbers: Sequence[int]) -> ir.Value:
        return new_constant(self.graph, f"{self.name}/{what}", np.array(numbers, np.int64))


@dataclass(frozen=True)
class _Axis:
    """One axis of a dilated convolution: `phases` images of `size` pixels, of which `results` pixels are computed.

    before, behind: zeros that are put around the pixels first, so that phases are equally long. zeros, zeros_behind: padding of each phase.
    taps: products of all results with pixels inside, for a pair of channels.
    """

    phases: int
    size: int
    results: int
    before: int
    behind: int
    zeros: int
    zeros_behind: int
    taps: int

    @property
    def tiles(self) -> int:
        return -(-self.results // _TILE)


def _axes(node: ir.Node) -> list[_Axis]:
    """Rows and columns."""
    x, result = static_type(node.inputs[0]), static_type(node.outputs[0])
    assert x is not None
    assert result is not None
    pads = node.attributes.get_ints("pads", (0,) * 4)
    dilations = node.attributes.get_ints("dilations")
    return [_axis(x.shape[axis + 2], result.shape[axis + 2], pads[axis], dilations[axis]) for axis in range(2)]


def _axis(pixels: int, results: int, padding: int, phases: int) -> _Axis:
    """Padding that is a multiple of the phases is padding of each of them; else the first pixel gets zeros in front."""
    zeros, before = (padding // phases, 0) if padding % phases == 0 else (0, padding)
    size = -(-(pixels + before) // phases)
    behind, needed = size * phases - pixels - before, -(-results // phases) + _TAPS - 1
    zeros_behind = max(0, needed - zeros - size)
    inside = sum(0 <= place + tap * phases - padding < pixels for place in range(results) for tap in range(_TAPS))
    return _Axis(phases, size, zeros + size + zeros_behind - _TAPS + 1, before, behind, zeros, zeros_behind, inside)

"""Sliding windows of convolution and pooling: strides, dilations and padding of each spatial axis, from the attributes of a node."""

from __future__ import annotations

from collections.abc import Sequence

from anycann.graph.registry import Lowering, NotLowered
from anycann.support.records import dataclass


@dataclass(frozen=True)
class Window:
    """A kernel sliding over some axes; `begins` and `ends` pad, so that tap k of output o reads input o * stride - begin + k * dilation."""

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def spans(self) -> tuple[int, ...]:
        """Input elements from the first to the last tap."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True))


def window(context: Lowering, size: Sequence[int], kernel: Sequence[int], out_size: Sequence[int]) -> Window:
    """The window of a Conv or pooling node over spatial axes of these sizes. Raises NotLowered for attributes of another rank."""
    rank = len(size)
    strides = context.integers("strides") or (1,) * rank
    dilations = context.integers("dilations") or (1,) * rank
    pads = context.integers("pads") or (0,) * (2 * rank)
    if not len(kernel) == len(strides) == len(dilations) == len(pads) // 2 == rank:
        raise NotLowered(f"strides {strides}, dilations {dilations} or pads {pads} for {rank} spatial axes")
    begins, ends = pads[:rank], pads[rank:]
    mode = context.text("auto_pad", "NOTSET")
    if mode == "VALID":
        begins = ends = (0,) * rank
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
        totals = [max(0, (o - 1) * s + k - n) for o, s, k, n in zip(out_size, strides, spans, size, strict=True)]
        begins, ends = halves(totals, mode)
    return Window(tuple(size), tuple(kernel), strides, dilations, tuple(begins), tuple(ends))


def halves(totals: Sequence[int], mode: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding shared out to both sides; the odd element goes to the end for SAME_UPPER, to the beginning otherwise."""
    small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
    return (small, large) if mode == "SAME_UPPER" else (large, small)

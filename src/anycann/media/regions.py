"""Regions of pictures that an encoder of video keeps better than the rest, or worse: FFmpeg's filter `addroi` tells them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from anycann.media.libraries import video_library
from anycann.support.records import dataclass

_BLOCK = 16


@dataclass(frozen=True)
class Region:
    """A part of a picture whose quantisers are other ones: by so much, or, where `absolute`, that one."""

    left: int
    top: int
    width: int
    height: int
    quantiser: int
    absolute: bool = False


class Marker:
    """Writes regions into frames of one size, quantisers as parts of the greatest one."""

    def __init__(self, width: int, height: int, frame_rate: int, greatest: int):
        self._size, self._frame_rate, self._greatest = (width, height), frame_rate, greatest
        self.mean = 0.0  # by how much quantisers of the frame that was marked last differ from what they are about
        self._graphs: dict[tuple[str, ...], tuple[Any, Any, Any]] = {}

    def mark(self, frame: Any, regions: Sequence[Region], usual: float) -> Any:
        """The frame with them. usual: what quantisers are about, from which absolute ones are reached."""
        steps = [self._steps(region, usual) for region in regions]
        told = tuple(
            f"{each.left}:{each.top}:{each.width}:{each.height}:qoffset={of}/{self._greatest}"
            for each, of in zip(regions, steps, strict=True)
        )
        self.mean = self._mean(regions, steps)
        if told not in self._graphs:
            self._graphs = {told: self._new_graph(told)}  # those of the last picture, as a rule
        _, source, sink = self._graphs[told]
        source.push(frame)
        return sink.pull()

    def _steps(self, region: Region, usual: float) -> int:
        wanted = round(region.quantiser - usual) if region.absolute else region.quantiser
        return min(max(wanted, -self._greatest), self._greatest)

    def _mean(self, regions: Sequence[Region], steps: Sequence[int]) -> float:
        width, height = self._size
        blocks = np.zeros((-(-height // _BLOCK), -(-width // _BLOCK)))
        for region, of in reversed(list(zip(regions, steps, strict=True))):
            rows = slice(region.top // _BLOCK, (region.top + region.height) // _BLOCK)
            columns = slice(region.left // _BLOCK, (region.left + region.width) // _BLOCK)
            blocks[rows, columns] = of
        return float(blocks.mean())

    def _new_graph(self, told: Sequence[str]) -> tuple[Any, Any, Any]:
        """A filter for each region; and the ends, which the graph has to outlive."""
        graph = video_library().filter.Graph()
        width, height = self._size
        source = last = graph.add_buffer(width=width, height=height, format="yuv420p", time_base=Fraction(1, self._frame_rate))
        for each in told:
            following = graph.add("addroi", each)
            last.link_to(following)
            last = following
        sink = graph.add("buffersink")
        last.link_to(sink)
        graph.configure()
        return graph, source, sink

"""Baseline JPEG straight into the planes of a picture, by native code of ours: chroma comes as it is stored, nothing is copied."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from anycann.media import entropy as scan
from anycann.media import idct
from anycann.media.formats import PixelFormat
from anycann.media.jpeg_coding import ZIGZAG, Coding, read_coding, units
from anycann.media.jpeg_header import JpegFile
from anycann.media.kernels import Words, run
from anycann.media.picture import Picture
from anycann.media.scratch import Scratch
from anycann.media.triples import mean_of_pairs
from anycann.runtime.memory import address, allocate
from anycann.support.records import dataclass

_BLOCK = 8  # samples across and down
_CHUNK_BYTES = 1 << 19  # of coefficients at once: they are read again while they are in the cache
_END = b"\xff\xd9"


def decode_planes(file: JpegFile, target: Picture, scratch: Scratch) -> bool:
    """Decode `file` into `target`, of its size: gray, or semi-planar with as much chroma as the file has (a gray file leaves it alone).

    Or with half as much across, down or both ways: the rounded means, where the last sample of an odd edge is its own neighbour.

    False, and any content of `target`, for a file that has to be decoded otherwise: tables or scans that `read_coding` does not take,
    damaged data. Where there is room, whole blocks are written, also beyond the picture.
    """
    coding, header = read_coding(file), file.header
    halved = None if coding is None else _halved(coding, target.format)
    if coding is None or halved is None:
        return False
    across, down = units(header.width, header.height, coding.components)
    step_x, step_y = (_BLOCK * factor for factor in coding.components[0].factors)
    room = across * step_x, down * step_y
    if target.width_stride >= room[0] and target.height_stride >= room[1]:
        return _Decoder(file, coding, target, halved).run(across, down, scratch)
    whole = Picture(target.format, header.width, header.height, *room, allocate(target.format.nbytes(*room)))
    done = _Decoder(file, coding, whole, halved).run(across, down, scratch)
    planes = zip(target.view().planes, whole.view().planes, strict=True)
    for plane, other in planes if done else ():
        plane[:] = other[:, : plane.shape[1]]
    return done


def _halved(coding: Coding, form: PixelFormat) -> tuple[bool, bool] | None:
    """Whether chroma is halved across and down on its way to a format; None for one that it does not become."""
    if len(coding.components) == 1:
        return (False, False) if form.layout in ("gray", "semi-planar") else None
    luma, *chroma = (component.factors for component in coding.components)
    across, down = form.across / luma[0], form.down / luma[1]
    known = form.layout == "semi-planar" and chroma == [(1, 1), (1, 1)] and {across, down} <= {1, 2}
    return (across == 2, down == 2) if known else None


@dataclass(frozen=True)
class _Plane:
    """What one loop of `idct` is told. `start`: where its samples go; `unit_bytes`: from a row of units to the next."""

    words: Words
    start: int
    unit_bytes: int
    transform: idct.Transform


class _Decoder:
    def __init__(self, file: JpegFile, coding: Coding, target: Picture, halved: tuple[bool, bool]):
        self._coding, self._target, self._halved = coding, target, halved
        self._data = np.frombuffer(file.data, np.uint8)
        self._unit_bytes = coding.blocks * scan.BLOCK_BYTES
        self._last_units: NDArray[np.uint8] | None = None  # chroma of the last column of units, where its edge is odd

    def run(self, across: int, down: int, scratch: Scratch) -> bool:
        """Decode `across` x `down` units."""
        per_unit = self._coding.blocks
        rows = min(down, max(1, _CHUNK_BYTES // (across * per_unit * scan.BLOCK_BYTES)))
        with scratch.lent(rows * across * per_unit * scan.BLOCK_BYTES) as memory:
            return self._run(across, down, rows, self._scan_words(address(memory)))

    def _run(self, across: int, down: int, rows: int, words: Words) -> bool:
        """`rows` rows of units at a time."""
        planes, count = tuple(self._planes(int(words[scan.COEFFICIENTS]), across, down)), 0
        for first in range(0, down, rows):
            count = min(rows, down - first)
            run(scan.Entropy(), words, count * across)
            if words[scan.DAMAGED]:
                return False
            for plane in planes:
                plane.words[idct.TARGET] = plane.start + first * plane.unit_bytes
                run(plane.transform, plane.words, count)
        self._mend_edges(int(words[scan.COEFFICIENTS]), across, count)
        return self._is_at_end(words)

    def _scan_words(self, coefficients: int) -> Words:
        coding = self._coding
        words = [0] * scan.BLOCKS
        words[scan.DATA], words[scan.END], words[scan.POSITION] = address(self._data), self._data.size, coding.start
        words[scan.INTERVAL] = words[scan.LEFT] = coding.restart_interval
        words[scan.PER_UNIT], words[scan.ZIGZAG], words[scan.COEFFICIENTS] = coding.blocks, address(ZIGZAG), coefficients
        for level, component in enumerate(coding.components, scan.LAST):
            tables = component.differences, component.coefficients, component.quantisation
            words += [*(address(table) for table in tables), level] * component.blocks
        return np.array(words, np.int64)

    def _pair(self) -> tuple[int, int]:
        """The blocks of chroma in a unit, in the order of the target."""
        first = self._coding.components[0].blocks
        return (first, first + 1) if self._target.format.order == "YUV" else (first + 1, first)

    def _planes(self, coefficients: int, across: int, down: int) -> Iterator[_Plane]:
        planes, luma, pair = self._target.view().planes, self._coding.components[0], self._pair()
        transforms = idct.Transform(paired=False), idct.Transform(paired=True, halved=self._halved)
        ways = ((planes[0], (0, 0), luma.factors, transforms[0]), (planes[-1], pair, (1, 1), transforms[1]))
        for plane, blocks, (wide, high), transform in ways[: len(self._coding.components)]:
            stride = plane.strides[0]
            words = [coefficients, 0, stride, across, self._coding.blocks, *blocks, wide.bit_length() - 1, high]
            lines = _BLOCK * high // (2 if transform.halved[1] else 1)
            yield _Plane(np.array(words, np.int64), address(plane), lines * stride, transform)
        if self._halved[0] and self._target.width % 2:
            self._last_units = np.empty((down * _BLOCK, _BLOCK, 2), np.uint8)
            words = [coefficients + (across - 1) * self._unit_bytes, 0, 2 * _BLOCK, 1, across * self._coding.blocks, *pair, 0, 1]
            yield _Plane(np.array(words, np.int64), address(self._last_units), 2 * _BLOCK * _BLOCK, idct.Transform(paired=True))

    def _mend_edges(self, coefficients: int, across: int, count: int) -> None:
        """What is beyond an odd edge is not part of the mean there. `count` rows of units are still in the memory of coefficients."""
        chroma, (wide, high) = self._target.view().planes[-1], self._halved
        if high and self._target.height % 2:
            rows = np.empty((_BLOCK, across * _BLOCK, 2), np.uint8)
            last = coefficients + (count - 1) * across * self._unit_bytes
            words = [last, address(rows), rows.strides[0], across, self._coding.blocks, *self._pair(), 0, 1]
            run(idct.Transform(paired=True), np.array(words, np.int64), 1)
            samples = rows[(self._target.height - 1) % _BLOCK, : self._target.width]
            chroma[-1] = (mean_of_pairs(samples) if wide else samples)[: chroma.shape[1]]
        if self._last_units is not None:
            samples = self._last_units[: self._target.height, (self._target.width - 1) % _BLOCK]
            chroma[:, -1] = (mean_of_pairs(samples) if high else samples)[: chroma.shape[0]]

    def _is_at_end(self, words: Words) -> bool:
        """Whether all of the scan was used, and the file ends behind it."""
        position = int(words[scan.POSITION])
        left = words[scan.BITS] - words[scan.BORROWED]
        return bool(0 <= left < 8) and self._data[position : position + 2].tobytes() == _END

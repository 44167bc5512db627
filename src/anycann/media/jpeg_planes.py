"""Baseline JPEG straight into the planes of a picture, by native code of ours: chroma comes as it is stored, nothing is copied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from anycann.media import entropy as scan
from anycann.media import idct
from anycann.media.formats import PixelFormat
from anycann.media.jpeg_coding import ZIGZAG, Coding, read_coding, units
from anycann.media.jpeg_header import JpegFile
from anycann.media.kernels import Words, run
from anycann.media.picture import Picture
from anycann.media.scratch import Scratch
from anycann.runtime.memory import address, allocate

_CHUNK_BYTES = 1 << 19  # of coefficients at once: they are read again while they are in the cache
_END = b"\xff\xd9"


def decode_planes(file: JpegFile, target: Picture, scratch: Scratch) -> bool:
    """Decode `file` into `target`, of its size: gray, or semi-planar with as much chroma as the file has (a gray file leaves it alone).

    False, and any content of `target`, for a file that has to be decoded otherwise: tables or scans that `read_coding` does not take,
    damaged data. Where there is room, whole blocks are written, also beyond the picture.
    """
    coding = read_coding(file)
    if coding is None or not _is_alike(coding, target.format):
        return False
    header = file.header
    across, down = units(header.width, header.height, coding.components)
    step_x, step_y = (8 * factor for factor in coding.components[0].factors)
    room = across * step_x, down * step_y
    if target.width_stride >= room[0] and target.height_stride >= room[1]:
        return _Decoder(file, coding, target).run(across, down, scratch)
    whole = Picture(target.format, header.width, header.height, *room, allocate(target.format.nbytes(*room)))
    done = _Decoder(file, coding, whole).run(across, down, scratch)
    planes = zip(target.view().planes, whole.view().planes, strict=True)
    for plane, other in planes if done else ():
        plane[:] = other[:, : plane.shape[1]]
    return done


def _is_alike(coding: Coding, form: PixelFormat) -> bool:
    if len(coding.components) == 1:
        return form.layout in ("gray", "semi-planar")
    luma, *chroma = (component.factors for component in coding.components)
    return form.layout == "semi-planar" and luma == (form.across, form.down) and chroma == [(1, 1), (1, 1)]


@dataclass(frozen=True)
class _Plane:
    """What one loop of `idct` is told. `start`: where its samples go; `unit_bytes`: from a row of units to the next."""

    words: Words
    start: int
    unit_bytes: int
    paired: bool


class _Decoder:
    def __init__(self, file: JpegFile, coding: Coding, target: Picture):
        self._coding, self._target = coding, target
        self._data = np.frombuffer(file.data, np.uint8)

    def run(self, across: int, down: int, scratch: Scratch) -> bool:
        """Decode `across` x `down` units."""
        per_unit = self._coding.blocks
        rows = min(down, max(1, _CHUNK_BYTES // (across * per_unit * scan.BLOCK_BYTES)))
        with scratch.lent(rows * across * per_unit * scan.BLOCK_BYTES) as memory:
            return self._run(across, down, rows, self._scan_words(address(memory)))

    def _run(self, across: int, down: int, rows: int, words: Words) -> bool:
        """`rows` rows of units at a time."""
        planes = tuple(self._planes(int(words[scan.COEFFICIENTS]), across))
        for first in range(0, down, rows):
            count = min(rows, down - first)
            run(scan.Entropy(), words, count * across)
            if words[scan.DAMAGED]:
                return False
            for plane in planes:
                plane.words[idct.TARGET] = plane.start + first * plane.unit_bytes
                run(idct.Transform(plane.paired), plane.words, count)
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

    def _planes(self, coefficients: int, across: int) -> Iterator[_Plane]:
        planes, luma = self._target.view().planes, self._coding.components[0]
        pair = (luma.blocks, luma.blocks + 1) if self._target.format.order == "YUV" else (luma.blocks + 1, luma.blocks)
        ways = ((planes[0], (0, 0), luma.factors, False), (planes[-1], pair, (1, 1), True))
        for plane, blocks, (wide, high), paired in ways[: len(self._coding.components)]:
            stride = plane.strides[0]
            words = [coefficients, 0, stride, across, self._coding.blocks, *blocks, wide.bit_length() - 1, high]
            yield _Plane(np.array(words, np.int64), address(plane), 8 * high * stride, paired)

    def _is_at_end(self, words: Words) -> bool:
        """Whether all of the scan was used, and the file ends behind it."""
        position = int(words[scan.POSITION])
        left = words[scan.BITS] - words[scan.BORROWED]
        return bool(0 <= left < 8) and self._data[position : position + 2].tobytes() == _END

"""How the samples of a baseline JPEG file are coded (ITU-T T.81 annexes B, C and F): its tables, as the native decoder reads them."""

from __future__ import annotations

from functools import lru_cache
import itertools

import numpy as np
from numpy.typing import NDArray

from anycann.media.jpeg_header import JpegFile, Segment
from anycann.support.records import dataclass

LOOKAHEAD_BITS = 10
HAS_VALUE = 1 << 28
_CODE_BITS = 16
_FRAMES, _HUFFMAN, _SCAN, _QUANTISATION, _RESTARTS = (0xC0, 0xC1), 0xC4, 0xDA, 0xDB, 0xDD
_MOST_DC_BITS, _MOST_AC_BITS = 11, 10  # of a difference, of a coefficient
_MOST_SYMBOL = 15  # of a difference
_WHOLE_SCAN = b"\x00\x3f\x00"  # all coefficients, all bits
_BEHIND = 16  # places behind the last coefficient that a damaged run may reach


def _zigzag() -> NDArray[np.int16]:
    """Where in a block of 8 x 8, row by row, coefficient k of the file is; those behind the last one fall on the last one."""
    order = sorted(range(64), key=lambda at: (at // 8 + at % 8, (at % 8, at // 8)[(at // 8 + at % 8) % 2 == 1]))
    return np.array([*order, *[63] * _BEHIND], np.int16)


ZIGZAG = _zigzag()


@dataclass(frozen=True)
class Component:
    """`factors`: blocks of it across and down in a unit of the scan. Quantisation in the file's order; tables of `huffman_table`."""

    factors: tuple[int, int]
    quantisation: NDArray[np.int16]
    differences: NDArray[np.int32]
    coefficients: NDArray[np.int32]

    @property
    def blocks(self) -> int:
        """Blocks of it in a unit."""
        return self.factors[0] * self.factors[1]


@dataclass(frozen=True)
class Coding:
    """One scan of all components, whose data begin at byte `start`; `restart_interval` units between restarts, 0: there are none."""

    components: tuple[Component, ...]
    restart_interval: int
    start: int

    @property
    def blocks(self) -> int:
        """Blocks in a unit."""
        return sum(component.blocks for component in self.components)


def read_coding(file: JpegFile) -> Coding | None:
    """The tables of a file, or None where the native decoder does not take it: several scans, tables that are missing, wrong or wide."""
    return _coding(file.data[: file.segments[-1].end], file.segments)


@lru_cache(maxsize=64)
def _coding(head: bytes, segments: tuple[Segment, ...]) -> Coding | None:
    tables = _Tables()
    frame = scan = None
    for segment in segments:
        body = head[segment.start + 4 : segment.end]
        if segment.code in _FRAMES:
            frame = body
        elif segment.code == _SCAN:
            scan = body
        elif not tables.take(segment.code, body):
            return None
    found = _components(frame, scan, tables) if frame and scan else None
    return None if found is None else Coding(found, tables.restart_interval, len(head))


class _Tables:
    """What the segments before the scan define."""

    def __init__(self) -> None:
        self.quantisation: dict[int, NDArray[np.int16]] = {}
        self.huffman: dict[int, NDArray[np.int32]] = {}  # by class (16 for coefficients) and number
        self.restart_interval = 0

    def take(self, code: int, body: bytes) -> bool:
        """False if the native decoder cannot use what a segment says."""
        if code == _QUANTISATION:
            return self._quantisation(body)
        if code == _HUFFMAN:
            return self._huffman(body)
        if code == _RESTARTS and len(body) == 2:
            self.restart_interval = int.from_bytes(body, "big")
        return True

    def _quantisation(self, body: bytes) -> bool:
        for at in range(0, len(body), 65):
            if body[at] > 3 or at + 65 > len(body):  # 16 bits, or no such table
                return False
            steps = np.zeros(64 + _BEHIND, np.int16)
            steps[:64] = np.frombuffer(body, np.uint8, 64, at + 1)
            self.quantisation[body[at]] = steps
        return True

    def _huffman(self, body: bytes) -> bool:
        at = 0
        while at < len(body):
            lengths = body[at + 1 : at + 17]
            end = at + 17 + sum(lengths)
            table = huffman_table(lengths, body[at + 17 : end], body[at] >> 4 == 0) if len(lengths) == 16 and end <= len(body) else None
            if table is None:
                return False
            self.huffman[body[at]] = table
            at = end
        return True


def _components(frame: bytes, scan: bytes, tables: _Tables) -> tuple[Component, ...] | None:
    count = frame[5]
    if len(scan) != 4 + 2 * count or scan[0] != count or scan[-3:] != _WHOLE_SCAN:
        return None
    found = []
    for number in range(count):
        name, factors, quantisation = frame[6 + 3 * number : 9 + 3 * number]
        selected, chosen = scan[1 + 2 * number : 3 + 2 * number]
        parts = tables.quantisation.get(quantisation), tables.huffman.get(chosen >> 4), tables.huffman.get(16 | chosen & 15)
        if name != selected or any(part is None for part in parts):
            return None
        found.append(Component((factors >> 4, factors & 15) if count > 1 else (1, 1), *parts))  # type: ignore[arg-type]
    return tuple(found)


@lru_cache(maxsize=32)
def huffman_table(lengths: bytes, symbols: bytes, for_differences: bool) -> NDArray[np.int32] | None:
    """int32[2 ** 10 + 2 ** 16]: what the next bits of the file mean, by the next 10 of them and by the next 16. None for a wrong table.

    Bits 0 to 7 of an entry: how many bits code and value have together; 8 to 15: the code alone; 16 to 23: 63 less those of the value; 24
    to 27: zeros before it; HAS_VALUE: it has bits. 0: no code begins so; in the first part also: one longer than 10 bits does.
    `lengths`: how many codes have 1, 2 ... 16 bits.
    """
    sizes = [length for length, count in enumerate(lengths, 1) for _ in range(count)]
    spans = [1 << (_CODE_BITS - size) for size in sizes]
    if sum(spans) >= 1 << _CODE_BITS or (for_differences and max(symbols, default=0) > _MOST_SYMBOL):
        return None
    entries = list(itertools.starmap(_entry, ((size, symbol, for_differences) for size, symbol in zip(sizes, symbols, strict=True))))
    known = np.repeat(np.array(entries, np.int32), spans)
    whole = np.zeros(1 << _CODE_BITS, np.int32)
    whole[: len(known)] = known
    short = whole[:: 1 << (_CODE_BITS - LOOKAHEAD_BITS)]
    return np.concatenate([np.where((short >> 8 & 255) <= LOOKAHEAD_BITS, short, 0), whole])


def _entry(size: int, symbol: int, for_differences: bool) -> int:
    bits, zeros = (symbol, 0) if for_differences else (symbol & 15, symbol >> 4)
    if bits > (_MOST_DC_BITS if for_differences else _MOST_AC_BITS):
        return 0
    return (HAS_VALUE if bits else 0) | zeros << 24 | (63 - bits) << 16 | size << 8 | (size + bits)


def units(width: int, height: int, components: tuple[Component, ...]) -> tuple[int, int]:
    """How many units of the scan a picture has across and down."""
    across, down = components[0].factors
    return -(-width // (8 * across)), -(-height // (8 * down))

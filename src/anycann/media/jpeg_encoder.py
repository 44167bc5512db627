"""Baseline JPEG files with tables of the caller's (ITU-T T.81 annexes A, B and F), which simplejpeg does not take."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycann.media.convert import Samples
from anycann.media.jpeg_coding import ZIGZAG, huffman_table
from anycann.media.libraries import jpeg_library
from anycann.support.errors import UsageError
from anycann.support.records import dataclass

SIDE, COEFFICIENTS = 8, 64
_MOST_DC, _ZEROS, _END = 11, 0xF0, 0x00  # the widest difference; sixteen zeros; nothing but zeros
_ORDER = ZIGZAG[:COEFFICIENTS].astype(np.intp)
_WIDE = struct.Struct(">H")
_AT_ONCE = 1 << 14  # blocks, whose bits are arrays for a while
_NEEDED = (frozenset(range(_MOST_DC + 1)), frozenset(zeros << 4 | bits for zeros in range(16) for bits in range(1, 11)) | {_ZEROS, _END})
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Huffman:
    """How many codes have 1, 2 ... 16 bits, and what they stand for, in the order of the codes."""

    lengths: bytes
    symbols: bytes

    def check(self, for_differences: bool) -> None:
        """Raises UsageError for a table that is none, or that lacks a symbol which a picture may need."""
        missing = _NEEDED[0 if for_differences else 1] - set(self.symbols)
        if len(self.lengths) != 16 or sum(self.lengths) != len(self.symbols) or not self._is_prefix(for_differences) or missing:
            kind = "differences" if for_differences else "coefficients"
            raise UsageError(f"the Huffman table of {kind} with {list(self.lengths)} codes lacks {sorted(missing)} or is none")

    def _is_prefix(self, for_differences: bool) -> bool:
        return huffman_table(self.lengths, self.symbols, for_differences) is not None

    def codes(self) -> tuple[Numbers, Numbers]:
        """The code of each symbol 0 to 255 and its bits."""
        values, bits = np.zeros(256, np.int64), np.zeros(256, np.int64)
        sizes = [size for size, count in enumerate(self.lengths, 1) for _ in range(count)]
        code = 0
        for before, (size, symbol) in zip([sizes[0], *sizes], zip(sizes, self.symbols, strict=True), strict=False):
            code <<= size - before
            values[symbol], bits[symbol] = code, size
            code += 1
        return values, bits


@dataclass(frozen=True)
class Tables:
    """Quantisation of Y, Cb and Cr, 64 steps row by row; Huffman tables of Y and of both others. compact: what is alike is written once."""

    quantisation: tuple[bytes, bytes, bytes]
    differences: tuple[Huffman, Huffman]
    coefficients: tuple[Huffman, Huffman]
    compact: bool = False


@lru_cache(maxsize=128)
def tables_of(quality: int) -> Tables:
    """Those that libjpeg-turbo writes for a quality of 1 to 100: annex K's, the steps scaled."""
    library: Any = jpeg_library()
    file = library.encode_jpeg(np.zeros((SIDE, SIDE, 3), np.uint8), quality, "RGB", "444")
    steps: dict[int, bytes] = {}
    codes: dict[int, Huffman] = {}
    at = 2
    while file[at + 1] != 0xDA:
        body = file[at + 4 : at + 2 + int.from_bytes(file[at + 2 : at + 4], "big")]
        at += 4 + len(body)
        if file[at - len(body) - 3] == 0xDB:
            for first in range(0, len(body), 1 + COEFFICIENTS):
                steps[body[first]] = _in_rows(body[first + 1 : first + 1 + COEFFICIENTS])
        elif file[at - len(body) - 3] == 0xC4:
            first = 0
            while first < len(body):
                count = sum(body[first + 1 : first + 17])
                codes[body[first]] = Huffman(body[first + 1 : first + 17], body[first + 17 : first + 17 + count])
                first += 17 + count
    chroma = steps.get(1, steps[0])
    return Tables((steps[0], chroma, chroma), (codes[0], codes.get(1, codes[0])), (codes[16], codes.get(17, codes[16])))


def _in_rows(zigzag: bytes) -> bytes:
    rows = bytearray(COEFFICIENTS)
    for place, step in zip(_ORDER, zigzag, strict=True):
        rows[place] = step
    return bytes(rows)


def encode_planes(planes: Sequence[Samples], steps: tuple[int, int], tables: Tables) -> bytes:
    """A file of Y, or of Y, Cb and Cr. steps: how many samples of Y one of the others has across and down."""
    factors = [steps, (1, 1), (1, 1)][: len(planes)] if len(planes) > 1 else [(1, 1)]
    units = [_units(plane, tables.quantisation[n], factors[n], factors[0], planes[0].shape) for n, plane in enumerate(planes)]
    counts = [unit.shape[1] for unit in units]
    blocks = np.concatenate(units, axis=1)
    component = np.tile(np.repeat(np.arange(len(planes)), counts), len(blocks))
    data = _coded(blocks.reshape(-1, COEFFICIENTS), component, tables)
    height, width = planes[0].shape
    return _head(width, height, factors, tables) + data.replace(b"\xff", b"\xff\0") + b"\xff\xd9"


# ---- coefficients
def _units(plane: Samples, steps: bytes, factors: tuple[int, int], most: tuple[int, int], size: tuple[int, ...]) -> Numbers:
    """[units of the scan, blocks of this component in one, 64]: its quantised coefficients, in the file's order."""
    across, down = factors
    high, wide = (-(-length // (SIDE * factor)) for length, factor in zip(size, most[::-1], strict=True))
    rows, columns = high * down, wide * across
    whole = np.pad(plane, ((0, rows * SIDE - plane.shape[0]), (0, columns * SIDE - plane.shape[1])), "edge").astype(np.float32) - 128
    blocks = whole.reshape(rows, SIDE, columns, SIDE).swapaxes(1, 2)
    transformed = _COSINES @ blocks @ _COSINES.T
    levels = np.rint(transformed / np.frombuffer(steps, np.uint8).reshape(SIDE, SIDE)).astype(np.int64)
    ordered = levels.reshape(rows, columns, COEFFICIENTS)[..., _ORDER]
    return ordered.reshape(high, down, wide, across, COEFFICIENTS).swapaxes(1, 2).reshape(high * wide, down * across, COEFFICIENTS)


def _cosines() -> NDArray[np.float32]:
    angles = np.pi / (2 * SIDE) * np.arange(SIDE)[:, None] * (2 * np.arange(SIDE) + 1)
    found: NDArray[np.float32] = (np.cos(angles) * np.sqrt(np.where(np.arange(SIDE) == 0, 1, 2) / SIDE)[:, None]).astype(np.float32)
    return found


_COSINES = _cosines()


# ---- codes
def _coded(blocks: Numbers, component: NDArray[np.intp], tables: Tables) -> bytes:
    """The data of the scan. blocks: [blocks, 64] in its order."""
    kind = np.minimum(component, 1)
    differences = blocks[:, 0].copy()
    for number in range(int(component.max()) + 1):
        own = component == number
        differences[own] = np.diff(blocks[own, 0], prepend=0)
    parts, rest = [], np.empty(0, np.uint8)
    for start in range(0, len(blocks), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        plain = np.concatenate([rest, _bits_in_order(blocks[some], differences[some], kind[some], tables)])
        whole = len(plain) // 8 * 8
        parts.append(np.packbits(plain[:whole]).tobytes())
        rest = plain[whole:]
    return b"".join([*parts, np.packbits(np.concatenate([rest, np.ones(-len(rest) % 8, np.uint8)])).tobytes()])


def _bits_in_order(blocks: Numbers, differences: Numbers, kind: NDArray[np.intp], tables: Tables) -> NDArray[np.uint8]:
    """Each bit of some blocks. kind: of a block, 0 Y, 1 the others."""
    block, place = np.nonzero(blocks[:, 1:])
    first = np.diff(block, prepend=-1) != 0
    zeros = np.where(first, place, np.diff(place, prepend=0) - 1)
    last = np.zeros(len(blocks), np.int64)
    last[block] = place + 1  # the later ones win
    long = zeros >> 4
    ends = np.flatnonzero(last < COEFFICIENTS - 1)
    values = blocks[block, place + 1]
    dc = _symbols(tables.differences, kind, _bits_of(differences), differences)
    ac = _symbols(tables.coefficients, kind[block], (zeros & 15) << 4 | _bits_of(values), values)
    zrl = _symbols(tables.coefficients, np.repeat(kind[block], long), np.full(long.sum(), _ZEROS), None)
    end = _symbols(tables.coefficients, kind[ends], np.full(len(ends), _END), None)
    key = np.concatenate([
        np.arange(len(blocks)) << 8, block << 8 | (place + 1) << 1 | 1, np.repeat(block << 8 | (place + 1) << 1, long), ends << 8 | 255,
    ])  # fmt: skip
    order = np.argsort(key, kind="stable")
    numbers, bits = (np.concatenate(parts)[order] for parts in zip(dc, ac, zrl, end, strict=True))
    shifts = np.repeat(np.cumsum(bits), bits) - 1 - np.arange(bits.sum())
    found: NDArray[np.uint8] = (np.repeat(numbers, bits) >> shifts & 1).astype(np.uint8)
    return found


def _bits_of(values: Numbers) -> Numbers:
    return np.frexp(np.abs(values).astype(np.float64))[1].astype(np.int64)


def _symbols(pair: tuple[Huffman, Huffman], kind: NDArray[np.intp], symbols: Numbers, values: Numbers | None) -> tuple[Numbers, Numbers]:
    """The bits of symbols with those of their values behind, as numbers and how many bits they have."""
    codes, sizes = (np.stack(parts)[kind, symbols] for parts in zip(*(table.codes() for table in pair), strict=True))
    if values is None:
        return codes, sizes
    bits = _bits_of(values)
    return codes << bits | np.where(values < 0, values + (1 << bits) - 1, values), sizes + bits


# ---- segments
def _head(width: int, height: int, factors: Sequence[tuple[int, int]], tables: Tables) -> bytes:
    count = len(factors)
    steps, step_of = _numbered(tables.quantisation[:count], tables.compact)
    codes, code_of = _numbered(list(zip(tables.differences, tables.coefficients, strict=True))[: min(count, 2)], tables.compact)
    parts = [b"\xff\xd8", _segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0")]
    parts += [_segment(0xDB, bytes([n]) + bytes(table[place] for place in _ORDER)) for n, table in enumerate(steps)]
    frame = b"".join(bytes([n + 1, across << 4 | down, step_of[n]]) for n, (across, down) in enumerate(factors))
    parts.append(_segment(0xC0, b"\x08" + _WIDE.pack(height) + _WIDE.pack(width) + bytes([count]) + frame))
    for n, pair in enumerate(codes):
        parts += [_segment(0xC4, bytes([high << 4 | n]) + table.lengths + table.symbols) for high, table in enumerate(pair)]
    scan = b"".join(bytes([n + 1, code_of[min(n, 1)] * 0x11]) for n in range(count))
    return b"".join([*parts, _segment(0xDA, bytes([count]) + scan + b"\0\x3f\0")])


def _numbered(given: Sequence[Any], compact: bool) -> tuple[list[Any], list[int]]:
    """The tables to write, and the number of each component's among them."""
    if not compact:
        return list(given), list(range(len(given)))
    written = [table for n, table in enumerate(given) if table not in given[:n]]
    return written, [written.index(table) for table in given]


def _segment(code: int, body: bytes) -> bytes:
    return bytes([0xFF, code]) + _WIDE.pack(len(body) + 2) + body

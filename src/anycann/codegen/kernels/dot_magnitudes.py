"""Exact products of bytes by vpmaddubsw (AVX2), with the signs of the weights in the other operand.

vpmaddubsw multiplies twice as many unsigned and signed bytes, but adds pairs in 16 bits, where 2 * 255 * 127 saturates. By `magnitudes` it
is exact: those of the weights are the unsigned bytes, up to 128, and the input less 128 is the signed one. Its bits are turned where a
weight is negative, for -(x + 1) is a byte where -x may be none. 2 * 128 * 128 is in range downwards, 2 * 128 * 127 upwards, and what
turning and 128 take from the sums of a column is known with its weights (`lift`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import numpy.typing as npt

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value, vector_type

LANES = 8
LESS_128 = -0x7F7F7F80  # turns unsigned bytes into signed ones
TURNED, KEPT = 0x7F, 0x80  # what the bits of an unsigned byte are taken with, for a negative weight and for another


def split_weights(weights: npt.NDArray[np.int8]) -> npt.NDArray[np.uint8]:
    """[..., columns, group] of signed bytes -> [..., columns / lanes of 8, 2, 8, group]: magnitudes, then TURNED or KEPT."""
    signs = np.where(weights < 0, np.uint8(TURNED), np.uint8(KEPT))
    magnitudes = np.abs(weights.astype(np.int16)).astype(np.uint8)
    *outer, columns, group = weights.shape
    parts = [part.reshape(*outer, columns // LANES, LANES, group) for part in (magnitudes, signs)]
    return np.stack(parts, axis=-3)


def lift(weights: npt.NDArray[np.int8], axis: int | tuple[int, ...]) -> npt.NDArray[np.int32]:
    """What sums by magnitudes lack along axes: (x - 128) w is x w - 128 w, and (127 - x) |w| is x w - 127 w."""
    wide = weights.astype(np.int32)
    lacking: npt.NDArray[np.int32] = np.where(wide < 0, TURNED * wide, KEPT * wide).sum(axis, dtype=np.int32)
    return lacking


def as_signed(byte: int) -> int:
    """The bits of an unsigned byte as a signed one."""
    return byte - 256 if byte > 127 else byte


def magnitudes_of(e: Emitter, weights: Value) -> Value:
    """Four signed bytes a lane -> their magnitudes, unsigned bytes."""
    return e.bitcast(e.intrinsic("abs", [as_bytes(e, weights), e.const(0, "i1")]), weights.type)


def turned_bits(e: Emitter, weights: Value) -> Value:
    """Four signed bytes a lane -> what turns a byte less 128: all bits of those where a weight is negative."""
    bytes_ = as_bytes(e, weights)
    return e.bitcast(e.cast("sext", e.compare("slt", bytes_, e.zero(bytes_.type)), "i8"), weights.type)


def add_magnitudes(e: Emitter, total: Value, x: Value, magnitudes: Value, signs: Value) -> Value:
    """total + the products of four bytes a lane: pairs in 16 bits, two of them in 32."""
    return add_direct(e, total, [(magnitudes, e.binary("xor", x, signs))])


def add_direct(e: Emitter, total: Value, products: Sequence[tuple[Value, Value]]) -> Value:
    """total + the products of unsigned and signed bytes, four a lane, whose sums of pairs, of all of them together, are in 16 bits."""
    words = vector_type("i16", 2 * total.lanes)
    pairs = [e.call("llvm.x86.avx2.pmadd.ub.sw", words, [as_bytes(e, v) for v in product]) for product in products]
    both = reduce(lambda a, b: e.binary("add", a, b), pairs)
    return e.binary("add", total, e.call("llvm.x86.avx2.pmadd.wd", total.type, [both, e.const(1, words)]))


def as_bytes(e: Emitter, lanes: Value) -> Value:
    """The bytes of lanes of four."""
    return e.bitcast(lanes, vector_type("i8", 4 * lanes.lanes))

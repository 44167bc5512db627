"""Vectors of 32-bit integers as bytes, held within their range by the instructions that pack them (AVX-512).

Two instructions pack 64 integers of four registers, without a clamp; one that narrows a register takes two of their places, and unsigned
bytes a comparison before it. They pack by 16 bytes of each register, so a permutation follows.
"""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value, vector_type

REGISTER_LANES = 16  # of 32 bits in a register of AVX-512
MOST_REGISTERS = 4


def packs_bytes(lanes: int) -> bool:
    """True for several whole registers, no more than one of bytes holds."""
    return lanes in range(2 * REGISTER_LANES, (MOST_REGISTERS + 1) * REGISTER_LANES, REGISTER_LANES)


def pack_bytes(e: Emitter, whole: Value, is_signed: bool) -> Value:
    """int32 as bytes, signed or not: what is beyond their range becomes its end. Of as many lanes as `packs_bytes` allows."""
    registers = whole.lanes // REGISTER_LANES
    parts = [e.shuffle(whole, whole, range(first, first + REGISTER_LANES)) for first in range(0, whole.lanes, REGISTER_LANES)]
    words = [_pack(e, "packssdw", parts[i], parts[min(i + 1, registers - 1)], "i16") for i in range(0, registers, 2)]
    packed = _pack(e, "packsswb" if is_signed else "packuswb", words[0], words[-1], "i8")
    groups = e.bitcast(packed, vector_type("i32", REGISTER_LANES))
    order = [MOST_REGISTERS * place + register for register in range(registers) for place in range(REGISTER_LANES // MOST_REGISTERS)]
    return e.bitcast(e.shuffle(groups, groups, order), vector_type("i8", whole.lanes))


def _pack(e: Emitter, name: str, first: Value, second: Value, element: str) -> Value:
    type_ = vector_type(element, 2 * first.lanes)
    return e.call(f"llvm.x86.avx512.{name}.512", type_, [first, second])

"""AMX, the matrix tiles that the emulator lacks, computed by numpy (Intel's manual, volume 1, chapter 18, and volume 2)."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

_REGISTERS = ("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", *(f"r{number}" for number in range(8, 16)))
_CONFIGURE, _MOVE, _FLOATS, _BYTES = 0x49, 0x4B, 0x5C, 0x5E
_NONE, _66, _F3, _F2 = range(4)  # the prefixes as VEX counts them
_SIGNS = ((np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.uint8), (np.int8, np.int8))  # by prefix: of the first and the second
_LENGTHS = (5, 6, 7, 9, 10)  # of registers; of memory, with SIB and a displacement of 0, 1 or 4 bytes


@dataclass(frozen=True)
class _Instruction:
    opcode: int
    prefix: int
    register: int
    second: int  # VEX.vvvv
    mode: int
    rm: int
    base: int
    index: int
    scale: int
    displacement: int


class MatrixTiles:
    """The eight tiles of one thread and how they are configured."""

    def __init__(self) -> None:
        self._rows = np.zeros(8, np.int64)
        self._row_bytes = np.zeros(8, np.int64)
        self._tiles = np.zeros((8, 16, 64), np.uint8)

    def run(self, state: Any, code: bytes) -> bool:
        """Compute the instruction at the end of `code`; False if it is none of these."""
        found = _last_of(code)
        if found is None:
            return False
        what, in_register = (found.opcode, found.prefix), found.mode == 3
        if what == (_CONFIGURE, _NONE) and in_register:  # TILERELEASE
            self._rows[:] = self._row_bytes[:] = 0
        elif what == (_CONFIGURE, _NONE):  # LDTILECFG
            self._configure(_address(found, state))
        elif what == (_CONFIGURE, _F2) and in_register:  # TILEZERO
            self._tiles[found.register] = 0
        elif found.opcode == _MOVE and found.prefix != _NONE and not in_register:  # TILELOADD, TILELOADDT1, TILESTORED
            self._move(found, state)
        elif what == (_FLOATS, _F3):  # TDPBF16PS
            self._multiply(found, (ml_dtypes.bfloat16, ml_dtypes.bfloat16), np.float32)
        elif found.opcode == _BYTES:  # TDPBUUD, TDPBUSD, TDPBSUD, TDPBSSD
            self._multiply(found, _SIGNS[found.prefix], np.int32)
        else:
            return False
        return True

    def _configure(self, address: int) -> None:
        table = np.frombuffer(ctypes.string_at(address, 64), np.uint8)
        assert table[0] == 1, f"palette {table[0]}"
        self._row_bytes[:], self._rows[:] = table[16:32].view(np.uint16)[:8], table[48:56]
        assert (self._row_bytes <= 64).all()
        assert (self._rows <= 16).all()
        self._tiles[:] = 0

    def _move(self, found: _Instruction, state: Any) -> None:
        tile, rows, nbytes = self._tiles[found.register], int(self._rows[found.register]), int(self._row_bytes[found.register])
        assert rows, f"tile {found.register} is not configured"
        stride = _register(state, found.index) << found.scale if found.index != 4 else 0
        start = _register(state, found.base) + found.displacement
        stores = found.prefix == _F3
        if not stores:
            tile[:] = 0
        for row in range(rows):
            address = (start + row * stride) % 2**64
            if stores:
                ctypes.memmove(address, tile[row].ctypes.data, nbytes)
            else:
                tile[row, :nbytes] = np.frombuffer(ctypes.string_at(address, nbytes), np.uint8)

    def _multiply(self, found: _Instruction, types: tuple[Any, Any], result: Any) -> None:
        """tile[m, n] += sum over k of a[m, k] * b[k, n], where 4 bytes of a row of b are as many k of one n."""
        to, a, b = found.register, found.rm, found.second
        m, depth, n = int(self._rows[to]), int(self._row_bytes[a]) // 4, int(self._row_bytes[to]) // 4
        assert depth == self._rows[b]
        first, second = types
        group = 4 // np.dtype(first).itemsize
        left = self._tiles[a, :m, : 4 * depth].view(first).astype(result)
        right = self._tiles[b, :depth, : 4 * n].view(second).astype(result).reshape(depth, n, group)
        sums = self._tiles[to, :m, : 4 * n].view(result)
        with np.errstate(all="ignore"):  # the processor says nothing either
            sums += left @ right.transpose(0, 2, 1).reshape(depth * group, n)
        self._tiles[to, m:] = 0
        self._tiles[to, :, 4 * n :] = 0


def _register(state: Any, number: int) -> int:
    return int(getattr(state, _REGISTERS[number]))


def _address(found: _Instruction, state: Any) -> int:
    index = _register(state, found.index) << found.scale if found.index != 4 else 0
    return (_register(state, found.base) + index + found.displacement) % 2**64


def _last_of(code: bytes) -> _Instruction | None:
    """The instruction on tiles that `code` ends with, behind which the emulator stands after one that it does not know."""
    for length in _LENGTHS:
        found = _decode(code[-length:]) if length <= len(code) else None
        if found is not None:
            return found
    return None


def _decode(code: bytes) -> _Instruction | None:
    """VEX with three bytes, map 0F38, W0, 128 bits (volume 2, section 2.3), with nothing left over; None for anything else."""
    if code[0] != 0xC4 or code[1] & 0x1F != 2 or code[2] & 0x84 or code[3] not in (_CONFIGURE, _MOVE, _FLOATS, _BYTES):
        return None
    mode, register, rm = code[4] >> 6, code[4] >> 3 & 7, code[4] & 7
    prefix, second = code[2] & 3, ~(code[2] >> 3) & 15
    high_index, high_base = (~code[1] >> 6 & 1) * 8, (~code[1] >> 5 & 1) * 8
    if mode == 3:
        return _Instruction(code[3], prefix, register, second, mode, rm, 0, 4, 0, 0) if len(code) == 5 else None
    with_sib = rm == 4
    size = {0: 0, 1: 1, 2: 4}[mode]
    if len(code) != 5 + with_sib + size:
        return None
    sib = code[5] if with_sib else rm | 4 << 3
    if mode == 0 and sib & 7 == 5:
        return None  # no base: nothing of ours addresses so
    displacement = int.from_bytes(code[len(code) - size :], "little", signed=True)
    index = (sib >> 3 & 7) + high_index if with_sib else 4
    return _Instruction(code[3], prefix, register, second, mode, rm, (sib & 7) + high_base, index, sib >> 6, displacement)

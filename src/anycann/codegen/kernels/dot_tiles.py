"""Matrix tiles of the processor (Intel AMX): 16 rows of 64 bytes, and one instruction that multiplies two and adds to a third.

Tile registers are named by number, and a kernel says once a call what shapes they have: sums 0..3, rows of the first operand 4 and 5,
groups of columns of the second 6 and 7.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te.dtypes import DType

Loading: TypeAlias = Callable[[int], None]  # of a tile of rows or of columns, by its number, into tile 0 of them
TILE_ROWS, TILE_GROUPS = 16, 16
MOST_SUMS = 3  # tiles of sums that a convolution has at once, beside or below each other (`dot_sums.py`)
ROW_BYTES = 64
_FIRST_ROWS, _FIRST_COLUMNS = 4, 6
_CONFIGURATION_BYTES = 64


def has_tiles(target: Target, dtype: DType) -> bool:
    """True if the target multiplies tiles of this type."""
    return target.lanes == 16 and target.has("amx-tile") and target.has("amx-bf16" if dtype is dtypes.bfloat16 else "amx-int8")


@dataclass(frozen=True)
class TileRegisters:
    """The tiles of one kernel: `rows` rows and `groups` groups of four bytes along k in each."""

    dtype: DType
    rows: int
    groups: int

    def configure(self, e: Emitter) -> None:
        """Shape the registers, in the entry block; `release` must follow on every way out."""
        place = e.op(f"alloca [{_CONFIGURATION_BYTES} x i8], align 64", "ptr")
        e.store(e.zero("<64 x i8>"), place, 64)
        e.store(e.const(1, "i8"), place, 1)
        for number in range(8):
            rows, nbytes = self._size(number)
            e.store(e.const(nbytes, "i16"), e.gep(place, 16 + 2 * number, "i8"), 2)
            e.store(e.const(rows, "i8"), e.gep(place, 48 + number, "i8"), 1)
        _do(e, "ldtilecfg", f"ptr {place.text}", "ptr")

    def release(self, e: Emitter) -> None:
        """Give the registers back, so that the system need not save them."""
        _do(e, "tilerelease", "", "")

    def _size(self, number: int) -> tuple[int, int]:
        if number < _FIRST_ROWS:
            return self.rows, ROW_BYTES
        return (self.rows, 4 * self.groups) if number < _FIRST_COLUMNS else (self.groups, ROW_BYTES)

    def clear(self, e: Emitter, number: int) -> None:
        """Sums `number` become zero."""
        _do(e, "tilezero", f"i8 {number}", "i8 immarg")

    def load_rows(self, e: Emitter, number: int, pointer: Value, stride: Value | int) -> None:
        """Rows of the first operand, `stride` bytes apart."""
        self._move(e, "tileloadd64", _FIRST_ROWS + number, pointer, stride)

    def load_columns(self, e: Emitter, number: int, pointer: Value, stride: Value | int) -> None:
        """Groups of the second operand for 16 columns, `stride` bytes from one k to the next."""
        self._move(e, "tileloadd64", _FIRST_COLUMNS + number, pointer, stride)

    def load_sums(self, e: Emitter, number: int, pointer: Value, stride: int) -> None:
        """Sums `number` from memory, `stride` bytes from row to row."""
        self._move(e, "tileloadd64", number, pointer, stride)

    def store(self, e: Emitter, number: int, pointer: Value, stride: int) -> None:
        """Sums `number` to memory, `stride` bytes from row to row."""
        self._move(e, "tilestored64", number, pointer, stride)

    def multiply(self, e: Emitter, sums: int, rows: int, columns: int) -> None:
        """Add the product of two tiles to the sums."""
        name = "tdpbf16ps" if self.dtype is dtypes.bfloat16 else "tdpbusd"
        numbers = (sums, _FIRST_ROWS + rows, _FIRST_COLUMNS + columns)
        _do(e, name, ", ".join(f"i8 {n}" for n in numbers), "i8 immarg, i8 immarg, i8 immarg")

    def multiply_all(
        self,
        e: Emitter,
        rows: int,
        columns: Sequence[int],
        width: int,
        load_rows: Loading,
        load_columns: Loading,
    ) -> None:
        """Add the products of all tiles of rows and columns to the sums i * width + j, through tile 0 of either, which the two fill.

        To and fro, so that the rows of the last product are those of the next.
        """
        there: int | None = None
        for number, j in enumerate(columns):
            load_columns(j)
            for i in range(rows) if number % 2 == 0 else reversed(range(rows)):
                if i != there:
                    load_rows(i)
                there = i
                self.multiply(e, i * width + j, 0, 0)

    def _move(self, e: Emitter, name: str, number: int, pointer: Value, stride: Value | int) -> None:
        step = e.const(stride) if isinstance(stride, int) else stride
        _do(e, name, f"i8 {number}, ptr {pointer.text}, i64 {step.text}", "i8 immarg, ptr, i64")


def _do(e: Emitter, name: str, operands: str, types: str) -> None:
    e.declarations[f"llvm.x86.{name}"] = f"declare void @llvm.x86.{name}({types})"
    e.do(f"call void @llvm.x86.{name}({operands})")

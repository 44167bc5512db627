"""What products by matrix tiles reach, by how many tiles they use: alone on a core, and where its other thread runs another program.

python -m benchmarks.matrix_tiles --seconds 20

A processor renames its tiles, of which there are few, and shares them with the other thread of the core, which on a shared machine is
somebody else's. So all forms run in turns of microseconds, and a round counts as shared if eight tiles took far longer than products alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
import time

import click
import numpy as np
from numpy.typing import NDArray

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.dot_tiles import ROW_BYTES, TILE_GROUPS, TILE_ROWS, TileRegisters, has_tiles
from anycann.codegen.objects import emit_object
from anycann.codegen.values import Value
from anycann.runtime import memory
from anycann.runtime.loader import LoadedCode
from anycann.runtime.thread_pool import ThreadPool
from anycann.support.errors import UsageError
from anycann.target.target import host
from anycann.te import dtypes
from benchmarks.report import markdown

STEPS, REPEATS = 300, 4  # of a turn, and turns of which the best counts
ROW_STRIDE, ROWS_BYTES = 512, 64 * 1024  # from a row to the next, and of all rows
OPERATIONS = 2 * TILE_ROWS * TILE_ROWS * TILE_GROUPS * 2  # of a product of tiles of bfloat16
SLOW = 2.0  # times as long as products alone take eight tiles in a round that is shared


@dataclass(frozen=True)
class Form:
    """Sums of `rows` x `columns` tiles, with a tile for all rows and one for all columns, or `apart`: with one for each.

    loads: whether tiles that are apart are loaded; else products alone are measured.
    """

    rows: int
    columns: int
    apart: bool = False
    loads: bool = True

    @property
    def tiles(self) -> int:
        """How many are used."""
        return self.rows * self.columns + (self.rows + self.columns if self.apart else 2)

    def step(self, e: Emitter, tiles: TileRegisters, a: Value, b: Value) -> None:
        """Load and multiply once."""

        def load_rows(i: int, number: int = 0) -> None:
            tiles.load_rows(e, number, e.gep(a, i * TILE_ROWS * ROW_STRIDE, "i8"), ROW_STRIDE)

        def load_columns(j: int, number: int = 0) -> None:
            tiles.load_columns(e, number, e.gep(b, j * ROW_BYTES, "i8"), self.columns * ROW_BYTES)

        if not self.apart:
            tiles.multiply_all(e, self.rows, range(self.columns), self.columns, load_rows, load_columns)
            return
        for i in range(self.rows) if self.loads else ():
            load_rows(i, i)
        for j in range(self.columns) if self.loads else ():
            load_columns(j, j)
        for i, j in product(range(self.rows), range(self.columns)):
            tiles.multiply(e, i * self.columns + j, i, j)


PRODUCTS, EIGHT_TILES = Form(2, 2, apart=True, loads=False), Form(2, 2, apart=True)
FORMS = (PRODUCTS, EIGHT_TILES, Form(2, 2), Form(3, 1), Form(1, 3), Form(2, 1), Form(1, 2), Form(1, 1))


class Turns:
    """A form compiled, with its operands; columns are read again from `columns_bytes`, a power of two."""

    def __init__(self, form: Form, columns_bytes: int, pool: ThreadPool, operands: Sequence[memory.Bytes]):
        symbol, text = _kernel(form, columns_bytes)
        self._code = LoadedCode({symbol: emit_object(text, host())})
        self._arguments = np.array([operand.ctypes.data for operand in operands], np.int64)
        self._rows = np.array([[self._code.address(symbol), self._arguments.ctypes.data, 1, 0]], np.int64)
        self._times, self._pool, self._operations = np.zeros(2, np.int64), pool, form.rows * form.columns * OPERATIONS * STEPS

    def run(self) -> float:
        """Operations a second of the best of some turns."""
        best = np.inf
        for _ in range(REPEATS):
            self._pool.run(self._rows.ctypes.data, 1, 0, 0, self._times.ctypes.data)
            best = min(best, float(self._times[1] - self._times[0]) * 1e-9)
        return self._operations / best


def _kernel(form: Form, columns_bytes: int) -> tuple[str, str]:
    """Rows advance by a tile a step and begin again after `ROW_STRIDE` bytes, columns after `columns_bytes`."""
    e = Emitter()
    a, b = e.argument(0), e.argument(1)
    tiles = TileRegisters(dtypes.bfloat16, TILE_ROWS, TILE_GROUPS)
    tiles.configure(e)
    with e.loop(e.begin, e.end):
        for number in range(form.rows * form.columns):
            tiles.clear(e, number)
        with e.loop(0, STEPS) as k:
            at = e.binary("and", e.mul(k.index, ROW_BYTES), e.const(ROW_STRIDE - 1))
            columns = e.binary("and", e.mul(k.index, TILE_GROUPS * form.columns * ROW_BYTES), e.const(columns_bytes - 1))
            form.step(e, tiles, e.gep(a, at, "i8"), e.gep(b, columns, "i8"))
    tiles.release(e)
    return e.finish("tiles")


def measure(columns_bytes: int, seconds: float) -> NDArray[np.float64]:
    """Operations a second, [round, form]. Raises UsageError where the processor has no matrix tiles."""
    if not has_tiles(host(), dtypes.bfloat16):
        raise UsageError("this processor has no matrix tiles for bfloat16")
    sizes = ROWS_BYTES, columns_bytes + TILE_GROUPS * 4 * ROW_BYTES
    operands = [memory.allocate(size) for size in sizes]
    for operand in operands:
        operand.view(np.uint16)[:] = 0x3C01  # a number that is neither zero nor so large that sums overflow
    with ThreadPool(1) as pool:
        turns = [Turns(form, columns_bytes, pool, operands) for form in FORMS]
        ends, rounds = time.perf_counter() + seconds, list[list[float]]()
        while time.perf_counter() < ends or not rounds:
            rounds.append([turn.run() for turn in turns])
    return np.array(rounds)


def table(rates: NDArray[np.float64]) -> list[str]:
    """Medians of the rounds in which the core was alone, and of the others."""
    shared = rates[:, FORMS.index(EIGHT_TILES)] * SLOW < rates[:, FORMS.index(PRODUCTS)]
    rows = []
    for number, form in enumerate(FORMS):
        medians = [f"{np.median(rates[chosen, number]) / 1e9:.0f}" if chosen.any() else "" for chosen in (~shared, shared)]
        rows.append([f"{form.rows} x {form.columns}" if form.loads else "products alone", f"{form.tiles}", *medians])
    return [*markdown(["sums", "tiles", "GFLOP/s alone", "GFLOP/s shared"], rows), "", f"{np.mean(shared):.0%} of the rounds were shared"]


@click.command
@click.option("--seconds", default=5.0, show_default=True, help="For each size of the columns.")
def main(seconds: float) -> None:
    """Products of bfloat16 by matrix tiles, operands in the first-level cache and columns in the second."""
    for columns_bytes in (host().l1_bytes // 3, host().l2_bytes // 8):
        size = 1 << (columns_bytes.bit_length() - 1)
        print(f"\ncolumns of {size // 1024} KiB", "", *table(measure(size, seconds)), sep="\n")


if __name__ == "__main__":
    main()

"""The two products of attention of bfloat16: a group of rows times tiles of columns, by matrix tiles or by dot products of pairs."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Protocol

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.attention_tile_plan import LANES, TILE_DEPTH, TiledAttention
from anycann.codegen.kernels.dot_products import DotProducts
from anycann.codegen.kernels.dot_tiles import ROW_BYTES, TILE_GROUPS, TILE_ROWS, TileRegisters, has_tiles
from anycann.codegen.values import Value
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te import dtypes


@dataclass(frozen=True)
class Rows:
    """Rows of memory, so many bytes apart."""

    pointer: Value
    nbytes: int


@dataclass(frozen=True)
class Columns:
    """Tiles of 16 columns one behind the other along k (`emit_column_tiles`), so many bytes from one tile of columns to the next."""

    pointer: Value
    nbytes: int


class Products(Protocol):
    """c = a b, or c += a b; `depth_step` and `columns_step`: what depth and columns are multiples of."""

    depth_step: ClassVar[int]
    columns_step: ClassVar[int]

    def begin(self, e: Emitter) -> None:
        """Called once, in the entry block."""

    def end(self, e: Emitter) -> None:
        """Called once, behind everything."""

    def emit(self, e: Emitter, a: Rows, b: Columns, columns: int, depth: Value, c: Rows, count: Value, adds: bool) -> None:
        """For one or two tiles of columns and a group of rows, of which `count` are wanted; a, b and c have all of them."""


def products_of(plan: TiledAttention, target: Target) -> Products:
    """By matrix tiles where the target has them."""
    return TileProducts(plan) if has_tiles(target, dtypes.bfloat16) else PairProducts(target)


class TileProducts:
    """By matrix tiles: the whole group."""

    depth_step: ClassVar[int] = TILE_DEPTH
    columns_step: ClassVar[int] = 2 * LANES

    def __init__(self, plan: TiledAttention):
        self.row_tiles, self.tiles = plan.row_tiles, TileRegisters(dtypes.bfloat16, TILE_ROWS, TILE_GROUPS)

    def begin(self, e: Emitter) -> None:
        self.tiles.configure(e)

    def end(self, e: Emitter) -> None:
        self.tiles.release(e)

    def emit(self, e: Emitter, a: Rows, b: Columns, columns: int, depth: Value, c: Rows, count: Value, adds: bool) -> None:
        tiles = range(self.row_tiles)
        places = [(i, j, e.gep(c.pointer, i * TILE_ROWS * c.nbytes + j * ROW_BYTES, "i8")) for i in tiles for j in range(columns)]
        for i, j, place in places:
            if adds:
                self.tiles.load_sums(e, i * columns + j, place, c.nbytes)
            else:
                self.tiles.clear(e, i * columns + j)
        # not more sums at once than keep the processor's tiles free (`dot_sums.py`: `TileSums`)
        for part in [range(columns)] if self.row_tiles == 1 else [range(j, j + 1) for j in range(columns)]:
            with e.loop(0, depth, TILE_DEPTH) as k:
                load_rows, load_columns = partial(self._load_rows, e, a, k.index), partial(self._load_columns, e, b, k.index)
                self.tiles.multiply_all(e, self.row_tiles, part, columns, load_rows, load_columns)
        for i, j, place in places:
            self.tiles.store(e, i * columns + j, place, c.nbytes)

    def _load_rows(self, e: Emitter, a: Rows, k: Value, i: int) -> None:
        row = e.add(e.mul(k, 2), i * TILE_ROWS * a.nbytes)
        self.tiles.load_rows(e, 0, e.gep(a.pointer, row, "i8"), a.nbytes)

    def _load_columns(self, e: Emitter, b: Columns, k: Value, j: int) -> None:
        self.tiles.load_columns(e, 0, e.gep(b.pointer, e.add(e.mul(k, ROW_BYTES // 2), j * b.nbytes), "i8"), ROW_BYTES)


class PairProducts:
    """By dot products of two bfloat16: `_ROWS` rows at a time, a pair of a row in all lanes times the pairs of 16 columns."""

    depth_step: ClassVar[int] = 2
    columns_step: ClassVar[int] = LANES
    _ROWS: ClassVar[int] = 8  # divides a tile of rows; two columns of each fill half of the registers

    def __init__(self, target: Target):
        self.dots = DotProducts(dtypes.bfloat16, target)

    def begin(self, e: Emitter) -> None:
        """Nothing."""

    def end(self, e: Emitter) -> None:
        """Nothing."""

    def emit(self, e: Emitter, a: Rows, b: Columns, columns: int, depth: Value, c: Rows, count: Value, adds: bool) -> None:
        with e.loop(0, count, self._ROWS) as row:
            left = Rows(e.gep(a.pointer, e.mul(row.index, a.nbytes), "i8"), a.nbytes)
            sums = e.gep(c.pointer, e.mul(row.index, c.nbytes), "i8")
            places = [e.gep(sums, i * c.nbytes + j * ROW_BYTES, "i8") for i in range(self._ROWS) for j in range(columns)]
            start = [e.load(place, self.dots.sums, 4) if adds else e.zero(self.dots.sums) for place in places]
            with e.loop(0, depth, 2, carried=start) as k:
                k.carry(self._step(e, left, b, columns, k.index, list(k.values)))
            for place, total in zip(places, k.values, strict=True):
                e.store(total, place, 4)

    def _step(self, e: Emitter, a: Rows, b: Columns, columns: int, k: Value, totals: list[Value]) -> list[Value]:
        """totals[row, tile of columns] + the products of the pair at `k`."""
        line = e.gep(b.pointer, e.mul(k, ROW_BYTES // 2), "i8")
        right = [self.dots.second(e, e.gep(line, j * b.nbytes, "i8")) for j in range(columns)]
        pairs, done = e.gep(a.pointer, e.mul(k, 2), "i8"), []
        for i in range(self._ROWS):
            left = self.dots.spread(e, e.gep(pairs, i * a.nbytes, "i8"))
            done += [self.dots.add(e, totals[i * columns + j], left, right[j]) for j in range(columns)]
        return done

"""One matrix product kernel as decided: shape, tile, pointers, writer; and the part of the result that a task computes."""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.halves import even_count
from anycann.codegen.kernels.matmul_rows import ROW_BLOCK
from anycann.codegen.kernels.matmul_shape import MatmulShape, Operand
from anycann.codegen.kernels.matmul_tile import MatmulTile, gathers_rows, row_chunks
from anycann.codegen.kernels.matmul_writer import Fetch, MatmulIndex, Start, Write
from anycann.codegen.values import Value, vector_type
from anycann.support.records import dataclass


@dataclass(frozen=True)
class Heights:
    """How the rows of A are cut into `count` register tiles: `talls` tiles of `tall` rows first, then the others, of `low` rows.

    Panels that tasks share out are cut in the same way. mixed: tall tiles and low ones alternate.
    """

    tall: int
    talls: int
    low: int
    count: int
    mixed: bool = False

    @property
    def most(self) -> int:
        """Rows of the tallest."""
        return self.tall if self.talls else self.low

    def start(self, e: Emitter, tile: Value) -> Value:
        """The first row of a tile; the number of rows for `count`."""
        return e.add(e.mul(tile, self.low), e.mul(self._talls_before(e, tile), self.tall - self.low))

    def is_tall(self, e: Emitter, tile: Value) -> Value:
        """Whether a tile is one of the tall ones, i1."""
        if self.mixed:
            return e.compare("ne", self._talls_before(e, tile), self._talls_before(e, e.add(tile, 1)))
        return e.compare("slt", tile, e.const(self.talls))

    def _talls_before(self, e: Emitter, tile: Value) -> Value:
        return e.udiv(e.mul(tile, self.talls), self.count) if self.mixed else e.smin(tile, e.const(self.talls))


def full_heights(m: int, rows: int) -> Heights:
    """Tiles of `rows` rows, and one of what is left."""
    full, rest = divmod(m, rows)
    return Heights(rows, full, rest or rows, full + (rest > 0))


def even_heights(m: int, rows: int) -> Heights:
    """As many tiles, of heights that differ by one at most: a tile of few rows waits for its sums."""
    return _parts(m, max(1, -(-m // rows)))


def even_parts(m: int, most: int) -> Heights:
    """The same, but an even number of them if there are several."""
    return _parts(m, min(even_count(max(1, -(-m // most))), max(1, m)))


def mixed_heights(m: int, count: int) -> Heights:
    """So many tiles, or as many as there are rows, of which any that follow each other have their share of the rows, give or take one."""
    return _parts(m, min(count, m), mixed=True)


def _parts(m: int, count: int, mixed: bool = False) -> Heights:
    return Heights(m // count + 1, m % count, m // count, count, mixed)


# Panels of a task that takes k in parts, fewer where tasks would be too few for threads to share: by twos and with one thread 128, 197 and
# 256 x 768 x 3072 take 0.98 to 1.0 of the time that they take by fours, 256 x 1024 x 4096 1.02; with two threads 128 x 768 x 3072 takes
# 0.89 to 0.94, 256 0.96, 100 x 640 x 2048, which had seven tasks, 0.87 to 0.92 (Zen 3).
_FEWEST_PANELS, _MOST_PANELS, _ENOUGH_TASKS = 2, 4, 24


@dataclass(frozen=True)
class PanelKernel:
    """Everything decided about one kernel, and the pointers of its operands.

    streams: parts of k that are read side by side. unroll: steps of k in a turn of the innermost loop. group: neighbours of k in the
    lanes of each column (`matmul_narrow.py`). scales: those of B, if it has some. soon: rows of a panel are fetched ahead of their use.
    packs_rows: the rows of A are copied in blocks (`matmul_rows.py`). fetches_rows: they are fetched ahead of their use.
    fetch: asks for what the writer reads beside the sums.
    """

    shape: MatmulShape
    tile: MatmulTile
    lanes: int
    a: Value
    b: Value
    write: Write
    start: Start | None
    inline: bool
    streams: int = 1
    unroll: int = 1
    group: int = 1
    scales: Value | None = None
    soon: bool = True
    packs_rows: bool = False
    fetches_rows: bool = False
    fetch: Fetch | None = None

    @property
    def width(self) -> int:
        return self.tile.vectors * self.lanes

    @property
    def gathers_rows(self) -> bool:
        """True if the rows of A are copied to scratch, [tile of rows][k][row]."""
        return gathers_rows(self.shape, self.tile)

    @property
    def copies_rows(self) -> bool:
        """True if the rows of A are read from scratch."""
        return self.gathers_rows or self.packs_rows

    @property
    def heights(self) -> Heights:
        """Copied rows lie in tiles of one height; rows that threads share out are cut so that each gets as many."""
        m, chunks = self.shape.m, row_chunks(self.shape, self.tile)
        if self.gathers_rows:
            return full_heights(m, self.tile.rows)
        is_shared = self.tile.panels_inner and chunks > 1
        return mixed_heights(m, chunks * self.tile.row_blocks) if is_shared else even_heights(m, self.tile.rows)

    @property
    def left(self) -> Operand:
        """A as the innermost loop reads it: a copy in scratch has the type of the sums."""
        return Operand(self.shape.accumulator if self.gathers_rows else self.shape.a_dtype, self.shape.accumulator)

    @property
    def left_row(self) -> int:
        """Elements of A, or of its copy, to the next row of a register tile."""
        return ROW_BLOCK if self.packs_rows else 1 if self.gathers_rows else self.shape.a.row

    @property
    def left_column(self) -> int:
        """Elements of A, or of its copy, to the next k."""
        return self.tile.rows if self.gathers_rows else self.shape.a.column

    @property
    def right(self) -> Operand:
        """B as the innermost loop reads it: a copy in scratch has the type of the sums."""
        return Operand(self.shape.accumulator if self.tile.copy else self.shape.b_dtype, self.shape.accumulator)

    @property
    def vector(self) -> str:
        return vector_type(self.shape.accumulator.register, self.lanes)

    @property
    def is_blocked(self) -> bool:
        """True if the sums over k are cut, and wait in scratch for the next part."""
        return self.tile.depth < self.shape.k

    @property
    def chunk(self) -> int:
        return self.tile.rows * self.tile.row_blocks

    @property
    def in_parts(self) -> bool:
        """True if tasks take several panels, a part of k after the other (`matmul_parts.py`)."""
        return self.packs_rows and self.is_blocked

    @property
    def panel_groups(self) -> Heights:
        """How panels are shared out to tasks: groups of one size or two, an even number, so that two threads have as many panels."""
        panels = -(-self.shape.n // self.width)
        if not self.in_parts:
            return full_heights(panels, 1)
        tasks = panels * row_chunks(self.shape, self.tile) * self.shape.batches
        return even_parts(panels, min(max(tasks // _ENOUGH_TASKS, _FEWEST_PANELS), _MOST_PANELS))

    @property
    def sums_bytes(self) -> int:
        """Scratch for sums: a register tile on its way to the writer, or all of a task's."""
        rows = self.chunk * self.panel_groups.most if self.is_blocked else self.tile.rows
        return rows * self.width * self.shape.accumulator.nbytes

    @property
    def rows_offset(self) -> int:
        """Where the copy of rows of A begins in scratch: behind the sums and the copy of a panel."""
        panel = min(self.tile.depth, self.shape.k) * self.width * self.shape.accumulator.nbytes if self.tile.copy else 0
        return -(-(self.sums_bytes + panel) // 64) * 64

    @property
    def rows_bytes(self) -> int:
        """Scratch for the copy of rows of A."""
        return self.chunk * self.copied_k * self.shape.accumulator.nbytes if self.copies_rows else 0

    @property
    def copied_k(self) -> int:
        """Elements of a row in the copy of rows of A."""
        return -(-self.shape.k // ROW_BLOCK) * ROW_BLOCK if self.packs_rows else self.shape.k


@dataclass(frozen=True)
class Panel:
    """The part of C that a task computes: `columns` columns from `n` on (a full panel or the last), rows `m` to `m_end`.

    tile, tile_end: the register tiles of these rows.
    """

    batch: tuple[Value, ...]
    tile: Value
    tile_end: Value
    m: Value
    m_end: Value
    n: Value
    number: Value
    columns: int
    vectors: int
    mask: Value | None


def panel_scratch(shape: MatmulShape, lanes: int, tile: MatmulTile, packs_rows: bool) -> int:
    """Bytes of scratch memory: the sums, then the copies of a panel and of rows of A if there are any."""
    nowhere = Value("null", "ptr")
    kernel = PanelKernel(shape, tile, lanes, nowhere, nowhere, _no_write, None, False, packs_rows=packs_rows)
    return kernel.rows_offset + kernel.rows_bytes


def _no_write(e: Emitter, index: MatmulIndex, total: Value, mask: Value | None) -> None:
    raise AssertionError("only sizes are asked of this kernel")

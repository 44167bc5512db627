"""When a matrix product is computed by Strassen's algorithm, how it is cut, and the memory that takes.

Halves of A's rows, of B's columns and of k make seven products of the eight, in the form of Winograd (1971): 15 sums of quarters, of which
those of A are made once for all columns, those of B with the first product that reads them, and those of C in registers.
"""

from __future__ import annotations

from anycann.codegen.halves import even_count
from anycann.codegen.kernels.arithmetic_rate import is_halved
from anycann.codegen.kernels.matmul_default import most_rows
from anycann.codegen.kernels.matmul_kernel import Heights, even_heights
from anycann.codegen.kernels.matmul_shape import MatmulShape, folded
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te import dtypes

# Sums of quarters of A, and of B, that wait in scratch.
SUMS = 4
# Register tiles that wait there: parts of C that two quarters are made of.
PARTS = 3
UNROLL = 2  # steps of k in a turn of the innermost loop


@dataclass(frozen=True)
class StrassenTile:
    """`rows` x `vectors` registers of sums are computed together, over `depth` of k at a time, both halves of it."""

    rows: int
    vectors: int
    depth: int


@dataclass(frozen=True)
class StrassenSizes:
    """What follows from a folded shape and its tile.

    Samples of `sample_rows` rows are cut into `parts` chunks of `chunk_rows` each, the last of which may overlap the one before; a chunk
    into halves of `half` rows, which overlap by one where their number is odd.
    """

    shape: MatmulShape
    tile: StrassenTile
    lanes: int
    sample_rows: int

    @classmethod
    def of(cls, shape: MatmulShape, tile: StrassenTile, lanes: int) -> StrassenSizes:
        """Rows of one matrix of a batch are a sample, if there are enough: then no row has a part in sums with those of another."""
        inner = folded(shape)
        return cls(inner, tile, lanes, shape.m if shape.m >= SAMPLE_ROWS else inner.m)

    @property
    def width(self) -> int:
        """Columns of a panel of B."""
        return self.tile.vectors * self.lanes

    @property
    def pairs(self) -> int:
        """Pairs of panels, one of each half of the columns."""
        return self.shape.n // (2 * self.width)

    @property
    def slices(self) -> int:
        """Parts of k, one after the other."""
        return self.shape.k // self.tile.depth

    @property
    def half_depth(self) -> int:
        return self.tile.depth // 2

    @property
    def parts(self) -> int:
        """Chunks of a sample. A single one that two threads had better share by its rows has an even number."""
        few = -(-self.sample_rows // _MOST_CHUNK_ROWS)
        shares = self.sample_rows == self.shape.m and (self._has_many_rows or self._has_odd_pairs)
        return even_count(max(2, few)) if shares else few

    @property
    def _has_odd_pairs(self) -> bool:
        """True if two threads that share out pairs of panels would not have equal parts."""
        return self.pairs % 2 == 1 and self.pairs < _EVEN_ENOUGH

    @property
    def _has_many_rows(self) -> bool:
        """True if two threads had better share out rows: there are many, or weights are so few that each of them may read all."""
        return self.sample_rows >= _SHARED_ROWS or self.shape.k * self.shape.n <= _FEW_WEIGHTS

    @property
    def chunks(self) -> int:
        return self.shape.m // self.sample_rows * self.parts

    @property
    def together(self) -> int:
        """Chunks that a thread which has all tasks computes together, so that the sums of B are made once."""
        return self.chunks if self.chunks <= 2 else 1

    @property
    def chunk_rows(self) -> int:
        return -(-self.sample_rows // self.parts)

    @property
    def half(self) -> int:
        return -(-self.chunk_rows // 2)

    @property
    def heights(self) -> Heights:
        """How the rows of a half are cut into register tiles."""
        return even_heights(self.half, self.tile.rows)

    @property
    def sum_row(self) -> int:
        """Elements from one row of a sum of quarters of A to the next: an odd number of lines, so that rows do not share a cache set."""
        return (-(-self.shape.k // (2 * _LINE_ELEMENTS)) | 1) * _LINE_ELEMENTS

    @property
    def sum_matrix(self) -> int:
        """Elements of a sum of quarters of A."""
        return self.half * self.sum_row

    @property
    def sum_panel(self) -> int:
        """Elements of a sum of quarters of B, for a pair of panels."""
        return self.half_depth * self.width

    @property
    def register_tile(self) -> int:
        """Elements of a register tile of sums."""
        return self.tile.rows * self.width

    @property
    def result_rows(self) -> int:
        """Rows of a quarter of C that wait for the next part of k, or to be written."""
        return self.half if self.slices > 1 else self.tile.rows

    @property
    def results(self) -> int:
        """Elements of what waits of C for a chunk: its quarters."""
        return 4 * self.result_rows * self.width

    @property
    def begin_bytes(self) -> int:
        """Of A, what a call reads to make its sums, before its first product."""
        return 4 * self.chunk_rows * self.shape.k

    @property
    def scratch_bytes(self) -> int:
        return 4 * (SUMS * self.sum_panel + PARTS * self.register_tile + self.together * (self.results + SUMS * self.sum_matrix))


# So many rows of a sample are a matrix of their own, with which those of other samples have nothing in common.
SAMPLE_ROWS = 64
# Rows whose sums stay in the second-level cache, or nearly; and from how many on two threads share them out, for else each would make the
# sums of all rows, and read rows that the other wrote. Where B has so few elements that each may read all of them, fewer rows are too:
# chains of 48 to 128 rows take 0.77 to 0.91 of the time where two threads have no cache in common (of 32 rows with 768 x 768 1.09).
_MOST_CHUNK_ROWS, _SHARED_ROWS, _LINE_ELEMENTS = 256, 128, 16
_FEW_WEIGHTS = 1 << 18
_EVEN_ENOUGH = 16  # pairs of panels that two threads share about evenly, though their number is odd
_MOST_DEPTH, _LEAST_DEPTH = 1024, 96


def strassen_refusal(shape: MatmulShape, target: Target) -> str | None:
    """Why the algorithm does not compute this product; None if it does."""
    shape = folded(shape)
    if not shape.packed or shape.grouped or shape.scale_rows or shape.batch:
        return "B is no constant matrix of one product"
    if {shape.a_dtype, shape.b_dtype, shape.accumulator} != {dtypes.float32}:
        return f"it is a product of {shape.a_dtype} and {shape.b_dtype}"
    if shape.a.column != 1 or shape.m < 2:
        return "the rows of A do not lie along k, or there are no two"
    return None if strassen_tiles(shape, target) else f"{shape.n} columns or {shape.k} of k are no two halves of whole registers"


def strassen_tiles(shape: MatmulShape, target: Target) -> list[StrassenTile]:
    """Tiles that fit the registers and the halves of the product, the usual one first: of narrow panels, then of most rows.

    10 x 1 takes 0.93 to 1.01 of the time of 8 x 3 or 6 x 4, 0.97 in the mean (30 products): a panel is used from the first-level cache, and
    loads of rows as operands cost nothing there.
    """
    inner, depths = folded(shape), _depths(shape.k, target.lanes)
    found, most = [], _FEW_ROWS if inner.a.row % _APART == 0 else _MOST_ROWS
    for vectors in range(1, 9):
        rows = min(most, most_rows(inner, target, vectors), max(1, -(-inner.m // 2)))
        if rows >= 1 and shape.n and shape.n % (2 * vectors * target.lanes) == 0:
            found += [StrassenTile(rows, vectors, depth) for depth in depths]
    return sorted(found, key=lambda tile: (tile.vectors, -tile.rows, -tile.depth))


# Rows that lie so many elements apart share their place in the first-level cache: 14 of them take 1.08 of the time of the eight products,
# 10 of them 0.91; of others 14 take 0.98 to 1.01 of the time of 10.
_APART, _FEW_ROWS, _MOST_ROWS = 1024, 10, 14


def _depths(k: int, lanes: int) -> list[int]:
    """Equal parts of k whose halves are whole registers."""
    parts = [k // n for n in range(1, k // _LEAST_DEPTH + 1) if k % n == 0]
    return [depth for depth in parts if depth % (2 * lanes) == 0 and depth <= _MOST_DEPTH]


# With less what the sums take is not repaid: 0.95 to 1.04 of the time of the eight products, with more 0.87 to 0.98 (about 150 products of
# 16 to 1000 rows, k of 32 to 4096 and 32 to 4096 columns, one thread).
_LEAST_ROWS, _LEAST_DEEP, _LEAST_COLUMNS = 32, 96, 64


def strassen_gains(shape: MatmulShape, target: Target) -> bool:
    """True where it takes less time: measured on a Zen 4 with AVX-512, others keep the eight products."""
    inner = folded(shape)
    many = inner.m >= (_LEAST_ROWS if inner.m == shape.m else SAMPLE_ROWS) and inner.n >= _LEAST_COLUMNS and inner.k >= _LEAST_DEEP
    return is_halved(target) and many and strassen_refusal(shape, target) is None

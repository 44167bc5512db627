"""How a matrix product is cut: what there is to choose, and what follows from a choice."""

from __future__ import annotations

from typing import Literal, TypeAlias

from anycann.codegen.kernels.arithmetic_rate import has_fma
from anycann.codegen.kernels.matmul_shape import MatmulShape, lanes_of
from anycann.support.records import dataclass
from anycann.target.target import Target

Method: TypeAlias = Literal["panel", "dot"]


@dataclass(frozen=True)
class MatmulTile:
    """`rows` x `vectors` registers of sums are computed together, over `depth` of k at a time.

    row_blocks: register tiles of rows in one task. panels_inner: neighbouring tasks share rows of A and differ in their panel of B (else
    the other way round). copy: a panel of B is copied to scratch before it is used. For the method "dot", `rows` of the shorter
    side and `vectors` along k are taken together, and a task is `row_blocks` groups of as many results as a register has lanes.
    """

    rows: int
    vectors: int
    depth: int
    row_blocks: int
    panels_inner: bool = False
    copy: bool = False


def method(shape: MatmulShape) -> Method:
    """dot: the lanes run along k, for one column, or few rows with columns of B that lie contiguous; panel: they run along n."""
    along_k = shape.a.column == 1 and shape.b.row == 1 and not shape.packed
    few = _FEW_ROWS if shape.k < _LONG_COLUMN else _FEW_LONG_ROWS
    return "dot" if along_k and (shape.n == 1 or shape.m <= few) else "panel"


# Up to so many rows, adding up lanes for every result costs less than transposing B (measured with columns of 64 and of 512).
_FEW_ROWS, _FEW_LONG_ROWS, _LONG_COLUMN = 12, 48, 256


def wants_packing(shape: MatmulShape) -> bool:
    """True if a constant B should be given in panels; a single column is best read as it is."""
    return shape.scale_rows > 0 or not (shape.n == 1 and shape.a.column == 1)


def must_copy(shape: MatmulShape) -> bool:
    """True if the innermost loop cannot read B where it is: its columns are no neighbours, or it has scales."""
    return shape.scale_rows > 0 or (not shape.packed and shape.b.column != 1)


# Rows of A whose neighbours along k lie so far apart share their cache sets, and each is another page: [1024, 1024] x [1024, 256] with A
# transposed took 10.4 ms read in place and takes 5.6 with its rows copied, where MKL takes 4.8.
_FAR_COLUMN_BYTES = 512


def gathers_rows(shape: MatmulShape, tile: MatmulTile) -> bool:
    """True if a task copies its rows of A, in the order in which they are read, for all tasks that share them: A is stored transposed."""
    far = shape.a.column * shape.a_dtype.nbytes >= _FAR_COLUMN_BYTES
    return far and shape.a.row == 1 and shape.a_dtype.is_float and not shape.grouped and tile.panels_inner


# One row reads every weight once, and memory gives more to several streams: 9.4 MB took 0.58 to 0.65 ms for 0.64 to 0.77, with two threads
# 0.38 for 0.49. Two rows and more gain no less from narrow panels.
STREAMS, _STREAMED_K = 4, 256


def streams(shape: MatmulShape, target: Target, tile: MatmulTile) -> int:
    """How many parts of k the one row of A takes side by side: 1 if k is short or cut, or if all their sums do not fit the registers."""
    fits = STREAMS * tile.vectors <= target.registers // 2 and tile.depth >= shape.k
    return STREAMS if fits and is_streamed(shape) else 1


def is_streamed(shape: MatmulShape) -> bool:
    """True for one row and a long constant B: memory is what it waits for."""
    return shape.m == 1 and shape.packed and not shape.grouped and not shape.scale_rows and shape.k >= _STREAMED_K


# A core that two threads share starts three instructions a cycle for each. A tile of 9 x 3, two multiply-adds a cycle, has 3.4 if it counts
# and fetches of the next panel at every k, 3.3 if at every second: products of 64 to 256 rows take 0.96 to 0.99 of the time, BERT-base
# 0.986, and no less with steps of four. With 16 registers a tile has 12 multiply-adds and nine other instructions a step, and four steps
# without fetches of rows that come soon (`fetches_soon`) gain 10 to 20 % beside a neighbour on the core, nothing without one (Zen 3).
_UNROLL, _UNROLLED_K = 2, 16
_FEW_REGISTERS_UNROLL = 4


def unroll(shape: MatmulShape, target: Target, tile: MatmulTile) -> int:
    """Steps of k in a turn of the innermost loop: 1 if k is short or cut oddly, or if products or wider copies need registers too."""
    fused = has_fma(target) and shape.accumulator.is_float and shape.a_dtype is shape.b_dtype is shape.accumulator
    steps = _FEW_REGISTERS_UNROLL if target.has_few_registers else _UNROLL
    whole = tile.depth >= shape.k or tile.depth % steps == 0
    return steps if fused and whole and shape.k >= _UNROLLED_K else 1


_FETCHING_ROWS = 3  # they leave little to do while rows of a panel come: [2, 768] x [768, 768] takes 1.1 of the time without fetches


def fetches_soon(shape: MatmulShape, target: Target) -> bool:
    """True if the innermost loop fetches rows of a panel from the second-level cache: narrow panels the processor foresees in time.

    Without it products with 16 registers take 0.83 to 0.9 of the time beside a neighbour on the core, 0.98 to 1.01 without one (Zen 3).
    """
    return not target.has_few_registers or shape.m <= _FETCHING_ROWS


def row_chunks(shape: MatmulShape, tile: MatmulTile) -> int:
    """Parts into which the rows are cut for tasks."""
    return -(-shape.m // (tile.rows * tile.row_blocks))


# What a short k costs is mostly the trip of its sums through scratch. With 16 registers products with k = 16 and 64 take 0.84 to 0.94 of
# the time without it, with k = 384 it is all the same; columns that are no whole vectors lose by it, 49 of them took 1.29 (Zen 3), but not
# with AVX-512: products with k = 31 take 0.92, with k = 64 0.9 to 0.98 (Zen 4).
_SHORT_K = 64


def writes_registers(shape: MatmulShape, target: Target) -> bool:
    """True if sums should go from registers to a short writer, not through scratch to a loop with one copy of its code."""
    whole = shape.n % lanes_of(shape.accumulator, target.lanes) == 0
    return shape.k <= _SHORT_K and (whole or target.has("avx512f"))

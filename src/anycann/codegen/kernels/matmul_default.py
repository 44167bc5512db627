"""The cut of a matrix product to take without measuring: register tiles by an estimate of cycles, tasks by what the caches hold."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
import math

from anycann.codegen.halves import even_count
from anycann.codegen.kernels.arithmetic_rate import fma_rate, has_fma, is_halved
from anycann.codegen.kernels.matmul_far_rows import FAR_TASKS, cuts_far_rows, far_penalty, shared_rows
from anycann.codegen.kernels.matmul_narrow import k_group
from anycann.codegen.kernels.matmul_packed_rows import may_pack_rows, packed_chunks, packed_depth, packs_rows
from anycann.codegen.kernels.matmul_row_shares import (
    LEAST_KEPT_TILES,
    halved_chunks,
    halves_rows,
    keeps_rows,
    may_keep_rows,
    traffic,
)
from anycann.codegen.kernels.matmul_shape import MatmulShape, folded, lanes_of
from anycann.codegen.kernels.matmul_tile import STREAMS, MatmulTile, gathers_rows, is_streamed, method, must_copy
from anycann.target.target import Target
from anycann.te import dtypes


@lru_cache(maxsize=1024)
def default_tile(shape: MatmulShape, target: Target) -> MatmulTile:
    """The tile with the lowest estimate."""
    return tiles(shape, target)[0]


def tiles(shape: MatmulShape, target: Target) -> list[MatmulTile]:
    """Tiles that fit the registers, best estimate first: the search space of tuning."""
    shape = folded(shape)
    if method(shape) == "dot":
        return [_dot_tile(shape, target)]
    lanes, most = lanes_of(shape.accumulator, target.lanes), _most_written_rows(shape, target)
    sizes = [
        (rows, vectors)
        for vectors in range(1, _most_vectors(shape, target, lanes) + 1)
        for rows in range(1, min(shape.m, most_rows(shape, target, vectors), most) + 1)
    ]
    sizes = sizes or [(1, 1)]
    sizes.sort(key=lambda size: (estimate(shape, target, *size), size[0] * size[1]))
    best = [_tile(shape, target, rows, vectors, order) for rows, vectors in sizes[:16] for order in (False, True)]

    def order(tile: MatmulTile) -> tuple[int, bool, bool, int, bool]:
        size = sizes.index((tile.rows, tile.vectors))
        banded = tile.panels_inner and _writes_bands(shape, target, tile)
        repays, keeps = _repays_gathering(shape, target, tile), keeps_rows(shape, target, tile, _copies(shape, target))
        halves = keeps and halves_rows(shape, target)
        suits = halves or repays or packs_rows(shape, target, tile)
        return size, not banded, not suits, traffic(shape, target, tile), not keeps

    return sorted(dict.fromkeys(best), key=order)


# Rows with which a product waits for its weights: the next panel is fetched while one is used, and both have to stay. Of [4, 3072] x
# [3072, 768] panels of 0.6 MB in place of 1.2 take 0.90 of the time, with two threads 0.87; with 8 rows panels are small enough.
_WAITING_ROWS = 6


def _most_vectors(shape: MatmulShape, target: Target, lanes: int) -> int:
    """Registers along a row of a panel: not more than there are columns, or than memory can follow."""
    most = min(8, max(1, -(-shape.n // lanes)))
    if _writes_far(shape, target) and _by_lines(target):
        return max(1, _LINE_BYTES // (lanes * shape.accumulator.nbytes))
    if is_streamed(shape):
        return min(most, target.registers // (2 * STREAMS))
    if shape.packed and not shape.grouped and shape.m <= _WAITING_ROWS:
        return max(1, min(most, target.l2_bytes // 3 // max(1, shape.k * lanes * shape.b_dtype.nbytes)))
    return most


def most_rows(shape: MatmulShape, target: Target, vectors: int) -> int:
    """Sums, one vector of B each and one of A have to fit; without FMA a product too, with unsigned bytes sums of rows of A."""
    if shape.grouped and shape.b_dtype is dtypes.uint8:
        return (target.registers - vectors - 2) // (vectors + 1)
    return (target.registers - vectors - 1 - (0 if has_fma(target) else 1)) // vectors


# Cycles a register tile costs besides its arithmetic, and those to write one vector of results.
_TILE_CYCLES, _WRITE_CYCLES = 16.0, 4.0
_FMA_LATENCY = 4
_L2_BYTES_PER_CYCLE = 24
_LINE_BYTES, _SETS = 64, 64


def estimate(shape: MatmulShape, target: Target, rows: int, vectors: int) -> float:
    """Cycles of one product with register tiles of this size, from the arithmetic, the loads and what edges waste."""
    lanes = lanes_of(shape.accumulator, target.lanes)
    all_vectors = -(-shape.n // lanes)
    cycles = 0.0
    for tile_vectors, panels in _parts(all_vectors, vectors):
        for tile_rows, blocks in _heights(shape.m, rows):
            step = _step_cycles(shape, target, tile_rows, tile_vectors)
            steps = -(-shape.k * shape.b_dtype.nbytes // 4) if shape.grouped else shape.k
            cycles += panels * blocks * (steps * step + _TILE_CYCLES + _WRITE_CYCLES * tile_rows * tile_vectors)
    return cycles


def tile_estimate(shape: MatmulShape, target: Target, tile: MatmulTile) -> float:
    """Cycles of all products with this tile: those of the register tiles, and those to bring what does not stay in the cache."""
    shape = folded(shape)
    return shape.batches * (estimate(shape, target, tile.rows, tile.vectors) + traffic(shape, target, tile) / _BEYOND_L2_RATE)


_BEYOND_L2_RATE = 10.0  # bytes a cycle


def _parts(total: int, size: int) -> list[tuple[int, int]]:
    """(size, how many) of the full parts and of the remainder."""
    parts = [(size, total // size), (total % size, 1)]
    return [(extent, count) for extent, count in parts if extent and count]


def _heights(m: int, rows: int) -> list[tuple[int, int]]:
    """(rows, how many) of register tiles of up to `rows` rows: as even as they can be."""
    count = max(1, -(-m // rows))
    low, talls = divmod(m, count)
    return [(low + 1, talls), (low, count - talls)] if talls else [(low, count)]


def _step_cycles(shape: MatmulShape, target: Target, rows: int, vectors: int) -> float:
    """Cycles of one k: limited by FMAs, by loads, or by waiting for the sums."""
    halved = is_halved(target)
    widens_b = shape.b_dtype is not shape.accumulator and not _copies(shape, target)
    widened = rows * (shape.a_dtype is not shape.accumulator) + vectors * widens_b
    operations = rows * vectors + (0 if shape.grouped else widened)
    fmas = operations / fma_rate(target)
    loads = vectors + rows / 2 if halved else (vectors + rows) / 2
    panel_row = vectors * target.lanes * 4
    if shape.k * shape.n * 4 > target.l1_bytes:
        far, uses = max(loads, panel_row / _L2_BYTES_PER_CYCLE), 1 if shape.k * panel_row > target.l1_bytes else -(-shape.m // rows)
        loads = (far + (uses - 1) * loads) / uses  # a panel that stays comes from far for the first of its register tiles
    if not may_pack_rows(shape, target):
        fmas *= _stream_penalty(shape, target, rows) * far_penalty(shape, target, vectors)
    return max(fmas, loads, float(_FMA_LATENCY))


def _stream_penalty(shape: MatmulShape, target: Target, rows: int) -> float:
    """Above 1 if the rows of A are many streams, or fall into so few sets of the first-level cache that they evict each other."""
    ways = target.l1_bytes // (_SETS * _LINE_BYTES)
    lines = shape.a.row * shape.a_dtype.nbytes // _LINE_BYTES
    sets = _SETS // math.gcd(lines, _SETS) if lines else _SETS
    crowded = -(-rows // sets) > ways and shape.a.column == 1
    return (1.25 if crowded else 1.0) + 0.004 * max(0, rows - ways)


def _repays_gathering(shape: MatmulShape, target: Target, tile: MatmulTile) -> bool:
    """True if several panels read the copies of rows, or A comes from memory, which is read in order then.

    [1000, 300] x [300, 16] in the cache takes 0.75 of the time without copies, 17 times [1121, 177] x [177, 10] twice the time.
    """
    several = shape.n > tile.vectors * lanes_of(shape.accumulator, target.lanes)
    is_far = shape.batches * shape.m * shape.k * shape.a_dtype.nbytes > target.l2_bytes
    return gathers_rows(shape, tile) and (several or is_far)


# A product of short k does little more than write. Its tasks are bands of rows, few enough that their pages stay known, through all panels:
# [1500, 16] x [16, 2000] takes 0.6 to 0.75 of the time that panel after panel takes. Where B is copied to be read, no band repays that:
# [2000, 16] x [16, 2000] of B transposed takes 1.4 times as long in bands of 40 rows as with all rows, [197, 24] x [24, 4000] 1.6 times.
# Results that stay in the cache need no bands if B lies in rows.
_SHORT_K, _BAND_ROWS = 32, 40
# Results that do not stay are best written a line of eight rows at a time on a Zen 4. Beside bands of 40 rows and 5 vectors [2000, 16] x
# [16, 2000] takes 0.5 of the time, [600, 8] x [8, 3008] 0.75, six times [560, 10] x [10, 1744] 0.55, [3000, 48] x [48, 608] 0.73, with
# k = 96 and more as long or 0.9. A Xeon writes best what lies in few long rows: with 3 rows of 7 vectors [1296, 3] x [3, 262] takes 0.75 of
# the time of such lines, [2500, 8] x [8, 200] 0.84, [2000, 5] x [5, 700] 0.87, and with as many rows as are least work from k = 13 on
# [1000, 40] x [40, 1000] 0.72, [2000, 16] x [16, 2000] 0.83. With k up to 6 it does so where results only leave the first-level cache:
# [800, 1] x [1, 207] takes 0.62 of the time, [1008, 6] x [6, 193] 0.70, 13 times [28, 3] x [3, 276] 0.73, 14 others 0.64 to 1.02.
# With AVX2 that Xeon takes 0.71 to 1.05 of the time of such lines, 0.92 in the mean of 36 drawn ones, and with k up to 6 and results that
# only leave the first-level cache 0.53 to 1.08 of the time without; a Zen without AVX-512 is not measured.
_SHORT_K_OF_LINES, _LINE_ROWS = 64, 8
_SHORT_K_OF_LONG_ROWS, _LONG_ROWS = 12, 3
_SHORT_K_THAT_WRITES, _WRITTEN = 6, 3


def _most_written_rows(shape: MatmulShape, target: Target) -> int:
    """Rows that a register tile should write at most."""
    if not _writes_far(shape, target):
        return shape.m
    if _by_lines(target):
        return _LINE_ROWS
    return _LONG_ROWS if shape.k <= _SHORT_K_OF_LONG_ROWS else shape.m


def _by_lines(target: Target) -> bool:
    return is_halved(target) or (target.lanes < 16 and target.cpu.startswith("znver"))


def _writes_bands(shape: MatmulShape, target: Target, tile: MatmulTile) -> bool:
    """True if a task should be a band of a few rows that goes through all panels."""
    several = shape.n > tile.vectors * lanes_of(shape.accumulator, target.lanes)
    return _writes_far(shape, target) or (several and shape.k <= _SHORT_K and shape.packed and not must_copy(shape))


def _writes_far(shape: MatmulShape, target: Target) -> bool:
    """True if the product waits for its results to be written: they do not stay near, of a few k not in the first-level cache."""
    results = shape.batches * shape.m * shape.n * shape.accumulator.nbytes
    several = shape.n * shape.accumulator.nbytes > _LINE_BYTES
    is_written = shape.k <= _SHORT_K_THAT_WRITES and not _by_lines(target)
    near = _WRITTEN * target.l1_bytes if is_written else target.l2_bytes // 2
    return several and shape.k <= _SHORT_K_OF_LINES and results > near and not must_copy(shape)


# A task is worth handing to a thread from about this many operations on, more where it has to gather its panel of B from rows in place;
# more tasks than this help nobody.
_TASK_FLOPS, _UNPACKED_TASK_FLOPS, _MOST_TASKS = 1_000_000, 4_000_000, 256


def _tile(shape: MatmulShape, target: Target, rows: int, vectors: int, panels_inner: bool) -> MatmulTile:
    lanes = lanes_of(shape.accumulator, target.lanes)
    if panels_inner and may_pack_rows(shape, target):
        blocks = -(-shape.m // rows)
        row_blocks = -(-blocks // min(blocks, packed_chunks(shape)))
        return MatmulTile(rows, vectors, packed_depth(shape, target, rows * row_blocks), row_blocks, panels_inner=True)
    copy = _copies(shape, target)
    panels = max(1, -(-shape.n // (lanes * vectors)))
    blocks = max(1, -(-shape.m // rows))
    most = FAR_TASKS if panels_inner and cuts_far_rows(shape, target) else _MOST_TASKS
    wanted = min(most, shape.flops // (_TASK_FLOPS if shape.packed else _UNPACKED_TASK_FLOPS) + 1)
    chunks = min(blocks, max(1, wanted // (panels * shape.batches or 1)))
    if panels_inner:
        chunks = max(chunks, -(-blocks // max(1, shared_rows(shape, target) // rows)))
    least = -(-(_ROWS_PER_COPY if copy else 4 * rows) // rows)  # a panel is fetched, or copied, once a task
    if panels_inner and halves_rows(shape, target):
        least, chunks = 1, halved_chunks(shape, target, rows, vectors)
    elif panels_inner and may_keep_rows(shape, target, copy):
        least, chunks = LEAST_KEPT_TILES, even_count(max(chunks, min(wanted, 2)))
    row_blocks = max(1, min(blocks, max(-(-blocks // chunks), least)))
    tile = MatmulTile(rows, vectors, max(1, shape.k), row_blocks, panels_inner, copy)
    if panels_inner and _writes_bands(shape, target, tile):
        most = _LINE_ROWS if _writes_far(shape, target) and _by_lines(target) else _BAND_ROWS
        return replace(tile, row_blocks=max(1, min(blocks, most // rows)), copy=False)
    if gathers_rows(shape, tile):
        row_blocks = _gathered_blocks(shape, target, rows, blocks)
    return replace(tile, depth=_depth(shape, target, vectors * lanes, row_blocks), row_blocks=row_blocks)


# Rows that repay the copy of a panel of B, and bytes of their copy that a thread can afford.
_GATHERED_ROWS, _GATHERED_BYTES = 96, 8 << 20


def _gathered_blocks(shape: MatmulShape, target: Target, rows: int, blocks: int) -> int:
    """Register tiles of a task whose rows of A are copied: half of the second-level cache, but enough for the panel of B."""
    nbytes = rows * max(1, shape.k) * shape.accumulator.nbytes
    wanted = max(target.l2_bytes // 2 // nbytes, -(-_GATHERED_ROWS // rows))
    return max(1, min(blocks, wanted, _GATHERED_BYTES // nbytes))


# From so many rows on, a copy of B in place of far-apart rows pays for itself: 72 to 156 GFLOP/s with 128 rows and 4 KiB, 157 to 177 with
# 300 rows and 1200 bytes, 55 to 131 with 64 rows and 2 KiB, 52 to 107 with 32; less than nothing with 256 bytes.
_COPY_ROWS, _FAR_BYTES = 32, 1024
_ROWS_PER_COPY = 384


def _copies(shape: MatmulShape, target: Target) -> bool:
    if shape.packed:
        return shape.scale_rows > 0
    return shape.b.column != 1 or k_group(shape, target) > 1 or (shape.m >= _COPY_ROWS and shape.b.row * shape.b_dtype.nbytes >= _FAR_BYTES)


# A copy of a panel that so few register tiles read is made in parts that stay in the first-level cache: B transposed with 9 rows and
# k = 2420 takes 0.65 of the time, with 14 rows and k = 600 0.82; with 5 tiles it is all the same, with 12 a loss.
_FEW_TILES, _LEAST_DEPTH = 3, 48


def _depth(shape: MatmulShape, target: Target, width: int, row_blocks: int) -> int:
    """All of k, or equal parts of which a panel fills a third of the first-level cache, or at most 3/4 of the second-level one."""
    copies, row_bytes = _copies(shape, target), width * shape.accumulator.nbytes
    if copies and row_blocks <= _FEW_TILES:
        most = max(_LEAST_DEPTH, target.l1_bytes // 3 // row_bytes)
    elif row_blocks == 1:
        most = shape.k
    else:
        most = max(256, target.l2_bytes * 3 // 4 // row_bytes)
    if shape.grouped or shape.k <= most:
        return max(1, shape.k)
    parts = -(-shape.k // most)
    return -(-shape.k // parts // 16) * 16


def _dot_tile(shape: MatmulShape, target: Target) -> MatmulTile:
    """Half the registers for sums of four streams: of up to four rows, or of several vectors along k."""
    lanes = lanes_of(shape.accumulator, target.lanes)
    rows, results = (1, shape.m) if shape.n == 1 else (max(1, min(shape.m, target.registers // 8)), shape.n)
    unroll = max(1, target.registers // 8 // rows)
    groups = max(1, -(-results // lanes))
    per_task = max(1, _TASK_FLOPS // max(1, 2 * lanes * shape.k * (1 if shape.n == 1 else shape.m)))
    return MatmulTile(rows, unroll, max(1, shape.k), min(groups, per_task))

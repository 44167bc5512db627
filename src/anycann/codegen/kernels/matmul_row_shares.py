"""Products whose rows threads share out: each reads rows of A that it wrote itself, and what that costs in reading B again.

A line of memory that one core wrote and another read costs 28 ns to write again, whoever does, where the two do not share a third-level
cache, and 7 where they do; one that nobody else touched costs one (Zen 4, `docs/decisions.md`). Threads that share out columns all read
all of A, so whoever writes its memory next waits: with two threads a LayerNormalization of [197, 768] took 3.3 times as long as with one.
"""

from __future__ import annotations

from dataclasses import replace

from anycann.codegen.halves import even_count
from anycann.codegen.kernels.matmul_far_rows import cuts_far_rows, reads_far_rows, shared_rows
from anycann.codegen.kernels.matmul_packed_rows import may_pack_rows
from anycann.codegen.kernels.matmul_shape import MatmulShape, lanes_of
from anycann.codegen.kernels.matmul_tile import MatmulTile, row_chunks
from anycann.target.target import Target

# Half of A that another thread wrote comes out of its cache. Chains of products with k = n = 128 and 32 to 128 rows took as long with two
# threads that share out columns as with one, which puts a line at some 21 ns, and take 0.6 to 0.75 of that where each keeps its rows. Then
# both read all of B, which is fetched ahead: from memory that is a line in 5 ns.
_COLUMNS_PER_ROW, LEAST_KEPT_TILES = 4, 2

# Rows for which reading a larger B for each half of them is hidden behind their products: 64 of them take 3.7 GB/s of a thread at the peak.
# Their tasks should be some for each of many threads, and have no fewer rows than these halves.
_HALVED_ROWS, _HALVED_K, _ENOUGH_TASKS = 128, 256, 24


def may_keep_rows(shape: MatmulShape, target: Target, copies: bool) -> bool:
    """True if threads should share out rows: reading B twice costs less than fetching half of A. Batches are shared out as they are.

    copies: panels of B are copied, which each of the threads would have to do.
    """
    repaid = (_stays(shape, target) and shape.n <= _COLUMNS_PER_ROW * shape.m) or halves_rows(shape, target)
    return repaid and shape.batches == 1 and not copies


def keeps_rows(shape: MatmulShape, target: Target, tile: MatmulTile, copies: bool) -> bool:
    """True if neighbouring tasks share rows, which are cut for threads, and that is as it should be."""
    return tile.panels_inner and row_chunks(shape, tile) > 1 and may_keep_rows(shape, target, copies)


def halves_rows(shape: MatmulShape, target: Target) -> bool:
    """True if rows are shared out although B does not stay near: there are enough of them, and B is constant and read as it is."""
    is_plain = shape.packed and not shape.scale_rows and shape.batches == 1
    otherwise = may_pack_rows(shape, target) or reads_far_rows(shape, target)
    return is_plain and not otherwise and shape.m >= _HALVED_ROWS and shape.k >= _HALVED_K and not _stays(shape, target)


def halved_chunks(shape: MatmulShape, target: Target, rows: int, vectors: int) -> int:
    """Parts of the rows: a few, or as many as leave those of each in the second-level cache, whichever brings fewer bytes."""
    blocks = -(-shape.m // rows)
    whole = MatmulTile(rows, vectors, shape.k, blocks, panels_inner=True)
    few = min(-(-_ENOUGH_TASKS // _panels(shape, target, whole)), 2 * shape.m // _HALVED_ROWS)
    near = -(-blocks // max(1, shared_rows(shape, target) // rows))
    cuts = [replace(whole, row_blocks=-(-blocks // even_count(parts))) for parts in (max(2, few), max(2, few, near))]
    return row_chunks(shape, min(cuts, key=lambda tile: traffic(shape, target, tile)))


def traffic(shape: MatmulShape, target: Target, tile: MatmulTile) -> int:
    """Bytes that come from behind the second-level cache when one thread takes the tasks in order; from memory if no rows stay there.

    Parts of the rows that exceed that cache come once for every panel.
    """
    a, b, room = shape.m * shape.k * shape.a_dtype.nbytes, _b_bytes(shape), target.l2_bytes // 2
    chunks, panels = row_chunks(shape, tile), _panels(shape, target, tile)
    if reads_far_rows(shape, target):
        return b * chunks if tile.panels_inner else b + (a * panels if cuts_far_rows(shape, target) else 0)
    if not tile.panels_inner:
        return b + (a if a <= room else a * panels)
    again = panels if a > chunks * target.l2_bytes else 1
    return a * again + (b if b <= room else b * chunks)


def _panels(shape: MatmulShape, target: Target, tile: MatmulTile) -> int:
    return -(-shape.n // (tile.vectors * lanes_of(shape.accumulator, target.lanes)))


def _b_bytes(shape: MatmulShape) -> int:
    return shape.k * shape.n * shape.b_dtype.nbytes


def _stays(shape: MatmulShape, target: Target) -> bool:
    """B in the second-level cache, whatever else passes: one of 1 MB, in 8 parts of rows, took one thread 5 % longer."""
    return _b_bytes(shape) <= target.l2_bytes // 4

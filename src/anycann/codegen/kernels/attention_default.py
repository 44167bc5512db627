"""The tile of attention to take without measuring."""

from __future__ import annotations

from dataclasses import replace

from anycann.codegen.kernels.arithmetic_rate import has_fma, is_halved
from anycann.codegen.kernels.attention_shape import AttentionShape, AttentionTile, lie_apart
from anycann.target.target import Target

# From so many rows on, tasks of twice as many read keys and values half as often: 0.90 of the time with 1024 rows, 0.96 with 256.
_MANY_ROWS = 256
# Tasks of 3 registers of rows in place of 2, with 16 registers: 0.88 to 0.98 of the time from 256 to 1500 rows of a depth of 64 to 128,
# 0.94 to 1.0 with 32, but 1.07 with 16, where what is around a register tile of keys is most of it (Zen 3).
_LEAST_DEPTH = 32
# Where rows see no later keys, less rows at once see less that they do not need: 300 to 1024 rows of a depth of 16 to 96 take 0.88 to 0.97
# of the time by two registers of them that they take by four, and of 128 0.87 to 1.04; with so short a depth one register and one block
# of keys take 0.85 to 0.95 (16 x 63 x 289 and 8 x 200 x 200 of 8 and 16; Zen 4).
_CAUSAL_VECTORS, _SHALLOW = 2, 16
# With units of half the width one register of rows and 8 keys, whose tiles end at the diagonal, take 0.65 to 0.90 of the time of two and 14
# (20 to 250 rows, depths of 16 to 128), of 300 to 512 rows 0.88 to 0.93, of 1024 0.94 to 0.97, with blocks so long that their weights leave
# the first-level cache; with AVX2 of 16 to 50 rows 0.83 to 1.01, of more up to 1.06 (Zen 4).
_DIAGONAL_KEYS, _DIAGONAL_BLOCK, _FEW_REGISTERS_OF_ROWS = 8, 1024, 6


# Keys and values that lie apart crowd few cache sets and many pages: with 16 registers tasks of several register tiles of rows copy them
# side by side, values in strips of as many columns as are added up together. With the longer turns of `attention_kernel.py` that takes
# 0.93 of the time with 128, 197 and 512 keys, 0.89 with 1500, and 0.91 and 0.83 beside a neighbour on the core (Zen 3). Fewer rows do not
# repay the copies; more gain little, and threads have to share the tasks.
_COPYING_ROWS, _MOST_ROWS, _LEAST_TASKS = 64, 208, 24


def default_attention_tile(shape: AttentionShape, target: Target) -> AttentionTile:
    """Register tiles and blocks, and how many rows share copies of keys and values."""
    tile = _single_tile(shape, target)
    if not target.has_few_registers or not has_fma(target) or not lie_apart(shape):
        return tile
    rows = tile.vectors * target.lanes
    blocks = -(-shape.rows // rows)
    parts = max(-(-shape.rows // _MOST_ROWS), -(-_LEAST_TASKS // max(1, shape.batches)))
    group = -(-blocks // parts)
    if group * rows < _COPYING_ROWS:
        group = -(-_COPYING_ROWS // rows)
    if blocks < group or shape.batches * -(-blocks // group) < _LEAST_TASKS // 2:
        return tile
    block = tile.block if tile.block >= shape.keys else min(2 * tile.block, -(-shape.keys // tile.keys) * tile.keys)
    return replace(tile, block=block, group=-(-blocks // -(-blocks // group)))


def _single_tile(shape: AttentionShape, target: Target) -> AttentionTile:
    """Sums fill the registers. One block if the weights of all keys fit the first-level cache, else blocks of weights and their values.

    With 16 registers many rows take blocks in any case: the values of a block stay in the first-level cache.
    """
    if _follows_diagonal(shape, target):
        block = min(_DIAGONAL_BLOCK, -(-shape.keys // _DIAGONAL_KEYS) * _DIAGONAL_KEYS)
        return AttentionTile(1, _DIAGONAL_KEYS, block, *_results_of(shape, target, 1))
    wide, many = not target.has_few_registers, shape.rows >= _MANY_ROWS
    triple = many and not wide and has_fma(target) and shape.depth >= _LEAST_DEPTH
    vectors = min(2, -(-shape.rows // target.lanes))
    if 4 * vectors * target.lanes * _seen_keys(shape) <= target.l1_bytes * 3 // 4 and not triple:
        return _direct_tile(shape, target, vectors)
    if wide and shape.reach is not None and shape.depth <= _SHALLOW and 4 * target.lanes * shape.keys <= target.l1_bytes * 3 // 4:
        return _direct_tile(shape, target, 1)
    most = (4 if shape.reach is None else _CAUSAL_VECTORS) if wide else 3 if triple else 2
    vectors = min(most if many else 2, -(-shape.rows // target.lanes))
    spare = 1 if triple else 2
    keys = max(1, min((target.registers - vectors - spare) // vectors, shape.keys))
    keys = -(-shape.keys // -(-shape.keys // keys)) if shape.keys < 4 * keys else keys
    few = 6 if triple else 4, _even_part(-(-shape.width // target.lanes), 2)
    rows, columns = _results(shape, target, vectors) if wide else few
    room = max(4 * keys, target.l1_bytes * 3 // 4 // (4 * (vectors * target.lanes + shape.width)))
    blocks = -(-shape.keys // room)
    block = -(-shape.keys // (blocks * keys)) * keys
    return AttentionTile(vectors, keys, block, rows, columns)


def _follows_diagonal(shape: AttentionShape, target: Target) -> bool:
    """True if rows see so few keys before them that it pays to leave out exactly those behind."""
    if shape.reach is None or shape.reach > shape.rows or shape.keys < _DIAGONAL_KEYS:
        return False
    few = target.has_few_registers and has_fma(target) and shape.rows <= _FEW_REGISTERS_OF_ROWS * target.lanes
    return is_halved(target) or few


def _results_of(shape: AttentionShape, target: Target, vectors: int) -> tuple[int, int]:
    """Rows and registers of columns that are added up together, whatever the registers."""
    return (4, _narrow_columns(shape, target, 4)) if target.has_few_registers else _results(shape, target, vectors)


def _seen_keys(shape: AttentionShape) -> int:
    """Those that some row sees: of 51 rows and 505 keys 51, where none sees later ones. One block of them takes 0.81 to 1.0 of the time."""
    return shape.keys if shape.reach is None else min(shape.keys, max(1, shape.rows + shape.reach))


_TILE_CYCLES, _LATENCY = 60, 4  # around a register tile of keys, and of a multiply-add


def _direct_tile(shape: AttentionShape, target: Target, vectors: int) -> AttentionTile:
    """One block of keys, in register tiles that leave little for the last one: 0.94 of the time with 128, 197 and 257 keys."""
    most = max(1, min((target.registers - vectors - 2) // vectors, shape.keys))

    def cycles(keys: int) -> int:
        tiles = [keys] * (shape.keys // keys) + ([shape.keys % keys] if shape.keys % keys else [])
        return sum(shape.depth * max(size * vectors // 2, _LATENCY) + _TILE_CYCLES for size in tiles)

    keys = min(range(most, 0, -1), key=cycles)
    return AttentionTile(vectors, keys, -(-shape.keys // keys) * keys, *_results_of(shape, target, vectors))


# Results of four registers, heads of 64, as 6 x 4 in place of 8 x 2 sums take 0.93 to 1.0 of the time of all attention from 50 to 2000 keys
# (Xeon of the fifth generation). Those of eight registers take 1.02 by them.
_WHOLE_ROW, _WHOLE_ROWS = 4, 6


def _results(shape: AttentionShape, target: Target, vectors: int) -> tuple[int, int]:
    """Rows and registers of columns that are added up together, with 32 registers."""
    columns = -(-shape.width // target.lanes)
    if columns == _WHOLE_ROW and target.lanes == 16 and not is_halved(target):
        return _WHOLE_ROWS, _WHOLE_ROW
    return 8 if vectors * target.lanes % 8 == 0 else 4, _even_part(columns, 3)


def _narrow_columns(shape: AttentionShape, target: Target, rows: int) -> int:
    """Two or three registers of columns: 4 x 2 sums wait for themselves, 4 x 3 may leave one column, which does so twice as long.

    Three take 0.89 to 0.97 of the time with 128 and 197 keys of 48 and 64 columns (Zen 3).
    """
    vectors = -(-shape.width // target.lanes)

    def cycles(columns: int) -> float:
        parts = [columns] * (vectors // columns) + ([vectors % columns] if vectors % columns else [])
        return sum(max(rows * part / 2, _LATENCY) + 0.5 for part in parts)

    return min((_even_part(vectors, most) for most in ((2, 3) if has_fma(target) else (2,))), key=cycles)


def _even_part(total: int, most: int) -> int:
    """The largest of as few parts of at most `most` as there can be."""
    return -(-total // -(-total // most))

"""Attention of bfloat16 by matrix tiles, and by pairs, against float64: odd sizes, strides, masks, blocks of keys; where it is not taken.

On a processor without tiles the same problems are computed by the other kernel, and have to be exact too.
"""

from dataclasses import replace

import numpy as np
import pytest

from anycann.codegen.kernels.attention_default import default_attention_tile
from anycann.codegen.kernels.attention_shape import AttentionShape
from anycann.codegen.kernels.attention_tile_plan import TiledAttention, is_tiled
from anycann.target.target import NAMED, by_name
from anycann.te import dtypes
from anycann.te.strided import Strided
from tests.codegen.kernels.jit import assert_compiles_everywhere, runs
from tests.codegen.kernels.test_attention import assert_exact, masked, shape_of, write

TILES = replace(by_name("avx512"), features=by_name("avx512").features + ",+avx512bf16,+amx-tile,+amx-bf16")
PAIRS = by_name("znver4")
SIZES = [(9, 1, 1, 1), (16, 32, 32, 32), (17, 33, 31, 15), (40, 64, 65, 33), (50, 197, 64, 64), (70, 300, 20, 130), (290, 40, 8, 24)]


def halves(*size: int, heads_last: bool = True) -> AttentionShape:
    return replace(shape_of(*size, heads_last=heads_last), dtype=dtypes.bfloat16)  # type: ignore[misc]


@pytest.mark.parametrize("heads_last", [True, False])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_any_size_is_exact_to_the_rounding_of_weights(size: tuple[int, int, int, int], heads_last: bool) -> None:
    shape = halves(*size, heads_last=heads_last)
    assert is_tiled(shape, TILES)
    assert_exact(shape)


@pytest.mark.parametrize("size", [(20, 37, 24, 33), (40, 520, 33, 40)], ids=str)
def test_keys_may_lie_side_by_side(size: tuple[int, int, int, int]) -> None:
    rows, keys, depth, _ = size
    shape = halves(*size)
    shape = replace(shape, key=Strided.contiguous((*shape.batch, depth, keys)).transposed((0, 1, 3, 2)))
    assert is_tiled(shape, TILES)
    assert_exact(shape)
    assert_exact(replace(shape, reach=keys - rows))


@pytest.mark.parametrize(("rows", "keys", "reach"), [(50, 50, 0), (20, 50, 30), (50, 20, 0), (33, 70, 5), (300, 300, 0), (40, 600, 3)])
def test_rows_see_the_keys_up_to_their_own(rows: int, keys: int, reach: int) -> None:
    assert_exact(replace(halves(rows, keys, 16, 16), reach=reach))


@pytest.mark.parametrize("of", [(2, 1, 1, 301), (37, 301), (2, 3, 37, 301), (1, 3, 37, 1)], ids=str)
@pytest.mark.parametrize("hidden", [-np.inf, float(np.finfo(np.float32).min), -1.5])
def test_masks_are_added_wherever_they_broadcast(of: tuple[int, ...], hidden: float) -> None:
    shape, mask = masked(halves(37, 301, 20, 20), of, hidden)
    assert is_tiled(shape, TILES)
    assert_exact(shape, masks=(mask,))


def test_several_masks_a_cap_and_a_reach_apply_in_order() -> None:
    shape, first = masked(replace(halves(37, 290, 20, 20), softcap=2.0, reach=260), (37, 290), -2.0, replaces=True)
    shape, second = masked(shape, (2, 3, 37, 290), -1.0)
    shape, third = masked(shape, (2, 1, 1, 290), -np.inf)
    assert_exact(shape, masks=(first, second, third))


@pytest.mark.parametrize("empty_is_zero", [False, True])
def test_a_row_that_sees_no_key_is_no_number_or_zero(empty_is_zero: bool) -> None:
    shape, mask = masked(replace(halves(19, 21, 8, 8), empty_is_zero=empty_is_zero), (19, 21), -np.inf)
    mask[4] = -np.inf
    assert_exact(shape, masks=(mask,))
    assert_exact(replace(halves(70, 21, 8, 8), empty_is_zero=empty_is_zero, reach=-40))


@pytest.mark.parametrize("scale", [50.0, -0.3])
def test_scores_may_be_large_or_turned_round(scale: float) -> None:
    assert_exact(replace(halves(20, 300, 24, 33), scale=scale))


def test_heads_share_their_keys() -> None:
    key = Strided.contiguous((2, 30, 2, 16)).transposed((0, 2, 1, 3)).reshaped((2, 2, 1, 30, 16))
    assert key is not None
    shared = key.broadcast((2, 2, 3, 30, 16)).reshaped((2, 6, 30, 16))
    assert shared is not None
    shape = replace(shape_of(20, 30, 16, 16, (2, 6)), dtype=dtypes.bfloat16)
    assert_exact(replace(shape, key=shared, value=shared))


@pytest.mark.parametrize("reach", [None, 3])
def test_tiles_compile_on_any_machine(reach: int | None) -> None:
    shape = replace(halves(40, 300, 24, 20), reach=reach)
    assert "tdpbf16ps" in "\n".join(write(shape, TILES, default_attention_tile(shape, TILES))[0].lines)
    assert_compiles_everywhere(lambda t: write(shape, t, default_attention_tile(shape, t))[0], [TILES])


def test_pairs_compile_on_any_machine() -> None:
    shape = replace(halves(40, 300, 24, 20), reach=3)
    text = "\n".join(write(shape, PAIRS, default_attention_tile(shape, PAIRS))[0].lines)
    assert "dpbf16ps.512" in text
    assert "tdpbf16ps" not in text
    assert_compiles_everywhere(lambda t: write(shape, t, default_attention_tile(shape, t))[0], [PAIRS])


@pytest.mark.skipif(not runs(PAIRS), reason="the processor has no dot products of bfloat16")
@pytest.mark.parametrize("size", [(9, 1, 1, 1), (17, 33, 31, 15), (50, 197, 64, 48), (70, 300, 20, 130)], ids=str)
def test_pairs_are_exact_to_the_rounding_of_weights(size: tuple[int, int, int, int]) -> None:
    rows, keys, *_ = size
    shape = halves(*size)
    assert is_tiled(shape, PAIRS)
    assert_exact(shape, PAIRS)
    assert_exact(replace(shape, reach=keys - rows // 2), PAIRS)
    shape, mask = masked(replace(shape, softcap=2.0), (rows, keys), -1.5)
    assert_exact(shape, PAIRS, masks=(mask,))


def test_what_tiles_cannot_do_is_left_to_the_other_kernels() -> None:
    shape = halves(40, 40, 16, 16)
    assert is_tiled(shape, TILES)
    assert not any(is_tiled(shape, target) for target in NAMED.values())
    assert not is_tiled(replace(shape, dtype=dtypes.float32), TILES)
    assert not is_tiled(halves(2, 40, 16, 16), TILES)
    apart = Strided.contiguous((2, 40, 16, 3, 2)).transposed((0, 3, 1, 2, 4)).sliced(4, 0, 1)
    assert apart is not None
    query = apart.reshaped((2, 3, 40, 16))
    assert query is not None
    assert not is_tiled(replace(shape, query=query), TILES)


def test_tasks_are_enough_for_threads_and_cover_every_row() -> None:
    for rows in (9, 16, 17, 64, 257, 1500):
        for batch in ((1,), (3,), (2, 12)):
            plan = TiledAttention(replace(shape_of(rows, 50, 16, 16, (1, *batch)), dtype=dtypes.bfloat16))
            assert (plan.blocks - 1) * plan.rows < rows <= plan.blocks * plan.rows
            assert plan.tasks >= min(4, -(-rows // 64) * plan.shape.batches)

"""Attention kernels against float64: odd sizes, strides, masks, blocks of keys; nothing written outside, poison in the result."""

from dataclasses import replace
import random

import numpy as np
import pytest

from anycann.codegen.contract_attention import refuse_attention
from anycann.codegen.conversions import to_storage
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.attention import attention_scratch_bytes, emit_attention
from anycann.codegen.kernels.attention_default import default_attention_tile
from anycann.codegen.kernels.attention_shape import AttentionShape, AttentionTile, Pointers, Score, copies_keys, copies_values
from anycann.codegen.kernels.attention_space import AttentionSpace
from anycann.codegen.kernels.matmul_writer import offset
from anycann.codegen.space import usable
from anycann.codegen.values import Value
from anycann.target.target import NAMED, PROCESSORS, Target, by_name
from anycann.te import dtypes
from anycann.te.contractions import Attention, Viewed
from anycann.te.strided import Strided
from anycann.te.tensor import placeholder
from tests.codegen.kernels.jit import Compiled, assert_compiles_everywhere, runnable

HOST = by_name("host")
SIZES = [(1, 1, 1, 1), (5, 7, 3, 2), (16, 16, 16, 16), (33, 19, 24, 40), (50, 197, 64, 64), (7, 300, 65, 17), (130, 40, 8, 128)]


def shape_of(rows: int, keys: int, depth: int, width: int, batch: tuple[int, ...] = (2, 3), heads_last: bool = True) -> AttentionShape:
    """Operands as projections make them, [batch, rows, heads, depth], or with the heads in front."""

    def view(count: int, columns: int) -> Strided:
        if not heads_last:
            return Strided.contiguous((*batch, count, columns))
        return Strided.contiguous((batch[0], count, *batch[1:], columns)).transposed((0, *range(2, len(batch) + 1), 1, len(batch) + 1))

    views = (view(rows, depth), view(keys, depth), view(keys, width))
    return AttentionShape(batch, rows, keys, depth, width, *views, scale=depth**-0.5)


def elements(array: np.ndarray, view: Strided) -> np.ndarray:
    """The elements of a view, axis after axis."""
    places = np.array(view.offset)
    for axis in view.axes:
        steps = np.array([0])
        for factor in axis.factors:
            steps = np.add.outer(steps, np.arange(factor.extent) * factor.step).reshape(-1)
        places = np.add.outer(places, steps)
    return array.reshape(-1)[places]


def size_of(view: Strided) -> int:
    return 1 + view.offset + sum((f.extent - 1) * f.step for axis in view.axes for f in axis.factors)


def exact(shape: AttentionShape, q: np.ndarray, k: np.ndarray, v: np.ndarray, masks: list[np.ndarray]) -> np.ndarray:
    scores = shape.scale * np.einsum("...md,...td->...mt", q.astype(np.float64), k.astype(np.float64))
    if shape.softcap:
        scores = shape.softcap * np.tanh(scores / shape.softcap)
    for mask, change in zip(masks, shape.scores, strict=True):
        scores = np.where(mask != 0, mask, scores) if change.replaces else scores + mask
    if shape.reach is not None:
        scores = np.where(np.arange(shape.keys) <= np.arange(shape.rows)[:, None] + shape.reach, scores, -np.inf)
    with np.errstate(all="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights = weights / weights.sum(-1, keepdims=True)
    weights = np.nan_to_num(weights) if shape.empty_is_zero else weights
    return np.einsum("...mt,...td->...md", weights, v.astype(np.float64))


def write(shape: AttentionShape, target: Target, tile: AttentionTile) -> tuple[Emitter, int]:
    e = Emitter()
    q, k, v, y, *masks = (e.argument(n) for n in range(4 + len(shape.scores)))
    steps = [int(np.prod((*shape.batch, shape.rows, shape.width)[n + 1 :])) for n in range(len(shape.batch) + 2)]

    def store(e: Emitter, index: tuple[Value, ...], vector: Value, mask: Value | None) -> None:
        place = e.gep(y, offset(e, index, tuple(steps)), shape.dtype.storage)
        value = to_storage(e, vector, shape.dtype)
        if mask is None:
            e.store(value, place, shape.dtype.nbytes)
        else:
            e.masked_store(value, place, shape.dtype.nbytes, mask)

    return e, emit_attention(e, shape, target, tile, Pointers(q, k, v, tuple(masks)), store)


def assert_exact(
    shape: AttentionShape, target: Target = HOST, tile: AttentionTile | None = None, masks: tuple[np.ndarray, ...] = ()
) -> None:
    random = np.random.default_rng()
    views = (shape.query, shape.key, shape.value)
    memory = [random.standard_normal(size_of(view)).astype(shape.dtype.numpy) for view in views]
    tile = tile or default_attention_tile(shape, target)
    e, tasks = write(shape, target, tile)
    y = np.full((*shape.batch, shape.rows, shape.width), 77, shape.dtype.numpy)
    compiled = Compiled(e, "attention", target, attention_scratch_bytes(shape, target, tile))
    compiled([*memory, y, *masks], tasks, parts=3)
    operands = [elements(array, view) for array, view in zip(memory, views, strict=True)]
    want = exact(shape, *operands, [elements(m, s.view) for m, s in zip(masks, shape.scores, strict=True)])
    largest = shape.scale * float(np.abs(np.einsum("...md,...td->...mt", *(o.astype(np.float64) for o in operands[:2]))).max())
    tolerance = {4: 2e-6, 2: 8e-3}[shape.dtype.nbytes] * max(1.0, largest / 10)
    np.testing.assert_allclose(y.astype(np.float64), want, rtol=10 * tolerance, atol=tolerance * 4)


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("heads_last", [True, False])
def test_attention_of_any_size_is_exact_to_rounding(size: tuple[int, int, int, int], heads_last: bool, target: Target) -> None:
    assert_exact(shape_of(*size, heads_last=heads_last), target)


FEW = [(1, 300, 64, 64), (1, 2, 5, 3), (2, 33, 80, 128), (3, 45, 16, 500), (8, 77, 40, 24)]


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize("size", FEW, ids=str)
def test_few_rows_are_exact_with_everything_that_is_done_to_scores(size: tuple[int, int, int, int], target: Target) -> None:
    rows, keys, *_ = size
    assert_exact(shape_of(*size, heads_last=False), target)
    shape = replace(shape_of(*size), softcap=2.0, reach=keys - rows - 1 if keys > rows + 1 else 0)
    shape, first = masked(shape, (2, 1, 1, keys), -1.5, replaces=True)
    shape, second = masked(shape, (rows, keys), -np.inf)
    shape, third = masked(shape, (2, 3, rows, 1), -1.0)
    assert_exact(shape, target, masks=(first, second, third))


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=str)
def test_few_rows_of_halves_are_widened(dtype: dtypes.DType) -> None:
    assert_exact(replace(shape_of(2, 37, 24, 33), dtype=dtype))


@pytest.mark.parametrize("empty_is_zero", [False, True])
def test_few_rows_may_see_no_key(empty_is_zero: bool) -> None:
    shape, mask = masked(replace(shape_of(2, 21, 8, 8), empty_is_zero=empty_is_zero), (2, 21), -np.inf)
    mask[1] = -np.inf
    assert_exact(shape, masks=(mask,))
    assert_exact(replace(shape_of(2, 21, 8, 8), empty_is_zero=empty_is_zero, reach=-1))


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize("rows", [2, 21])
def test_one_element_may_stand_for_a_whole_query_or_key(rows: int, target: Target) -> None:
    shape = shape_of(rows, 40, 16, 16)
    query, key = (Strided.contiguous((*shape.batch, n, 1)).broadcast((*shape.batch, n, 16)) for n in (rows, 40))
    assert_exact(replace(shape, query=query), target)
    assert_exact(replace(shape, key=key), target)


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize("rows", [2, 21])
@pytest.mark.parametrize("bits", [0x7FC00000, 0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF], ids=hex)
def test_a_key_that_is_no_number_leaves_no_result_of_its_head(bits: int, rows: int, target: Target) -> None:
    """Whatever the bits below its exponent are: they meet those of the power of two."""
    shape = shape_of(rows, 33, 16, 16, (1, 2))
    memory = [np.ones(size_of(view), np.float32) for view in (shape.query, shape.key, shape.value)]
    memory[1].view(np.uint32)[0] = bits
    tile = default_attention_tile(shape, target)
    e, tasks = write(shape, target, tile)
    y = np.full((1, 2, rows, 16), 77, np.float32)
    Compiled(e, "attention", target, attention_scratch_bytes(shape, target, tile))([*memory, y], tasks)
    assert np.isnan(y[0, 0]).all()
    np.testing.assert_allclose(y[0, 1], 1, rtol=1e-6)


def test_rows_that_see_no_later_keys_take_tiles_that_end_with_them() -> None:
    """0.65 to 0.97 of the time of two registers of rows and 14 keys on a Zen 4, with AVX2 where rows are few."""
    causal = replace(shape_of(100, 410, 64, 64), reach=0)
    zen = PROCESSORS["znver4"]
    tile = default_attention_tile(causal, zen)
    assert (tile.vectors, tile.keys, tile.block) == (1, 8, 416)
    assert default_attention_tile(replace(causal, reach=310), zen).vectors == 2  # most keys are seen by all rows
    assert default_attention_tile(replace(causal, rows=20), by_name("avx2")).keys == 8
    assert default_attention_tile(causal, by_name("avx2")).keys < 8


@pytest.mark.parametrize("name", sorted(NAMED))
def test_every_target_compiles(name: str) -> None:
    shape = replace(shape_of(19, 40, 24, 20), reach=3)
    assert_compiles_everywhere(lambda t: write(shape, t, default_attention_tile(shape, t))[0], [NAMED[name]])


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16], ids=str)
def test_values_that_lie_apart_or_are_narrow_are_copied(dtype: dtypes.DType, target: Target) -> None:
    shape = replace(shape_of(270, 300, 12, 37), dtype=dtype, reach=30)
    tile = default_attention_tile(shape, target)
    for other in (tile, replace(tile, rows=1, columns=2)):
        assert copies_values(shape, other, target.lanes) or other is tile
        assert_exact(shape, target, other)


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize("size", [(256, 70, 9, 16), (267, 300, 24, 64), (300, 20, 16, 40)], ids=str)
def test_many_rows_are_exact_with_a_last_task_of_fewer(size: tuple[int, int, int, int], target: Target) -> None:
    assert_exact(shape_of(*size, batch=(1, 2)), target)
    assert_exact(replace(shape_of(*size, batch=(1, 2)), reach=size[1] // 3), target)


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
def test_rows_at_once_need_not_divide_those_of_a_task(target: Target) -> None:
    for block in (12, 66):
        assert_exact(shape_of(37, 61, 12, 37), target, AttentionTile(2, 6, block, 6, 2))


@pytest.mark.parametrize("name", sorted(NAMED))
@pytest.mark.parametrize("size", [*SIZES, (300, 300, 64, 64), (1500, 1500, 64, 64), (700, 90, 128, 8)], ids=str)
def test_the_default_tile_is_one_of_the_space_and_fits_the_registers(size: tuple[int, int, int, int], name: str) -> None:
    shape, target = shape_of(*size), by_name(name)
    tile = default_attention_tile(shape, target)
    assert AttentionSpace(shape, target).refusal(tile) is None
    assert tile.vectors * (tile.keys + 1) < target.registers
    assert tile.columns * (tile.rows + 1) < target.registers


GROUPED = [(70, 45, 20, 37), (49, 83, 12, 20), (33, 5, 9, 64), (16, 1, 4, 8), (100, 66, 64, 24)]


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize("size", GROUPED, ids=str)
@pytest.mark.parametrize("block", [12, 120])
def test_rows_share_copies_of_keys_and_values(size: tuple[int, int, int, int], block: int, target: Target) -> None:
    assert_exact(shape_of(*size), target, AttentionTile(1, 6, block, 4, 2, 3))
    assert_exact(shape_of(*size, heads_last=False), target, AttentionTile(2, 6, block, 6, 2, 2))
    shape, mask = masked(replace(shape_of(*size), reach=size[1] // 3, softcap=3.0), (size[0], size[1]), -1e4)
    assert_exact(shape, target, AttentionTile(1, 4, block, 3, 1, 20), masks=(mask,))


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize("block", [12, 120])
def test_rows_that_share_copies_see_no_key_or_some(block: int, target: Target) -> None:
    for reach in (-90, -40, -3, 0, 50):
        shape = replace(shape_of(85, 90, 8, 20), reach=reach, empty_is_zero=True)
        assert_exact(shape, target, AttentionTile(1, 6, block, 4, 2, 4))


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=str)
def test_shared_copies_are_widened(dtype: dtypes.DType) -> None:
    for target in runnable():
        assert_exact(replace(shape_of(70, 37, 24, 33), dtype=dtype), target, AttentionTile(2, 6, 12, 4, 2, 2))


@pytest.mark.parametrize("block", [12, 120])
def test_copies_are_taken_from_packed_projections_and_shared_heads(block: int) -> None:
    """Queries, keys and values of a token lie one behind the other; three heads of queries read one of keys."""
    packed = Strided.contiguous((2, 70, 10, 20)).transposed((0, 2, 1, 3))  # 6 heads of queries, 2 of keys, 2 of values
    query, key, value = (packed.sliced(1, first, count) for first, count in ((0, 6), (6, 2), (8, 2)))
    assert query is not None
    shared = [view.reshaped((2, 2, 1, 70, 20)) for view in (key, value) if view is not None]
    key, value = (view.broadcast((2, 2, 3, 70, 20)).reshaped((2, 6, 70, 20)) for view in shared if view is not None)
    assert key is not None
    assert value is not None
    shape = replace(shape_of(70, 70, 20, 20, (2, 6)), query=query, key=key, value=value, reach=0)
    for target in runnable():
        tile = AttentionTile(2, 6, block, 4, 2, 3)
        assert copies_keys(shape, tile)
        assert_exact(shape, target, tile)


def test_transposed_keys_are_not_copied() -> None:
    shape = shape_of(70, 45, 20, 24)
    key = Strided.contiguous((2, 3, 20, 45)).transposed((0, 1, 3, 2))
    for target in runnable():
        assert_exact(replace(shape, key=key), target, AttentionTile(2, 6, 12, 4, 2, 2))


def test_rows_share_copies_with_few_registers_where_heads_lie_side_by_side() -> None:
    sizes = [(197, 197, 64, 64), (512, 512, 64, 64), (1500, 1500, 64, 64)]
    groups = [default_attention_tile(shape_of(*size, batch=(1, 12)), by_name("avx2")).group for size in sizes]
    assert groups == [7, 8, 8]
    assert default_attention_tile(shape_of(40, 197, 64, 64), by_name("avx2")).group == 1  # few rows do not repay the copies
    assert default_attention_tile(shape_of(197, 197, 64, 64, batch=(1, 1)), by_name("avx2")).group == 1  # nor have threads enough tasks
    for size in sizes:
        assert default_attention_tile(shape_of(*size, heads_last=False), by_name("avx2")).group == 1
        assert default_attention_tile(shape_of(*size), by_name("avx512")).group == 1


def test_keys_that_no_row_sees_are_no_reason_for_blocks() -> None:
    every, seen = shape_of(51, 505, 96, 96), replace(shape_of(51, 505, 96, 96), reach=0)
    assert default_attention_tile(every, NAMED["avx512"]).block < 505
    assert default_attention_tile(seen, NAMED["avx512"]).block >= 505
    assert default_attention_tile(replace(seen, reach=400), NAMED["avx512"]).block < 505


@pytest.mark.parametrize("block", [5, 10, 40, 200])
def test_blocks_of_keys_meet_in_one_softmax(block: int) -> None:
    assert_exact(shape_of(21, 83, 12, 20), tile=AttentionTile(1, 5, block, 4, 1))


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
def test_every_tile_of_the_space_is_exact(target: Target) -> None:
    shape, rng = replace(shape_of(37, 61, 12, 37), reach=24), random.Random()
    space = AttentionSpace(shape, target)
    points = [{p.name: rng.choice(p.choices) for p in space.parameters()} for _ in range(600)]
    tiles = [tile for point in points if (tile := usable(space, point)) is not None][:6]
    assert tiles
    for tile in tiles:
        assert_exact(shape, target, tile)


def masked(shape: AttentionShape, of: tuple[int, ...], hidden: float, replaces: bool = False) -> tuple[AttentionShape, np.ndarray]:
    """A mask of shape `of` with `hidden` at a third of its places, never at the first key."""
    random = np.random.default_rng()
    mask = np.where(random.random(of) < 0.3, np.float32(hidden), np.float32(0 if replaces else 0.5))
    mask[..., 0] = 0
    view = Strided.contiguous(of).broadcast((*shape.batch, shape.rows, shape.keys))
    return replace(shape, scores=(*shape.scores, Score(view, replaces))), mask


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize("of", [(2, 1, 1, 61), (37, 61), (2, 3, 37, 61), (1, 3, 37, 1)], ids=str)
@pytest.mark.parametrize("hidden", [-np.inf, -1e4, float(np.finfo(np.float32).min), -1.5])
def test_masks_are_added_wherever_they_broadcast(of: tuple[int, ...], hidden: float, target: Target) -> None:
    shape, mask = masked(shape_of(37, 61, 20, 20), of, hidden)
    assert_exact(shape, target, masks=(mask,))


def test_several_masks_apply_in_order() -> None:
    shape, first = masked(shape_of(37, 61, 20, 20), (37, 61), -2.0, replaces=True)
    shape, second = masked(shape, (2, 3, 37, 61), -1.0)
    shape, third = masked(shape, (2, 1, 1, 61), -np.inf)
    assert_exact(shape, masks=(first, second, third))


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize(("rows", "keys", "reach"), [(50, 50, 0), (20, 50, 30), (50, 20, 0), (33, 70, 5)])
def test_rows_see_the_keys_up_to_their_own(rows: int, keys: int, reach: int, target: Target) -> None:
    assert_exact(replace(shape_of(rows, keys, 16, 16), reach=reach), target)
    assert_exact(replace(shape_of(rows, keys, 16, 16), reach=reach), target, AttentionTile(1, 3, 9, 4, 1))


@pytest.mark.parametrize("empty_is_zero", [False, True])
def test_a_row_that_sees_no_key_is_no_number_or_zero(empty_is_zero: bool) -> None:
    shape = replace(shape_of(9, 21, 8, 8), empty_is_zero=empty_is_zero)
    shape, mask = masked(shape, (9, 21), -np.inf)
    mask[4] = -np.inf
    assert_exact(shape, masks=(mask,))


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize("empty_is_zero", [False, True])
@pytest.mark.parametrize("keys", [21, 900])
def test_a_task_of_rows_that_see_no_key_writes_them(keys: int, empty_is_zero: bool, target: Target) -> None:
    assert_exact(replace(shape_of(70, keys, 8, 8), empty_is_zero=empty_is_zero, reach=-40), target)


def test_heads_share_their_keys() -> None:
    shape = shape_of(20, 30, 16, 16, (2, 6))
    key = Strided.contiguous((2, 30, 2, 16)).transposed((0, 2, 1, 3)).reshaped((2, 2, 1, 30, 16))
    assert key is not None
    shared = key.broadcast((2, 2, 3, 30, 16)).reshaped((2, 6, 30, 16))
    assert shared is not None
    assert_exact(replace(shape, key=shared, value=shared))


def test_scores_are_capped() -> None:
    assert_exact(replace(shape_of(20, 30, 16, 16), softcap=1.5, scale=2.0))


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=str)
def test_halves_are_widened(dtype: dtypes.DType) -> None:
    assert_exact(replace(shape_of(20, 37, 24, 33), dtype=dtype))


@pytest.mark.parametrize(("rows", "keys", "depth", "width"), [(0, 7, 3, 2), (5, 0, 3, 2), (5, 7, 0, 2), (5, 7, 3, 0)])
def test_operands_without_elements_are_refused(rows: int, keys: int, depth: int, width: int) -> None:
    query, key, value = ((2, rows, depth), (2, keys, depth), (2, keys, width))
    operands = [Viewed(placeholder("x", shape, dtypes.float32), Strided.contiguous(shape)) for shape in (query, key, value)]
    why = refuse_attention(Attention(*operands, (), (), 1.0, (0, 1, 2)))
    assert why == "attention of operands without elements"


def test_large_scores_do_not_overflow() -> None:
    assert_exact(replace(shape_of(20, 37, 24, 33), scale=50.0), tile=AttentionTile(1, 4, 8, 4, 2))


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize("rows", [2, 21])
def test_weights_are_zero_before_they_are_denormal(rows: int, target: Target) -> None:
    """Such numbers take a hundred times as long; a great value would show them."""
    shape, mask = masked(shape_of(rows, 40, 16, 16, (1, 1)), (rows, 40), -90.0)
    mask[:, 1:] = np.linspace(-88, -103, 39)
    tile = default_attention_tile(shape, target)
    e, tasks = write(shape, target, tile)
    values = np.full((40, 16), 1e38, np.float32)
    values[0] = 0
    y = np.full((rows, 16), 77, np.float32)
    nothing = np.zeros((max(rows, 40), 16), np.float32)
    Compiled(e, "attention", target, attention_scratch_bytes(shape, target, tile))([nothing, nothing, values, y, mask], tasks)
    assert not y.any()

"""Copies of keys and values that a task leaves to the next one of its thread: found where they are the same, made again where not."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest

from anycann.codegen.kernels.attention import attention_resumes, attention_scratch_bytes
from anycann.codegen.kernels.attention_default import default_attention_tile
from anycann.codegen.kernels.attention_shape import AttentionShape, AttentionTile
from anycann.codegen.kernels.attention_space import AttentionSpace
from anycann.target.target import Target, by_name
from anycann.te.strided import Strided
from tests.codegen.kernels.jit import Compiled, runnable
from tests.codegen.kernels.test_attention import elements, exact, shape_of, size_of, write

TILE = AttentionTile(1, 6, 48, 2, 2, 4)


class Calls:
    """A kernel whose tasks are called in parts, each told whether it goes on behind the one before."""

    def __init__(self, shape: AttentionShape, target: Target, tile: AttentionTile = TILE):
        rng = np.random.default_rng()
        e, self.tasks = write(shape, target, tile)
        self.shape, self._compiled = shape, Compiled(e, "attention", target)
        self.memory = [rng.standard_normal(size_of(view)).astype(np.float32) for view in (shape.query, shape.key, shape.value)]
        self.y = np.full((*shape.batch, shape.rows, shape.width), np.nan, np.float32)
        scratch = self._scratch = np.full(attention_scratch_bytes(shape, target, tile) + 64, 0xFF, np.uint8)
        self._at = scratch.ctypes.data + -scratch.ctypes.data % 64
        views = (shape.query, shape.key, shape.value)
        self.exact = exact(shape, *(elements(m, view) for m, view in zip(self.memory, views, strict=True)), [])

    def __call__(self, begin: int, end: int, goes_on: bool) -> None:
        arrays = (*self.memory, self.y)
        self._compiled.entry((ctypes.c_void_p * 4)(*(a.ctypes.data for a in arrays)), begin, end, self._at + goes_on)

    def assert_exact(self) -> None:
        np.testing.assert_allclose(self.y, self.exact, rtol=2e-5, atol=1e-5)


def shared_heads(rows: int, keys: int) -> AttentionShape:
    """Three heads of queries read one of keys and one of values."""
    shape = shape_of(rows, keys, 16, 16, (2, 6))
    key = Strided.contiguous((2, keys, 2, 16)).transposed((0, 2, 1, 3)).reshaped((2, 2, 1, keys, 16))
    assert key is not None
    view = key.broadcast((2, 2, 3, keys, 16)).reshaped((2, 6, keys, 16))
    assert view is not None
    return replace(shape, key=view, value=view)


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize("reach", [None, -40, 0, 11, 30])
@pytest.mark.parametrize("step", [1, 2, 3, 5])
def test_calls_that_go_on_are_exact(step: int, reach: int | None, target: Target) -> None:
    for shape in (shape_of(75, 45, 20, 37), shared_heads(75, 45)):
        calls = Calls(replace(shape, reach=reach, empty_is_zero=True), target)
        assert attention_resumes(calls.shape, target, TILE)
        for begin in range(0, calls.tasks, step):
            calls(begin, min(begin + step, calls.tasks), begin > 0)
        calls.assert_exact()


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
def test_keys_and_values_are_copied_once_for_the_tasks_of_a_thread(target: Target) -> None:
    rows = TILE.group * target.lanes  # of a task
    calls = Calls(shape_of(3 * rows, 45, 20, 37, (1, 2)), target)
    assert calls.tasks == 6
    calls(0, 1, goes_on=False)
    kept = [array.copy() for array in calls.memory]
    for array in calls.memory[1:]:
        array[:15] = np.nan  # of the first key of the first head
    calls(1, 3, goes_on=True)
    calls.memory[:] = kept
    calls(3, 6, goes_on=True)
    calls.assert_exact()
    for array in calls.memory[1:]:
        array[:15] = np.nan
        calls(1, 2, goes_on=False)
        assert np.isnan(calls.y[0, 0, rows]).any(), "a call that does not go on copies them again"
        array[:15] = 0
        calls(1, 2, goes_on=False)
        assert not np.isnan(calls.y).any()


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
def test_heads_that_share_keys_share_their_copies(target: Target) -> None:
    calls = Calls(shared_heads(TILE.group * target.lanes, 45), target)
    assert attention_resumes(calls.shape, target, TILE)
    assert calls.tasks == 12
    calls(0, 1, goes_on=False)
    kept = [array.copy() for array in calls.memory]
    for array in calls.memory[1:]:
        array[:16] = np.nan
    calls(1, 3, goes_on=True)
    calls.memory[:] = kept
    calls(3, 12, goes_on=True)
    calls.assert_exact()


def test_only_one_block_of_keys_that_several_tasks_read_is_kept() -> None:
    avx2, shape = by_name("avx2"), shape_of(197, 197, 64, 64, (1, 12))
    assert attention_resumes(shape, avx2, default_attention_tile(shape, avx2))
    assert not attention_resumes(shape, avx2, AttentionTile(2, 6, 102, 4, 3, 7)), "blocks take turns in one copy"
    assert not attention_resumes(shape, avx2, AttentionTile(2, 6, 198, 4, 3, 1)), "nothing is copied for several tiles"
    assert not attention_resumes(shape, avx2, AttentionTile(2, 6, 198, 4, 3, 13)), "a task has all rows of a head"
    assert not attention_resumes(shape, by_name("avx512"), default_attention_tile(shape, by_name("avx512")))


def test_the_estimate_knows_that_copies_repay() -> None:
    """12 heads side by side took 1.51 ms with groups of 7, 1.47 with 13 and 1.67 without (197 rows and keys of 64, Zen 3)."""
    avx2 = by_name("avx2")
    for heads_last, repays in ((True, True), (False, False)):
        space = AttentionSpace(shape_of(197, 197, 64, 64, (1, 12), heads_last), avx2)
        alone, many, all_rows = (space.estimate(AttentionTile(2, 6, 198, 4, 3, group)) for group in (1, 7, 13))
        assert (many < 0.98 * alone) == repays
        assert many == all_rows, "tasks of one thread share their copies"
    blocks = AttentionSpace(shape_of(1500, 1500, 64, 64, (1, 12)), avx2)
    estimates = [blocks.estimate(AttentionTile(3, 4, 144, 6, 2, group)) for group in (8, 4, 2)]
    assert estimates == sorted(estimates), "where blocks take turns each task copies them"

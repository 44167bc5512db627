"""Attention over any number of rows and keys by one kernel: odd sizes, tails, masks, strides, and nothing touched around its arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pytest

from anycann.codegen.kernels.open_attention import ROWS_AT_ONCE, SIZES, Argument, OpenAttention, Size, emit_open_attention, length
from anycann.target.target import Target
from tests.codegen.kernels.jit import Compiled, assert_compiles_everywhere, assert_passes_in_child, guarded, runnable

TARGETS = runnable()
WHATS = [(64, 64, False), (32, 32, True), (5, 7, True), (8, 3, False), (20, 100, True), (1, 1, False)]  # depth, width, masked
# batches, heads, rows, keys
COUNTS = [(1, 4, 1, 60), (2, 3, 5, 7), (1, 1, 1, 1), (1, 2, 33, 8), (2, 1, 70, 29), (1, 5, 2, 3), (3, 1, 2, 17)]
MOST_KEYS = 64


@lru_cache(maxsize=32)
def kernel(what: OpenAttention, target: Target) -> Compiled:
    emitter = emit_open_attention(what, target)
    return Compiled(emitter, "open_attention", target, 4 * ROWS_AT_ONCE * length(MOST_KEYS, target.lanes))


def expected(query: np.ndarray, key: np.ndarray, value: np.ndarray, mask: np.ndarray | float, scale: float) -> np.ndarray:
    """In float64."""
    with np.errstate(invalid="ignore"):
        scores = query.astype(np.float64) @ key.swapaxes(-1, -2).astype(np.float64) * scale + mask
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        found: np.ndarray = weights / weights.sum(-1, keepdims=True) @ value.astype(np.float64)
    return found


def sizes_of(rows: int, keys: int, heads: int, arrays: Sequence[np.ndarray], part_rows: int, lanes: int) -> np.ndarray:
    """What SIZES says, for arrays of four axes in the order of `Argument`; those of one element stand for all."""
    parts = -(-rows // part_rows)
    steps = [0 if size == 1 else step for array in arrays for size, step in zip(array.shape[:3], array.strides[:3], strict=True)]
    numbers = [rows, keys, length(keys, lanes), heads, parts, part_rows, *steps]
    return np.array([*numbers, *[0] * (SIZES - len(numbers))], np.int64)


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def operands(what: OpenAttention, counts: Sequence[int], heads_apart: bool = True, masks: Sequence[int] = (1, 1)) -> list[np.ndarray]:
    """Query, key, value and, if there is one, a mask of `masks` batches and heads; heads apart, or side by side in a row."""
    batches, heads, rows, keys = counts
    found = []
    for count, columns in ((rows, what.depth), (keys, what.depth), (keys, what.width)):
        shape = (batches, heads, count, columns) if heads_apart else (batches, count, heads, columns)
        found.append(drawn(*shape) if heads_apart else drawn(*shape).swapaxes(1, 2))
    return found + ([drawn(*masks, rows, keys)] if what.masked else [])


def compute(what: OpenAttention, target: Target, arrays: Sequence[np.ndarray], parts: int = 1, part_rows: int = 32) -> np.ndarray:
    query, key = arrays[:2]
    batches, heads, rows, _ = query.shape
    result = np.full((batches, rows, heads, what.width), np.nan, np.float32).swapaxes(1, 2)
    placed = [*arrays[:3], result, *arrays[3:]]
    sizes = sizes_of(rows, key.shape[2], heads, placed, part_rows, target.lanes)
    kernel(what, target)([sizes, *placed], batches * heads * int(sizes[Size.PARTS]), parts)
    return result


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("what", WHATS, ids=str)
def test_any_number_of_rows_and_keys(target: Target, what: tuple[int, int, bool]) -> None:
    depth, width, masked = what
    attention = OpenAttention(depth, width, 0.37, masked)
    for counts in COUNTS:
        for heads_apart in (True, False):
            arrays = operands(attention, counts, heads_apart, (1, counts[1]))
            wanted = expected(*arrays[:3], arrays[3] if masked else 0.0, 0.37)
            for parts, part_rows in ((1, 32), (3, 4)):
                got = compute(attention, target, arrays, parts, part_rows)
                np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_masks_and_operands_that_stand_for_all(target: Target) -> None:
    what = OpenAttention(8, 8, 1.0, masked=True)
    query, key, value, _ = operands(what, (2, 3, 5, 21))
    for shape in ((2, 3, 5, 21), (2, 1, 1, 21), (1, 3, 1, 21), (1, 1, 5, 21), (1, 1, 1, 21)):
        mask = drawn(*shape)
        np.testing.assert_allclose(
            compute(what, target, [query, key, value, mask]), expected(query, key, value, mask, 1.0), rtol=2e-5, atol=2e-5
        )
    shared = [query, key[:, :1], value[:1], mask]
    np.testing.assert_allclose(compute(what, target, shared), expected(*shared, 1.0), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_hidden_keys_weigh_nothing_and_what_is_no_number_stays_none(target: Target) -> None:
    what = OpenAttention(8, 8, 1.0, masked=True)
    query, key, value, mask = operands(what, (1, 1, 6, 19))
    mask[..., 0, 3:] = -np.inf
    mask[..., 1, :] = -np.inf
    mask[..., 2, ::2] = -1e9
    mask[..., 3, 17] = np.nan
    mask[..., 4, 2] = np.inf
    got = compute(what, target, [query, key, value, mask])
    wanted = expected(query, key, value, mask, 1.0)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)
    assert np.isnan(got[0, 0, [1, 3, 4]]).all()


def guarded_cases() -> None:
    """Arrays between pages that nothing may touch."""
    for target in TARGETS:
        for depth, width, counts in ((5, 7, (2, 1, 3, 9)), (8, 8, (1, 2, 1, 1)), (33, 20, (1, 1, 4, 17)), (1, 1, (1, 1, 2, 8))):
            what = OpenAttention(depth, width, 0.5, masked=True)
            arrays = operands(what, counts, masks=(1, 1))
            wanted = expected(*arrays, 0.5)
            for places in guarded(*arrays[:3], np.zeros((*counts[:3], width), np.float32), arrays[3]):
                placed = [place.array for place in places]
                sizes = sizes_of(counts[2], counts[3], counts[1], placed, 2, target.lanes)
                tasks = counts[0] * counts[1] * int(sizes[Size.PARTS])
                kernel(what, target).run([sizes.ctypes.data, *(place.address for place in places)], tasks)
                np.testing.assert_allclose(placed[Argument.RESULT - 1], wanted, rtol=2e-5, atol=2e-5)


def test_nothing_is_touched_around_the_operands_or_the_result() -> None:
    assert_passes_in_child("tests.codegen.kernels.test_open_attention", "guarded_cases")


def test_every_processor_has_the_kernel() -> None:
    for masked in (False, True):
        assert_compiles_everywhere(lambda target, masked=masked: emit_open_attention(OpenAttention(20, 9, 1.0, masked), target))  # type: ignore[misc]

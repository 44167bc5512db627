"""Kernels for blocks of rows, with numpy for the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from anycann.om.plan import TensorSpec
from anycann.runtime.row_kernels import BLOCKS, Budget, Host, RowKernels, Strip

FLOAT = np.dtype(np.float32)


class Doubling:
    """2 x and the sums of x along its last axis, for arrays with `block` rows along their first axis but one; it notes what it is fed."""

    def __init__(self, block: int, batch: int, fed: list[np.ndarray]):
        shapes = ((batch, block, 3), (block, batch))
        self.program = SimpleNamespace(outputs=[TensorSpec("", "float32", shape) for shape in shapes])
        self._shapes, self._fed = shapes, fed

    def direct(self, *_: object) -> None:
        """No native function."""

    def run(self, feeds: Sequence[np.ndarray], outputs: Sequence[np.ndarray | None] = (None, None)) -> list[np.ndarray]:
        x, factor = feeds
        assert x.shape == self._shapes[0]
        self._fed.append(x.copy())
        results = []
        for value, place in zip((x * factor, x.sum(-1).T), outputs, strict=True):
            result = np.empty(value.shape, FLOAT) if place is None else place
            assert result.flags.c_contiguous
            result[...] = value
            results.append(result)
        return results


def kernels(batch: int, fed: list[np.ndarray], made: list[int]) -> RowKernels:
    def make(block: int) -> Doubling:
        made.append(block)
        return Doubling(block, batch, fed)

    strips = [Strip(FLOAT, (batch, 7, 3), 1), Strip(FLOAT, (1,), None)]
    return RowKernels(make, ("x", "factor"), ("y", "sums"), strips, (1, 0))  # type: ignore[arg-type]


TWO = np.full(1, 2, FLOAT)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 23, 24, 31, 32, 33, 45, 95, 96, 127, 128, 129, 300])
def test_any_number_of_rows_is_computed_in_blocks_that_are_there(rows: int, batch: int) -> None:
    fed: list[np.ndarray] = []
    made: list[int] = []
    x = np.random.default_rng(rows).standard_normal((batch, rows, 3)).astype(np.float32)
    several = kernels(batch, fed, made)
    for count in sorted(BLOCKS):
        several.run([np.ones((batch, count, 3), FLOAT), TWO])
    fed.clear()
    results = several.run([x, TWO])
    assert results is not None
    np.testing.assert_array_equal(results[0], 2 * x)
    np.testing.assert_allclose(results[1], x.sum(-1).T, rtol=1e-6)
    assert all(array.shape[1] in BLOCKS for array in fed)
    assert sum(array.shape[1] for array in fed) <= max(rows * 4 / 3, rows + 7, 8)


def test_a_larger_block_that_is_there_takes_few_rows_until_that_has_taken_as_long_as_making_a_smaller_one() -> None:
    fed: list[np.ndarray] = []
    made: list[int] = []
    x = np.random.default_rng().standard_normal((2, 300, 3)).astype(np.float32)
    several = kernels(2, fed, made)
    for rows in (28, 36, 5, 0, 300, 9):
        results = several.run([x[:, :rows], TWO])
        assert results is not None
        several.made_seconds = 60.0
        np.testing.assert_array_equal(results[0], 2 * x[:, :rows])
        np.testing.assert_allclose(results[1], x[:, :rows].sum(-1).T, rtol=1e-6)
    assert made == [32, 128]
    several.made_seconds = 0.0
    several.run([x[:, :9], TWO])
    assert made == [32, 128, 8]


def test_a_block_is_filled_up_with_its_last_row() -> None:
    fed: list[np.ndarray] = []
    x = np.arange(9, dtype=np.float32).reshape(1, 3, 3)
    kernels(1, fed, []).run([x, TWO])
    np.testing.assert_array_equal(fed[0], np.concatenate([x, np.repeat(x[:, -1:], 5, axis=1)], axis=1))


@pytest.mark.parametrize(
    "x",
    [np.ones((1, 5, 4), FLOAT), np.ones((2, 5, 3), FLOAT), np.ones((1, 5, 3)), np.ones((5, 3), FLOAT), None],
    ids=["columns", "batch", "dtype", "rank", "absent"],
)
def test_what_the_graph_was_not_made_for_is_refused(x: np.ndarray | None) -> None:
    assert kernels(1, [], []).run([x, TWO]) is None


def test_operands_that_have_not_as_many_rows_are_refused() -> None:
    strips = [Strip(FLOAT, (6, 2), 0), Strip(FLOAT, (6, 2), 0)]
    rows = RowKernels(pytest.fail, ("a", "b"), ("y",), strips, (0,))
    assert rows.run([np.ones((5, 2), FLOAT), np.ones((1, 2), FLOAT)]) is None


def budgeted(host: Host, made: list[int]) -> tuple[RowKernels, Budget]:
    def make(block: int) -> Doubling:
        made.append(block)
        return Doubling(block, 1, [])

    budget = Budget()
    strips = [Strip(FLOAT, (1, 7, 3), 1), Strip(FLOAT, (1,), None)]
    return RowKernels(make, ("x", "factor"), ("y", "sums"), strips, (1, 0), budget, lambda: host), budget  # type: ignore[arg-type]


def test_the_host_computes_rows_for_which_there_is_no_program_and_no_time_left_to_make_one() -> None:
    made: list[int] = []
    rows, budget = budgeted(lambda arrays: [3 * arrays[0], arrays[0].sum(-1).T], made)
    x = np.ones((1, 30, 3), FLOAT)
    for left, factor, blocks in ((0.0, 3, []), (-1.0, 3, []), (1.0, 2, [32]), (0.0, 2, [32])):
        budget.left = left
        results = rows.run([x, TWO])
        assert results is not None
        np.testing.assert_array_equal(results[0], factor * x)
        assert made == blocks


def test_smaller_blocks_that_are_there_take_rows_while_there_is_no_time_left_to_make_a_larger_one() -> None:
    made: list[int] = []
    rows, budget = budgeted(pytest.fail, made)
    x = np.arange(120, dtype=np.float32).reshape(1, 40, 3)
    rows.run([x[:, :5], TWO])
    budget.left = 0.0
    results = rows.run([x, TWO])
    assert results is not None
    np.testing.assert_array_equal(results[0], 2 * x)
    assert made == [8]
    budget.renew()
    rows.run([x, TWO])
    assert made == [8, 32]


def test_a_larger_block_that_another_thread_makes_meanwhile_takes_what_is_left() -> None:
    made: list[int] = []
    rows, budget = budgeted(pytest.fail, made)
    x = np.arange(150, dtype=np.float32).reshape(1, 50, 3)
    rows.run([x[:, :5], TWO])
    small = rows._programs[8].program
    run = small.run

    def meanwhile(feeds: Sequence[np.ndarray], outputs: Sequence[np.ndarray | None] = (None, None)) -> list[np.ndarray]:
        if made == [8]:
            budget.renew()
            rows.run([np.ones((1, 128, 3), FLOAT), TWO])
            budget.left = 0.0
        return run(feeds, outputs)  # type: ignore[arg-type, return-value]

    small.run = meanwhile  # type: ignore[method-assign, assignment]
    budget.left = 0.0
    results = rows.run([x, TWO])
    assert results is not None
    np.testing.assert_array_equal(results[0], 2 * x)
    np.testing.assert_array_equal(results[1], x.sum(-1).T)
    assert made == [8, 128]


def test_making_a_program_takes_of_the_time_that_there_is() -> None:
    rows, budget = budgeted(pytest.fail, [])
    before = budget.left
    rows.run([np.ones((1, 5, 3), FLOAT), TWO])
    assert budget.left < before


def test_several_threads_make_a_program_once() -> None:
    made: list[int] = []
    rows, x = kernels(1, [], made), np.ones((1, 40, 3), FLOAT)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: rows.run([x, TWO]), range(8)))
    assert sorted(made) == [8, 32]
    for found in results:
        assert found is not None
        np.testing.assert_array_equal(found[0], 2 * x)

"""Reads at places of a table that rise slowly: right for every size, within the tensor, and without a gather where processors permute."""

from __future__ import annotations

import numpy as np
import pytest

from anycann.codegen.near_places import permutes_floats
from anycann.codegen.nest_kernel import Output, generate
from anycann.target.target import NAMED, Target, by_name
from anycann.te import dtypes
from anycann.te import tensor as te
from anycann.te.tensor import Compute
from tests.codegen.kernels.jit import guarded, runnable
from tests.codegen.test_narrow_vectors import execute


def read(rows: int, width: int, places: np.ndarray) -> Compute:
    """result[i, j] = source[i, places[j]]."""
    source, table = te.placeholder("source", (rows, width), dtypes.float32), te.table(places)
    return te.compute((rows, len(places)), lambda i, j: source[i, table[j]] * 2.0)


def assert_right(target: Target, rows: int, width: int, places: np.ndarray) -> None:
    kernel = generate([Output("result", read(rows, width, places))], {}, target)
    given = np.random.default_rng().standard_normal((rows, width)).astype(np.float32)
    for source, table, result in guarded(given, places, np.full((rows, len(places)), np.nan, np.float32)):
        named = {"source": source, "result": result}
        execute(kernel, target, [named.get(name, table).address for name in kernel.arguments])
        np.testing.assert_array_equal(result.array, 2 * given[:, places])


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize("count", [1, 7, 16, 17, 33, 64, 75])
def test_places_of_every_size_are_read(target: Target, count: int) -> None:
    random = np.random.default_rng()
    for width in (1, 3, 8, 15, 16, 21, 90):
        slow = np.sort(random.integers(0, width, count))  # of some sizes slow enough, of others not
        for places in (slow, slow[::-1].copy(), random.permutation(slow), np.minimum(np.arange(count) * 3 // 4, width - 1)):
            assert_right(target, 3, width, places)


@pytest.mark.parametrize("target", [*NAMED.values()], ids=lambda target: target.name)
def test_rows_that_grow_are_permuted_where_there_is_an_instruction(target: Target) -> None:
    def ir(places: np.ndarray) -> str:
        return generate([Output("result", read(9, 40, places))], {}, target).ir

    assert ("perm" in ir(np.arange(100) * 2 // 5)) == permutes_floats(target)
    assert "perm" not in ir(np.arange(20) * 2)
    assert "perm" not in ir(np.r_[np.arange(40), np.arange(40)])


def test_the_processors_that_permute() -> None:
    assert [permutes_floats(by_name(name)) for name in ("sse", "avx2", "avx512", "neon")] == [False, True, True, False]

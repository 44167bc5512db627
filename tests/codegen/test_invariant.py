"""What is the same for every channel is computed once, before the loop over channels."""

from __future__ import annotations

import numpy as np
import pytest

from anycann.codegen.accesses import flatten
from anycann.codegen.invariant import invariant
from anycann.codegen.nest_kernel import Output, generate
from anycann.codegen.nest_space import default_nest_tile
from anycann.target.target import Target, by_name
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.layout import Place
from anycann.te.nest import build_nest
from tests.codegen.kernels.jit import runnable
from tests.codegen.test_narrow_vectors import run

SHAPE, PLACES = (2, 5, 70), 45


def picked(operations: int, by_channel: bool = False) -> te.Tensor:
    """y[n, c, k] = x[n, c, place of k], by so many multiplications and additions of a number in memory."""
    source, numbers = te.placeholder("source", SHAPE, dtypes.float32), te.placeholder("numbers", (PLACES,), dtypes.float32)

    def element(n: x.Expr, c: x.Expr, k: x.Expr) -> x.Expr:
        value = numbers[k]
        for _ in range(operations):
            value = value * 0.5 + 3.0
        place = x.cast(x.unary("floor", value), dtypes.int64)
        return source[n, c, x.clamp(place + c if by_channel else place, 0, SHAPE[2] - 1)]

    return te.compute((*SHAPE[:2], PLACES), element)


def moved(tensor: te.Tensor) -> int | None:
    """The loop whose turns share what they compute, by its extent."""
    target = by_name("avx512")
    nest = flatten(build_nest([tensor]), [Place(tensor.shape, "ND")], {}, target.lanes)
    found = invariant(nest, nest.outer[default_nest_tile(nest, target).vector])
    return None if found is None else found.nest.stages[0].over[0].extent


def test_costly_places_are_shared_by_channels() -> None:
    assert moved(picked(12)) == SHAPE[0] * SHAPE[1]
    assert moved(picked(2)) is None
    assert moved(picked(12, by_channel=True)) == SHAPE[0]


@pytest.mark.parametrize("target", runnable(), ids=str)
@pytest.mark.parametrize("by_channel", [False, True])
def test_every_channel_is_read_at_its_places(by_channel: bool, target: Target) -> None:
    rng = np.random.default_rng()
    source, numbers = rng.standard_normal(SHAPE).astype(np.float32), rng.uniform(-3e5, 3e5, PLACES).astype(np.float32)
    value = numbers.copy()
    for _ in range(12):
        value = value * np.float32(0.5) + np.float32(3.0)
    place = np.floor(value).astype(np.int64)[None, :] + (np.arange(SHAPE[1])[:, None] if by_channel else np.zeros((SHAPE[1], 1), np.int64))
    wanted = np.take_along_axis(source, np.broadcast_to(np.clip(place, 0, SHAPE[2] - 1), (SHAPE[0], SHAPE[1], PLACES)), 2)
    got = np.full(wanted.size + 16, np.nan, np.float32)
    kernel = generate([Output("result", picked(12, by_channel))], {}, target)
    arrays = {"source": source, "numbers": numbers, "result": got}
    run(kernel, target, [arrays[name] for name in kernel.arguments])
    np.testing.assert_array_equal(got[: wanted.size].reshape(wanted.shape), wanted)
    assert np.isnan(got[wanted.size :]).all()

"""Groups of weights that are multiplied as they are: which those are, and that sums are exact where they are mixed with others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.dot_direct import LEAST_DEPTH, MAGNITUDES, PAIR, SINGLE, gains_directly, group_time, order_groups
from anycann.codegen.kernels.dot_packing import pack_dots
from anycann.codegen.kernels.dot_plane import as_plane
from anycann.codegen.kernels.dot_products import may_take_magnitudes
from anycann.codegen.kernels.dot_shape import DotPlan, DotTile
from anycann.codegen.kernels.dot_space import DotSpace
from anycann.target.target import NAMED, Target, by_name
from anycann.te import dtypes
from anycann.te.dtypes import DType
from tests.codegen.kernels.jit import Compiled, assert_compiles_everywhere, runs
from tests.codegen.kernels.test_dot_convolution import GROUPED, SHAPES, Array, naive, operands, sizes, write_kernel
from tests.codegen.kernels.test_dot_magnitudes import assert_exact, product

AVX2 = by_name("avx2")

# Four weights each: the most that may be in pairs, that may be single, and that may not, in both signs.
EDGES = [
    [64, 0, -64, 0],
    [-1, 64, 64, -64],
    [127, 1, -128, 0],
    [64, 64, -64, -64],
    [-127, -1, 127, -127],
    [127, 2, 0, 0],
    [0, 0, -128, -1],
    [-128, -128, -128, -128],
    [127, 127, 127, 127],
    [0, 0, 0, 0],
]


def plan_of(depth: int, columns: int, target: Target = AVX2, rows: int = 20) -> DotPlan:
    space = DotSpace(product(rows, depth, columns), target, magnitudes=True)
    return space.plan(space.default())


def mixed(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Weights [O, C, ...] of which groups of channels are of all kinds."""
    spread = rng.choice([1, 12, 40, 128], size=(1, -(-shape[1] // 4), *shape[2:])).repeat(4, axis=1)[:, : shape[1]]
    return np.clip(rng.normal(0, 1, shape) * spread, -128, 127).astype(np.int8)


def test_weights_that_sum_to_128_are_taken_as_they_are_and_those_to_129_are_not() -> None:
    groups = np.zeros((1, 6, 16, 4), np.int8)
    groups[0, 0, 3] = [127, 1, -128, 0]
    groups[0, 1, 15] = [127, 2, 0, 0]
    groups[0, 2, 0] = [0, 0, -128, -1]
    groups[0, 3, 7] = [127, -127, -1, 128 - 1]  # signs apart
    groups[0, 4, 0] = [64, 64, 0, 0]
    groups[0, 5, 15] = [0, 0, -128, 0]
    order = order_groups(groups)
    assert set(order.taken[0, order.direct[0] :].tolist()) == {1, 2}
    assert order.direct.tolist() == [4]


def test_pairs_are_groups_whose_weights_sum_to_128_together() -> None:
    groups = np.zeros((3, 2, 8, 4), np.int8)
    groups[:, 0, 5] = [60, 4, -100, -1]
    groups[0, 1, 5] = [64, 0, 1, -27]
    groups[1, 1, 5] = [65, 0, 0, 0]
    groups[2, 1, 5] = [0, 0, -28, 0]
    order = order_groups(groups)
    assert order.paired.tolist() == [2, 0, 0]
    assert order.direct.tolist() == [2, 2, 2]


@pytest.mark.parametrize("depth", [1, 2, 7, 48, 65])
def test_every_group_is_taken_once_and_loops_may_take_two(depth: int) -> None:
    rng = np.random.default_rng()
    groups = mixed((4 * 16, 4 * depth), rng).reshape(4, 16, depth, 4).swapaxes(1, 2)
    order = order_groups(groups)
    np.testing.assert_array_equal(np.sort(order.taken, axis=1), np.broadcast_to(np.arange(depth), (4, depth)))
    assert (order.paired <= order.direct).all()
    assert not (order.paired % 2).any()
    assert depth % 2 or not (order.direct % 2).any()


@pytest.mark.parametrize("depth", [16, 33, 48])
@pytest.mark.parametrize("share", [0.1, 0.6, 1.0])
def test_groups_of_zeros_are_left_out(depth: int, share: float) -> None:
    rng = np.random.default_rng()
    shape = product(13, 4 * depth, 40)
    w = rng.integers(-128, 128, (40, depth, 4)).astype(np.int8)
    for first in range(0, 40, 8):  # each vector of columns lacks others
        w[first : first + 8, rng.random(depth) < share] = 0
    w = w.reshape(40, 4 * depth, 1, 1)
    assert_exact(shape, operands(shape, rng)[0], w, 5, direct=True)
    plan = replace(plan_of(4 * depth, 40, rows=13), direct=True)
    padded = np.pad(w[..., 0, 0], ((0, plan.all_panels * plan.width - 40), (0, 0))).reshape(plan.all_panels, plan.width, depth, 4)
    present = padded.any(axis=(1, 3)).sum(1)
    assert order_groups(padded.swapaxes(1, 2)).needed.tolist() == (present + (present % 2 if depth % 2 == 0 else 0)).tolist()


@pytest.mark.parametrize("x", [0, 1, 127, 128, 255])
@pytest.mark.parametrize("dtype", [dtypes.uint8, dtypes.int8], ids=str)
@pytest.mark.parametrize("rows", [1, 7])
def test_the_largest_sums_of_each_kind_of_group_are_exact(x: int, dtype: DType, rows: int) -> None:
    rng = np.random.default_rng()
    shape = product(rows, 4 * 60, 19, dtype)
    for columns in (1, 19):  # all columns alike, or each of its own
        w = np.array(EDGES, np.int8)[rng.integers(0, len(EDGES), (columns, 60))].reshape(columns, -1).repeat(19 // columns, axis=0)
        value = np.full((1, rows, 1, shape.in_channels), x, np.uint8).view(dtype.numpy)
        assert_exact(shape, value, w.reshape(19, -1, 1, 1), 0, direct=True)


@pytest.mark.parametrize("kind", range(len(EDGES)))
def test_panels_of_one_kind_of_group(kind: int) -> None:
    shape = product(11, 4 * 9, 33)
    w = np.broadcast_to(np.array(EDGES[kind], np.int8), (33, 9, 4)).reshape(33, 36, 1, 1)
    assert_exact(shape, operands(shape, np.random.default_rng())[0], w, 7, direct=True)


@pytest.mark.parametrize("name", [*SHAPES, *GROUPED])
@pytest.mark.parametrize(("dtype", "zero"), [(dtypes.uint8, 200), (dtypes.int8, -3)])
def test_windows_are_read_in_the_order_of_each_panel(name: str, dtype: DType, zero: int) -> None:
    rng = np.random.default_rng()
    shape = replace((SHAPES | GROUPED)[name], dtype=dtype)
    x, w = operands(shape, rng)
    assert_exact(shape, x, mixed(w.shape, rng), zero, direct=True)


@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 4, 1), (1, 768, 40), (2, 12, 8), (11, 7, 33), (13, 130, 17), (197, 64, 24)])
def test_products_of_odd_sizes(rows: int, depth: int, columns: int) -> None:
    rng = np.random.default_rng()
    shape = product(rows, depth, columns)
    x, w = operands(shape, rng)
    assert_exact(shape, x, mixed(w.shape, rng), 3, direct=True)


@pytest.mark.parametrize("shape", [product(23, 20, 50), GROUPED["groups across panels"]], ids=["product", "groups"])
def test_every_tile_of_the_space_computes_the_same(shape: ConvolutionShape) -> None:
    rng = np.random.default_rng()
    x, w = operands(shape, rng)
    space = DotSpace(shape, AVX2, magnitudes=True)
    for tile in list(dict.fromkeys(t for t in space.candidates() if space.refusal(t) is None))[::16]:
        assert_exact(shape, x, mixed(w.shape, rng), 3, tile, direct=True)


@pytest.mark.parametrize("rest", range(5))
def test_a_smaller_last_tile_computes_the_same(rest: int) -> None:
    rng = np.random.default_rng()
    shape = product(10 + rest, 20, 40)
    x, w = operands(shape, rng)
    assert_exact(shape, x, mixed(w.shape, rng), 3, DotTile(5, 2, 1, 10 + rest, 2, True), direct=True)


def test_panels_that_come_from_behind_the_caches_are_fetched_the_same() -> None:
    rng = np.random.default_rng()
    shape = product(23, 1024, 800)
    assert plan_of(1024, 800, rows=23).fetched_bytes
    x, w = operands(shape, rng)
    assert_exact(shape, x, mixed(w.shape, rng), 3, direct=True)


def test_trained_weights_gain_and_uniform_ones_do_not() -> None:
    rng = np.random.default_rng(1)
    trained = np.clip(rng.normal(0, 30, (100, 256, 1, 1)), -127, 127).astype(np.int8)
    uniform = rng.integers(-128, 128, (100, 256, 1, 1)).astype(np.int8)
    plan = plan_of(256, 100)
    assert gains_directly(plan, trained)
    assert not gains_directly(plan, uniform)
    assert not gains_directly(replace(plan, magnitudes=False), trained)
    few = 4 * (LEAST_DEPTH - 1)
    assert not gains_directly(plan_of(few, 100), trained[:, :few])
    assert gains_directly(plan_of(255, 3), trained[:3, :255])


def test_the_time_of_a_group_is_what_its_weights_are_multiplied_by() -> None:
    plan, weights = plan_of(256, 32), np.zeros((32, 256, 1, 1), np.int8)
    assert group_time(plan, weights) == 0  # nothing is multiplied
    for most, time in ((32, PAIR), (64, SINGLE), (65, MAGNITUDES)):
        assert group_time(plan, np.full_like(weights, most)) == pytest.approx(time)
    weights[:, :192] = 32
    assert group_time(plan, weights) == pytest.approx(0.75 * PAIR)
    weights[:, 128:] = 65
    assert group_time(plan, weights) == pytest.approx((PAIR + MAGNITUDES) / 2)


def test_groups_that_lie_farther_apart_than_a_table_can_tell_are_not_taken() -> None:
    """Two planes of 2 GiB: the place of the second one has 32 bits, without its sign."""
    weights = np.ones((8, 64, 2, 1), np.int8)
    near, far = (as_plane(sizes(64, 8, (3, size, 1 << 13), (2, 1, 1), (1, 1, 1), (0, 0, 0), (1, 1, 1))) for size in (1 << 11, 1 << 12))
    plans = [DotSpace(shape, AVX2, magnitudes=True).plan(DotTile(1, 1, 1, 1, 1)) for shape in (near, far)]
    assert [plan.copied for plan in plans] == [False, False]
    assert [gains_directly(plan, weights) for plan in plans] == [True, False]


@pytest.mark.skipif(not runs(AVX2), reason="this machine has no AVX2")
def test_one_kernel_serves_any_weights() -> None:
    plan = replace(plan_of(64, 40), direct=True)
    e, tasks = write_kernel(plan, 3)
    kernel = Compiled(e, "dots", AVX2, plan.scratch_bytes)
    rng = np.random.default_rng()
    x = operands(plan.shape, rng)[0]
    for w in (mixed((40, 64, 1, 1), rng), np.full((40, 64, 1, 1), -128, np.int8), np.zeros((40, 64, 1, 1), np.int8)):
        want = naive(x, w, plan.shape, 3)
        y = np.full(want.shape, 77, np.int32)
        kernel([x, pack_dots(plan, w, 3), y, y], tasks)
        np.testing.assert_array_equal(y, want)


def test_kernels_compile_for_processors_that_are_not_here() -> None:
    def write(target: Target) -> Emitter:
        return write_kernel(replace(plan_of(20, 40, target, 11), direct=True), 3)[0]

    assert_compiles_everywhere(write, [target for target in NAMED.values() if may_take_magnitudes(target)])

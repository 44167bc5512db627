"""Products with integers that have scales: any size, any number of rows that share a scale, every tile, on every target."""

from dataclasses import replace
import itertools

import numpy as np
import pytest

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels import matmul
from anycann.codegen.kernels.matmul import MatmulShape, MatmulTile, contiguous
from anycann.codegen.kernels.matmul_space import MatmulSpace
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te.dtypes import DType
from tests.codegen.kernels.jit import Compiled, assert_compiles_everywhere, runnable
from tests.codegen.kernels.products import HOST

TARGETS = pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)


def shape_of(m: int, n: int, k: int, scale_rows: int, dtype: DType = dtypes.int8) -> MatmulShape:
    return contiguous((), m, n, k, packed=True, b_dtype=dtype, scale_rows=scale_rows)


def written(shape: MatmulShape, target: Target, tile: MatmulTile) -> tuple[Emitter, int]:
    e = Emitter()
    a, b, scales, c = (e.argument(i) for i in range(4))
    writer = matmul.plain_writer(c, (), shape.n, 1, shape.accumulator)
    return e, matmul.emit_matmul(e, shape, target, tile, a, b, writer, scales=scales)


def check(shape: MatmulShape, target: Target = HOST, tile: MatmulTile | None = None) -> None:
    tile, random = tile or matmul.default_tile(shape, target), np.random.default_rng()
    limits = np.iinfo(shape.b_dtype.numpy)
    a = random.standard_normal((shape.m, shape.k)).astype(np.float32)
    b = random.integers(limits.min, limits.max, (shape.k, shape.n), shape.b_dtype.numpy, endpoint=True)
    scales = random.uniform(0.01, 0.1, (-(-shape.k // shape.scale_rows), shape.n)).astype(np.float32)
    e, tasks = written(shape, target, tile)
    c = np.full((shape.m, shape.n), 77, np.float32)
    width = matmul.panel_width(shape, target, tile)
    operands = [a, matmul.pack_b(shape, target, tile, b), matmul.pack_columns(scales, width), c]
    Compiled(e, "scaled", target, matmul.scratch_bytes(shape, target, tile))(operands, tasks, 3)
    exact = b * np.repeat(scales.astype(np.float64), shape.scale_rows, axis=0)[: shape.k]
    size = np.abs(a.astype(np.float64)) @ np.abs(exact)
    assert (np.abs(c - a @ exact) <= 3 * np.finfo(np.float32).eps * np.sqrt(shape.k + 4) * size).all()


@TARGETS
@pytest.mark.parametrize("size", [(1, 70, 67, 16), (1, 1, 40, 40), (3, 33, 300, 32), (20, 130, 129, 128), (9, 5, 50, 7), (61, 51, 16, 16)])
def test_products_of_any_size_are_exact_to_rounding(size: tuple[int, int, int, int], target: Target) -> None:
    check(shape_of(*size), target)


@TARGETS
def test_default_tiles_of_any_size_copy(target: Target) -> None:
    for size in itertools.product((1, 7, 61, 400), (1, 51, 300), (1, 16, 33, 600)):
        for tile in matmul.tiles(shape := shape_of(*size, 16), target):
            assert MatmulSpace(shape, target).refusal(tile) is None, (size, tile)


@pytest.mark.parametrize("dtype", [dtypes.int16, dtypes.uint8])
def test_integers_may_be_wider_or_unsigned(dtype: DType) -> None:
    check(shape_of(5, 40, 100, 10, dtype))


@pytest.mark.parametrize("depth", [48, 80])
@pytest.mark.parametrize("scale_rows", [1, 32, 200])
def test_parts_of_k_need_not_end_where_scales_do(depth: int, scale_rows: int) -> None:
    shape = shape_of(7, 50, 200, scale_rows)
    check(shape, tile=replace(matmul.default_tile(shape, HOST), depth=depth))


def test_every_tile_of_the_search_space_gives_the_product() -> None:
    shape = shape_of(6, 45, 130, 32)
    tiles = matmul.tiles(shape, HOST)
    for tile in tiles[:8]:
        assert tile.copy
        assert MatmulSpace(shape, HOST).refusal(tile) is None
        check(shape, tile=tile)
    assert "scales" in str(MatmulSpace(shape, HOST).refusal(replace(tiles[0], copy=False)))


def test_weights_stay_integers_in_memory() -> None:
    shape = shape_of(1, 64, 64, 64)
    tile = matmul.default_tile(shape, HOST)
    assert matmul.pack_b(shape, HOST, tile, np.ones((64, 64), np.int8)).nbytes == 64 * 64


def test_every_target_compiles() -> None:
    shape = shape_of(4, 70, 65, 16)
    assert_compiles_everywhere(lambda target: written(shape, target, matmul.default_tile(shape, target))[0])

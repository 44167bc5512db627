"""Convolutions of row-major images with few channels, whose axes join (batches and volumes), against the definition: bytes and bfloat16."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.graphs import assert_same, by_definition, floats, parse, run

RNG = np.random.default_rng()
SHAPES = [
    ((2, 3, 5, 6), (1, 1)),
    ((2, 3, 4, 5, 6), (1, 3, 3)),
    ((1, 4, 3, 5, 7), (1, 3, 3)),
    ((2, 2, 4, 5, 6), (3, 1, 1)),
    ((2, 3, 4, 5, 6), (3, 3, 3)),
]


def text(kind: str, operator: str, result: str, size: tuple[int, ...], kernel: tuple[int, ...]) -> str:
    pads = ", ".join(str(extent // 2) for extent in (*kernel, *kernel))
    dims, out = (", ".join(map(str, shape)) for shape in (size, (size[0], 20, *size[2:])))
    return f"g ({kind}[{dims}] x) => ({result}[{out}] y) {{ y = {operator}<pads=[{pads}]>(x, w) }}"


@pytest.mark.parametrize(("size", "kernel"), SHAPES, ids=str)
def test_bytes_are_exact(size: tuple[int, ...], kernel: tuple[int, ...]) -> None:
    weights = RNG.integers(-128, 128, (20, size[1], *kernel)).astype(np.int8)
    model = parse(text("uint8", "ConvInteger", "int32", size, kernel), w=weights)
    feeds = {"x": RNG.integers(0, 256, size).astype(np.uint8)}
    np.testing.assert_array_equal(run(model, feeds)[0], by_definition(model, feeds)[0])


@pytest.mark.parametrize(("size", "kernel"), SHAPES, ids=str)
def test_bfloat16_is_near(size: tuple[int, ...], kernel: tuple[int, ...]) -> None:
    model = parse(text("float", "Conv", "float", size, kernel), w=floats(20, size[1], *kernel) * 0.2)
    feeds = {"x": floats(*size, seed=1)}
    assert_same(run(model, feeds, precision_mode="mixed_bfloat16"), by_definition(model, feeds), tolerance=0.03)

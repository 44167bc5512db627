"""1 x 1 convolutions with strides take their pixels first, and are 1 x 1 convolutions of all pixels of a smaller image."""

from __future__ import annotations

import numpy as np
import pytest

from anycann.target.target import Target, by_name
from tests.codegen.kernels.jit import runnable
from tests.passes.graphs import assert_same, by_definition, floats, parse, run, told

AVX2 = by_name("avx2")
TARGETS = pytest.mark.parametrize("target", [t for t in runnable() if t.registers < 32], ids=lambda target: target.name)


@TARGETS
@pytest.mark.parametrize(
    ("image", "attributes"),
    [
        ("1, 64, 14, 14", "strides = [2, 2]"),
        ("2, 64, 13, 9", "strides = [2, 2], pads = [0, 0, 0, 0]"),
        ("1, 65, 8, 11", "strides = [1, 3]"),
        ("1, 64, 12, 7", 'strides = [4, 1], auto_pad = "VALID"'),
        ("1, 64, 1, 1", "strides = [2, 2]"),
    ],
)
def test_the_pixels_are_taken_first(image: str, attributes: str, target: Target) -> None:
    channels = int(image.split(", ")[1])
    text = f"g (float[{image}] x) => (float[N, C, H, W] y) {{ c = Conv<{attributes}>(x, w, b) y = Relu(c) }}"
    constants = {"w": floats(130, channels, 1, 1) / 8, "b": floats(130)}
    model, feeds = parse(text, **constants), {"x": floats(*(int(size) for size in image.split(", ")))}
    assert told(model, target=target) == ("StridedPixels applied to c",)
    written_out = parse(text.replace(', auto_pad = "VALID"', ""), **constants)  # which the reference does not know
    assert_same(run(model, feeds, target=target), by_definition(written_out, feeds))


@pytest.mark.parametrize(
    ("weights", "attributes", "reason"),
    [
        ((128, 64, 1, 1), "pads = [1, 1, 1, 1]", "it has groups or padding"),
        ((128, 32, 1, 1), "group = 2", "it has groups or padding"),
        ((64, 64, 1, 1), "dilations = [1, 1]", "it has few channels for each pixel that would be taken"),
    ],
)
def test_others_stay(weights: tuple[int, ...], attributes: str, reason: str) -> None:
    text = f"g (float[1, 64, 14, 14] x) => (float[N, C, H, W] y) {{ y = Conv<strides = [2, 2], {attributes}>(x, w) }}"
    assert told(parse(text, w=floats(*weights)), target=AVX2) == (f"StridedPixels skipped y: {reason}",)


def test_with_many_registers_pixels_stay_where_they_are() -> None:
    text = "g (float[1, 64, 14, 14] x) => (float[N, C, H, W] y) { y = Conv<strides = [2, 2]>(x, w) }"
    assert told(parse(text, w=floats(128, 64, 1, 1))) == ()


@TARGETS
def test_results_are_those_of_the_convolution_with_strides(target: Target) -> None:
    text = "g (float[1, 64, 15, 15] x) => (float[N, C, H, W] y) { y = Conv<strides = [2, 2]>(x, w) }"
    model, feeds = parse(text, w=floats(128, 64, 1, 1)), {"x": floats(1, 64, 15, 15)}
    (taken,) = run(model, feeds, target=target)
    (stepped,) = run(model, feeds, target=target, switched_off=frozenset({"StridedPixels"}))
    np.testing.assert_array_equal(taken, stepped)

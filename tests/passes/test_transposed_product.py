"""Transposed convolutions of few channels as products moved into place, and convolutions whose results are wanted plane by plane."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from anycann.te.layout import NC1HWC0, ND
from tests.passes.graphs import assert_same, by_definition, compile_graph, floats, kernels, parse, run, told


def upsampling(outputs: int, size: int, more: str = "", image: str = "5,7") -> onnx.ModelProto:
    attributes = f"strides=[{size},{size}]{more}"
    return parse(
        f"g (float[2,12,{image}] x) => (float[N,C,H,W] y) {{ t = ConvTranspose<{attributes}>(x, w, b) y = Sigmoid(t) }}",
        w=floats(12, outputs, size, size, seed=1) * 0.3, b=floats(outputs, seed=2),
    )  # fmt: skip


@pytest.mark.parametrize("outputs", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [2, 3])
def test_windows_that_do_not_meet_are_a_product_moved_into_place(outputs: int, size: int) -> None:
    model = upsampling(outputs, size)
    assert "SeparateWindows applied to t" in told(model)
    feeds = {"x": floats(2, 12, 5, 7)}
    assert_same(run(model, feeds), by_definition(model, feeds))


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (", pads=[0,1,1,0]", "SeparateWindows skipped t: it has padding"),
        (", output_padding=[1,0]", "SeparateWindows skipped t: it has padding"),
        (", dilations=[2,1]", "SeparateWindows skipped t: it has groups or dilations"),
    ],
)
def test_others_stay_transposed_convolutions(more: str, line: str) -> None:
    model = upsampling(1, 2, more)
    assert line in told(model)
    feeds = {"x": floats(2, 12, 5, 7)}
    assert_same(run(model, feeds), by_definition(model, feeds))


@pytest.mark.parametrize("channels", [1, 3, 5, 8, 11, 16, 21, 40])
@pytest.mark.parametrize("image", ["8,8", "7,9", "33,17"])
def test_planes_that_leave_the_network_hold_what_the_convolution_gives(channels: int, image: str) -> None:
    model = parse(
        f"g (float[2,6,{image}] x) => (float[2,{channels},{image}] y, float[2,{channels},{image}] z) {{ y = Conv(x, w, b) z = Exp(y) }}",
        w=floats(channels, 6, 1, 1, seed=1), b=floats(channels, seed=2),
    )  # fmt: skip
    feeds = {"x": floats(2, 6, *map(int, image.split(",")))}
    assert_same(run(model, feeds), by_definition(model, feeds))


@pytest.mark.parametrize(("size", "copied"), [(17, True), (4, False)])
def test_large_planes_that_fill_no_vectors_are_copied_into_place_from_blocks(size: int, copied: bool) -> None:
    text = f"g (float[1,8,{size},{size}] x) => (float[1,32,{size},{size}] y) {{ y = Conv(x, w) }}"
    found = compile_graph(parse(text, w=floats(32, 8, 1, 1))).program
    assert kernels(text, w=floats(32, 8, 1, 1)) == ["Conv", "TransData"][: 1 + copied]
    assert {location.layout for location in found.values.values()} == ({ND, NC1HWC0} if copied else {ND})
    assert [spec.name for spec in found.outputs] == ["y"]
    assert found.values["y"].buffer.space == "output"


@pytest.mark.parametrize(("channels", "first"), [(8, "Conv"), (64, "TransData")])
def test_many_row_major_planes_are_put_into_blocks_before_they_are_read(channels: int, first: str) -> None:
    text = f"g (float[1,{channels},4,5] x) => (float[1,24,4,5] y) {{ y = Conv(x, w) }}"
    model = parse(text, w=floats(24, channels, 1, 1))
    assert kernels(text, w=floats(24, channels, 1, 1))[0] == first
    feeds = {"x": floats(1, channels, 4, 5)}
    assert_same(run(model, feeds), by_definition(model, feeds))


def test_what_follows_reads_the_blocks_and_not_the_copy() -> None:
    text = "g (float[1,8,9,9] x) => (float[1,32,9,9] y, float[1,16,9,9] z) { y = Conv(x, w) z = Conv(y, v) }"
    model = parse(text, w=floats(32, 8, 1, 1), v=floats(16, 32, 1, 1))
    found = compile_graph(model).program
    assert sorted(location.layout for location in found.values.values()).count(NC1HWC0) == 2
    feeds = {"x": floats(1, 8, 9, 9)}
    np.testing.assert_allclose(run(model, feeds)[1], by_definition(model, feeds)[1], rtol=1e-4, atol=1e-4)

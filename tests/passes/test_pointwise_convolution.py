"""Convolutions of single pixels become matrix products where their weights are computed and their pixels fill vectors."""

from __future__ import annotations

import numpy as np
import pytest

from anycann.graph.evaluate import evaluate_node
from anycann.graph.registry import OPSET
from tests.passes.graphs import floats, parse, run, told


@pytest.mark.parametrize("size", ["8,8", "21,20", "64"])
@pytest.mark.parametrize("bias", [False, True])
def test_a_convolution_of_computed_pixels_is_a_product(size: str, bias: bool) -> None:
    shape = [int(extent) for extent in size.split(",")]
    kernel = ",".join("1" for _ in shape)
    operands = "x, w, b" if bias else "x, w"
    text = f"g (float[2,6,{size}] x, float[20,6,{kernel}] w, float[20] b) => (float[2,20,{size}] y) {{ y = Conv({operands}) }}"
    assert told(parse(text)) == ("PointwiseConvolution applied to y",)
    feeds = {"x": floats(2, 6, *shape), "w": floats(20, 6, *[1] * len(shape)), "b": floats(20)}
    (got,) = run(parse(text), feeds)
    wanted = np.einsum("oi,ni...->no...", feeds["w"].reshape(20, 6).astype(np.float64), feeds["x"])
    wanted += feeds["b"].reshape(-1, *[1] * len(shape)) if bias else 0
    np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_the_gradient_of_its_input_is_a_product_with_the_weights_transposed() -> None:
    text = "g (float[2,20,8,8] dy, float[20,6,1,1] w) => (float[2,6,8,8] y) { y = anycann.ConvInputGrad<input_shape=[2, 6, 8, 8]>(dy, w) }"
    graph = parse(text)
    assert told(graph) == ("PointwiseConvolution applied to y",)
    feeds = {"dy": floats(2, 20, 8, 8), "w": floats(20, 6, 1, 1)}
    (wanted,) = evaluate_node(graph.graph.node[0], OPSET, [array.astype(np.float64) for array in feeds.values()])
    np.testing.assert_allclose(run(graph, feeds)[0], np.asarray(wanted), atol=1e-5)


@pytest.mark.parametrize("size", [7, 9])
def test_pixels_that_make_no_whole_vectors_stay_a_convolution(size: int) -> None:
    text = f"g (float[2,6,{size},{size}] x, float[20,6,1,1] w) => (float[2,20,{size},{size}] y) {{ y = Conv(x, w) }}"
    assert told(parse(text)) == (f"PointwiseConvolution skipped y: {size * size} pixels make no whole vectors",)


def test_a_convolution_with_strides_stays() -> None:
    text = "g (float[2,6,16,16] x, float[20,6,1,1] w) => (float[2,20,8,8] y) { y = Conv<strides=[2, 2]>(x, w) }"
    assert told(parse(text)) == ("PointwiseConvolution skipped y: it has groups, strides or padding",)

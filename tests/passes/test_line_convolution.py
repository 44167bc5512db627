"""Convolutions of lines that are written as convolutions of images."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.graphs import assert_same, by_definition, floats, kernels, parse, run, told

TAIL = "s = Squeeze(c, last) a = Add(s, b) y = Tanh(a)"


def constants(weights: tuple[int, ...], axis: int = 3) -> dict[str, np.ndarray]:
    return {"w": floats(*weights), "b": floats(weights[0], 1, seed=1), "last": np.array([axis]), "shape": np.array([2, weights[0], -1])}


@pytest.mark.parametrize(
    ("x", "weights", "attributes", "axis"),
    [
        ("2,5,11,1", (20, 5, 3, 1), "", 3),
        ("2,5,1,11", (20, 5, 1, 3), "", 2),
        ("2,5,11,1", (20, 5, 3, 3), "pads=[0,1,0,1]", 3),
        ("2,16,17,1", (16, 1, 5, 1), "group=16, pads=[2,0,1,0], strides=[2,1]", 3),
        ("2,6,1,19", (8, 3, 1, 4), "group=2, pads=[0,3,0,1], dilations=[1,2]", 2),
    ],
)
@pytest.mark.parametrize("tail", [TAIL, TAIL.replace("Squeeze(c, last)", "Reshape(c, shape)")], ids=["squeeze", "reshape"])
def test_a_line_of_pixels_is_one_kernel_with_what_follows(x: str, weights: tuple[int, ...], attributes: str, axis: int, tail: str) -> None:
    text = f"g (float[{x}] x) => (float[N,C,L] y) {{ c = Conv<{attributes}>(x, w) {tail} }}".replace("<>", "")
    given = constants(weights, axis)
    assert "Conv+Add+Tanh" in kernels(text, **given)
    model = parse(text, **given)
    feeds = {"x": floats(*map(int, x.split(",")), seed=2)}
    assert_same(run(model, feeds), by_definition(model, feeds))


def test_lines_go_from_one_convolution_to_the_next_as_they_lie() -> None:
    text = """g (float[2,5,30] x) => (float[N,C,L] y) { i = Unsqueeze(x, last) c = Conv(i, w) s = Squeeze(c, last) r = Relu(s)
        j = Unsqueeze(r, last) d = Conv(j, v) t = Squeeze(d, last) y = Tanh(t) }"""
    given = {**constants((20, 5, 3, 1)), "v": floats(18, 20, 5, 1, seed=3)}
    assert [name for name in kernels(text, **given) if name != "TransData"] == ["Conv+Relu", "Conv+Tanh"]
    feeds = {"x": floats(2, 5, 30, seed=2)}
    assert_same(run(parse(text, **given), feeds), by_definition(parse(text, **given), feeds))


@pytest.mark.parametrize(
    ("text", "weights", "axis"),
    [
        ("g (float[2,5,11,3] x) => (float[N,C,L] y) { c = Conv(x, w) s = Squeeze(c, last) y = Tanh(s) }", (20, 5, 3, 3), 3),
        (
            "g (float[2,5,9,1] x) => (float[N,C,L,K] c, float[N,C,L] y) { c = Conv(x, w) s = Squeeze(c, last) y = Tanh(s) }",
            (20, 5, 3, 1),
            3,
        ),
        ("g (float[2,5,9,1] x) => (float[N,C,L] y) { i = Relu(x) c = Conv(i, w) s = Squeeze(c, last) y = Tanh(s) }", (20, 5, 3, 1), 3),
        ("g (float[1,5,9,1] x) => (float[C,L,K] y) { c = Conv(x, w) s = Squeeze(c, last) y = Tanh(s) }", (20, 5, 3, 1), 0),
    ],
    ids=["taps across", "images are wanted", "blocks of channels", "another dimension"],
)
def test_other_convolutions_stay(text: str, weights: tuple[int, ...], axis: int) -> None:
    model = parse(text, **constants(weights, axis))
    assert not any("ConvolutionOfLines applied" in line for line in told(model))
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": floats(*shape, seed=2)}
    assert_same(run(model, feeds), by_definition(model, feeds))

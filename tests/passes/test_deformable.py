"""Deformable convolutions and unpooling, written as operators that have native code, give what the definitions say."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.graphs import assert_same, by_definition, floats, parse, run, told


def rules(text: str, **constants: np.ndarray) -> str:
    return "\n".join(told(parse(text, **constants)))


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(
    ("group", "offset_group", "attributes", "image", "size"),
    [
        (1, 1, "pads = [1, 1, 1, 1]", (3, 4), (3, 4)),  # of ONNX's definition a larger one takes seconds
        (2, 4, "strides = [2, 1], pads = [0, 1, 1, 0]", (5, 6), (2, 5)),
        (1, 2, "dilations = [1, 2]", (5, 6), (3, 2)),
    ],
)
def test_a_deformable_convolution_gives_what_its_definition_says(
    group: int, offset_group: int, attributes: str, image: tuple[int, int], size: tuple[int, int], biased: bool, masked: bool
) -> None:
    constants = {"w": floats(6, 8 // group, 3, 3)} | ({"b": floats(6, seed=4)} if biased else {})
    shapes = {"x": (2, 8, *image), "o": (2, 18 * offset_group, *size), "m": (2, 9 * offset_group, *size)}
    shapes = shapes if masked else {name: shape for name, shape in shapes.items() if name != "m"}
    inputs = ", ".join(f"float{list(shape)} {name}" for name, shape in shapes.items())
    made = f"y = DeformConv<{attributes}, group = {group}, offset_group = {offset_group}>(x, w, o, {'b' if biased else ''}{', m' * masked})"
    text = f"g ({inputs}) => (float[2,6,{size[0]},{size[1]}] y) {{ {made} }}"
    assert "MovedConvolution applied to y" in rules(text, **constants)
    feeds = {name: floats(*shape, seed=n) for n, (name, shape) in enumerate(shapes.items())}
    model = parse(text, **constants)
    assert_same(run(model, feeds), by_definition(model, feeds), 1e-4)


def test_what_was_taken_is_put_back_where_it_was() -> None:
    text = "g (float[2,5,6,8] x) => (float[2,5,6,8] y) { p, i = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)"
    text += " y = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(p, i) }"
    assert "ScatterOfUnpool applied to y" in rules(text)
    x = floats(2, 5, 6, 8)
    (got,) = run(parse(text), {"x": x})
    blocks = x.reshape(2, 5, 3, 2, 4, 2)
    want = np.where(blocks == blocks.max(axis=(3, 5), keepdims=True), blocks, 0).reshape(x.shape)
    assert_same([got], [want])


def test_computed_weights_are_said() -> None:
    text = "g (float[1,2,4,4] x, float[3,2,1,1] w, float[1,2,4,4] o) => (float[1,3,4,4] y) { y = DeformConv(x, w, o) }"
    assert "MovedConvolution skipped y: its weights are computed" in rules(text)

"""Zeros that a node puts around an image become padding of the convolutions that read it, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from tests.passes.graphs import assert_same, by_definition, floats, parse, run
from tests.passes.test_pointwise_convolution import told

CASES = {
    "one side": ([0, 0, 0, 0, 0, 0, 1, 1], "strides = [2, 2]", (8, 3, 3, 3)),
    "both, and its own": ([0, 0, 2, 0, 0, 0, 1, 3], "pads = [1, 0, 0, 2]", (8, 3, 3, 3)),
    "more than the kernel": ([0, 0, 5, 4, 0, 0, 6, 3], "group = 3", (6, 1, 2, 3)),
    "dilated": ([0, 0, 2, 2, 0, 0, 2, 2], "dilations = [2, 2]", (20, 3, 3, 3)),
}


def of_padding(lines: Iterable[str]) -> list[str]:
    """Without what other rules say of a dilated convolution."""
    return [line for line in lines if line.startswith("Padding")]


@pytest.mark.parametrize("name", CASES)
def test_zeros_around_images_are_padding_of_the_convolution(name: str) -> None:
    edges, attributes, weights = CASES[name]
    text = f"g (float[2, 3, 19, 21] x) => (float[N, C, H, W] y) {{ p = Pad(x, e) y = Conv<{attributes}>(p, w, b) }}"
    model = parse(text, e=np.array(edges), w=floats(*weights), b=floats(weights[0]))
    assert of_padding(told(model)) == ["PaddingOfConvolution applied to y"]
    feeds = {"x": floats(2, 3, 19, 21)}
    assert_same(run(model, feeds), by_definition(model, feeds))


def test_two_convolutions_of_what_is_padded_each_pad() -> None:
    text = """g (float[1, 3, 12, 12] x) => (float[N, C, H, W] y) {
        p = Pad(x, e, z, a) c = Conv(p, w) d = Conv<auto_pad = "VALID">(p, v) y = Mul(c, d) }"""
    edges = {"e": np.array([1, 2, 3, 0]), "a": np.array([-2, 3]), "z": np.float32(0)}
    constants = {"w": floats(5, 3, 3, 3), "v": floats(5, 3, 3, 3), **edges}
    model = parse(text, **constants)
    assert [line.split()[1] for line in told(model)] == ["applied", "applied"]
    feeds, written_out = {"x": floats(1, 3, 12, 12)}, text.replace('<auto_pad = "VALID">', "")  # which the reference does not know
    assert_same(run(model, feeds), by_definition(parse(written_out, **constants), feeds))


@pytest.mark.parametrize(
    ("padding", "convolution", "reason"),
    [
        ("Pad(x, e, one)", "Conv(p, w)", "it is not padded with zeros"),
        ('Pad<mode = "reflect">(x, e)', "Conv(p, w)", "it is not padded with zeros"),
        ("Pad(x, less)", "Conv(p, w)", "more than images is padded, or something is taken away"),
        ("Pad(x, batch)", "Conv(p, w)", "more than images is padded, or something is taken away"),
        ("Pad(x, e)", 'Conv<auto_pad = "SAME_UPPER">(p, w)', "its padding is not written out"),
        ("Pad(x, given)", "Conv(p, w)", "what is padded, or how far, is not known"),
    ],
)
def test_other_padding_stays(padding: str, convolution: str, reason: str) -> None:
    text = f"g (float[1, 3, 9, 9] x, int64[8] given) => (float[N, C, H, W] y) {{ p = {padding} y = {convolution} }}"
    edges = {"e": [0, 0, 1, 1, 0, 0, 1, 1], "less": [0, 0, 1, -1, 0, 0, 0, 0], "batch": [1, 0, 0, 0, 0, 0, 0, 0]}
    model = parse(text, w=floats(4, 3, 3, 3), one=np.float32(1), **{name: np.array(counts) for name, counts in edges.items()})
    assert told(model) == (f"PaddingOfConvolution skipped y: {reason}",)


@pytest.mark.parametrize(
    ("image", "weights", "attributes", "result"),
    [
        ("1, 20, 50", (33, 20, 32), "pads = [16, 15]", "N, C, W"),
        ("2, 20, 61", (24, 10, 19), "pads = [9, 0], group = 2, strides = [3]", "N, C, W"),
        ("2, 5, 9, 23", (5, 1, 3, 21), "pads = [1, 12, 0, 7], group = 5, dilations = [2, 1]", "N, C, H, W"),
        ("1, 3, 5, 7, 22", (4, 3, 1, 3, 20), "pads = [0, 1, 10, 0, 1, 10]", "N, C, D, H, W"),
    ],
)
def test_a_wide_kernel_reads_its_padding_from_memory(image: str, weights: tuple[int, ...], attributes: str, result: str) -> None:
    text = f"g (float[{image}] x) => (float[{result}] y) {{ y = Conv<{attributes}>(x, w, b) }}"
    model = parse(text, w=floats(*weights), b=floats(weights[0]))
    assert of_padding(told(model)) == ["PaddingOfWideConvolution applied to y"]
    feeds = {"x": floats(*(int(size) for size in image.split(", ")))}
    assert_same(run(model, feeds), by_definition(model, feeds))


def test_zeros_before_a_wide_kernel_stay() -> None:
    text = "g (float[1, 20, 50] x) => (float[N, C, W] y) { p = Pad(x, e) y = Conv(p, w) }"
    model = parse(text, w=floats(33, 20, 32), e=np.array([0, 0, 16, 0, 0, 15]))
    assert [line for line in told(model) if "PaddingOfConvolution" in line] == [
        "PaddingOfConvolution skipped y: its kernel is wide, and reads padding from memory"
    ]
    feeds = {"x": floats(1, 20, 50)}
    assert_same(run(model, feeds), by_definition(model, feeds))

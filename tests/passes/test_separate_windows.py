"""Transposed convolutions of bfloat16 whose windows do not meet are products of pixels: their results, and which are not taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from anycann.compiler import CompileOptions, compile_model
from anycann.target.target import by_name
from tests.passes.graphs import by_definition, floats, parse, run, tasks

PAIRS = by_name("znver4")


def network(size: tuple[int, ...], kernel: tuple[int, ...], outputs: int, attributes: str = "", channels: int = 20) -> onnx.ModelProto:
    """A product that makes bfloat16, a transposed convolution with as many strides as its kernel has taps, and another product."""
    rank, dims = len(size), ",".join(map(str, size))
    return parse(
        f"""g (float[2,5,{dims}] x) => (float[N,7,{",".join("HWDE"[:rank])}] y) {{
            a = Conv(x, u) t = ConvTranspose<strides=[{",".join(map(str, kernel))}]{attributes}>(a, w, b) r = Relu(t) y = Conv(r, v)
        }}""",
        u=floats(channels, 5, *[1] * rank, seed=1), w=floats(channels, outputs, *kernel, seed=2) * 0.2,
        b=floats(outputs, seed=3), v=floats(7, outputs, *[1] * rank, seed=4) * 0.2,
    )  # fmt: skip


def kernel_of(model: onnx.ModelProto) -> str:
    """The family of the kernel that computes the ConvTranspose on a processor with dot products of bfloat16."""
    (program,) = compile_model(model, CompileOptions(target=PAIRS, precision_mode="mixed_bfloat16")).programs.values()
    (found,) = [task for task in tasks(program) if "ConvTranspose" in task.op_types]
    return found.symbol.split("_")[0]


@pytest.mark.parametrize(("size", "kernel", "outputs"), [((5, 7), (2, 2), 16), ((3, 1, 4), (2, 3, 2), 32), ((9,), (4,), 48)], ids=str)
def test_each_place_of_a_window_is_a_product(size: tuple[int, ...], kernel: tuple[int, ...], outputs: int) -> None:
    assert_is_product(network(size, kernel, outputs), size)


def test_windows_of_a_plane_that_padding_cuts_are_products_too() -> None:
    assert_is_product(network((5, 7), (2, 2), 16, ", pads=[1,1,1,1]"), (5, 7))


def assert_is_product(model: onnx.ModelProto, size: tuple[int, ...]) -> None:
    assert kernel_of(model) == "dots"
    feeds: dict[str, np.ndarray[Any, Any]] = {"x": floats(2, 5, *size, seed=5)}
    (got,), (want,) = run(model, feeds, precision_mode="mixed_bfloat16"), by_definition(model, feeds)
    assert got.shape == want.shape
    assert np.abs(got - want).max() / np.abs(want).max() < 2e-2


@pytest.mark.parametrize("attributes", [", output_padding=[1,1]", ", dilations=[2,2], pads=[0,0,1,1]"])
def test_windows_that_meet_or_are_cut_are_left_to_the_other_kernel(attributes: str) -> None:
    assert kernel_of(network((5, 7), (2, 2), 16, attributes)) == "deconv"


def test_channels_that_leave_lanes_empty_are_left_to_the_other_kernel() -> None:
    assert kernel_of(network((5, 7), (2, 2), 24)) == "deconv"

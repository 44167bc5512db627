"""Transposed convolutions whose windows meet, as dot products of the neighbours that each place of a window has taps for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
import pytest

from anycann import InferenceSession
from anycann.codegen.contract_dot_places import dot_shape, windows_of
from anycann.codegen.kernels.dot_shape import DotPlan, DotTile
from anycann.codegen.kernels.dot_space import DotSpace
from anycann.compiler import CompileOptions, compile_model
from anycann.om.writer import write_offline_model
from anycann.target.target import NAMED, by_name
from anycann.te import dtypes
from anycann.te import tensor as te
from anycann.te.contractions import Convolution

# input channels, output channels, image, kernel, strides, padding at either end
CASES = {
    "DCGAN": (16, 32, (5, 7), (4, 4), (2, 2), (1, 1)),
    "one pixel": (24, 16, (1, 1), (4, 4), (2, 2), (1, 1)),
    "no padding": (8, 64, (6, 3), (4, 4), (2, 2), (0, 0)),
    "thirds": (20, 16, (4, 4), (6, 6), (3, 3), (2, 1)),
    "rows apart": (3, 16, (9, 4), (6, 4), (3, 2), (1, 1)),
    "columns do not meet": (16, 48, (7, 6), (4, 2), (2, 2), (1, 0)),
    "windows of their own, cut": (16, 16, (5, 7), (2, 2), (2, 2), (1, 1)),
    "all places alike": (16, 16, (4, 4), (3, 3), (2, 2), (1, 1)),
}


def transposed(x: np.ndarray, w: np.ndarray, strides: Sequence[int], pads: Sequence[int]) -> np.ndarray:
    """By the definition: each pixel times the weights, added where its window lies."""
    (batch, _, *size), (_, outputs, *kernel) = x.shape, w.shape
    full = [(extent - 1) * step + taps for extent, step, taps in zip(size, strides, kernel, strict=True)]
    result = np.zeros((batch, outputs, *full))
    for i, j in np.ndindex(*size):
        window = np.tensordot(x[:, :, i, j].astype(np.float64), w.astype(np.float64), 1)
        result[:, :, i * strides[0] : i * strides[0] + kernel[0], j * strides[1] : j * strides[1] + kernel[1]] += window
    return result[:, :, pads[0] : full[0] - pads[0], pads[1] : full[1] - pads[1]]


def operands(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers, which bfloat16 and bytes both are."""
    inputs, outputs, image, kernel, *_ = CASES[name]
    random = np.random.default_rng()
    x, w = (random.integers(-8, 9, shape).astype(np.float32) for shape in ((2, inputs, *image), (inputs, outputs, *kernel)))
    return x, w


def layer(name: str, x: np.ndarray, w: np.ndarray, quantised: bool) -> onnx.ModelProto:
    """The layer; of bytes between QuantizeLinear and DequantizeLinear of one step, and a zero point."""
    strides, pads = CASES[name][4:]
    given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)
    convolution = helper.make_node("ConvTranspose", ["a", "v"], ["y"], strides=strides, pads=(*pads, *pads))
    constants = {"w": w.astype(np.int8) if quantised else w, "one": np.float32(1), "zero": np.uint8(131), "none": np.int8(0)}
    quantise = [
        helper.make_node("QuantizeLinear", ["x", "one", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "one", "zero"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "one", "none"], ["v"]),
    ]
    plain = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Identity", ["w"], ["v"])]
    known = [numpy_helper.from_array(np.asarray(array), key) for key, array in constants.items()]
    graph = helper.make_graph([*(quantise if quantised else plain), convolution], "layer", [given], [onnx.ValueInfoProto(name="y")], known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("quantised", [True, False], ids=["bytes", "bfloat16"])
def test_sums_are_those_of_the_definition(name: str, quantised: bool, tmp_path: Path) -> None:
    x, w = operands(name)
    strides, pads = CASES[name][4:]
    options, path = CompileOptions() if quantised else CompileOptions(precision_mode="mixed_bfloat16"), tmp_path / "layer.om"
    write_offline_model(path, compile_model(layer(name, x, w, quantised), options))
    (y,) = InferenceSession(str(path)).run(None, {"x": x})
    want = transposed(x if quantised else np.maximum(x, 0), w, strides, pads)
    np.testing.assert_allclose(y, want, rtol=0, atol=0 if quantised else 4e-3 * np.abs(want).max())


def operator(name: str, dtype: dtypes.DType) -> Convolution:
    inputs, outputs, image, kernel, strides, pads = CASES[name]
    size = tuple((n - 1) * s + k - 2 * p for n, s, k, p in zip(image, strides, kernel, pads, strict=True))
    x, w = te.placeholder("x", (2, inputs, *image), dtype), te.placeholder("w", (inputs, outputs, *kernel), dtypes.int8)
    return Convolution(x, w, strides=strides, pads_begin=pads, dilations=(1, 1), group=1, out_size=size, transposed=True)


def test_a_place_has_the_neighbours_that_it_has_taps_for() -> None:
    four = operator("DCGAN", dtypes.uint8)
    assert dot_shape(four).kernel == (2, 2), "of the three by three that windows reach"
    assert windows_of(four) == ((0, 0), (0, 1), (1, 0), (1, 1))
    assert windows_of(operator("all places alike", dtypes.uint8)) == ()


def test_a_panel_has_channels_of_one_window() -> None:
    four = operator("DCGAN", dtypes.uint8)
    for target in (*NAMED.values(), by_name("znver4")):
        space = DotSpace(dot_shape(four), target, windows=windows_of(four))
        assert 32 % (space.default().vectors * target.lanes) == 0
        assert "windows" in (space.refusal(DotTile(1, 64 // target.lanes, 1, 1, 1)) or "")
        plan = DotPlan(dot_shape(four), target, space.default(), windows=windows_of(four))
        assert plan.copied
        assert plan.beyond == (1, 1)

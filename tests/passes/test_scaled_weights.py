"""Weights that are dequantised stay integers where few rows are multiplied, and the numbers are those of the definition."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest

from anycann.compiler import CompileOptions, convert_model
from tests.passes.graphs import AVX512, by_definition, compile_graph, floats, parse, run, tasks

RNG = np.random.default_rng(11)
PLAIN = "g (float[{rows},40] x) => (float[{rows},24] y) {{ w = DequantizeLinear{form}(q, s, z) y = MatMul(x, w) }}"
GEMM = "g (float[{rows},40] x) => (float[{rows},24] y) {{ w = DequantizeLinear<axis=0>(q, s, z) y = Gemm<transB=1>(x, w, b) }}"


def model_of(text: str, rows: int, form: str = "", **constants: np.ndarray) -> onnx.ModelProto:
    model = parse(text.format(rows=rows, form=form), **constants)
    model.opset_import[0].version = 21
    return model


def scales(*shape: int) -> np.ndarray:
    return RNG.uniform(0.01, 0.03, shape).astype(np.float32)


def numbers(dtype: type, *shape: int) -> np.ndarray:
    limits = ml_dtypes.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def kernels(model: onnx.ModelProto) -> list[str]:
    return ["+".join(task.op_types) for task in tasks(compile_graph(model).program)]


def agrees(model: onnx.ModelProto, rows: int) -> None:
    feeds = {"x": floats(rows, 40)}
    (got,), (wanted,) = run(model, feeds), by_definition(model, feeds)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, ml_dtypes.int4, ml_dtypes.uint4])
@pytest.mark.parametrize(
    ("form", "parameters"),
    [("", ()), ("<axis=1>", (24,)), ("<axis=0, block_size=16>", (3, 24))],
)
def test_weights_with_scales_of_any_form_are_one_kernel(dtype: type, form: str, parameters: tuple[int, ...]) -> None:
    model = model_of(PLAIN, 3, form, q=numbers(dtype, 40, 24), s=scales(*parameters), z=numbers(dtype, *parameters))
    assert kernels(model) == ["ScaledMatMul"]
    agrees(model, 3)


@pytest.mark.parametrize("dtype", [np.int8, ml_dtypes.uint4])
@pytest.mark.parametrize(("form", "parameters"), [("<axis=0>", (40,)), ("<axis=1, block_size=8>", (40, 3))])
def test_weights_with_scales_for_every_row_are_floats_which_take_less(dtype: type, form: str, parameters: tuple[int, ...]) -> None:
    model = model_of(PLAIN, 3, form, q=numbers(dtype, 40, 24), s=scales(*parameters), z=numbers(dtype, *parameters))
    assert kernels(model) == ["MatMul"]
    agrees(model, 3)


@pytest.mark.parametrize("form", ["transB=1", "transB=0"])
def test_blocks_run_along_either_axis_of_a_gemm(form: str) -> None:
    transposed = "transB=1" in form
    text = PLAIN.replace("y = MatMul(x, w)", f"y = Gemm<{form}>(x, w)")
    sizes, counts = ((24, 40), (24, 3)) if transposed else ((40, 24), (3, 24))
    blocks = f"<axis={int(transposed)}, block_size=16>"
    model = model_of(text, 3, blocks, q=numbers(np.uint8, *sizes), s=scales(*counts), z=numbers(np.uint8, *counts))
    assert kernels(model) == ["ScaledMatMul"]
    agrees(model, 3)


@pytest.mark.parametrize("rows", [1, 3, 70])
def test_a_gemm_adds_its_bias_in_the_same_kernel_and_many_rows_multiply_floats(rows: int) -> None:
    model = model_of(GEMM, rows, q=numbers(np.int8, 24, 40), s=scales(24), z=np.zeros(24, np.int8), b=floats(24))
    assert kernels(model) == ["MatMul+Add" if rows == 70 else "ScaledMatMul+Add"]
    agrees(model, rows)


@pytest.mark.parametrize("depth", [1, 17])
def test_one_scale_in_all_is_no_literal_of_one_column(depth: int) -> None:
    text = f"g (float[5,{depth}] x) => (float[5,1] y) {{ w = DequantizeLinear(q, s) y = Gemm(x, w, b) }}"
    model, feeds = parse(text, q=numbers(np.int8, depth, 1), s=scales(), b=floats(1)), {"x": floats(5, depth)}
    (got,), (wanted,) = run(model, feeds), by_definition(model, feeds)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_weights_of_a_few_rows_take_a_byte_each() -> None:
    text = "g (float[1,512] x) => (float[1,256] y) { w = DequantizeLinear(q, s) y = MatMul(x, w) }"
    conversion = convert_model(parse(text, q=numbers(np.int8, 512, 256), s=scales()), CompileOptions(target=AVX512))
    assert conversion.model.constants.nbytes < 2 * 512 * 256


def test_weights_of_many_rows_have_the_type_of_the_rows() -> None:
    text = "g (float16[70,512] x) => (float16[70,256] y) { w = DequantizeLinear<output_dtype=10>(q, s) y = MatMul(x, w) }"
    model = parse(text, q=numbers(np.int8, 512, 256), s=scales())
    model.opset_import[0].version = 23
    conversion = convert_model(model, CompileOptions(target=AVX512))
    assert conversion.model.constants.nbytes < 4 * 512 * 256  # two bytes each, and the integers
    x = floats(70, 512).astype(np.float16)
    (got,) = run(model, {"x": x})
    q, s = (onnx.numpy_helper.to_array(each).astype(np.float32) for each in model.graph.initializer)
    np.testing.assert_allclose(got, x.astype(np.float32) @ (q * s), rtol=5e-3, atol=0.1)


def test_what_is_dequantised_on_both_sides_stays_a_product_of_integers() -> None:
    text = """g (uint8[3,40] x) => (float[3,24] y) {
        d = DequantizeLinear(x, t) w = DequantizeLinear(q, s) y = MatMul(d, w)
    }"""
    assert "MatMulInteger" in kernels(parse(text, q=numbers(np.int8, 40, 24), s=scales(), t=scales()))[-1]


def test_weights_with_factors_or_too_wide_are_multiplied_as_floats() -> None:
    text = GEMM.replace("transB=1", "transB=1, alpha=2.0")
    factors = model_of(text, 3, q=numbers(np.int8, 24, 40), s=scales(24), z=np.zeros(24, np.int8), b=floats(24))
    wide = model_of(PLAIN, 3, q=numbers(np.int16, 40, 24), s=scales(), z=np.zeros((), np.int16))
    for model in (factors, wide):
        assert "ScaledMatMul" not in kernels(model)[0]
        agrees(model, 3)

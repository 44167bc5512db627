"""Quantised operators of ONNX and of com.microsoft written out: what they compute, which kernels they become, and why some stay."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import onnx
import pytest

from tests.passes.graphs import compile_graph, parse, run, steps, tasks, told

RNG = np.random.default_rng(11)
Array = npt.NDArray[np.generic]


def scale(value: float) -> Array:
    return np.array(value, np.float32)


def numbers(dtype: type) -> dict[str, Array]:
    """Three scales and zero points, the second with an axis."""
    low = np.iinfo(dtype).min
    zeros = {"za": np.array(low + 110, dtype), "zb": np.array([low + 99], dtype), "zy": np.array(low + 120, dtype)}
    return {"sa": scale(0.031), "sb": np.array([0.017], np.float32), "sy": scale(0.045), "s9": scale(0.2), **zeros}


def single(op_type: str, shape: str, result: str, attributes: str = "") -> str:
    return f"g (T[{shape}] a) => (T[{result}] y) {{ y = com.microsoft.{op_type}{attributes}(a, sa, za, sy, zy) }}"


FORMS = {
    "Add": "g (T[2,3,5,4] a, T[3,1,4] b) => (T[2,3,5,4] y) { y = com.microsoft.QLinearAdd(a, sa, za, b, sb, zb, sy, zy) }",
    "Mul": "g (T[2,3,5,4] a, T[2,3,1,1] b) => (T[2,3,5,4] y) { y = com.microsoft.QLinearMul(a, sa, za, b, sb, zb, sy, zy) }",
    "Sigmoid": single("QLinearSigmoid", "2,37", "2,37"),
    "LeakyRelu": single("QLinearLeakyRelu", "2,37", "2,37", "<alpha=0.2>"),
    "Softmax": single("QLinearSoftmax", "2,3,37", "2,3,37", "<axis=-1, opset=11>"),
    "Softmax of columns": single("QLinearSoftmax", "2,3,37", "2,3,37", "<axis=1, opset=13>"),
    "AveragePool": single("QLinearAveragePool", "2,3,9,8", "2,3,5,4", "<kernel_shape=[3,2], strides=[2,2], pads=[1,0,1,0]>"),
    "AveragePool of padding": single(
        "QLinearAveragePool", "1,3,6,6", "1,3,6,6", "<kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1, channels_last=0>"
    ),
    "GlobalAveragePool": single("QLinearGlobalAveragePool", "2,20,3,4", "2,20,1,1"),
    "ReduceMean": single("QLinearReduceMean", "2,20,3,4", "2,20", "<axes=[2,3], keepdims=0>"),
    "Where": "g (bool[2,1,4] c, T[2,3,4] a, T[3,4] b) => (T[2,3,4] y) { y = com.microsoft.QLinearWhere(c, a, sa, za, b, sb, zb, sy, zy) }",
    "MatMul": "g (T[2,3,19] a, T[2,19,20] b) => (T[2,3,20] y) { y = QLinearMatMul(a, sa, za, b, sb, zb, s9, zy) }",
    "Concat": "g (T[2,3,4] a, T[2,5,4] b) => (T[2,8,4] y) { y = com.microsoft.QLinearConcat<axis=1>(sy, zy, a, sa, za, b, sb, zb) }",
    "Concat of nothing": "g (T[0,4] a, T[5,4] b) => (T[5,4] y) { y = com.microsoft.QLinearConcat<axis=0>(sy, zy, a, sa, za, b, sb, zb) }",
}


def random_feeds(model: onnx.ModelProto) -> dict[str, Array]:
    feeds = {}
    for value in model.graph.input:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        low, high = (0, 2) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max + 1)
        feeds[value.name] = RNG.integers(low, high, [each.dim_value for each in value.type.tensor_type.shape.dim]).astype(dtype)
    return feeds


def assert_as_before(model: onnx.ModelProto) -> None:
    """Within the rounding of a quantisation step of what its own definition gives, nowhere on the host."""
    assert "host" not in steps(compile_graph(model).program)
    feeds = random_feeds(model)
    (got,), (want,) = run(model, feeds), run(model, feeds, switched_off=frozenset({"QuantisedOperator"}), fuse=False)
    assert got.dtype == want.dtype
    apart = np.abs(got.astype(np.int32) - want.astype(np.int32))
    assert apart.max(initial=0) <= 1
    assert np.mean(apart) < 0.02


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("name", FORMS)
def test_an_operator_between_quantisations_computes_what_it_did(name: str, dtype: type) -> None:
    assert_as_before(parse(FORMS[name].replace("T[", f"{np.dtype(dtype).name}["), **numbers(dtype)))


def products() -> Iterator[tuple[str, dict[str, Array]]]:
    convolution = "g (uint8[1,8,6,5] a) => (uint8[1,20,6,5] y) {{ y = QLinearConv<pads=[1,1,1,1]>(a, sa, za, w, sw, zw, sy, zy{}) }}"
    matrix = "g (uint8[3,19] a) => (uint8[3,20] y) { y = QLinearMatMul(a, sa, za, w, sw, zw, sy, zy) }"
    bias = RNG.integers(-3000, 3000, 20).astype(np.int32)
    for several, weight, zero in ((False, np.int8, 0), (True, np.int8, 0), (True, np.uint8, 131), (False, np.uint8, 128)):
        low, high = np.iinfo(weight).min, np.iinfo(weight).max + 1
        scales = RNG.uniform(0.001, 0.004, 20 if several else ()).astype(np.float32)
        known = {**numbers(np.uint8), "sw": scales, "zw": np.full(scales.shape, zero, weight), "b": bias}
        yield convolution.format(", b" if several else ""), {**known, "w": RNG.integers(low, high, (20, 8, 3, 3)).astype(weight)}
        yield matrix, {**known, "w": RNG.integers(low, high, (19, 20)).astype(weight)}


@pytest.mark.parametrize(("text", "constants"), list(products()))
def test_a_product_between_quantisations_computes_what_it_did(text: str, constants: dict[str, Array]) -> None:
    assert_as_before(parse(text, **constants))


LINES = {"known": "uint8[2,3,19] a", "computed": "uint8[2,3,19] a, int8[2,19,20] w"}


@pytest.mark.parametrize("weights", LINES)
@pytest.mark.parametrize("zero", [(), (1, 20), (20,)])
def test_scales_of_columns_may_have_axes_of_one(weights: str, zero: tuple[int, ...]) -> None:
    text = f"g ({LINES[weights]}) => (uint8[2,3,20] y) {{ y = QLinearMatMul(a, sa, za, w, sw, zw, sy, zy) }}"
    known = {"w": RNG.integers(-128, 128, (2, 19, 20)).astype(np.int8)} if weights == "known" else {}
    scales, zeros = RNG.uniform(0.001, 0.004, (1, 1, 20)).astype(np.float32), RNG.integers(-5, 5, zero).astype(np.int8)
    model = parse(text, **numbers(np.uint8), **known, sw=scales, zw=zeros)
    feeds = random_feeds(model)
    (got,), w = run(model, feeds), known.get("w", feeds.get("w"))
    assert w is not None
    real = (feeds["a"].astype(np.int32) - 110) @ (w.astype(np.int32) - zeros) * np.float64(scale(0.031)) * scales / scale(0.045)
    assert np.abs(got - np.clip(real + 120, 0, 255)).max() < 0.5001


def test_scales_of_each_matrix_and_row_saturate_as_others_do() -> None:
    """They stay as they are, and not on the host, where the reference wraps around."""
    text = "g (uint8[2,3,19] a, int8[2,19,20] b) => (uint8[2,3,20] y) { y = QLinearMatMul(a, rows, za, b, several, none, sy, zy) }"
    rows, several = RNG.uniform(0.01, 0.1, (2, 3, 1)).astype(np.float32), RNG.uniform(0.001, 0.1, (2, 1, 20)).astype(np.float32)
    model = parse(text, **numbers(np.uint8), rows=rows, several=several, none=RNG.integers(-9, 9, (2, 1, 20)).astype(np.int8))
    assert "host" not in steps(compile_graph(model).program)
    feeds = random_feeds(model)
    none = onnx.numpy_helper.to_array(model.graph.initializer[-1])
    real = (feeds["a"].astype(np.int32) - 110) @ (feeds["b"].astype(np.int32) - none) * np.float64(rows) * several / scale(0.045) + 120
    assert real.min() < -128
    assert real.max() > 400
    (got,) = run(model, feeds)
    assert np.abs(got - np.clip(real, 0, 255)).max() < 0.5001


def test_scales_of_half_precision_are_computed_with_in_single() -> None:
    """In half precision, which cannot hold more than 65504, the results would be infinite."""
    text = "g (uint8[3,64] a, uint8[64,20] b) => (uint8[3,20] y) { y = QLinearMatMul(a, s, z, b, s, z, t, z) }"
    model = parse(text, s=np.float16(2), z=np.uint8(0), t=np.float16(65504))
    a, b = np.full((3, 64), 250, np.uint8), np.full((64, 20), 240, np.uint8)
    (got,) = run(model, {"a": a, "b": b})
    np.testing.assert_array_equal(got, np.full((3, 20), round(64 * 250 * 240 * 4 / 65504)))


def test_an_activation_behind_a_quantised_convolution_is_a_table_in_its_kernel() -> None:
    text = """g (uint8[1,8,6,5] a) => (uint8[1,20,6,5] y) {
        c = QLinearConv<pads=[1,1,1,1]>(a, sa, za, w, sw, zw, sy, zy)
        s = com.microsoft.QLinearSigmoid(c, sy, zy, sb, zb) y = com.microsoft.QLinearMul(c, sy, zy, s, sb, zb, sa, za)
    }"""
    weights = RNG.integers(-127, 128, (20, 8, 3, 3)).astype(np.int8)
    model = parse(text, **numbers(np.uint8), w=weights, sw=scale(0.002), zw=np.zeros((), np.int8))
    kernels = ["+".join(task.op_types) for task in tasks(compile_graph(model).program) if "TransData" not in task.op_types]
    assert kernels == ["ConvInteger+Cast+Mul+QuantizeLinear+ByteTable"]
    assert_as_before(model)


COMPUTED = "g (uint8[1,3,9,9] a, uint8[5,3,3,3] b) => (uint8[1,5,7,7] y) { y = QLinearConv(a, sa, za, b, sb, zb, sy, zy) }"
LATER = "g (uint8[2,3,9] a, int8[2,9,4] b) => (uint8[2,3,4] y) { y = QLinearMatMul(a, sa, za, b, several, none, sy, zy) }"
RUN_TIME = "g (uint8[3] a, uint8[3] b, float s) => (uint8[3] y) { y = com.microsoft.QLinearAdd(a, s, za, b, sb, zb, sy, zy) }"
REFUSED = {
    COMPUTED: "its weights are computed at run time",
    LATER: "the scales of its weights run along several axes",
    RUN_TIME: "its scales or zero points are computed at run time",
    single("QLinearSoftmax", "2,3,37", "2,3,37", "<axis=1, opset=12>").replace("T[", "uint8["): "its softmax is over several axes",
    single("QLinearGlobalAveragePool", "2,3,3,8", "2,1,1,8", "<channels_last=1>").replace("T[", "uint8["): "its channels are last",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_written_out_stays_with_a_reason(text: str) -> None:
    several = {"several": np.full((2, 1, 4), 0.01, np.float32), "none": np.int8(0)}
    lines = [line for line in told(parse(text, **numbers(np.uint8), **several), "early rules") if line.startswith("QuantisedOperator")]
    assert lines == [f"QuantisedOperator skipped y: {REFUSED[text]}"]

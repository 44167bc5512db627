"""Quantised graphs: which kernels they become, why some stay apart, and results within a quantisation step of the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from anycann.session import InferenceSession, SessionOptions
from anycann.target.target import by_name, host
from tests.codegen.kernels.jit import distinct_names
from tests.passes.graphs import by_definition, compile_graph, floats, parse, run, tasks, told

RNG = np.random.default_rng(7)
RESIDUAL = """
g (float[2,8,9,7] x) => (float[2,20,9,7] y) {
    xq = QuantizeLinear(x, sx, zx) xd = DequantizeLinear(xq, sx, zx)
    wd = DequantizeLinear<axis=0>(w, sw, zw) bd = DequantizeLinear<axis=0>(b, sb)
    c = Conv<pads=[1,1,1,1]>(xd, wd, bd) r = Relu(c)
    rq = QuantizeLinear(r, sr, zr) rd = DequantizeLinear(rq, sr, zr)
    vd = DequantizeLinear<axis=0>(v, sv, zv)
    d = Conv<pads=[1,1,1,1]>(rd, vd) dq = QuantizeLinear(d, sy, zy) dd = DequantizeLinear(dq, sy, zy)
    a = Add(dd, rd) s = Relu(a) sq = QuantizeLinear(s, sy, zy) y = DequantizeLinear(sq, sy, zy)
}"""


def weights(outputs: int, *rest: int) -> np.ndarray[Any, Any]:
    return RNG.integers(-127, 128, (outputs, *rest)).astype(np.int8)


def scale(value: float) -> np.ndarray[Any, Any]:
    return np.array(value, np.float32)


def scales(count: int, least: float, most: float) -> np.ndarray[Any, Any]:
    return RNG.uniform(least, most, count).astype(np.float32)


def residual(dtype: type = np.uint8, zeros: tuple[int, int, int] = (128, 3, 120)) -> onnx.ModelProto:
    shift = 128 if dtype is np.int8 else 0
    points = {name: np.array(zero - shift, dtype) for name, zero in zip(("zx", "zr", "zy"), zeros, strict=True)}
    return parse(
        RESIDUAL, sx=scale(0.02), sr=scale(0.03), sy=scale(0.05), **points, w=weights(20, 8, 3, 3), v=weights(20, 20, 3, 3),
        sw=scales(20, 0.0005, 0.001), zw=np.zeros(20, np.int8), sv=scales(20, 0.0002, 0.0004), zv=np.zeros(20, np.int8),
        b=RNG.integers(-3000, 3000, 20).astype(np.int32), sb=scales(20, 1e-5, 2e-5),
    )  # fmt: skip


def kernels_of(model: onnx.ModelProto) -> list[str]:
    return ["+".join(task.op_types) for task in tasks(compile_graph(model).program)]


def test_a_residual_block_is_two_integer_kernels_with_bytes_between_them() -> None:
    compiled = compile_graph(residual())
    kernels = ["+".join(task.op_types) for task in tasks(compiled.program) if "TransData" not in task.op_types]
    assert kernels == [
        "QuantizeLinear",
        "ConvInteger+Cast+Mul+Add+Relu+QuantizeLinear",
        "ConvInteger+Cast+Mul+QuantizeLinear+DequantizeLinear+DequantizeLinear+Add+Relu+QuantizeLinear+DequantizeLinear",
    ]
    kept = {name: location.spec.dtype for name, location in compiled.program.values.items() if location.buffer.space == "arena"}
    assert set(kept.values()) == {"uint8"}


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("zeros", [(128, 3, 120), (0, 0, 0), (255, 128, 7)])
def test_a_residual_block_is_within_a_step_of_its_definition(dtype: type, zeros: tuple[int, int, int]) -> None:
    model = residual(dtype, zeros)
    feeds = {"x": floats(2, 8, 9, 7, seed=3)}
    (got,), (want,) = run(model, feeds), by_definition(model, feeds)
    assert np.abs(got - want).max() <= 0.05 * 1.01  # a step of y
    assert np.mean(np.abs(got - want) > 1e-6) < 0.02


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("y = MatMul(xd, wd)", (7, 12)),
        ("y = Gemm(xd, wd, b)", (7, 12)),
        ("y = Gemm<alpha=0.5, beta=2.0>(xd, wd, b)", (7, 12)),
        ("y = Gemm<transB=1>(xd, wd, b)", (12, 7)),
    ],
)
@pytest.mark.parametrize("per_column", [False, True])
def test_products_of_dequantised_matrices_are_integer_products(text: str, shape: tuple[int, int], per_column: bool) -> None:
    axis = 0 if "transB" in text else 1
    count = 12 if per_column else 1
    sw = scales(count, 0.001, 0.01) if per_column else scale(0.004)
    zw = RNG.integers(-3, 3, count).astype(np.int8).reshape(sw.shape)
    model = parse(
        f"g (float[5,7] x) => (float[5,12] y) {{ xq = QuantizeLinear(x, sx, zx) xd = DequantizeLinear(xq, sx, zx) "
        f"wd = DequantizeLinear<axis={axis}>(w, sw, zw) {text} }}",
        sx=scale(0.02), zx=np.array(99, np.uint8), w=RNG.integers(-100, 100, shape).astype(np.int8), sw=sw, zw=zw, b=floats(12),
    )  # fmt: skip
    assert any("MatMulInteger" in kernel for kernel in kernels_of(model))
    feeds = {"x": floats(5, 7, seed=1)}
    np.testing.assert_allclose(run(model, feeds)[0], by_definition(model, feeds)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "operation", ["Reshape(d, to)", "Transpose<perm=[0,2,3,1]>(d)", "MaxPool<kernel_shape=[2,2]>(d)", "Concat<axis=1>(d, d)"]
)
def test_what_moves_elements_moves_bytes(operation: str) -> None:
    model = parse(
        f"g (uint8[1,4,6,6] x) => (uint8[A,B,C,D] y) {{ d = DequantizeLinear(x, s, z) m = {operation} y = QuantizeLinear(m, s, z) }}",
        s=scale(0.1), z=np.array(7, np.uint8), to=np.array([1, 2, 12, 6]),
    )  # fmt: skip
    assert not any("Quantize" in kernel for kernel in kernels_of(model))
    feeds = {"x": RNG.integers(0, 256, (1, 4, 6, 6)).astype(np.uint8)}
    np.testing.assert_array_equal(run(model, feeds)[0], by_definition(model, feeds)[0])


def joined(end: str, outputs: str) -> onnx.ModelProto:
    """Two values with scales of their own, joined along the channels."""
    return parse(
        f"g (float[1,8,6,5] x) => ({outputs}) {{ xq = QuantizeLinear(x, s, z) xd = DequantizeLinear(xq, s, z) "
        f"vd = DequantizeLinear(v, s, zw) c = Conv(xd, vd) r = Relu(c) rq = QuantizeLinear(r, t, z) rd = DequantizeLinear(rq, t, z) "
        f"j = Concat<axis=1>(rd, xd) {end} }}",
        s=scale(0.03), t=scale(0.05), u=scale(0.07), z=np.array(7, np.uint8), zw=np.array(0, np.int8), v=weights(12, 8, 1, 1),
    )  # fmt: skip


def test_joined_values_are_quantised_where_they_are_made() -> None:
    model = joined("y = QuantizeLinear(j, u, z)", "uint8[1,20,6,5] y")
    assert "QuantizeEarlier applied to y" in told(model, "early rules")
    kept = [spec.dtype for spec in (location.spec for location in compile_graph(model).program.values.values())]
    assert kept.count("float32") == 1  # the input
    feeds = {"x": floats(1, 8, 6, 5)}
    difference = run(model, feeds)[0].astype(int) - by_definition(model, feeds)[0].astype(int)
    assert np.abs(difference).max() <= 1  # sums that end between two steps may go to either
    assert (difference != 0).mean() < 0.02


def test_joined_values_that_something_else_reads_are_joined_as_they_are() -> None:
    model = joined("y = QuantizeLinear(j, u, z) k = Relu(j)", "uint8[1,20,6,5] y, float[1,20,6,5] k")
    assert "QuantizeEarlier skipped y: something else reads what is joined" in told(model, "early rules")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "wd = DequantizeLinear(w, s, zw) y = Conv(x, wd)",
            "IntegerConvolution skipped y: only one operand is dequantised with known parameters",
        ),
        (
            "xq = QuantizeLinear(x, s, z16) xd = DequantizeLinear(xq, s, z16) wd = DequantizeLinear(w, s, zw) y = Conv(xd, wd)",
            "IntegerConvolution skipped y: its operands are uint16 and int8; integer kernels take 8 bits",
        ),
        (
            "xq = QuantizeLinear(x, s, z) xd = DequantizeLinear(xq, s, z) wd = DequantizeLinear<axis=1>(w, several, zs) y = Conv(xd, wd)",
            "IntegerConvolution skipped y: the scales of the weights run along axis 1, not along the results",
        ),
        (
            "xq = QuantizeLinear(x, s, z) xd = DequantizeLinear(xq, s, z) e = Exp(xd) y = QuantizeLinear(e, s, z)",
            "QuantizeByProduct skipped y: what it quantises is not made of integers by Add, Mul, Relu and Clip alone",
        ),
    ],
)
def test_the_report_says_why_a_product_stays_one_of_floats(text: str, why: str) -> None:
    output = "uint8[1,4,5,5] y" if "e = Exp" in text else "float[1,6,5,5] y"
    model = parse(
        f"g (float[1,4,5,5] x) => ({output}) {{ {text} }}",
        s=scale(0.1), z=np.array(7, np.uint8), z16=np.array(7, np.uint16), zw=np.array(0, np.int8), w=weights(6, 4, 1, 1),
        several=scales(4, 0.1, 0.2), zs=np.zeros(4, np.int8),
    )  # fmt: skip
    assert why in told(model, "early rules")


def test_integers_that_something_else_reads_keep_their_sign() -> None:
    model = parse(
        "g (float[4,5] x) => (float[4,5] y, int8[4,5] q) { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }",
        s=scale(0.1), z=np.array(7, np.int8),
    )  # fmt: skip
    assert "UnsignedBytes skipped q: the integers are an output of the graph" in told(model, "early rules")


@pytest.mark.parametrize(("channels", "group"), [(8, 4), (8, 2), (8, 8), (32, 32), (48, 48), (32, 16)])
def test_grouped_convolutions_read_bytes_wherever_they_were_left(channels: int, group: int) -> None:
    """A convolution that other generators compute between two that keep the channels last."""
    model = parse(
        f"g (uint8[1,8,6,5] x) => (int32[1,9,6,5] y) {{ a = ConvInteger(x, w) q = Cast<to=2>(a) "
        f"b = ConvInteger<pads=[1,1,1,1], group={group}>(q, v, z) r = Cast<to=2>(b) y = ConvInteger(r, u) }}",
        w=weights(channels, 8, 1, 1), v=weights(channels, channels // group, 3, 3), u=weights(9, channels, 1, 1), z=np.array(9, np.uint8),
    )  # fmt: skip
    feeds = {"x": RNG.integers(0, 256, (1, 8, 6, 5)).astype(np.uint8)}
    np.testing.assert_array_equal(run(model, feeds)[0], by_definition(model, feeds)[0])


@pytest.mark.parametrize("name", distinct_names("host", "sse", "avx2"))
@pytest.mark.parametrize(("channels", "outputs", "group"), [(16, 9, 1), (48, 8, 4), (64, 64, 8), (32, 32, 32)])
@pytest.mark.parametrize("several", [False, True], ids=["one", "channels"])
def test_unsigned_weights_around_128_are_multiplied_as_signed_ones(
    name: str, channels: int, outputs: int, group: int, several: bool
) -> None:
    """They went to the host, for a table was taken for weights that are computed."""
    target = host() if name == "host" else by_name(name)
    known = RNG.choice(np.array([0, 1, 128, 255], np.uint8), (outputs, channels // group, 3, 3))
    model = parse(
        f"g (uint8[1,{channels},6,5] x) => (int32[1,{outputs},6,5] y) {{ y = ConvInteger<pads=[1,1,1,1], group={group}>(x, w, z, zw) }}",
        w=known, z=np.array(200, np.uint8), zw=np.full(outputs if several else (), 128, np.uint8),
    )  # fmt: skip
    session = InferenceSession(model, SessionOptions(target=target, poison=True))
    assert [report.engine for report in session.engines()] == ["AiCore"]
    x = RNG.choice(np.array([0, 255], np.uint8), (1, channels, 6, 5))
    signed = parse(
        f"g (float[1,{channels},6,5] x) => (float[1,{outputs},6,5] y) {{ y = Conv<pads=[1,1,1,1], group={group}>(x, w) }}",
        w=known.astype(np.float32) - 128,
    )
    (exact,) = by_definition(signed, {"x": x.astype(np.float32) - 200})  # sums below 2^24
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], exact)


@pytest.mark.parametrize("attributes", ["", "<transB=1, alpha=0.5>"])
@pytest.mark.parametrize("quantised", [True, False])
def test_qgemm_is_one_kernel(attributes: str, quantised: bool) -> None:
    shape, several = ((12, 7), scales(12, 0.01, 0.02)) if attributes else ((7, 12), scale(0.01))
    output, rest = ("uint8[5,12] y", "sy, zy") if quantised else ("float[5,12] y", "")
    model = parse(
        f"g (uint8[5,7] a) => ({output}) {{ y = com.microsoft.QGemm{attributes}(a, sa, za, b, sb, zb, c{', ' + rest if rest else ''}) }}",
        sa=scale(0.02), za=np.array(99, np.uint8), b=RNG.integers(-100, 100, shape).astype(np.int8), sb=several,
        zb=np.zeros(several.shape, np.int8), c=RNG.integers(-900, 900, 12).astype(np.int32), sy=scale(0.4), zy=np.array(120, np.uint8),
    )  # fmt: skip
    assert len(kernels_of(model)) == 1
    feeds = {"a": RNG.integers(0, 256, (5, 7)).astype(np.uint8)}
    (got,), (want,) = run(model, feeds), run(model, feeds, switched_off=frozenset({"IntegerQGemm"}))
    np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32), rtol=1e-5, atol=1 if quantised else 1e-5)


@pytest.mark.parametrize("zeros", ["", ", za", ", za, zb"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_unsigned_weights_are_multiplied_exactly(zeros: str, dtype: type) -> None:
    low = np.iinfo(dtype).min
    model = parse(
        f"g ({np.dtype(dtype).name}[3,5,19] a) => (int32[3,5,37] y) {{ y = MatMulInteger(a, b{zeros}) }}",
        b=RNG.integers(0, 256, (19, 37)).astype(np.uint8), za=np.array(low + 77, dtype), zb=np.array(113, np.uint8),
    )  # fmt: skip
    feeds = {"a": RNG.integers(low, low + 256, (3, 5, 19)).astype(dtype)}
    np.testing.assert_array_equal(run(model, feeds)[0], by_definition(model, feeds)[0])


WEIGHT_ZEROS = [np.array(0, np.uint8), np.array(113, np.uint8), np.array([255], np.uint8), np.arange(37, dtype=np.uint8) * 7]


@pytest.mark.parametrize("name", distinct_names("host", "sse", "avx2"))
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("zero", WEIGHT_ZEROS, ids=["none", "one", "greatest", "columns"])
def test_products_of_the_greatest_bytes_are_exact_with_any_zero_point(name: str, dtype: type, zero: np.ndarray[Any, Any]) -> None:
    low, target = np.iinfo(dtype).min, host() if name == "host" else by_name(name)
    for rows, depth in ((1, 1), (7, 19), (197, 66), (3, 0)):
        known = RNG.choice(np.array([0, 1, 254, 255], np.uint8), (depth, 37))
        model = parse(
            f"g ({np.dtype(dtype).name}[{rows},{depth}] a) => (int32[{rows},37] y) {{ y = MatMulInteger(a, b, za, zb) }}",
            b=known, za=np.array(low + 200, dtype), zb=zero,
        )  # fmt: skip
        a = RNG.choice(np.array([low, low + 255], dtype), (rows, depth))
        exact = (a.astype(np.int32) - (low + 200)) @ (known.astype(np.int32) - zero.astype(np.int32))
        np.testing.assert_array_equal(run(model, {"a": a}, target=target)[0], exact)


@pytest.mark.parametrize("shape", [(2, 19, 37), (3, 1, 70, 9), (2, 19, 1)], ids=str)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("ends", [(0, 255), (100, 140)], ids=str)
def test_several_matrices_and_columns_of_weights_have_a_zero_point_too(shape: tuple[int, ...], dtype: type, ends: tuple[int, int]) -> None:
    low = np.iinfo(dtype).min
    rows = f"2,5,{shape[1]}" if len(shape) == 3 else f"3,2,4,{shape[2]}"
    known = RNG.choice(np.array(ends, np.uint8), shape)
    model = parse(
        f"g ({np.dtype(dtype).name}[{rows}] a) => (int32[{', '.join('NABC'[: len(shape)])}] y) {{ y = MatMulInteger(a, b, za, zb) }}",
        b=known, za=np.array(low + 99, dtype), zb=np.array(113, np.uint8),
    )  # fmt: skip
    a = RNG.choice(np.array([low, low + 255], dtype), [int(size) for size in rows.split(",")])
    exact = (a.astype(np.int32) - (low + 99)) @ (known.astype(np.int32) - 113)
    np.testing.assert_array_equal(run(model, {"a": a})[0], exact)


@pytest.mark.parametrize("name", ["avx2", "avx512,+avx512vnni"])
def test_a_zero_point_of_weights_costs_no_kernel_where_words_are_multiplied(name: str) -> None:
    model = parse(
        """g (uint8[5,64] a, uint8 za, float s) => (float[5,64] y) {
            p = MatMulInteger(a, b, za, zb) c = Cast<to=1>(p) m = Mul(c, s) n = Add(m, bias) y = Gelu(n)
        }""",
        b=RNG.integers(0, 256, (64, 64)).astype(np.uint8), zb=np.array(113, np.uint8), bias=floats(64),
    )  # fmt: skip
    kernels = ["+".join(task.op_types) for task in tasks(compile_graph(model, by_name(name)).program)]
    assert (kernels == ["MatMulInteger+Cast+Mul+Add+Gelu"]) is (name == "avx2")


def test_a_dequantised_constant_that_two_results_add_is_scaled_for_each() -> None:
    model = parse(
        """g (float[2,8] x) => (float[2,20] y) {
            xq = QuantizeLinear(x, sx, zx) xd = DequantizeLinear(xq, sx, zx)
            wd = DequantizeLinear(w, sw, zw) kd = DequantizeLinear(k, sk, zk)
            a = MatMul(xd, wd) b = Add(a, kd) bq = QuantizeLinear(b, sb, zx) bd = DequantizeLinear(bq, sb, zx)
            c = Relu(a) d = Add(c, kd) dq = QuantizeLinear(d, sd, zx) dd = DequantizeLinear(dq, sd, zx)
            y = Add(bd, dd)
        }""",
        w=weights(8, 20), sw=scale(0.001), zw=np.zeros((), np.int8),
        k=np.array([200], np.uint8), sk=scale(0.004), zk=np.zeros((), np.uint8),
        sx=scale(0.02), zx=np.array(128, np.uint8), sb=scale(0.03), sd=scale(0.02),
    )  # fmt: skip
    feeds = {"x": floats(2, 8)}
    (wanted,) = by_definition(model, feeds)
    (got,) = run(model, feeds)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=0.051)  # a step of each


@pytest.mark.parametrize("known", [True, False])
def test_a_product_whose_sums_no_int32_holds_stays_one_of_floats(known: bool) -> None:
    nodes = "ad = DequantizeLinear(a, s, z) bd = DequantizeLinear(b, s, z) y = MatMul(ad, bd)"
    for depth, floating in ((33_025, False), (33_026, True)):  # times 255 x 255
        a, b = np.zeros((1, depth), np.uint8), np.zeros((depth, 17), np.uint8)
        given, computed = ({"b": b}, "") if known else ({}, f", uint8[{depth},17] b")
        model = parse(
            f"g (uint8[1,{depth}] a{computed}) => (float[1,17] y) {{ {nodes} }}", s=scale(0.01), z=np.array(255, np.uint8), **given
        )
        (y,) = run(model, {"a": a} if known else {"a": a, "b": b}, target=by_name("avx2"))
        np.testing.assert_allclose(y, np.full((1, 17), depth * 2.55**2), rtol=1e-3)
        lines = told(model, "early rules" if known else "rules", by_name("avx2"))
        assert any("more than int32 holds" in line for line in lines) is floating

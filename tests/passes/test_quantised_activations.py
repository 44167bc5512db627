"""Attention of a quantised model: both its products multiply bytes where words pay, and what lies between kernels is bytes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from anycann.target.target import by_name
from tests.passes.graphs import by_definition, compile_graph, floats, parse, run, tasks, told

AVX2 = by_name("avx2")
RNG = np.random.default_rng(11)
ATTENTION = """
g (float[2,{t},24] x, float[2,1,1,{t}] mask) => (float[2,{t},24] y) {{
    xq = QuantizeLinear(x, sx, zx) xd = DequantizeLinear(xq, sx, zx)
    vd = DequantizeLinear(v, sw, zw) wd = DequantizeLinear(w, sw, zw)
    h = MatMul(xd, vd) hb = Add(h, bias) hr = Reshape(hb, heads) ht = Transpose<perm=[0,2,1,3]>(hr)
    hq = QuantizeLinear(ht, sh, zh) hd = DequantizeLinear(hq, sh, zh)
    k = MatMul(xd, wd) kr = Reshape(k, heads) kt = Transpose<perm=[0,2,3,1]>(kr)
    kq = QuantizeLinear(kt, sh, zk) kd = DequantizeLinear(kq, sh, zk)
    s = MatMul(hd, kd) sq = QuantizeLinear(s, ss, zh) sd = DequantizeLinear(sq, ss, zh) m = Mul(sd, half) a = Add(m, mask)
    p = Softmax(a) pq = QuantizeLinear(p, sp, zp) pd = DequantizeLinear(pq, sp, zp)
    o = MatMul(pd, hd) oq = QuantizeLinear(o, sh, zh) od = DequantizeLinear(oq, sh, zh)
    ot = Transpose<perm=[0,2,1,3]>(od) y = Reshape(ot, back)
}}"""


def scalar(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def attention(t: int, dtype: type) -> onnx.ModelProto:
    low = int(np.iinfo(dtype).min)
    return parse(
        ATTENTION.format(t=t), sx=scalar(0.02), sh=scalar(0.03), ss=scalar(0.11), sp=scalar(1 / 255), sw=scalar(0.004), half=scalar(0.35),
        **{name: np.array(low + zero, dtype) for name, zero in (("zx", 128), ("zh", 133), ("zk", 120), ("zp", 0))}, zw=np.array(0, np.int8),
        v=RNG.integers(-127, 128, (24, 24)).astype(np.int8), w=RNG.integers(-127, 128, (24, 24)).astype(np.int8), bias=floats(24),
        heads=np.array([0, 0, 3, 8]), back=np.array([2, -1, 24]),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("t", [1, 7, 37])
def test_attention_is_within_a_step_of_its_definition(t: int, dtype: type) -> None:
    model = attention(t, dtype)
    mask = np.where(RNG.random((2, 1, 1, t)) < 0.2, -100, 0).astype(np.float32)
    feeds = {"x": floats(2, t, 24, seed=t), "mask": mask}
    (got,), (want,) = run(model, feeds, target=AVX2), by_definition(model, feeds)
    assert np.abs(got - want).max() <= 0.03 * 1.01
    assert np.mean(np.abs(got - want) > 1e-6) < 0.03


def test_its_kernels_hand_bytes_over() -> None:
    program = compile_graph(attention(37, np.uint8), AVX2).program
    kernels = ["+".join(task.op_types) for task in tasks(program)]
    assert kernels.count("Transpose") == 3
    assert "MatMulInteger+Cast+Mul+QuantizeLinear+DequantizeLinear+Mul+Add" in kernels
    assert "MatMulInteger+Cast+Mul+QuantizeLinear" in kernels
    kept = [location.spec for location in program.values.values() if location.buffer.space == "arena"]
    assert [spec.shape for spec in kept if spec.dtype == "float32"] == [(2, 3, 37, 37)]  # the scores


def test_results_of_their_sums_are_not_divided() -> None:
    lines = told(attention(37, np.uint8), "rules", AVX2)
    assert sum(line.startswith("QuantizeActivations applied") for line in lines) == 2


@pytest.mark.parametrize(("name", "floats"), [("avx512", 2), ("neon", 2), ("avx512,+avx512vnni", 0), ("avx2,+avxvnni", 0), ("znver4", 0)])
def test_products_of_floats_stay_where_words_are_not_known_to_pay(name: str, floats: int) -> None:
    kernels = ["+".join(task.op_types) for task in tasks(compile_graph(attention(37, np.uint8), by_name(name)).program)]
    assert sum("MatMul+" in kernel for kernel in kernels) == floats


PRODUCT = "g (uint8[3,5,7] a, uint8[3,7,{n}] b) => (float[3,5,{n}] y) {{ ad = DequantizeLinear(a, s, z) {b} y = MatMul(ad, bd) }}"


@pytest.mark.parametrize(
    ("b", "why"),
    [
        ("bd = DequantizeLinear<axis=1>(b, several, zeros)", "IntegerActivations skipped y: an operand has several scales"),
        (
            "c = Cast<to=4>(b) bd = DequantizeLinear(c, s, wide)",
            "IntegerActivations skipped y: its operands are uint8 and uint16; integer kernels take 8 bits",
        ),
    ],
    ids=["scales", "words"],
)
def test_the_report_says_why_a_product_stays_one_of_floats(b: str, why: str) -> None:
    model = parse(
        PRODUCT.format(n=9, b=b), s=scalar(0.1), z=np.array(9, np.uint8), several=np.full(7, 0.1, np.float32), zeros=np.zeros(7, np.uint8),
        wide=np.array(9, np.uint16),
    )  # fmt: skip
    assert why in told(model, "rules", AVX2)


@pytest.mark.parametrize("operation", ["Reshape(x, to)", "Transpose<perm=[2,0,1]>(x)"])
def test_what_is_moved_is_quantised_where_it_is_made(operation: str) -> None:
    nodes = "x = {make} r = {operation} t = Transpose<perm=[0,2,1]>(r) y = QuantizeLinear(t, s, z)"
    text = f"g (float[4,3,5] u) => (uint8[A,B,C] y) {{{{ {nodes} }}}}"
    constants = {"s": scalar(0.02), "z": np.array(100, np.uint8), "to": np.array([5, 4, 3])}
    model = parse(text.format(make="Sin(u)", operation=operation), **constants)
    kernels = ["+".join(task.op_types) for task in tasks(compile_graph(model, AVX2).program)]
    assert any(kernel.startswith("Sin+QuantizeLinear") for kernel in kernels)
    feeds = {"u": floats(4, 3, 5)}
    np.testing.assert_array_equal(run(model, feeds)[0], by_definition(model, feeds)[0])
    unmade = parse(text.format(make="Identity(u)", operation=operation), **constants)
    assert not any("QuantizeBeforeMoving applied" in line for line in told(unmade, "rules"))


def test_what_something_else_reads_is_moved_as_it_is() -> None:
    model = parse(
        "g (float[4,6] u) => (uint8[6,4] y, float[6,4] t) { x = Sin(u) t = Transpose(x) y = QuantizeLinear(t, s, z) }",
        s=scalar(0.02), z=np.array(100, np.uint8),
    )  # fmt: skip
    assert "QuantizeBeforeMoving skipped y: something else reads what is moved" in told(model, "early rules")


@pytest.mark.parametrize("shapes", [((5, 7), (7, 20)), ((2, 3, 5, 7), (2, 3, 7, 4)), ((2, 3, 5, 7), (7, 9)), ((4, 1), (1, 1))], ids=str)
@pytest.mark.parametrize("zeros", ["", ", za, zb"])
@pytest.mark.parametrize("name", ["avx2", "sse"])
def test_integers_that_are_both_computed_are_multiplied_exactly(shapes: tuple[tuple[int, ...], ...], zeros: str, name: str) -> None:
    a, b = RNG.integers(0, 256, shapes[0]).astype(np.uint8), RNG.integers(-128, 128, shapes[1]).astype(np.int8)
    points = {"za": np.array(200, np.uint8), "zb": np.array(-5, np.int8)}
    given = {key: value for key, value in points.items() if key in zeros}
    inputs = "".join(f", {value.dtype} {key}" for key, value in given.items())
    sizes = [",".join(map(str, shape)) for shape in shapes]
    result = ",".join("ABCD"[: a.ndim])
    text = f"g (uint8[{sizes[0]}] a, int8[{sizes[1]}] b{inputs}) => (int32[{result}] y) {{ y = MatMulInteger(a, b{zeros}) }}"
    want = (a.astype(np.int32) - int(given.get("za", 0))) @ (b.astype(np.int32) - int(given.get("zb", 0)))
    np.testing.assert_array_equal(run(parse(text), {"a": a, "b": b, **given}, target=by_name(name))[0], want)
    assert tasks(compile_graph(parse(text), by_name(name)).program)[0].op_types == ("MatMulInteger",)

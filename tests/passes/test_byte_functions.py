"""Activations between 8-bit tensors become tables, with the bytes that computing them gives; what is no function of one byte stays."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.kernels.jit import runnable
from tests.passes.graphs import by_definition, kernels, parse, run, told

ALL = np.arange(256, dtype=np.uint8)
NUMBERS = {
    "s": np.array(0.047, np.float32), "z": np.array(117, np.uint8), "t": np.array(1 / 255, np.float32), "u": np.array(0, np.uint8),
    "r": np.array(0.031, np.float32), "w": np.array(9, np.uint8), "half": np.array(0.5, np.float32), "one": np.array([1], np.float32),
    "root": np.array(2**0.5, np.float32), "n": np.array(-3, np.int8),
}  # fmt: skip
DIRECT = "d = DequantizeLinear(x, s, z) f = {}(d) y = QuantizeLinear(f, r, w)"
SILU = """d = DequantizeLinear(x, s, z) f = Sigmoid(d) g = QuantizeLinear(f, t, u) h = DequantizeLinear(g, t, u)
    m = Mul(d, h) y = QuantizeLinear(m, r, w)"""
GELU = """d = DequantizeLinear(x, s, z) q = Div(d, root) e = Erf(q) a = Add(e, one) m = Mul(d, a) h = Mul(m, half)
    y = QuantizeLinear(h, r, w)"""
TO_SIGNED = "d = DequantizeLinear(x, s, z) f = Tanh(d) y = QuantizeLinear(f, t, n)"


def graph(body: str, shape: str = "256", kind: str = "uint8", made: str = "uint8") -> str:
    return f"g ({kind}[{shape}] x) => ({made}[{shape}] y) {{ {body} }}"


def of_tables(text: str, **constants: np.ndarray) -> list[str]:
    return [line for line in told(parse(text, **constants)) if line.startswith("TabulateBytes")]


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize("body", [*(DIRECT.format(f) for f in ("Tanh", "Gelu", "Softplus")), SILU, GELU], ids=lambda text: text[32:60])
def test_an_activation_between_bytes_is_a_table_of_what_it_makes_of_each(body: str, target) -> None:
    model = parse(graph(body), **NUMBERS)
    assert kernels(graph(body), **NUMBERS) == ["ByteTable"]
    want = by_definition(model, {"x": ALL})[0]
    np.testing.assert_array_equal(run(model, {"x": ALL}, target=target)[0], want)
    computed = run(model, {"x": ALL}, target=target, switched_off=frozenset({"TabulateBytes"}))[0]
    np.testing.assert_array_equal(computed, want)


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
def test_bytes_may_be_signed_on_both_sides(target) -> None:
    constants = {**NUMBERS, "z": np.array(-20, np.int8)}
    model = parse(graph(TO_SIGNED, "5,37", "int8", "int8"), **constants)
    x = np.random.default_rng(2).integers(-128, 128, (5, 37)).astype(np.int8)
    np.testing.assert_array_equal(run(model, {"x": x}, target=target)[0], by_definition(model, {"x": x})[0])


def test_a_table_is_looked_up_by_the_kernel_that_makes_the_bytes() -> None:
    text = "g (float[2,19,5] v) => (uint8[2,19,5] y) { x = QuantizeLinear(v, s, z) " + SILU + " }"
    v = np.random.default_rng(3).uniform(-7, 7, (2, 19, 5)).astype(np.float32)
    assert kernels(text, **NUMBERS) == ["QuantizeLinear+ByteTable"]
    np.testing.assert_array_equal(run(parse(text, **NUMBERS), {"v": v})[0], by_definition(parse(text, **NUMBERS), {"v": v})[0])


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize(("channels", "pixels"), [(9, "8,8"), (85, "5,7"), (17, "3,3"), (7, "1,9")])
def test_a_table_is_looked_up_by_the_kernel_that_transposes_the_bytes(channels: int, pixels: str, target) -> None:
    """A part of a register is left over at the ends of both axes: what is not there is looked up too."""
    text = f"""g (uint8[1,3,{channels},{pixels}] x) => (float[1,3,{pixels},{channels}] y) {{
        d = DequantizeLinear(x, s, z) a = Transpose<perm=[0,1,3,4,2]>(d) q = QuantizeLinear(a, s, z) e = DequantizeLinear(q, s, z)
        f = Sigmoid(e) g = QuantizeLinear(f, t, u) y = DequantizeLinear(g, t, u)
    }}"""
    model = parse(text, **NUMBERS)
    shape = [int(size) for size in f"1,3,{channels},{pixels}".split(",")]
    x = np.random.default_rng(4).integers(0, 256, shape).astype(np.uint8)
    assert kernels(text, **NUMBERS) == ["Transpose+ByteTable+DequantizeLinear"]
    np.testing.assert_array_equal(run(model, {"x": x}, target=target)[0], by_definition(model, {"x": x})[0])


REFUSED = {
    "f = Relu(d) y = QuantizeLinear(f, r, w)": "computing it costs no more than looking it up",
    "e = Tanh(d) f = Add(e, many) y = QuantizeLinear(f, r, w)": "",
    "e = Tanh(d) f = Mul(e, flat) k = Reshape(f, size) y = QuantizeLinear(k, r, w)": "",
    """a = Add(d, d) q = QuantizeLinear(a, r, w) p = Transpose<perm=[1, 0]>(q) b = DequantizeLinear(p, r, w)
       e = Tanh(b) f = Mul(d, e) y = QuantizeLinear(f, r, w)""": "several tensors go into it",
    "e = Tanh(d) f = Mul(e, deep) y = QuantizeLinear(f, r, w)": "its result has another shape than the bytes",
}
OTHERS = {
    "many": np.ones(16, np.float32), "flat": np.ones((16, 16), np.float32), "size": np.array([16, 16]),
    "deep": np.ones((1, 1, 1), np.float32),
}  # fmt: skip


@pytest.mark.parametrize("body", REFUSED)
def test_what_is_no_function_of_one_byte_stays_as_it_is(body: str) -> None:
    made = "1,16,16" if "deep" in body else "16,16"
    text = f"g (uint8[16,16] x) => (uint8[{made}] y) {{ d = DequantizeLinear(x, s, z) {body} }}"
    lines = of_tables(text, **NUMBERS, **OTHERS)
    assert not any("applied" in each for each in lines)
    assert (f"TabulateBytes skipped y: {REFUSED[body]}" in lines) == bool(REFUSED[body])
    x = np.random.default_rng(4).permutation(256).astype(np.uint8).reshape(16, 16)
    model = parse(text, **NUMBERS, **OTHERS)
    assert np.abs(run(model, {"x": x})[0].astype(int) - by_definition(model, {"x": x})[0]).max() <= 1

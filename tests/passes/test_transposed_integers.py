"""Transposed convolutions of dequantised bytes are sums of integers where they fill vectors; results are those of the definition."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from anycann.target.target import by_name
from tests.passes.graphs import by_definition, floats, kernels, parse, run

RNG = np.random.default_rng(5)
TEXT = """g (float[{data}] x) => (float[{result}] y) {{
    xq = QuantizeLinear(x, sx, zx) xd = DequantizeLinear(xq, sx, zx)
    wd = DequantizeLinear<axis=1>(w, sw, zw) bd = DequantizeLinear(b, sb)
    c = ConvTranspose<{form}>(xd, wd, bd) r = Relu(c)
    rq = QuantizeLinear(r, sy, zy) y = DequantizeLinear(rq, sy, zy)
}}"""
HALVES = "strides=[2,2]"


def constants(inputs: int, outputs: int, *kernel: int, dtype: type = np.uint8, zero: int = 0) -> dict[str, np.ndarray]:
    point = np.array(120 if dtype is np.uint8 else -9, dtype)
    return {
        "sx": np.array(0.02, np.float32), "zx": point, "sy": np.array(0.003, np.float32), "zy": point,
        "w": RNG.integers(-100, 100, (inputs, outputs, *kernel)).astype(np.int8), "zw": np.full(outputs, zero, np.int8),
        "sw": RNG.uniform(0.0001, 0.0003, outputs).astype(np.float32),
        "b": RNG.integers(-3000, 3000, outputs).astype(np.int32), "sb": np.array(1e-5, np.float32),
    }  # fmt: skip


def model(data: str, result: str, form: str, known: dict[str, np.ndarray]) -> onnx.ModelProto:
    return parse(TEXT.format(data=data, result=result, form=form), **known)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(
    ("data", "result", "form", "kernel"),
    [
        ("2,7,5,6", "2,16,10,12", HALVES, (2, 2)),
        ("1,20,5,3", "1,48,10,6", f"{HALVES}, pads=[1,1,1,1]", (4, 4)),
        ("1,7,4,5", "1,16,8,10", f"{HALVES}, pads=[1,1,1,1], output_padding=[1,1]", (3, 3)),
        ("1,9,5,4", "1,32,5,4", "pads=[1,1,1,1]", (3, 3)),
        ("1,6,4,5", "1,16,12,15", "strides=[3,3], pads=[2,0,0,2]", (5, 5)),
        ("2,7,9", "2,32,72", "strides=[8], pads=[4,4]", (16,)),
    ],
)
def test_windows_that_meet_or_not_are_sums_of_integers(data: str, result: str, form: str, kernel: tuple[int, ...], dtype: type) -> None:
    shape = [int(size) for size in data.split(",")]
    quantised = model(data, result, form, constants(shape[1], int(result.split(",")[1]), *kernel, dtype=dtype))
    feeds = {"x": floats(*shape)}
    (got,), (wanted,) = run(quantised, feeds), by_definition(quantised, feeds)
    steps = np.abs(got - wanted) / 0.003
    assert steps.max() < 1.01
    assert (steps > 0.5).mean() < 0.01


@pytest.mark.parametrize("channels", [16, 32, 48])
def test_vectors_at_two_places_of_a_window_are_not_joined(channels: int) -> None:
    """Panels of three vectors: the second begins with the end of one place, and what is behind it lies far away."""
    quantised = model("2,7,9", f"2,{channels},72", "strides=[8], pads=[4,4]", constants(7, channels, 16))
    feeds = {"x": floats(2, 7, 9)}
    (got,), (wanted,) = run(quantised, feeds, target=by_name("avx2")), by_definition(quantised, feeds)
    assert np.abs(got - wanted).max() < 0.003 * 1.01


@pytest.mark.parametrize(("inputs", "outputs"), [(16, 32), (20, 48), (64, 16), (33, 64)])
def test_taps_that_a_place_does_not_have_are_not_multiplied(inputs: int, outputs: int) -> None:
    """Of 3x3 neighbours each place has 2x2; vectors beside each other are written together where they are of one place."""
    quantised = model(f"1,{inputs},7,5", f"1,{outputs},14,10", f"{HALVES}, pads=[1,1,1,1]", constants(inputs, outputs, 4, 4))
    feeds = {"x": floats(1, inputs, 7, 5)}
    (got,), (wanted,) = run(quantised, feeds, target=by_name("avx2")), by_definition(quantised, feeds)
    assert np.abs(got - wanted).max() < 0.003 * 1.01


def test_bytes_of_the_model_become_larger_planes() -> None:
    """Row-major bytes are read with their channels last, however many pixels they become."""
    known = constants(16, 16, 4, 4, dtype=np.int8)
    text = """g (int8[1,16,8,9] x) => (float[1,16,16,18] y) {
        xd = DequantizeLinear(x, sx, zx) wd = DequantizeLinear<axis=1>(w, sw, zw)
        y = ConvTranspose<strides=[2,2], pads=[1,1,1,1]>(xd, wd)
    }"""
    quantised = parse(text, **{name: known[name] for name in ("sx", "zx", "w", "sw", "zw")})
    feeds = {"x": RNG.integers(-128, 128, (1, 16, 8, 9)).astype(np.int8)}
    (got,), (wanted,) = run(quantised, feeds), by_definition(quantised, feeds)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_the_kernel_multiplies_bytes_and_does_all_that_follows() -> None:
    text = TEXT.format(data="1,20,5,3", result="1,48,10,6", form=HALVES)
    found = kernels(text, **constants(20, 48, 2, 2))
    assert [name for name in found if "ConvTranspose" in name] == ["ConvTransposeInteger+Cast+Mul+Add+Relu+QuantizeLinear+DequantizeLinear"]


@pytest.mark.parametrize(
    ("result", "form", "outputs", "zero"),
    [("1,12,10,6", HALVES, 12, 0), ("1,16,11,7", f"{HALVES}, output_padding=[1,1]", 16, 0), ("1,16,10,6", HALVES, 16, 100)],
)
def test_channels_that_leave_lanes_empty_and_parts_of_windows_are_floats(result: str, form: str, outputs: int, zero: int) -> None:
    known = constants(20, outputs, 2, 2, zero=zero)
    assert not any("ConvTransposeInteger" in name for name in kernels(TEXT.format(data="1,20,5,3", result=result, form=form), **known))


@pytest.mark.parametrize(
    ("kernel", "result", "form"),
    [
        ((4, 16, 2, 2), "1,16,9,9", f"{HALVES}, output_padding=[1,1]"),
        ((4, 16, 2, 2), "1,16,9,9", f"{HALVES}, dilations=[2,2]"),
        ((4, 16, 3, 3), "1,16,8,8", f'{HALVES}, auto_pad="SAME_UPPER"'),
    ],
)
def test_other_windows_of_bytes_are_left_to_the_host(kernel: tuple[int, ...], result: str, form: str) -> None:
    weights, x = RNG.integers(-128, 128, kernel).astype(np.int8), RNG.integers(0, 256, (1, 4, 4, 4)).astype(np.uint8)
    text = f"g (uint8[1,4,4,4] x) => (int32[{result}] y) {{ y = anycann.ConvTransposeInteger<{form}>(x, w, z) }}"
    plain = f"g (float[1,4,4,4] x) => (float[{result}] y) {{ y = ConvTranspose<{form}>(x, w) }}"
    (got,) = run(parse(text, w=weights, z=np.array(120, np.uint8)), {"x": x})
    (wanted,) = by_definition(parse(plain, w=weights.astype(np.float32)), {"x": x.astype(np.float32) - 120})
    np.testing.assert_array_equal(got, wanted.astype(np.int32))

"""Fourier transforms of known length are products with tables; the others are computed as before."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.graphs import assert_same, by_definition, compile_graph, floats, kernels, parse, run, steps, told

COMPLEX = {1: lambda x: x[..., 0], 2: lambda x: x[..., 0] + 1j * x[..., 1]}


def parts(result: np.ndarray) -> np.ndarray:
    return np.stack([result.real, result.imag], axis=-1).astype(np.float32)


def rules(text: str, **constants: np.ndarray) -> str:
    return "\n".join(told(parse(text, **constants)))


@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("length", [11, 20, 9])
@pytest.mark.parametrize("axis", [1, 2, -2])
@pytest.mark.parametrize("count", [1, 2])
def test_a_transform_is_a_product(count: int, axis: int, length: int, inverse: int) -> None:
    shape = [2, 11, 11, count]
    made = [2, 11, 11, 2]
    made[axis] = length
    text = f"g (float{shape} x) => (float{made} y) {{ y = DFT<inverse = {inverse}>(x, length, axis) }}"
    constants = {"length": np.array(length), "axis": np.array(axis)}
    assert "ProductOfFourier applied to y" in rules(text, **constants)
    x = floats(*shape)
    want = (np.fft.ifft if inverse else np.fft.fft)(COMPLEX[count](x.astype(np.float64)), n=length, axis=axis % 4)
    assert_same(run(parse(text, **constants), {"x": x}), [parts(want)])


def test_half_of_the_bins_are_computed_where_half_are_asked_for() -> None:
    text = "g (float[3,30,1] x) => (float[3,16,2] y) { t = DFT<onesided = 1>(x, , axis) y = Neg(t) }"
    x = floats(3, 30, 1)
    assert kernels(text, axis=np.array(1)) == ["MatMul", "Neg"]
    assert_same(run(parse(text, axis=np.array(1)), {"x": x}), [parts(-np.fft.rfft(x[..., 0].astype(np.float64)))])


@pytest.mark.parametrize("windowed", [True, False])
@pytest.mark.parametrize(("count", "onesided"), [(1, 1), (1, 0), (2, 0)])
def test_windowed_frames_are_a_product(count: int, onesided: int, windowed: bool) -> None:
    length, step, bins = 18, 7, 10 if onesided else 18
    window = floats(length, seed=3)
    constants = {"step": np.array(step), "length": np.array(length)} | ({"w": window} if windowed else {})
    text = f"""g (float[2,60,{count}] x) => (float[2,7,{bins},2] y) {{
      y = STFT<onesided = {onesided}>(x, step, {"w" if windowed else ""}, length) }}"""
    assert "ProductOfFrames applied to y" in rules(text, **constants)
    x = floats(2, 60, count)
    signal = COMPLEX[count](x.astype(np.float64))
    cut = np.stack([signal[:, at : at + length] for at in range(0, 60 - length + 1, step)], axis=1)
    want = np.fft.fft(cut * window if windowed else cut)[..., :bins]
    assert_same(run(parse(text, **constants), {"x": x}), [parts(want)])


def test_frames_have_half_of_the_bins_where_nothing_is_said() -> None:
    text = "g (float[2,20,1] x) => (float[2,F,B,2] y) { y = STFT(x, step, , length) }"
    model, feeds = parse(text, step=np.array(4), length=np.array(8)), {"x": floats(2, 20, 1)}
    assert_same(run(model, feeds), by_definition(model, feeds))


@pytest.mark.parametrize("kind", ["float", "double"])
def test_frames_longer_than_the_signal_are_not_read(kind: str) -> None:
    model = parse(f"g ({kind}[2,7,1] x) => ({kind}[2,F,B,2] y) {{ y = STFT(x, step, , length) }}", step=np.array(4), length=np.array(8))
    assert steps(compile_graph(model).program) == "host(STFT)"


@pytest.mark.parametrize(
    ("inputs", "call", "why"),
    [
        ("float[2,9,1] x, int64 n", "DFT(x, , n)", "its axis or its length is only known when it runs"),
        ("double[2,9,1] x", "DFT(x, , axis)", "its shapes are only known when it runs, or its elements are no float32"),
        ("float[1,6000,1] x", "DFT(x, , axis)", "its table would have 72000000 elements; up to 4194304 are multiplied with"),
    ],
)
def test_other_transforms_say_why_they_are_none(inputs: str, call: str, why: str) -> None:
    assert f"ProductOfFourier skipped y: {why}" in rules(f"g ({inputs}) => (y) {{ y = {call} }}", axis=np.array(1))

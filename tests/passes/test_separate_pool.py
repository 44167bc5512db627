"""Large windows are pooled one axis after the other, and nothing else changes."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from tests.passes.graphs import floats, kernels, parse, run, told

SHAPES = ("13, 13", "6, 6, 6, 6"), ("5, 5", "2, 2, 2, 2"), ("9, 3", "0, 1, 4, 1"), ("4, 9", "1, 5, 2, 3"), ("3, 4, 5", "1, 0, 2, 1, 3, 2")


@pytest.mark.parametrize("more", ["", ", strides=[2, 1, 2]", ", dilations=[2, 1, 1]"])
@pytest.mark.parametrize(("kernel", "pads"), SHAPES)
def test_a_large_window_is_two_small_ones(kernel: str, pads: str, more: str) -> None:
    rank = kernel.count(",") + 1
    attributes = f"kernel_shape=[{kernel}], pads=[{pads}]{more if rank == 3 else more.replace(', 2]', ']').replace('1, 1]', '1]')}"
    model = parse(f"g (float[2,5{',17' * rank}] x) => (float[N,C{',M' * rank}] y) {{ y = MaxPool<{attributes}>(x) }}")
    feeds = {"x": floats(2, 5, *[17] * rank)}
    feeds["x"][0, 0, :4] = -1e30
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(run(model, feeds)[0], session.run(None, feeds)[0])


@pytest.mark.parametrize("more", ["", ", strides=[2, 1, 2]"])
@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize(("kernel", "pads"), SHAPES)
def test_the_mean_of_a_large_window_is_that_of_the_means_of_its_rows(kernel: str, pads: str, include: int, more: str) -> None:
    rank = kernel.count(",") + 1
    attributes = f"kernel_shape=[{kernel}], pads=[{pads}], count_include_pad={include}{more if rank == 3 else more.replace(', 2]', ']')}"
    text = f"g (float[2,5{',17' * rank}] x) => (float[N,C{',M' * rank}] y) {{ y = AveragePool<{attributes}>(x) }}"
    feeds = {"x": floats(2, 5, *[17] * rank)}
    session = onnxruntime.InferenceSession(parse(text).SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(run(parse(text), feeds)[0], session.run(None, feeds)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dilations", ["[2, 1]", "[1, 3]"])
def test_the_mean_of_a_dilated_window(dilations: str) -> None:
    text = f"""g (float[2,5,17,19] x) => (float[2,5,N,M] y) {{
        y = AveragePool<kernel_shape=[5, 5], pads=[2, 1, 1, 3], dilations={dilations}>(x) }}"""
    x = floats(2, 5, 17, 19)
    down, right = (int(step) for step in dilations[1:-1].split(","))
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (2, 1), (1, 3)), constant_values=np.nan)
    height, width = (size - 4 * step for size, step in zip(padded.shape[2:], (down, right), strict=True))
    taps = [padded[:, :, i * down : i * down + height, j * right : j * right + width] for i in range(5) for j in range(5)]
    np.testing.assert_allclose(run(parse(text), {"x": x})[0], np.nanmean(taps, axis=0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("attributes", "line"),
    [
        ("kernel_shape=[7, 7]", ("SeparatePool applied to y",)),
        ("kernel_shape=[3, 3]", ()),
        ("kernel_shape=[1, 40]", ()),
        ("kernel_shape=[7, 7], strides=[7, 7]", ("SeparatePool skipped y: its windows hardly overlap",)),
        ("kernel_shape=[50, 7]", ("SeparatePool skipped y: there is one window along an axis",)),
        ("kernel_shape=[7, 7], ceil_mode=1", ("SeparatePool skipped y: its padding depends on the size",)),
    ],
)
def test_small_windows_and_those_apart_stay(attributes: str, line: tuple[str, ...]) -> None:
    assert told(parse(f"g (float[1,3,50,50] x) => (float[1,3,N,M] y) {{ y = MaxPool<{attributes}>(x) }}")) == line


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    ("attributes", "passes"),
    [
        ("kernel_shape=[4, 7, 7]", 3),  # one window along the depth
        ("kernel_shape=[1, 7, 7]", 2),
        ("kernel_shape=[1, 7, 7], strides=[2, 1, 1]", 1),
        ("kernel_shape=[1, 7, 7], pads=[0, 3, 3, 0, 3, 3]", 2),
        ("kernel_shape=[4, 1, 7]", 1),
        ("kernel_shape=[4, 2, 20]", 1),
    ],
)
def test_two_axes_that_windows_overlap_along_are_enough(attributes: str, passes: int, kind: str) -> None:
    text = f"g (float[1,3,4,19,20] x) => (float[1,3,N,M,K] y) {{ y = {kind}<{attributes}>(x) }}"
    assert kernels(text) == [kind] * passes
    feeds = {"x": floats(1, 3, 4, 19, 20)}
    session = onnxruntime.InferenceSession(parse(text).SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(run(parse(text), feeds)[0], session.run(None, feeds)[0], rtol=1e-5, atol=1e-6)


def test_means_are_separated_and_those_of_halves_rounded_once() -> None:
    wide = "g (float[1,3,50,50] x) => (float[1,3,N,M] y) { y = AveragePool<kernel_shape=[7, 7], count_include_pad=1>(x) }"
    assert told(parse(wide)) == ("SeparatePool applied to y",)
    text = "g (float16[1,3,50,50] x) => (float16[1,3,N,M] y) { y = AveragePool<kernel_shape=[7, 7]>(x) }"
    assert told(parse(text)) == ("SeparatePool skipped y: the means of rows would be rounded to float16",)

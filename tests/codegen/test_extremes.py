"""The largest and the mean of a window, written out or in loops: every element counts, at borders too, and a NaN is never lost."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from anycann import InferenceSession, SessionOptions
from anycann.target.target import by_name
from tests.codegen.kernels.jit import distinct_names

# input, kernel, strides, pads, ceil_mode; windows of 2 to 27 elements are written out where they are whole
WINDOWS = [
    ((3, 28, 11, 13), (3, 3), (2, 2), (0, 0, 0, 0), 1),
    ((1, 20, 9, 8), (3, 3), (2, 2), (1, 1, 1, 1), 0),
    ((2, 3, 7, 40), (2, 2), (2, 2), (0, 0, 0, 0), 0),
    ((1, 17, 6, 5), (4, 4), (1, 1), (2, 1, 1, 2), 0),
    ((1, 5, 20), (5,), (3,), (2, 1), 0),
    ((1, 3, 4, 6, 5), (2, 2, 2), (1, 2, 1), (1, 0, 0, 0, 1, 1), 0),
    ((1, 18, 12, 12), (5, 5), (1, 1), (2, 2, 2, 2), 0),
    ((1, 2, 5, 7, 21), (3, 3, 3), (2, 1, 2), (1, 1, 1, 1, 1, 1), 0),
    ((1, 2, 17, 18), (7, 4), (3, 1), (3, 1, 2, 2), 0),
]


def largest(x: np.ndarray, y: np.ndarray, kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...]) -> np.ndarray:
    """Window by window; NaN wins."""
    result = np.empty_like(y)
    for place in np.ndindex(*y.shape[2:]):
        starts = [p * s - b for p, s, b in zip(place, strides, pads[: len(kernel)], strict=True)]
        window = tuple(slice(max(0, start), start + extent) for start, extent in zip(starts, kernel, strict=True))
        result[(..., *place)] = np.max(x[(..., *window)], axis=tuple(range(2, x.ndim)))
    return result


def pool_model(
    shape: tuple[int, ...], kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...], ceil: int, op: str = "MaxPool"
) -> onnx.ModelProto:
    """Of the feed as it is, and of the feed in blocks of channels, as the convolution leaves it."""
    attributes = f"kernel_shape={list(kernel)}, strides={list(strides)}, pads={list(pads)}, ceil_mode={ceil}"
    dims = ",".join(map(str, shape))
    text = f"g (float[{dims}] x) => (float[] y, float[] z) {{ y = {op}<{attributes}>(x) b = Conv(x, w) z = {op}<{attributes}>(b) }}"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 20]> {text}')
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    weights = np.eye(shape[1], dtype=np.float32).reshape(shape[1], shape[1], *[1] * len(kernel))
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return model


CASES = [(window, "host") for window in WINDOWS] + [(window, target) for window in WINDOWS[:2] for target in ("avx2", "sse")]


@pytest.mark.parametrize(("window", "target"), CASES, ids=[f"{'x'.join(map(str, window[0]))} {target}" for window, target in CASES])
def test_the_largest_of_each_window_is_found_and_nan_stays(
    window: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], int], target: str
) -> None:
    shape, kernel, strides, pads, _ = window
    session = InferenceSession(pool_model(*window), SessionOptions(target=by_name(target), poison=True))
    rng = np.random.default_rng()
    x = -np.abs(rng.standard_normal(shape)).astype(np.float32)  # below zero: what lies outside must not win
    for share in (0.0, 0.02):
        x[rng.random(shape) < share] = np.nan
        y, z = session.run(None, {"x": x})
        np.testing.assert_array_equal(y, largest(x, y, kernel, strides, pads))
        blocked = np.where(np.isnan(x).any(1, keepdims=True), np.nan, x)
        np.testing.assert_allclose(z, largest(blocked, z, kernel, strides, pads), rtol=1e-6)


@pytest.mark.parametrize("target", distinct_names("host", "avx2", "sse"))
@pytest.mark.parametrize(("operator", "right"), [("Max", np.maximum), ("Min", np.minimum)])
def test_nan_wins_on_either_side(operator: str, right: np.ufunc, target: str) -> None:
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 20]> g (float[37] a, float[37] b) => (float[37] y) {{ y = {operator}(a, b) }}'
    )
    a, b = np.random.default_rng().standard_normal((2, 37)).astype(np.float32)
    a[[0, 5, 36]], b[[0, 7, 35]], a[9], b[9] = np.nan, np.nan, np.inf, -np.inf
    (y,) = InferenceSession(model, SessionOptions(target=by_name(target))).run(None, {"a": a, "b": b})
    np.testing.assert_array_equal(y, right(a, b))


def mean(x: np.ndarray, y: np.ndarray, kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...]) -> np.ndarray:
    """Window by window, of the elements that are there."""
    result = np.empty(y.shape)
    for place in np.ndindex(*y.shape[2:]):
        starts = [p * s - b for p, s, b in zip(place, strides, pads[: len(kernel)], strict=True)]
        window = tuple(slice(max(0, start), start + extent) for start, extent in zip(starts, kernel, strict=True))
        result[(..., *place)] = np.mean(x[(..., *window)], axis=tuple(range(2, x.ndim)), dtype=np.float64)
    return result


@pytest.mark.parametrize(("window", "target"), CASES, ids=[f"{'x'.join(map(str, window[0]))} {target}" for window, target in CASES])
def test_the_mean_of_each_window_is_that_of_what_is_there(
    window: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], int], target: str
) -> None:
    shape, kernel, strides, pads, _ = window
    session = InferenceSession(pool_model(*window[:4], 0, "AveragePool"), SessionOptions(target=by_name(target), poison=True))
    x = np.random.default_rng().uniform(0.5, 1.5, shape).astype(np.float32)
    for y in session.run(None, {"x": x}):
        np.testing.assert_allclose(y, mean(x, y, kernel, strides, pads), rtol=1e-6)

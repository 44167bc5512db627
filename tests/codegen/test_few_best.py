"""TopK of few elements: rows side by side, short rows and long ones, equal elements in the order of their places, NaN the greatest."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from anycann import InferenceSession, SessionOptions
from anycann.target.target import by_name

# outer, extent, inner; count
SHAPES = [((37, 8, 1), 2), ((16, 64, 1), 8), ((17, 3, 1), 3), ((3, 40, 19), 4), ((2, 300, 16), 8), ((5, 9, 7), 1), ((9, 33, 2), 5)]
LONG = [((3, 1000, 1), 5), ((2, 515, 1), 16), ((1, 256, 1), 1), ((2, 600, 1), 17)]  # the last one has too many for a pass of its own
OTHERS = [("avx2", shape) for shape in (SHAPES[0], SHAPES[3], LONG[0])] + [("sse", shape) for shape in (SHAPES[1], SHAPES[6], LONG[1])]


def top_k_model(shape: tuple[int, ...], count: int, dtype: np.dtype, largest: int) -> onnx.ModelProto:
    element = onnx.helper.np_dtype_to_tensor_dtype(dtype)
    x = onnx.helper.make_tensor_value_info("x", element, shape)
    k = onnx.numpy_helper.from_array(np.array([count], np.int64), "k")
    node = onnx.helper.make_node("TopK", ["x", "k"], ["v", "i"], axis=1, largest=largest)
    outputs = [onnx.ValueInfoProto(name=name) for name in "vi"]
    graph = onnx.helper.make_graph([node], "g", [x], outputs, [k])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)


def expected(x: np.ndarray, count: int, largest: bool) -> np.ndarray:
    """Places in order; a NaN is greater than all numbers."""
    order = np.nan_to_num(x.astype(np.float64), nan=np.inf) if x.dtype.kind == "f" else x.astype(np.float64)
    return np.argsort(-order if largest else order, axis=1, kind="stable")[:, :count]


def draw(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Few different numbers, zeros of both signs, ends of the type."""
    x = np.random.default_rng().integers(-40, 40, shape)
    if dtype.kind != "f":
        info = np.iinfo(dtype)
        return np.where(x == 39, info.max, np.where(x == -40, info.min, np.maximum(x, info.min))).astype(dtype)
    found = (x / 4).astype(dtype)
    return np.where(x == 39, np.nan, np.where(x == 1, -0.0, np.where(x == -40, -np.inf, found))).astype(dtype)


def check(shape: tuple[int, ...], count: int, dtype: np.dtype, target: str, largest: int) -> None:
    session = InferenceSession(top_k_model(shape, count, dtype, largest), SessionOptions(target=by_name(target), poison=True))
    for x in (draw(shape, dtype), np.sort(draw(shape, dtype), axis=1), np.full(shape, -1 if dtype.kind in "fi" else 0, dtype)):
        values, places = session.run(None, {"x": x})
        wanted = expected(x, count, bool(largest))
        np.testing.assert_array_equal(places, wanted)
        taken = np.take_along_axis(x, wanted, 1)
        np.testing.assert_array_equal(values, taken)
        assert dtype.kind != "f" or (np.signbit(values) == np.signbit(taken))[values == 0].all()


@pytest.mark.parametrize(("shape", "count"), SHAPES + LONG, ids=str)
def test_the_best_come_in_order_and_equal_ones_by_place(shape: tuple[int, ...], count: int) -> None:
    check(shape, count, np.dtype(np.float32), "host", largest=1)


@pytest.mark.parametrize(("target", "case"), OTHERS, ids=str)
def test_narrower_processors_find_the_same(target: str, case: tuple[tuple[int, ...], int]) -> None:
    check(*case, np.dtype(np.float32), target, largest=0)


@pytest.mark.parametrize("name", ["int32", "uint8", "float16", "int64"])
def test_elements_of_every_size_are_compared(name: str) -> None:
    for shape, count in (SHAPES[1], SHAPES[3], LONG[0]):
        check(shape, count, np.dtype(name), "host", largest=0)

"""Sums, means, extremes and norms over several axes: totals run side by side, and no element is lost or counted twice at any size."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

from anycann import InferenceSession, SessionOptions
from anycann.target.target import by_name
from tests.codegen.kernels.jit import distinct_names

REFERENCES: dict[str, Callable[..., np.ndarray]] = {
    "ReduceSum": np.sum,
    "ReduceMean": np.mean,
    "ReduceMax": np.max,
    "ReduceL2": lambda x, axis: np.sqrt(np.sum(x * x, axis=axis)),
}
SIZES = [
    ((3, 5, 1), (1,)),
    ((7, 31, 5, 11), (0, 2, 3)),  # rows of less than a vector, four side by side
    ((10, 19, 9, 4), (0, 1, 3)),  # the rows left over when four are taken at once
    ((2, 2, 7), (0, 2)),
    ((6, 5, 47), (0, 2)),  # of 3 and of 6 vectors
    ((5, 3, 40), (0, 2)),
    ((3, 4, 145), (0, 2)),
    ((4, 3, 67), (2,)),
    ((60, 12, 6), (1,)),  # rows that are written out
    ((9, 27, 33), (1,)),
    ((5, 28, 20), (1,)),
    ((5, 49, 37), (1,)),
    ((2, 50, 9), (1,)),
]
NOTHING = ((5, 0, 3), (1,))
CASES = [(operator, *size) for operator in REFERENCES for size in SIZES] + [(operator, *NOTHING) for operator in ("ReduceSum", "ReduceL2")]


def reducing_model(operator: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> onnx.ModelProto:
    dims = ",".join(map(str, shape))
    text = f"g (float[{dims}] x, int64[{len(axes)}] axes) => (float[] y) {{ y = {operator}<keepdims=0>(x, axes) }}"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 20]> {text}')
    del model.graph.input[1]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(axes, np.int64), "axes"))
    return model


@pytest.mark.parametrize("target", distinct_names("host", "avx512", "avx2", "sse"))
@pytest.mark.parametrize(("operator", "shape", "axes"), CASES)
def test_every_element_counts_once(operator: str, shape: tuple[int, ...], axes: tuple[int, ...], target: str) -> None:
    x = np.random.default_rng().standard_normal(shape).astype(np.float32)
    session = InferenceSession(reducing_model(operator, shape, axes), SessionOptions(target=by_name(target), poison=True))
    (y,) = session.run(None, {"x": x})
    np.testing.assert_allclose(y, REFERENCES[operator](x.astype(np.float64), axis=axes), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", distinct_names("host", "avx2"))
def test_nan_is_not_lost_by_totals_side_by_side(target: str) -> None:
    shape, axes = (6, 5, 47), (0, 2)
    session = InferenceSession(reducing_model("ReduceMax", shape, axes), SessionOptions(target=by_name(target), poison=True))
    for place in ((0, 0, 0), (5, 1, 46), (3, 2, 32), (2, 4, 17)):
        x = np.random.default_rng().standard_normal(shape).astype(np.float32)
        x[place] = np.nan
        (y,) = session.run(None, {"x": x})
        np.testing.assert_array_equal(y, np.max(x, axis=axes))

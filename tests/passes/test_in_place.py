"""Results lie over operands that die, and only where each element is read before it is written."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from anycann.passes.in_place import read_where_written
from anycann.session import InferenceSession, SessionOptions
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te


def test_an_operand_read_at_the_written_index_qualifies() -> None:
    a, b = te.placeholder("a", (4, 5), dtypes.float32), te.placeholder("b", (5,), dtypes.float32)
    assert read_where_written(te.compute((4, 5), lambda i, j: a[i, j] + b[j])) == {"a"}


def test_an_operand_read_elsewhere_too_does_not() -> None:
    a = te.placeholder("a", (4, 4), dtypes.float32)
    assert read_where_written(te.compute((4, 4), lambda i, j: a[i, j] + a[j, i])) == frozenset()
    assert read_where_written(te.compute((4, 4), lambda i, j: x.select(j < 3, a[i, x.minimum(j + 1, 3)], 0.0))) == frozenset()


def test_an_operand_of_a_reduction_does_not() -> None:
    a = te.placeholder("a", (4, 5), dtypes.float32)
    total = te.reduce("sum", (4,), (5,), lambda i, r: a[i, r])
    assert read_where_written(te.compute((4, 5), lambda i, j: a[i, j] / total[i])) == frozenset()


CHAIN = """<ir_version: 10, opset_import: ["": 20]>
g (float[1, 40, 9, 9] x) => (float[1, 40, 9, 9] y)
<float[40, 40, 1, 1] w = {}> {{
   p = Conv(x, w)  q = Relu(p)  m = Conv(q, w)  r = Conv(m, w)  s = Add(r, q)  t = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(s)
   u = Conv(t, w)  y = Sigmoid(u)
}}"""


@pytest.fixture
def chain() -> onnx.ModelProto:
    weights = np.random.default_rng(5).standard_normal(1600) / 7
    return onnx.parser.parse_model(CHAIN.format("{" + ", ".join(f"{w:.5f}" for w in weights) + "}"))


def test_a_residual_sum_is_written_over_the_residual(chain: onnx.ModelProto) -> None:
    session = InferenceSession(chain, SessionOptions(poison=True, num_threads=2))
    data = {"x": np.random.default_rng(6).standard_normal((1, 40, 9, 9)).astype(np.float32)}
    expected = onnxruntime.InferenceSession(chain.SerializeToString()).run(None, data)[0]
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, data)[0], expected, rtol=1e-4, atol=1e-5)
    program = session._programs.find(session._programs.inputs).executable.program
    assert program.values["s"].buffer == program.values["q"].buffer
    one_value = program.values["q"].buffer.nbytes
    assert program.arena_bytes < 3 * (one_value + 128)


RESIDUALS = """<ir_version: 10, opset_import: ["": 20]>
g (float[1, 40, 9, 9] x) => (float[1, 40, 9, 9] y) <float[40, 40, 1, 1] w = {}> {{
   a = Conv(x, w)  b = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(a)
   c = Conv(b, w)  d = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(c)  e = Conv(d, w)  f = Add(e, a)
   g = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(f)  h = Conv(g, w)  i = Add(h, f)
   j = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(i)  k = Conv(j, w)  l = Add(k, i)
   m = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(l)  n = Conv(m, w)  y = Sigmoid(n)
}}"""


def test_sums_of_a_residual_chain_are_all_written_over_the_first() -> None:
    weights = np.random.default_rng(5).standard_normal(1600) / 7
    model = onnx.parser.parse_model(RESIDUALS.format("{" + ", ".join(f"{w:.5f}" for w in weights) + "}"))
    session = InferenceSession(model, SessionOptions(poison=True, num_threads=2))
    data = {"x": np.random.default_rng(6).standard_normal((1, 40, 9, 9)).astype(np.float32)}
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, data)[0]
    np.testing.assert_allclose(session.run(None, data)[0], expected, rtol=1e-4, atol=1e-5)
    values = session._programs.find(session._programs.inputs).executable.program.values
    assert len({values[name].buffer for name in "afil"}) == 1


def test_an_operand_that_is_also_read_elsewhere_by_a_view_of_it_stays() -> None:
    text = """<ir_version: 10, opset_import: ["": 20]>
    g (float[24, 36] x) => (float[24, 36] y) <int64[2] turned = {36, 24}> {
       a = Softmax(x)  v = Reshape(a, turned)  t = Transpose<perm = [1, 0]>(v)  s = Add(a, t)  y = Softmax(s)
    }"""
    model = onnx.parser.parse_model(text)
    session = InferenceSession(model, SessionOptions(poison=True, num_threads=1))
    data = {"x": np.random.default_rng(7).standard_normal((24, 36)).astype(np.float32)}
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, data)[0]
    np.testing.assert_allclose(session.run(None, data)[0], expected, rtol=1e-4, atol=1e-6)

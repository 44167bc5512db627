"""Small models that sessions are tested with, and what they are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from anycann import InferenceSession, SessionOptions
from anycann.compiler import CompileOptions, compile_model
from anycann.om.writer import write_offline_model

Feeds = Mapping[str, np.ndarray]


def parse(text: str, opset: int = 20, **constants: np.ndarray) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {text}')
    for name, array in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    return model


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def by_onnx_runtime(model: onnx.ModelProto, feeds: Feeds) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(result) for result in session.run(None, dict(feeds))]


def assert_agrees(model: onnx.ModelProto, feeds: Feeds, session: InferenceSession | None = None) -> None:
    session = session or InferenceSession(model, SessionOptions(poison=True))
    for got, want in zip(session.run(None, feeds), by_onnx_runtime(model, feeds), strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def offline(model: onnx.ModelProto, path: Path, **options: object) -> InferenceSession:
    write_offline_model(path / "model.om", compile_model(model, CompileOptions(**options)))  # type: ignore[arg-type]
    return InferenceSession(path / "model.om")


FIXED = parse(
    "g (float[2,3] x, int64[2] n) => (float[2,3] y, float[2] z)"
    " { f = Cast<to=1>(n) y = Exp(x) s = ReduceSum<keepdims=0>(x, one) z = Mul(s, f) }",
    one=np.array([1]),
)
OPEN = parse("g (float[N,C,H] x) => (float[N,C,H] y) { p = Softmax(x) y = Add(p, b) }", b=np.float32(0.5))
PRODUCT = parse("g (float[N,40] x) => (float[N,24] y) { p = MatMul(x, w) y = Relu(p) }", w=floats(40, 24))

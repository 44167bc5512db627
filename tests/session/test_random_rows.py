"""Random graphs that compute row by row, fed with any number of rows: kernels for blocks of them give what ONNX Runtime gives."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
import math
import random

import ml_dtypes
import numpy as np
import onnxruntime
import pytest

from anycann import InferenceSession, SessionOptions
from anycann.passes import open_sizes
from anycann.runtime import row_kernels
from anycann.runtime.open_sizes import OPEN_SIZES, OpenSizes
from anycann.runtime.row_kernels import RowKernels
from tests.session.models import assert_agrees, by_onnx_runtime, floats, parse

# What is made of matrices x and y of four columns and as many rows: again one.
STEPS = [
    "{out} = MatMul({x}, square)",
    "{out} = Gemm<transB=1>({x}, square, row)",
    "{out}w = MatMul({x}, wide) {out}a, {out}b = Split<axis=1>({out}w, halves) {out} = Mul({out}a, {out}b)",
    "{out}w = Concat<axis=-1>({x}, {y}) {out} = MatMul({out}w, tall)",
    "{out}w = MatMul({x}, wide) {out} = Slice({out}w, two, six, one)",
    "{out} = Add({x}, row)",
    "{out} = Mul({x}, {y})",
    "{out}s = Sub({x}, {y}) {out} = Tanh({out}s)",
    "{out} = Softmax({x})",
    "{out} = LayerNormalization({x}, row)",
    "{out}q = Mul({x}, {x}) {out}m = ReduceMean({out}q, one) {out}r = Sqrt({out}m) {out}e = Add({out}r, row) {out} = Div({x}, {out}e)",
    "{out}m = ReduceMax<keepdims=0>({x}, one) {out}u = Unsqueeze({out}m, one) {out} = Add({x}, {out}u)",
    "{out}p = Greater({x}, {y}) {out} = Where({out}p, {x}, row)",
    "{out}i = ArgMax<axis=1,keepdims=0>({x}) {out}g = Gather(square, {out}i) {out} = Add({out}g, {x})",
    "{out} = Gather<axis=1>({x}, turned)",
    "{out}c = Gather<axis=1>({x}, last) {out}k = Unsqueeze({out}c, one) {out} = Min({out}k, {x})",
    # these move along rows, or ask how many there are: the host's
    "{out} = Softmax<axis=0>({x})",
    "{out} = Slice({x}, minus, far, zero, minus)",
    "{out}t = Transpose({y}) {out}s = MatMul({x}, {out}t) {out}p = Softmax({out}s) {out} = MatMul({out}p, {y})",
    "{out}m = ReduceSum({x}, zero) {out} = Add({out}m, {y})",
    "{out}n = Size({x}) {out}f = Cast<to=1>({out}n) {out} = Mul({y}, {out}f)",
]
CONSTANTS = {
    "square": floats(4, 4, seed=1),
    "wide": floats(4, 8, seed=2),
    "tall": floats(8, 4, seed=3),
    "row": np.array([3.5, 4, 2, 3.25], np.float32),
    **{name: np.array([number]) for name, number in {"zero": 0, "one": 1, "two": 2, "six": 6, "minus": -1, "far": -1000}.items()},
    "halves": np.array([4, 4]),
    "turned": np.array([3, 2, 0, 1]),
    "last": np.array(-1),
}
SIZES = [(6, 6), (7, 7), (9, 5), (5, 9), (1, 1), (1, 4), (0, 3), (0, 0), (8, 8), (23, 24), (33, 33), (131, 130), (200, 200), (2, 7), (7, 2)]


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch, making_seconds: float = math.inf) -> Iterator[list[int]]:
    """Every number of rows that kernels compute, for any weights; compiling counts as slow. making_seconds: 0 leaves all to the host."""
    found: list[int] = []
    run, told = RowKernels.run, OpenSizes.compiled

    def noted(self: RowKernels, operands: list[object]) -> list[np.ndarray] | None:
        results = run(self, operands)
        if results is not None:
            found.append(results[0].shape[self.output_axes[0]])
        return results

    with monkeypatch.context() as patch:
        patch.setattr(open_sizes, "LEAST_WEIGHTS", 0)
        patch.setattr(row_kernels, "MAKING_SECONDS", making_seconds)
        patch.setattr(RowKernels, "run", noted)
        patch.setattr(OpenSizes, "compiled", lambda self, specs, _seconds: told(self, specs, 1e9))
        yield found


def graph(choose: random.Random) -> str:
    """Steps from `a`, of a's rows, and from `b`, of b's; in the end a matrix of both, and products of each."""
    lines, outputs = [], []
    for side in "ab":
        values = [side]
        for number in range(6):
            x, y = choose.choice(values), choose.choice(values)
            lines.append(choose.choice(STEPS).format(x=x, y=y, out=f"{side}{number}"))
            values.append(f"{side}{number}")
        lines.append(f"{side}p = MatMul({values[-1]}, square)")
        outputs += [f"float[R{side}{name},4] {name}" for name in (values[-2], f"{side}p")]
    lines.append("both = Concat<axis=0>(ap, bp) last = MatMul(both, square)".replace("last", "lasts"))
    return f"g (float[N,4] a, float[M,4] b) => ({', '.join(outputs)}, float[S,4] lasts) {{ {' '.join(lines)} }}"


@pytest.mark.parametrize("making_seconds", [math.inf, 0.0], ids=["kernels", "host"])
@pytest.mark.parametrize("seed", range(6))
def test_random_rows_agree_with_onnx_runtime(seed: int, making_seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    model = parse(graph(random.Random(seed)), **CONSTANTS)
    session, peer = InferenceSession(model), onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with watched(monkeypatch, making_seconds) as counts:
        for number, (n, m) in enumerate(SIZES):
            feeds = {"a": floats(n, 4, seed=number), "b": floats(m, 4, seed=number + 50)}
            for got, want in zip(session.run(None, feeds), peer.run(None, feeds), strict=True):
                assert (got.shape, got.dtype) == (want.shape, want.dtype)
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert counts


ENCODER = """g (float[2,L,8] x) => (float[2,L,8] y) { n = LayerNormalization(x, scale) q = MatMul(n, w) k = Transpose<perm=[0,2,1]>(q)
    s = MatMul(q, k) p = Softmax(s) a = MatMul(p, q) o = MatMul(a, w) r = Add(o, x) y = Erf(r) }"""


def test_rows_that_do_not_lie_behind_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    model = parse(ENCODER, scale=floats(8), w=floats(8, 8))
    session = InferenceSession(model)
    with watched(monkeypatch) as counts:
        for length in (3, 7, 1, 12, 0, 40, 5):
            assert_agrees(model, {"x": floats(2, length, 8)}, session)
    assert counts == [length for length in (7, 1, 12, 0, 40, 5) for _ in range(2)]


def test_the_host_computes_rows_without_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    model = parse("g (float[N,4] x) => (float[N,4] y) { e = Exp(x) y = Softmax(e) }")
    session = InferenceSession(model)
    with watched(monkeypatch) as counts:
        for rows in (3, 7, 1):
            assert_agrees(model, {"x": floats(rows, 4)}, session)
    assert not counts


def test_rows_that_nothing_connects_may_be_as_many_in_two_calls_and_not_in_a_third(monkeypatch: pytest.MonkeyPatch) -> None:
    model = parse("g (float[N,4] a, float[M,4] b) => (float[N,4] x, float[M,4] y) { x = MatMul(a, w) y = MatMul(b, w) }", w=floats(4, 4))
    session = InferenceSession(model)
    with watched(monkeypatch) as counts:
        for n, m in ((6, 6), (7, 7), (5, 9), (1, 3)):
            assert_agrees(model, {"a": floats(n, 4), "b": floats(m, 4)}, session)
    assert counts == [7, 7, 5, 9, 1, 3]


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16], ids=["bfloat16", "float16"])
def test_rows_of_short_floats_that_numpy_would_be_slow_at(dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    name = np.dtype(dtype).name
    model = parse(f"g ({name}[N,4] x) => ({name}[N,4] y) {{ p = MatMul(x, w) y = Tanh(p) }}", w=floats(4, 4).astype(dtype))
    session, every = InferenceSession(model), InferenceSession(model, SessionOptions(switched_off=frozenset({OPEN_SIZES})))
    with watched(monkeypatch) as counts:
        for rows in (3, 7, 1, 12, 0):
            feeds = {"x": floats(rows, 4).astype(dtype)}
            (got,), (want,) = session.run(None, feeds), every.run(None, feeds)
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32), rtol=1e-2, atol=1e-2)
    assert counts == [7, 1, 12, 0]


def test_threads_that_run_rows_at_once_do_not_disturb_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    model = parse(ENCODER, scale=floats(8), w=floats(8, 8))
    session = InferenceSession(model, num_threads=2)
    lengths = [3, 7, 40, 1, 12, 33, 9, 130]
    wanted = {length: by_onnx_runtime(model, {"x": floats(2, length, 8)}) for length in lengths}

    def work(begin: int) -> None:
        for length in lengths[begin:] + lengths[:begin]:
            (got,), (want,) = session.run(None, {"x": floats(2, length, 8)}), wanted[length]
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)

    with watched(monkeypatch) as counts, ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [None] * 4
    assert counts

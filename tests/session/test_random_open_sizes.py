"""Random graphs fed with sizes that change from call to call: the program for open sizes gives what ONNX Runtime gives."""

from __future__ import annotations

import random

import numpy as np
import onnxruntime
import pytest

from anycann import InferenceSession
from anycann.runtime.open_sizes import OpenSizes
from tests.session.models import floats, parse

# What is made of matrices x and y of any number of rows and four columns: again one.
STEPS = [
    "{out} = Tanh({x})",
    "{out} = Add({x}, row)",
    "{out} = Concat<axis=0>({x}, {y})",
    "{out} = Slice({x}, zero, two)",
    "{out} = Slice({x}, minus, far, zero, minus)",
    "{out} = Softmax<axis=0>({x})",
    "{out}t = Transpose<perm=[1,0]>({y}) {out}s = MatMul({x}, {out}t) {out}p = Softmax({out}s) {out} = MatMul({out}p, {y})",
    "{out}m = ReduceSum({x}, zero) {out}n = Shape({y}) {out} = Expand({out}m, {out}n)",
    "{out}n = Shape({x}) {out} = ConstantOfShape({out}n)",
    "{out}n = Size({x}) {out}f = Cast<to=1>({out}n) {out} = Mul({y}, {out}f)",
    "{out} = Reshape({x}, rows)",
    "{out} = Tile({x}, twice)",
    "{out} = LayerNormalization({x}, row)",
]
CONSTANTS = {
    "row": np.array([0.5, 1, -2, 0.25], np.float32),
    "zero": np.array([0]),
    "two": np.array([2]),
    "minus": np.array([-1]),
    "far": np.array([-1000]),
    "rows": np.array([-1, 4]),
    "twice": np.array([2, 1]),
}


def graph(choose: random.Random) -> str:
    values, lines = ["a", "b", "c"], []
    for number in range(8):
        x, y = choose.choice(values), choose.choice(values)
        lines.append(choose.choice(STEPS).format(x=x, y=y, out=f"v{number}"))
        values.append(f"v{number}")
    outputs = ", ".join(f"float[R{name},4] {name}" for name in values[-3:])
    return f"g (float[N,4] a, float[M,4] b, float[3,4] c) => ({outputs}) {{ {' '.join(lines)} }}"


@pytest.mark.parametrize("seed", range(6, 12))  # 8: the shape of a result of the host, which other sizes change
def test_random_graphs_of_moving_sizes_agree_with_onnx_runtime(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    told = OpenSizes.compiled
    monkeypatch.setattr(OpenSizes, "compiled", lambda self, specs, _seconds: told(self, specs, 1e9))
    choose = random.Random(seed)
    model = parse(graph(choose), **CONSTANTS)
    session, peer = InferenceSession(model), onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    sizes = [(6, 5), (7, 5), (4, 9), (1, 3), (3, 1), (2, 2), (8, 1), (1, 1)]
    for number, (n, m) in enumerate(sizes):
        feeds = {"a": floats(n, 4, seed=number), "b": floats(m, 4, seed=number + 50), "c": floats(3, 4)}
        for got, want in zip(session.run(None, feeds), peer.run(None, feeds), strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)

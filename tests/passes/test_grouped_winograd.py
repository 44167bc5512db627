"""Convolutions in groups by Winograd's algorithm: whole models against the definition in float64, with what follows in the same kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anycann.codegen.kernels.convolution_space import AlgorithmSpace, ConvolutionAlgorithm
from anycann.target.target import Target
from tests.codegen.kernels.jit import runnable
from tests.passes.graphs import compile_graph, floats, parse, run, tasks

RNG = np.random.default_rng()
Array = np.ndarray[Any, Any]
# batch, groups, inputs and outputs of a group, height, width, pad
SHAPES = {
    "whole blocks": (1, 3, 32, 16, 14, 9, 1),
    "pairs of groups": (2, 4, 24, 24, 10, 13, 1),
    "no whole number of pairs": (1, 3, 24, 24, 12, 8, 0),
    "many to few": (1, 2, 60, 20, 9, 9, 1),
    "half a vector": (2, 6, 8, 8, 16, 7, 1),
}


def expected(x: Array, w: Array, b: Array, z: Array, groups: int, pad: int) -> Array:
    """Relu(Conv(x, w, b) + z) in float64: a matrix of weights for each group and tap, times the pixels it reads."""
    n, _, height, width = z.shape
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    parts = padded.reshape(n, groups, -1, *padded.shape[2:])
    weights = w.astype(np.float64).reshape(groups, -1, *w.shape[1:])
    y = np.zeros((n, groups, weights.shape[1], height, width))
    for i in range(3):
        for j in range(3):
            y += np.einsum("goi,ngihw->ngohw", weights[..., i, j], parts[..., i : i + height, j : j + width])
    result: Array = np.maximum(y.reshape(z.shape) + b[:, None, None] + z, 0)
    return result


@pytest.mark.parametrize("target", runnable(), ids=str)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", SHAPES)
def test_groups_are_what_the_definition_says(name: str, threads: int, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, groups, inputs, outputs, height, width, pad = SHAPES[name]
    out = height + 2 * pad - 2, width + 2 * pad - 2
    w, b = floats(groups * outputs, inputs, 3, 3, seed=int(RNG.integers(1 << 30))), floats(groups * outputs, seed=3)
    model = parse(
        f"""g (float[{batch}, {groups * inputs}, {height}, {width}] x, float[{batch}, {groups * outputs}, {out[0]}, {out[1]}] z)
            => (float[{batch}, {groups * outputs}, {out[0]}, {out[1]}] y)
            {{ c = Conv<pads=[{pad}, {pad}, {pad}, {pad}], group={groups}>(x, w, b) s = Add(c, z) y = Relu(s) }}""",
        w=w,
        b=b,
    )
    monkeypatch.setattr(AlgorithmSpace, "default", lambda space: ConvolutionAlgorithm(space._refusal() is None))
    assert any(task.symbol.startswith("winograd") for task in tasks(compile_graph(model, target).program))
    x = RNG.standard_normal((batch, groups * inputs, height, width)).astype(np.float32)
    z = RNG.standard_normal((batch, groups * outputs, *out)).astype(np.float32)
    (got,) = run(model, {"x": x, "z": z}, target=target, num_threads=threads)
    want = expected(x, *(np.asarray(each, np.float64) for each in (w, b)), z, groups, pad)
    assert got.shape == want.shape
    assert np.linalg.norm(got - want) <= 2e-5 * np.linalg.norm(want)

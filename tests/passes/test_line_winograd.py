"""Convolutions over a line by Winograd's algorithm: whole models against the definition in float64, with every kind of tail and border."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_space import AlgorithmSpace, ConvolutionAlgorithm
from anycann.codegen.kernels.winograd_tile import tile_sizes
from anycann.target.target import Target
from tests.codegen.kernels.jit import runnable
from tests.passes.graphs import compile_graph, floats, parse, run, tasks

RNG = np.random.default_rng()
TARGETS = pytest.mark.parametrize("target", runnable(), ids=str)
Array = np.ndarray[Any, Any]


def line(batch: int, inputs: int, outputs: int, length: int, taps: int, stride: int = 1, pads: tuple[int, int] = (1, 1)) -> onnx.ModelProto:
    """Relu(Conv(x) + bias), with what follows in the same kernel."""
    out = (length + sum(pads) - taps) // stride + 1
    return parse(
        f"""g (float[{batch}, {inputs}, {length}] x) => (float[{batch}, {outputs}, {out}] y)
            {{ c = Conv<pads=[{pads[0]}, {pads[1]}], strides=[{stride}]>(x, w, b) y = Relu(c) }}""",
        w=floats(outputs, inputs, taps, seed=int(RNG.integers(1 << 30))),
        b=floats(outputs, seed=int(RNG.integers(1 << 30))),
    )


def expected(model: onnx.ModelProto, x: Array) -> Array:
    """In float64: a matrix of weights for each tap, times the pixels it reads."""
    w, b = (onnx.numpy_helper.to_array(each).astype(np.float64) for each in model.graph.initializer)
    attributes = {a.name: list(a.ints) for a in model.graph.node[0].attribute}
    (stride,), pads = attributes["strides"], attributes["pads"]
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), tuple(pads)])
    out = (padded.shape[2] - w.shape[2]) // stride + 1
    y: Array = np.repeat(b[None, :, None], len(x), 0)
    for tap in range(w.shape[2]):
        y = y + np.einsum("oi,nil->nol", w[:, :, tap], padded[:, :, tap : tap + out * stride : stride][:, :, :out])
    result: Array = np.maximum(y, 0)
    return result


LINES = {
    "one tile of all of it": line(12, 129, 128, 4, 3),
    "two pixels": line(3, 16, 16, 2, 3),
    "a tail": line(2, 32, 48, 13, 3),
    "no padding": line(1, 40, 33, 30, 3, pads=(0, 0)),
    "padding at one end": line(1, 20, 64, 17, 4, pads=(3, 0)),
    "five taps": line(1, 64, 80, 50, 5, pads=(2, 2)),
    "seven taps, two images": line(2, 48, 32, 21, 7, pads=(3, 3)),
    "two taps": line(1, 17, 19, 9, 2, pads=(0, 1)),
    "six results of a tile": line(1, 48, 40, 203, 3),
    "six results, a tile of two images": line(2, 33, 32, 101, 3, pads=(2, 0)),
    "stride 2": line(2, 64, 64, 31, 3, 2),
    "stride 2, five taps": line(1, 32, 48, 24, 5, 2, pads=(2, 2)),
}


@TARGETS
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", LINES)
def test_lines_are_what_the_definition_says(name: str, threads: int, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    model = LINES[name]
    monkeypatch.setattr(AlgorithmSpace, "default", lambda space: ConvolutionAlgorithm(space._refusal() is None))
    assert any(task.symbol.startswith("winograd") for task in tasks(compile_graph(model, target).program))
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = RNG.standard_normal(shape).astype(np.float32)
    (got,) = run(model, {"x": x}, target=target, num_threads=threads)
    want = expected(model, x)
    assert got.shape == want.shape
    assert np.linalg.norm(got - want) <= 2e-5 * np.linalg.norm(want)


def test_long_lines_of_three_taps_take_tiles_of_six_results() -> None:
    def sizes(length: int) -> list[tuple[int, int]]:
        return tile_sizes(ConvolutionShape(1, 64, 64, 1, (length, 1), (3, 1), (1, 1), (1, 1), (1, 0), (length, 1)))

    assert sizes(96) == [(6, 1), (4, 1), (2, 1)]
    assert sizes(95) == [(4, 1), (2, 1)]


@pytest.mark.parametrize(
    ("model", "winograd"),
    [
        (line(1, 80, 512, 300, 3), True),
        (LINES["five taps"], True),
        (line(3, 16, 16, 1, 3), False),
        (line(1, 8, 64, 300, 3), False),
        (line(1, 64, 64, 300, 1, pads=(0, 0)), False),
    ],
    ids=["many pixels", "five taps", "one pixel", "few channels", "pointwise"],
)
def test_it_is_taken_where_it_saves_products(model: onnx.ModelProto, winograd: bool) -> None:
    """Four results of three taps take 6 products for 12, of five 8 for 20."""
    found = tasks(compile_graph(model).program)
    assert any(task.symbol.startswith("winograd") for task in found) is winograd

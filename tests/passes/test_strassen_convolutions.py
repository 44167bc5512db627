"""Pointwise convolutions by Strassen's algorithm: whole models against float64, with what follows in one kernel, on one thread and two."""

from __future__ import annotations

import numpy as np
import pytest

from anycann.codegen.kernels.strassen_images import image_refusal
from anycann.codegen.kernels.strassen_space import ImageAlgorithmSpace, ProductAlgorithm
from anycann.codegen.space import STRASSEN, WINOGRAD
from anycann.target.target import PROCESSORS, Target
from tests.codegen.kernels.jit import runnable
from tests.passes.graphs import compile_graph, floats, parse, run, tasks

RNG = np.random.default_rng()
# batch, inputs, outputs, height and width
SIZES = {
    "two chunks": (1, 128, 96, 14, 15),
    "an odd number of pixels": (1, 192, 64, 7, 7),
    "several images": (3, 96, 128, 9, 8),
    "parts of the channels": (2, 2048, 64, 8, 9),
    "a large residual": (1, 96, 192, 30, 31),
}


@pytest.mark.parametrize("target", runnable(), ids=str)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", SIZES)
def test_convolutions_are_what_the_definition_says(name: str, threads: int, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    def wherever_it_can(space: ImageAlgorithmSpace) -> ProductAlgorithm:
        return ProductAlgorithm(image_refusal(space.problem, space.target) is None)

    monkeypatch.setattr(ImageAlgorithmSpace, "default", wherever_it_can)
    batch, inputs, outputs, height, width = SIZES[name]
    w, b = floats(outputs, inputs, 1, 1, seed=int(RNG.integers(1 << 30))), floats(outputs, seed=3)
    model = parse(
        f"""g (float[{batch}, {inputs}, {height}, {width}] x, float[{batch}, {outputs}, {height}, {width}] z)
            => (float[{batch}, {outputs}, {height}, {width}] y)
            {{ c = Conv(x, w, b) r = Relu(c) y = Add(r, z) }}""",
        w=w,
        b=b,
    )
    assert any(task.symbol.startswith("strassen") for task in tasks(compile_graph(model, target).program))
    x = RNG.standard_normal((batch, inputs, height, width)).astype(np.float32)
    z = RNG.standard_normal((batch, outputs, height, width)).astype(np.float32)
    (got,) = run(model, {"x": x, "z": z}, target=target, num_threads=threads)
    weights, bias = (np.asarray(each, np.float64) for each in (w, b))
    sums = np.einsum("oi,nihw->nohw", weights[:, :, 0, 0], x.astype(np.float64)) + bias[:, None, None]
    want = np.maximum(sums, 0) + z
    assert np.linalg.norm(got - want) <= 5e-6 * np.linalg.norm(want)


def test_pointwise_convolutions_take_it_on_a_zen_4_unless_high_precision_is_asked_for() -> None:
    model = parse("g (float[1, 256, 14, 14] x) => (float[1, 512, 14, 14] y) { y = Conv(x, w) }", w=floats(512, 256, 1, 1))
    for off, symbol in ([], "strassen"), ([STRASSEN], "conv"), ([WINOGRAD], "conv"):
        found = tasks(compile_graph(model, PROCESSORS["znver4"], switched_off=frozenset(off)).program)
        assert [task.symbol.split("_")[0] for task in found if task.symbol.startswith(("strassen", "conv"))] == [symbol]

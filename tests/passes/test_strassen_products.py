"""Products by Strassen's algorithm: whole models against float64, with what follows in the same kernel, on one thread and two."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from anycann.codegen.kernels.strassen_space import ProductAlgorithm, ProductAlgorithmSpace
from anycann.codegen.kernels.strassen_tile import strassen_refusal
from anycann.codegen.space import STRASSEN, WINOGRAD
from anycann.target.target import PROCESSORS, Target
from tests.codegen.kernels.jit import runnable
from tests.passes.graphs import compile_graph, floats, parse, run, tasks

RNG = np.random.default_rng()
# rows, k, columns; B transposed
SIZES = {
    "many rows, two chunks": ("3, 67", 201, 256, 128, False),
    "an odd number of rows": ("51", 51, 512, 384, False),
    "B transposed": ("2, 20", 40, 320, 256, True),
    "parts of k": ("198", 198, 2048, 128, False),
}


def product(name: str) -> onnx.ModelProto:
    """Relu(x w + bias) + z."""
    rows, _, k, n, transposed = SIZES[name]
    stored = "t = Transpose<perm=[1, 0]>(w)" if transposed else "t = Identity(w)"
    w = floats(*((n, k) if transposed else (k, n)), seed=int(RNG.integers(1 << 30)))
    return parse(
        f"""g (float[{rows}, {k}] x, float[{rows}, {n}] z) => (float[{rows}, {n}] y)
            {{ {stored} p = MatMul(x, t) s = Add(p, b) r = Relu(s) y = Add(r, z) }}""",
        w=w,
        b=floats(n, seed=5),
    )


@pytest.mark.parametrize("target", runnable(), ids=str)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", SIZES)
def test_products_are_what_the_definition_says(name: str, threads: int, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    def wherever_it_can(space: ProductAlgorithmSpace) -> ProductAlgorithm:
        return ProductAlgorithm(strassen_refusal(space.problem, space.target) is None)

    monkeypatch.setattr(ProductAlgorithmSpace, "default", wherever_it_can)
    model = product(name)
    assert any(task.symbol.startswith("strassen") for task in tasks(compile_graph(model, target).program))
    _, m, k, n, transposed = SIZES[name]
    w, b = (onnx.numpy_helper.to_array(each).astype(np.float64) for each in model.graph.initializer)
    x, z = (RNG.standard_normal((m, size)).astype(np.float32) for size in (k, n))
    shapes = [[d.dim_value for d in value.type.tensor_type.shape.dim] for value in model.graph.input]
    (got,) = run(model, {"x": x.reshape(shapes[0]), "z": z.reshape(shapes[1])}, target=target, num_threads=threads)
    want = np.maximum(x.astype(np.float64) @ (w.T if transposed else w) + b, 0) + z
    assert np.linalg.norm(got.reshape(m, n) - want) <= 5e-6 * np.linalg.norm(want)


def test_a_transformers_products_take_it_on_a_zen_4_unless_high_precision_is_asked_for() -> None:
    model = parse("g (float[197, 768] x) => (float[197, 1536] y) { y = MatMul(x, w) }", w=floats(768, 1536))
    target = PROCESSORS["znver4"]
    for off, symbol in ([], "strassen"), ([STRASSEN], "matmul"), ([WINOGRAD], "strassen"):
        found = tasks(compile_graph(model, target, switched_off=frozenset(off)).program)
        assert [task.symbol.split("_")[0] for task in found] == [symbol]

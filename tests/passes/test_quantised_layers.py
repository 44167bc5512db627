"""DynamicQuantizeLSTM: the float layer that it stands for, with states of 16 bits beside weights of 8 where these are many."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from anycann.target.target import by_name
from tests.passes.graphs import compile_graph, floats, parse, run

RNG = np.random.default_rng(3)


def layer(hidden: int, by_columns: bool, steps: int = 4, batch: int = 2) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """DynamicQuantizeLSTM with constant weights, and LSTM with the floats that they stand for."""
    count = 4 * hidden if by_columns else 1
    w, r = (RNG.integers(-127, 128, (1, size, 4 * hidden)).astype(np.int8) for size in (3, hidden))
    steps_of_w, steps_of_r = (RNG.uniform(0.0005, 0.001, (1, count) if by_columns else 1).astype(np.float32) for _ in "wr")
    zero = np.zeros(steps_of_w.shape, np.int8)
    bias = floats(1, 8 * hidden, seed=1)
    head = (
        f"g (float[{steps},{batch},3] x) => (float[{steps},1,{batch},{hidden}] y, float[1,{batch},{hidden}] h, float[1,{batch},{hidden}] c)"
    )
    quantised = parse(
        f"{head} {{ y, h, c = com.microsoft.DynamicQuantizeLSTM<hidden_size={hidden}>(x, w, r, b, , , , , ws, wz, rs, rz) }}",
        w=w, r=r, b=bias, ws=steps_of_w, wz=zero, rs=steps_of_r, rz=zero,
    )  # fmt: skip
    wide = [
        np.ascontiguousarray((a.astype(np.float32) * s.reshape(1, 1, -1)).swapaxes(1, 2)) for a, s in ((w, steps_of_w), (r, steps_of_r))
    ]
    return quantised, parse(f"{head} {{ y, h, c = LSTM<hidden_size={hidden}>(x, w, r, b) }}", w=wide[0], r=wide[1], b=bias)


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("hidden", [20, 191])
def test_a_quantised_layer_is_near_the_float_layer_of_its_weights(hidden: int, by_columns: bool) -> None:
    quantised, wide = layer(hidden, by_columns)
    feeds = {"x": floats(4, 2, 3, seed=2)}
    for got, exact in zip(run(quantised, feeds), run(wide, feeds), strict=True):
        np.testing.assert_allclose(got, exact, rtol=0, atol=1e-4 * np.abs(exact).max())


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("target", ["avx2", "avx512"])
def test_many_recurrent_weights_are_multiplied_as_words(by_columns: bool, target: str) -> None:
    texts = ["".join(compile_graph(model, by_name(target)).kernels.values()) for model in layer(191, by_columns)]
    assert [any(name in text for name in ("pmadd", "vpdpwssd")) for text in texts] == [True, False]

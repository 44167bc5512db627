"""3 x 3 convolutions of many bytes in models, exact: by Winograd's algorithm with the tiles whose sums come back, the weights decide."""

from __future__ import annotations

import numpy as np
import pytest

from anycann.codegen.contract_dots import _by_winograd
from anycann.codegen.kernels.dot_space import DotSpace
from anycann.codegen.kernels.winograd_words_tile import WordWinograd
from anycann.codegen.space import Choices
from anycann.target.target import by_name
from tests.codegen.kernels.test_dot_convolution import sizes
from tests.passes.graphs import by_definition, parse, run

RNG = np.random.default_rng()
BOUNDS = {"any": (-128, 128), "small": (-20, 21), "greatest": (127, 128), "least": (-128, -127)}
CHANNELS = 512


def weights(kind: str, outputs: int) -> np.ndarray:
    return RNG.integers(*BOUNDS[kind], (outputs, CHANNELS, 3, 3)).astype(np.int8)


@pytest.mark.parametrize("kind", BOUNDS)
@pytest.mark.parametrize("stride", [1, 2])
def test_sums_of_many_channels_are_exact(kind: str, stride: int) -> None:
    out = [(extent - 1) // stride + 1 for extent in (7, 6)]
    model = parse(
        f"""g (uint8[1, {CHANNELS}, 7, 6] x) => (int32[1, 24, {out[0]}, {out[1]}] y)
            {{ y = ConvInteger<pads=[1, 1, 1, 1], strides=[{stride}, {stride}]>(x, w) }}""",
        w=weights(kind, 24),
    )
    x = RNG.integers(0, 256, (1, CHANNELS, 7, 6)) if kind in ("any", "small") else np.full((1, CHANNELS, 7, 6), 255)
    feeds = {"x": x.astype(np.uint8)}
    np.testing.assert_array_equal(run(model, feeds)[0], by_definition(model, feeds)[0])


@pytest.mark.parametrize(("kind", "results"), [("small", 4), ("any", 2), ("greatest", 2)])
def test_weights_whose_sums_are_too_long_for_large_tiles_take_small_ones(kind: str, results: int) -> None:
    shape = sizes(CHANNELS, 64, (28, 28), (3, 3), (1, 1), (1, 1))
    method = _by_winograd(DotSpace(shape, by_name("avx2"), magnitudes=True), Choices(), weights(kind, 64), None)
    assert method is not None
    assert isinstance(method.plan, WordWinograd)
    assert method.plan.tile.results == results

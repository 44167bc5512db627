"""Scaling against a naive one in float64, on odd sizes, tails and strides, for every vector width."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
import pytest

from anycann.media.resize import Interpolation, halve, resize_plane

SIZES = [((7, 5), (33, 17)), ((100, 33), (1, 1)), ((1, 1), (9, 40)), ((64, 64), (64, 63)), ((31, 57), (224, 224)), ((120, 90), (16, 15))]


def naive(source: NDArray[np.uint8], rows: int, columns: int, interpolation: Interpolation) -> NDArray[np.float64]:
    def axis(values: NDArray[np.float64], wanted: int) -> NDArray[np.float64]:
        size = values.shape[0]
        at = np.arange(wanted) * size / wanted
        if interpolation is Interpolation.NEAREST:
            return values[np.minimum(at.astype(int), size - 1)]
        if interpolation is Interpolation.BILINEAR:
            at = (np.arange(wanted) + 0.5) * size / wanted - 0.5
        at = at.clip(0, size - 1)
        low = at.astype(int)
        share = (at - low).reshape(-1, *[1] * (values.ndim - 1))
        return values[low] * (1 - share) + values[np.minimum(low + 1, size - 1)] * share

    down = axis(source.astype(np.float64), rows)
    return axis(down.swapaxes(0, 1), columns).swapaxes(0, 1)


@pytest.mark.parametrize("target", ["avx512", "avx2", "sse"])
@pytest.mark.parametrize("interpolation", Interpolation)
def test_scaling_is_within_one_of_the_definition(target: str, interpolation: Interpolation, monkeypatch: pytest.MonkeyPatch) -> None:
    _use(target, monkeypatch)
    random = np.random.default_rng()
    for number, (size, wanted) in enumerate(SIZES):
        samples = 1 + number % 4
        source = random.integers(0, 256, (*size, samples), dtype=np.uint8)
        held = np.full((wanted[0], wanted[1] + 3, samples), 0xA5, np.uint8)
        resize_plane(source, held[:, : wanted[1]], interpolation)
        away = np.abs(held[:, : wanted[1]] - naive(source, *wanted, interpolation)).max()
        assert away <= (0 if interpolation is Interpolation.NEAREST else 1), (size, wanted)
        assert (held[:, wanted[1] :] == 0xA5).all()


def test_rows_of_the_source_may_lie_apart() -> None:
    wide = np.random.default_rng(1).integers(0, 256, (20, 50, 2), dtype=np.uint8)
    apart, close = np.empty((2, 9, 9, 2), np.uint8)
    resize_plane(wide[::2, 5:31], apart, Interpolation.BILINEAR)
    resize_plane(np.ascontiguousarray(wide[::2, 5:31]), close, Interpolation.BILINEAR)
    assert (apart == close).all()


def test_a_plane_of_the_same_size_is_copied() -> None:
    source = np.random.default_rng(2).integers(0, 256, (5, 6, 1), dtype=np.uint8)
    target = np.zeros_like(source)
    resize_plane(source, target, Interpolation.BILINEAR)
    assert (target == source).all()


def test_halving_is_the_rounded_mean_also_at_odd_edges() -> None:
    source = np.array([[0, 1, 10], [2, 3, 20], [4, 6, 31]], np.uint8)[..., None]
    both, down = np.zeros((2, 2, 1), np.uint8), np.zeros((2, 3, 1), np.uint8)
    halve(source, both)
    halve(source, down)
    assert both[..., 0].tolist() == [[2, 15], [5, 31]]
    assert down[..., 0].tolist() == [[1, 2, 15], [4, 6, 31]]


def _use(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from anycann.target.target import by_name, processor

    wanted = {feature for feature in by_name(target).features.split(",") if feature.startswith("+")}
    if not wanted <= set(processor().features.split(",")):
        pytest.skip(f"this processor has no {target}")
    monkeypatch.setenv("ANYCANN_TARGET", target)

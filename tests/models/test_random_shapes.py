"""The shapes that tuning's benchmark draws: sound models of every family, small extents and bytes among them."""

from __future__ import annotations

import random

import onnx
import pytest

from anycann.passes.precision import KEEP_TYPES
from benchmarks.drawn import extent
from benchmarks.random_shapes import FAMILIES, draw
from benchmarks.tuning import random_tasks


@pytest.mark.parametrize("family", FAMILIES)
def test_models_of_a_family_are_sound_and_no_shape_of_them_is_empty(family: str) -> None:
    rng = random.Random(1)
    for _ in range(6):
        inferred = onnx.shape_inference.infer_shapes(draw(family, rng).model(), strict_mode=True, data_prop=True)
        onnx.checker.check_model(inferred)
        (result,) = inferred.graph.output
        assert all(size.dim_value > 0 for size in result.type.tensor_type.shape.dim)


def test_extents_of_one_to_four_are_drawn_as_well_as_wide_ones() -> None:
    rng = random.Random(1)
    drawn = [extent(rng, 240) for _ in range(600)]
    assert set(range(1, 5)) < set(drawn)
    assert max(drawn) > 112


@pytest.mark.parametrize(("family", "space"), [("product of bytes", "ConvDots"), ("gathering", "Nest")])
def test_the_kernel_of_a_drawn_operator_is_found_among_those_of_its_model(family: str, space: str) -> None:
    assert {task.space.family for *_, task in random_tasks([family], 2, random.Random(1), KEEP_TYPES)} == {space}

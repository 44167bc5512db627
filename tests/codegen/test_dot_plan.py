"""Whether groups of the input are sorted, by what the weights and the columns are."""

from __future__ import annotations

import numpy as np
import pytest

from anycann.codegen.contract_dot_plan import sorting
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.dot_space import DotSpace
from anycann.target.target import by_name
from tests.codegen.kernels.test_dot_convolution import sizes
from tests.codegen.kernels.test_dot_magnitudes import product

NEAR, AWAY = 0, 120


def sorts(shape: ConvolutionShape, middle: int | None, most: int = 127) -> bool:
    """With random weights up to `most`."""
    weights = np.random.default_rng(0).integers(-most, most + 1, (shape.out_channels, shape.in_channels, *shape.kernel))
    space = DotSpace(shape, by_name("avx2"), magnitudes=True)
    return sorting(space, middle, weights.astype(np.int8)).around is not None


@pytest.mark.parametrize("middle", [NEAR, AWAY])
def test_weights_that_are_small_themselves_leave_nothing_to_gain(middle: int) -> None:
    assert [sorts(product(197, 512, 512), middle, most) for most in (127, 31)] == [True, False]


def test_inputs_of_which_nothing_is_known_are_not_sorted() -> None:
    assert not sorts(product(197, 512, 512), None)


def test_sorting_around_another_zero_point_takes_more_columns() -> None:
    assert [sorts(product(197, 256, columns), NEAR) for columns in (64, 256)] == [True, True]
    assert [sorts(product(197, 256, columns), AWAY) for columns in (48, 256)] == [False, True]


def test_sorting_in_small_pieces_takes_more_columns() -> None:
    shapes = [sizes(4, columns, (9, 9), (5, 5), (2, 2), (2, 2)) for columns in (48, 512)]
    assert [sorts(shape, NEAR) for shape in shapes] == [False, True]

"""Views of memory against what numpy makes of the same operations."""

from __future__ import annotations

import numpy as np
import pytest

from anycann.te.strided import Strided


def addresses(view: Strided) -> np.ndarray:
    """The address of every element."""
    places = np.array(view.offset)
    for axis in view.axes:
        for factor in axis.factors:
            places = np.add.outer(places, np.arange(factor.extent) * factor.step)
    return places.reshape(view.shape)


def test_a_view_of_views_names_the_elements_that_numpy_names() -> None:
    memory, view = np.arange(2 * 19 * 192).reshape(2, 19, 192), Strided.contiguous((2, 19, 192))
    split = view.reshaped((2, 19, 3, 4, 16))
    assert split is not None
    part = split.transposed((2, 0, 3, 1, 4)).sliced(0, 1, 1)
    assert part is not None
    heads = part.reshaped((2, 4, 19, 16))
    assert heads is not None
    assert np.array_equal(addresses(heads), memory.reshape(2, 19, 3, 4, 16).transpose(2, 0, 3, 1, 4)[1])
    assert str(heads) == "64 2*3648 4*16 19*192 16*1"
    assert Strided.parse(str(heads)) == heads


def test_repeated_heads_are_one_axis_of_two_factors() -> None:
    keys = Strided.contiguous((2, 3, 1, 5)).broadcast((2, 3, 4, 5)).reshaped((2, 12, 5))
    assert keys is not None
    assert str(keys) == "0 2*15 3*5/4*0 5*1"
    assert Strided.parse(str(keys)) == keys
    assert np.array_equal(addresses(keys), np.arange(30).reshape(2, 3, 5).repeat(4, axis=1))


@pytest.mark.parametrize(("order", "shape"), [((1, 0), (20,)), ((1, 0), (10, 2))])
def test_an_axis_that_is_no_run_of_steps_stays_several_factors(order: tuple[int, ...], shape: tuple[int, ...]) -> None:
    view = Strided.contiguous((4, 5)).transposed(order).reshaped(shape)
    assert view is not None
    assert np.array_equal(addresses(view), np.arange(20).reshape(4, 5).T.reshape(shape))


def test_sizes_that_do_not_divide_have_no_view() -> None:
    assert Strided.contiguous((4, 6)).transposed((1, 0)).reshaped((8, 3)) is None
    assert Strided.contiguous((2, 3)).transposed((1, 0)).reshaped((6,)).sliced(0, 1, 2) is None  # type: ignore[union-attr]

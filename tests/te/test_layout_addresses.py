"""Layouts: where each element lies, against numpy's padding and transposing."""

from __future__ import annotations

import numpy as np
import pytest

from anycann.te import dtypes
from anycann.te.expression import const
from anycann.te.layout import NC1HWC0, ND, Place, element_count, flat_index, physical_shape
from tests.te.brute_force import value_of

SHAPES = [(1, 1, 1, 1), (2, 3, 2, 2), (1, 4, 3), (2, 5, 3), (1, 8, 2, 1, 3), (3, 9), (2, 17, 1, 2)]


def stored(array: np.ndarray, lanes: int) -> np.ndarray:
    """The array in NC1HWC0, -1 in the lanes beyond C."""
    blocks = -(-array.shape[1] // lanes)
    padded = np.full((array.shape[0], blocks * lanes, *array.shape[2:]), -1)
    padded[:, : array.shape[1]] = array
    return np.moveaxis(padded.reshape(array.shape[0], blocks, lanes, *array.shape[2:]), 2, -1)


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_blocked_addresses_are_those_of_padding_and_transposing(shape: tuple[int, ...], lanes: int) -> None:
    array = np.arange(np.prod(shape)).reshape(shape)
    memory = stored(array, lanes)
    assert physical_shape(NC1HWC0, shape, lanes) == memory.shape
    assert element_count(NC1HWC0, shape, lanes) == memory.size
    for index in np.ndindex(*shape):
        address = flat_index(NC1HWC0, shape, [const(i, dtypes.int64) for i in index], lanes)
        assert memory.reshape(-1)[value_of(address, {}, {})] == array[index]


def test_row_major_addresses_are_numpys() -> None:
    array = np.arange(2 * 3 * 5).reshape(2, 3, 5)
    for index in np.ndindex(2, 3, 5):
        assert value_of(flat_index(ND, (2, 3, 5), [const(i, dtypes.int64) for i in index], 8), {}, {}) == array[index]


@pytest.mark.parametrize("layout", [ND, NC1HWC0])
def test_a_part_lies_at_its_offset_in_the_whole(layout: str) -> None:
    whole = Place((2, 12, 3), layout)
    part = Place((2, 12, 3), layout, (0, 8, 0))
    for index in np.ndindex(2, 4, 3):
        inside = [const(i, dtypes.int64) for i in index]
        moved = [const(i + start, dtypes.int64) for i, start in zip(index, (0, 8, 0), strict=True)]
        assert value_of(part.address(inside, 4), {}, {}) == value_of(whole.address(moved, 4), {}, {})

"""An array that lies in another in other order is read back exactly, and contradictions are found before anything is read."""

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from anycann.support.arrangement import Arrangement


@given(rows=st.integers(1, 20), columns=st.integers(1, 9), width=st.integers(1, 8))
def test_blocks_of_rows_are_put_in_order_and_padding_is_cut(rows, columns, width):
    array = np.random.default_rng(rows).integers(1, 1000, (rows, columns))
    blocks = -(-rows // width)
    padded = np.zeros((blocks * width, columns), array.dtype)
    padded[:rows] = array
    packed = np.ascontiguousarray(padded.reshape(blocks, width, columns).transpose(0, 2, 1))
    arrangement = Arrangement((blocks, columns, width), (0, 2, 1), (blocks * width, columns), (rows, columns))
    np.testing.assert_array_equal(arrangement.restore(packed.reshape(-1)), array)
    assert Arrangement.parse(str(arrangement)) == arrangement


def test_it_is_written_as_four_lists():
    assert str(Arrangement((2, 3, 8), (0, 2, 1), (16, 3), (10, 3))) == "2,3,8/0,2,1/16,3/10,3"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "four lists"),
        ("2,3/0,1/6", "four lists"),
        ("2,3/0,1/6/-6", "four lists"),
        ("2,3/0,1/6/6\n", "four lists"),
        ("2,3/0,0/6/6", "no order"),
        ("2,3/0,1,2/6/6", "no order"),
        ("2,3/0,1/7/6", "different numbers of elements"),
        ("2,3/0,1/6/7", "not within"),
        ("2,3/0,1/6/2,3", "not within"),
    ],
)
def test_contradictions_are_named(text, reason):
    with pytest.raises(ValueError, match=reason):
        Arrangement.parse(text)

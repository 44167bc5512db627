from __future__ import annotations

import numpy as np
import pytest

from anycann.media.filters import Border, add_border, halve_smoothly, histogram, look_up
from anycann.support.errors import UsageError
from tests.media.pictures import poisoned, random_picture


@pytest.mark.parametrize("number", [0, 1, 5, 12, 16, 70])
def test_a_constant_border_has_the_values_of_the_format(number: int) -> None:
    source, target = random_picture(number, 20, 12, 1, (2, 0)), poisoned(number, 26, 20)
    add_border(source.view(), target.view(), Border("constant", 2, 6, 4, 2, (10, 20, 30, 40)))
    values = [10, 20, 30, 40]
    for plane, inner in zip(target.view().planes, source.view().planes, strict=True):
        step = 2 if number == 1 and plane.shape[2] == 2 else 1
        top, left = 2 // step, 4 // step
        assert (plane[top : top + inner.shape[0], left : left + inner.shape[1]] == inner).all()
        assert plane[0, 0].tolist() == plane[-1, -1].tolist() == values[: plane.shape[2]]
        values = values[plane.shape[2] :]


@pytest.mark.parametrize(
    ("kind", "row"), [("replicate", [1, 1, 1, 2, 3, 3, 3]), ("reflect", [2, 1, 1, 2, 3, 3, 2]), ("reflect 101", [3, 2, 1, 2, 3, 2, 1])]
)
def test_other_borders_continue_the_picture(kind: str, row: list[int]) -> None:
    source, target = random_picture(0, 3, 3), poisoned(0, 7, 5)
    source.view().planes[0][..., 0] = (1, 2, 3)
    add_border(source.view(), target.view(), Border(kind, 1, 1, 2, 2))  # type: ignore[arg-type]
    assert target.view().planes[0][..., 0].tolist() == [row] * 5


def test_wrong_borders_are_refused() -> None:
    with pytest.raises(UsageError, match="with its border is 12 x 10; the target is YUV400 of 7 x 5"):
        add_border(random_picture(0, 8, 8).view(), poisoned(0, 7, 5).view(), Border("constant", 1, 1, 2, 2))
    with pytest.raises(UsageError, match="mirrors more than the picture has"):
        add_border(random_picture(0, 3, 3).view(), poisoned(0, 3, 9).view(), Border("reflect", 3, 3, 0, 0))


@pytest.mark.parametrize("number", [0, 1, 12])
def test_half_of_a_picture_is_smooth(number: int) -> None:
    source, target = random_picture(number, 24, 18), poisoned(number, 12, 9)
    halve_smoothly(source.view(), target.view())
    weights = np.outer([1, 4, 6, 4, 1], [1, 4, 6, 4, 1]) / 256
    plane = np.pad(source.view().planes[0].astype(float), ((2, 2), (2, 2), (0, 0)), "reflect")
    for y, x in ((0, 0), (4, 7), (8, 11)):
        expected = (plane[2 * y : 2 * y + 5, 2 * x : 2 * x + 5] * weights[..., None]).sum((0, 1))
        assert np.abs(target.view().planes[0][y, x] - expected).max() <= 0.5
    with pytest.raises(UsageError, match="half of 24 x 18 is 12 x 9"):
        halve_smoothly(source.view(), poisoned(number, 10, 9).view())


def test_counting_and_looking_up() -> None:
    rgb, yuv = random_picture(13, 20, 10), random_picture(1, 20, 10)
    counts = histogram(rgb.view())
    assert counts.shape == (3, 256)
    assert counts[0, 7] == (rgb.view().planes[0][..., 0] == 7).sum()
    assert histogram(yuv.view()).sum() == 200
    tables = np.stack([255 - np.arange(256), np.arange(256), np.full(256, 9)]).astype(np.uint8)
    target = poisoned(13, 20, 10)
    look_up(rgb.view(), target.view(), tables)
    assert (target.view().planes[0][..., 0] == 255 - rgb.view().planes[0][..., 0]).all()
    assert (target.view().planes[0][..., 2] == 9).all()
    other = poisoned(1, 20, 10)
    look_up(yuv.view(), other.view(), tables)
    assert (other.view().planes[0] == 255 - yuv.view().planes[0]).all()
    assert (other.view().planes[1] == yuv.view().planes[1]).all()
    with pytest.raises(UsageError, match="accepted: the same"):
        look_up(rgb.view(), other.view(), tables)

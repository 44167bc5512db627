"""What pixels make of their neighbours (sums, extremes, medians), and pictures turned and mirrored. Planes are taken one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from anycann.media.picture import Bytes, View
from anycann.support.errors import UnsupportedError, UsageError
from anycann.support.records import dataclass

Weights = NDArray[np.float64]
_Plane = Callable[[Bytes, tuple[int, ...]], Bytes]  # a plane and the values of its samples outside


@dataclass(frozen=True)
class Outside:
    """What is beyond a picture: the last sample again, or a value for each letter of the format's order."""

    kind: Literal["constant", "replicate"] = "replicate"
    values: tuple[int, ...] = (0, 0, 0, 0)


_REPLICATED = Outside()


def weigh(source: View, target: View, weights: Weights, outside: Outside = _REPLICATED, added: float = 0.0) -> None:
    """The sum of each sample's neighbours by `weights` [rows, columns] of odd sizes around it, and `added`, rounded (half to even)."""

    def one(plane: Bytes, values: tuple[int, ...]) -> Bytes:
        total = np.full(plane.shape, added)
        for weight, part in zip(weights.ravel(), _neighbours(plane, np.ones(weights.shape, bool), outside, values), strict=True):
            total += weight * part
        rounded: Bytes = np.clip(np.rint(total), 0, 255).astype(np.uint8)
        return rounded

    _each_plane(source, target, one, outside)


def gaussian_weights(size: tuple[int, int], sigma: tuple[float, float]) -> Weights:
    """[rows, columns] of a Gaussian that add up to 1; a deviation of 0 follows from the size, as in OpenCV."""
    axes = []
    for count, deviation in zip(size, sigma, strict=True):
        chosen = deviation if deviation > 0 else 0.3 * ((count - 1) * 0.5 - 1) + 0.8
        row = np.exp(-((np.arange(count) - (count - 1) / 2) ** 2) / (2 * chosen**2))
        axes.append(row / row.sum())
    return np.outer(*axes)


def extreme(source: View, target: View, shape: NDArray[np.bool_], greatest: bool, outside: Outside = _REPLICATED, times: int = 1) -> None:
    """The greatest or least of each sample's neighbours where `shape` [rows, columns] of odd sizes is true, `times` over."""
    choose = np.maximum if greatest else np.minimum

    def one(plane: Bytes, values: tuple[int, ...]) -> Bytes:
        for _ in range(times):
            plane = choose.reduce(list(_neighbours(plane, shape, outside, values)))
        return plane

    _each_plane(source, target, one, outside)


def cross(size: tuple[int, int]) -> NDArray[np.bool_]:
    """The row and the column through the middle of `size` (rows, columns)."""
    rows, columns = np.ogrid[: size[0], : size[1]]
    made: NDArray[np.bool_] = (rows == size[0] // 2) | (columns == size[1] // 2)
    return made


def ellipse(size: tuple[int, int]) -> NDArray[np.bool_]:
    """The ellipse within `size` (rows, columns): of each row as many columns as OpenCV takes."""
    high, wide = size[0] // 2, size[1] // 2
    rows, columns = np.ogrid[-high : size[0] - high, -wide : size[1] - wide]
    reach = np.rint(wide * np.sqrt((high**2 - rows**2) / high**2)) if high else 0
    made: NDArray[np.bool_] = np.abs(columns) <= reach
    return made


def median(source: View, target: View, size: int) -> None:
    """The median of the `size` x `size` samples around each; the last ones are repeated outside."""

    def one(plane: Bytes, values: tuple[int, ...]) -> Bytes:
        found: Bytes = np.median(list(_neighbours(plane, np.ones((size, size), bool), _REPLICATED, values)), axis=0).astype(np.uint8)
        return found

    _each_plane(source, target, one)


def _neighbours(plane: Bytes, shape: NDArray[np.bool_], outside: Outside, values: Sequence[int]) -> Iterator[Bytes]:
    """The plane moved to every place where `shape` is true."""
    above, left = shape.shape[0] // 2, shape.shape[1] // 2
    wide = np.pad(plane, ((above, above), (left, left), (0, 0)), "edge")
    if outside.kind == "constant":
        inside = plane
        wide[:] = values
        wide[above : above + plane.shape[0], left : left + plane.shape[1]] = inside
    for y, x in np.argwhere(shape):
        yield wide[y : y + plane.shape[0], x : x + plane.shape[1]]


def _each_plane(source: View, target: View, one: _Plane, outside: Outside = _REPLICATED) -> None:
    if source.format != target.format or (source.width, source.height) != (target.width, target.height):
        raise UsageError("the input and the output differ in format or size; accepted: the same")
    if source.format.layout == "packed 422":
        raise UnsupportedError(f"{source.format.name} has no neighbours of a kind; accepted: formats that keep pixels apart")
    first = 0
    for plane, other in zip(source.planes, target.planes, strict=True):
        count = plane.shape[2]
        other[:] = one(plane, outside.values[first : first + count])
        first += count


# ---- pictures turned and mirrored
def mirror(source: View, target: View, across: bool, down: bool) -> None:
    """Left to right, top to bottom, or both."""
    step = slice(None, None, -1)
    _each_plane(source, target, lambda plane, _: plane[step if down else slice(None), step if across else slice(None)])


def turn(source: View, target: View, quarters: int) -> None:
    """By so many quarters of a circle, clockwise. Raises UsageError for a target of another format or size."""
    size = (source.width, source.height) if quarters % 2 == 0 else (source.height, source.width)
    if source.format != target.format or size != (target.width, target.height):
        raise UsageError(
            f"{source.format.name} of {source.width} x {source.height} turned is {size[0]} x {size[1]}; the target is "
            f"{target.format.name} of {target.width} x {target.height}"
        )
    if source.format.layout == "packed 422" or source.format.across != source.format.down:
        raise UnsupportedError(f"{source.format.name} is not turned; accepted: formats with as much chroma across as down")
    for plane, other in zip(source.planes, target.planes, strict=True):
        other[:] = np.rot90(plane, -quarters)

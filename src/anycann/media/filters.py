"""Borders around pictures, half-size pictures, histograms and tables of samples."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from anycann.media.picture import Bytes, View
from anycann.support.errors import UnsupportedError, UsageError
from anycann.support.records import dataclass

BorderKind: TypeAlias = Literal["constant", "replicate", "reflect", "reflect 101"]
_PADS: dict[BorderKind, Literal["edge", "symmetric", "reflect"]] = {"replicate": "edge", "reflect": "symmetric", "reflect 101": "reflect"}
BINS = 256
_GAUSSIAN = (1, 4, 6, 4, 1)  # sum 16


@dataclass(frozen=True)
class Border:
    """Rows and columns around a picture. `values`: a sample of each letter of the format's order, for a constant border."""

    kind: BorderKind
    top: int
    bottom: int
    left: int
    right: int
    values: tuple[int, ...] = (0, 0, 0, 0)


def add_border(source: View, target: View, border: Border) -> None:
    """Write `source` with its border to `target`, of the same format and as much larger.

    Raises UsageError for another size or format, and for a mirror wider than the picture.
    """
    wanted = source.width + border.left + border.right, source.height + border.top + border.bottom
    if source.format != target.format or wanted != (target.width, target.height):
        raise UsageError(
            f"{source.format.name} of {source.width} x {source.height} with its border is {wanted[0]} x {wanted[1]}; the target is "
            f"{target.format.name} of {target.width} x {target.height}"
        )
    if source.format.layout == "packed 422":
        raise UnsupportedError(f"{source.format.name} gets no border; accepted: formats that keep pixels apart")
    first = 0
    for number, (plane, other) in enumerate(zip(source.planes, target.planes, strict=True)):
        steps = (source.format.down, source.format.across) if number and source.format.layout == "semi-planar" else (1, 1)
        count = plane.shape[2]
        _pad(plane, other, border, steps, border.values[first : first + count])
        first += count


def _pad(plane: Bytes, target: Bytes, border: Border, steps: tuple[int, int], values: tuple[int, ...]) -> None:
    top, left = border.top // steps[0], border.left // steps[1]
    around = ((top, target.shape[0] - top - plane.shape[0]), (left, target.shape[1] - left - plane.shape[1]), (0, 0))
    if border.kind == "constant":
        target[:] = values
        target[top : top + plane.shape[0], left : left + plane.shape[1]] = plane
        return
    if max(around[0]) >= plane.shape[0] or max(around[1]) >= plane.shape[1]:
        raise UsageError(f"a border of {border} mirrors more than the picture has")
    target[:] = np.pad(plane, around, _PADS[border.kind])


def halve_smoothly(source: View, target: View) -> None:
    """A level of a Gaussian pyramid: 5 x 5 weights of 1 4 6 4 1, every second pixel; beyond the edge the picture is mirrored.

    Raises UsageError unless `target` has the same format and half the size, rounded up.
    """
    wanted = -(-source.width // 2), -(-source.height // 2)
    if source.format != target.format or wanted != (target.width, target.height):
        raise UsageError(
            f"half of {source.width} x {source.height} is {wanted[0]} x {wanted[1]}; the target has {target.width} x {target.height}"
        )
    for plane, other in zip(source.planes, target.planes, strict=True):
        other[:] = _smooth(plane)[: other.shape[0], : other.shape[1]]


def _smooth(plane: Bytes) -> Bytes:
    padded = np.pad(plane, ((2, 2), (2, 2), (0, 0)), "reflect" if min(plane.shape[:2]) > 2 else "edge").astype(np.int32)
    rows, columns = plane.shape[:2]
    down = np.add.reduce([weight * padded[offset : offset + rows : 2] for offset, weight in enumerate(_GAUSSIAN)])
    both = np.add.reduce([weight * down[:, offset : offset + columns : 2] for offset, weight in enumerate(_GAUSSIAN)])
    smooth: Bytes = ((both + 128) >> 8).astype(np.uint8)
    return smooth


def histogram(source: View) -> NDArray[np.uint32]:
    """[channels, 256]: how often each sample occurs; of RGB in the format's order, of YUV the Y alone."""
    planes = [plane[..., number] for plane in source.planes for number in range(plane.shape[2])]
    channels = planes[: 3 if source.format.is_rgb else 1]
    return np.stack([np.bincount(channel.ravel(), minlength=BINS) for channel in channels]).astype(np.uint32)


def look_up(source: View, target: View, tables: NDArray[np.uint8]) -> None:
    """Write tables[channel, sample] for every sample; of YUV the Y alone, the rest is copied. tables: [channels, 256]."""
    if source.format != target.format or (source.width, source.height) != (target.width, target.height):
        raise UsageError("the input and the output differ in format or size; accepted: the same")
    for number, (plane, other) in enumerate(zip(source.planes, target.planes, strict=True)):
        for sample in range(plane.shape[2]):
            channel = max(number, sample)
            table = tables[channel] if source.format.is_rgb and channel < len(tables) else tables[0]
            changed = source.format.is_rgb or number == 0
            other[..., sample] = table[plane[..., sample]] if changed else plane[..., sample]

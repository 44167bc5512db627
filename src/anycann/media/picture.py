"""A picture: bytes somewhere in memory, and what they mean."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anycann.media.formats import PixelFormat
from anycann.support.errors import UsageError
from anycann.support.records import dataclass

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Region:
    """A rectangle of pixels. `right` and `bottom` belong to it, as DVPP counts."""

    left: int
    right: int
    top: int
    bottom: int

    @property
    def width(self) -> int:
        return self.right - self.left + 1

    @property
    def height(self) -> int:
        return self.bottom - self.top + 1


@dataclass(frozen=True)
class View:
    """The pixels of a picture or of a region of one: `planes` are writable views [rows, columns, samples]."""

    format: PixelFormat
    width: int
    height: int
    planes: tuple[Bytes, ...]


@dataclass(frozen=True)
class Picture:
    """`width` x `height` pixels in `data`. Rows lie `width_stride` bytes apart, and the first plane has `height_stride` rows."""

    format: PixelFormat
    width: int
    height: int
    width_stride: int
    height_stride: int
    data: Bytes  # flat

    def __post_init__(self) -> None:
        if self.width < 1 or self.height < 1:
            raise UsageError(f"the picture has {self.width} x {self.height} pixels; accepted: at least one")
        least = self.format.row_bytes(self.width)
        if self.width_stride < least or self.height_stride < self.height:
            raise UsageError(
                f"strides {self.width_stride} x {self.height_stride} for {self.width} x {self.height} pixels of {self.format.name}; "
                f"accepted: at least {least} x {self.height}"
            )
        if self.data.size < self.nbytes:
            raise UsageError(
                f"{self.data.size} bytes for {self.format.name} with strides {self.width_stride} x {self.height_stride}; "
                f"accepted: at least {self.nbytes}"
            )

    @property
    def nbytes(self) -> int:
        return self.format.nbytes(self.width_stride, self.height_stride)

    @property
    def whole(self) -> Region:
        return Region(0, self.width - 1, 0, self.height - 1)

    def view(self, part: Region | None = None) -> View:
        """All pixels, or those of a region of the picture; one that begins inside a chroma sample begins with that sample."""
        part = part or self.whole
        return View(self.format, part.width, part.height, self._planes(part))

    def _planes(self, part: Region) -> tuple[Bytes, ...]:
        main = self._main()
        rows, columns = slice(part.top, part.bottom + 1), slice(part.left, part.right + 1)
        layout = self.format.layout
        if layout == "packed 422":
            return (main[rows, part.left // 2 : part.right // 2 + 1],)
        if layout == "planar":
            return tuple(plane[rows, columns] for plane in (main, *self._further()))
        if layout == "semi-planar":
            return main[rows, columns], self._chroma()[_covering(rows, self.format.down), _covering(columns, self.format.across)]
        return (main[rows, columns],)

    def _main(self) -> Bytes:
        samples = 4 if self.format.layout == "packed 422" else self.format.row_bytes_per_pixel
        columns = -(-self.width // 2) if samples == 4 and self.format.layout == "packed 422" else self.width
        return self._view(0, self.height, self.width_stride, columns, samples)

    def _chroma(self) -> Bytes:
        across, down = self.format.across, self.format.down
        start = self.width_stride * self.height_stride
        return self._view(start, -(-self.height // down), 2 * (self.width_stride // across), -(-self.width // across), 2)

    def _further(self) -> tuple[Bytes, Bytes]:
        plane = self.width_stride * self.height_stride
        second, third = (self._view(start, self.height, self.width_stride, self.width, 1) for start in (plane, 2 * plane))
        return second, third

    def _view(self, start: int, rows: int, stride: int, columns: int, samples: int) -> Bytes:
        columns = min(columns, stride // samples)  # an odd width, and a stride as narrow: the last chroma sample is not there
        return np.ndarray((rows, columns, samples), np.uint8, self.data.data, start, (stride, samples, 1))


def _covering(span: slice, step: int) -> slice:
    return slice(span.start // step, -(-span.stop // step))


def new_picture(form: PixelFormat, width: int, height: int) -> Picture:
    """A picture of any content with the least strides that hold it."""
    height_stride = -(-height // form.down) * form.down
    stride = form.row_bytes(-(-width // form.across) * form.across)
    return Picture(form, width, height, stride, height_stride, np.empty(form.nbytes(stride, height_stride), np.uint8))

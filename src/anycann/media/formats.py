"""How the pixels of a picture lie in memory: the pixel formats of DVPP, by their numbers."""

from __future__ import annotations

from typing import Literal, TypeAlias

from anycann.support.errors import UnsupportedError
from anycann.support.records import dataclass

Layout: TypeAlias = Literal["gray", "semi-planar", "packed", "packed 422", "planar"]
UNKNOWN = 10000


@dataclass(frozen=True)
class PixelFormat:
    """One format of 8 bits a sample.

    gray: one plane. semi-planar: Y, then pairs of U and V. packed: `order` says what the bytes of a pixel are. packed 422: two pixels in
    four bytes, `order` says which. planar: one plane after the other, in `order`. A chroma sample covers `across` x `down` pixels.
    """

    number: int
    name: str
    layout: Layout
    order: str  # of the samples: "YUV", "YVU", "RGB", "ARGB", "YUYV"
    across: int = 1
    down: int = 1

    @property
    def is_rgb(self) -> bool:
        return "R" in self.order

    @property
    def row_bytes_per_pixel(self) -> int:
        """Bytes of a pixel in a row of the first plane."""
        return {"packed": len(self.order), "packed 422": 2}.get(self.layout, 1)

    def row_bytes(self, width: int) -> int:
        """The least width stride, in bytes, of a picture of `width` pixels."""
        return width * self.row_bytes_per_pixel

    def chroma_bytes(self, width_stride: int, height_stride: int) -> int:
        """Bytes behind the first plane of a picture with these strides."""
        if self.layout == "semi-planar":
            return 2 * (width_stride // self.across) * -(-height_stride // self.down)
        return 2 * width_stride * height_stride if self.layout == "planar" else 0

    def nbytes(self, width_stride: int, height_stride: int) -> int:
        """Bytes of a picture with these strides."""
        return width_stride * height_stride + self.chroma_bytes(width_stride, height_stride)


def _semi(number: int, name: str, order: str, across: int, down: int) -> PixelFormat:
    return PixelFormat(number, name, "semi-planar", order, across, down)


_FORMATS = (
    PixelFormat(0, "YUV400", "gray", "Y"),
    _semi(1, "YUV420SP NV12", "YUV", 2, 2),
    _semi(2, "YUV420SP NV21", "YVU", 2, 2),
    _semi(3, "YUV422SP", "YUV", 2, 1),
    _semi(4, "YVU422SP", "YVU", 2, 1),
    _semi(5, "YUV444SP", "YUV", 1, 1),
    _semi(6, "YVU444SP", "YVU", 1, 1),
    PixelFormat(7, "YUYV packed", "packed 422", "YUYV", 2, 1),
    PixelFormat(8, "UYVY packed", "packed 422", "UYVY", 2, 1),
    PixelFormat(9, "YVYU packed", "packed 422", "YVYU", 2, 1),
    PixelFormat(10, "VYUY packed", "packed 422", "VYUY", 2, 1),
    PixelFormat(11, "YUV444 packed", "packed", "YUV"),
    PixelFormat(12, "RGB888", "packed", "RGB"),
    PixelFormat(13, "BGR888", "packed", "BGR"),
    PixelFormat(14, "ARGB8888", "packed", "ARGB"),
    PixelFormat(15, "ABGR8888", "packed", "ABGR"),
    PixelFormat(16, "RGBA8888", "packed", "RGBA"),
    PixelFormat(17, "BGRA8888", "packed", "BGRA"),
    PixelFormat(69, "RGB888 planar", "planar", "RGB"),
    PixelFormat(70, "BGR888 planar", "planar", "BGR"),
    _semi(1000, "YUV440SP", "YUV", 1, 2),
    _semi(1001, "YVU440SP", "YVU", 1, 2),
)
FORMATS = {entry.number: entry for entry in _FORMATS}
GRAY, NV12, NV21 = FORMATS[0], FORMATS[1], FORMATS[2]


def pixel_format(number: int) -> PixelFormat:
    """The format with this number. Raises UnsupportedError for one that is not there."""
    found = FORMATS.get(number)
    if found is None:
        known = ", ".join(f"{entry.number} ({entry.name})" for entry in _FORMATS)
        raise UnsupportedError(f"pixel format {number} is not one that pictures are processed in; accepted: {known}")
    return found

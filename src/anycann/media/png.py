"""PNG files to RGB pictures."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycann.media.convert import store_rgb
from anycann.media.formats import FORMATS, UNKNOWN, PixelFormat
from anycann.media.libraries import video_library
from anycann.media.picture import Picture
from anycann.support.errors import UnsupportedError, UsageError
from anycann.support.records import dataclass

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}  # colour type -> samples of a pixel; a palette gives RGB
_HAS_ALPHA = (4, 6)
_RGB, _RGBA = FORMATS[12], FORMATS[16]


@dataclass(frozen=True)
class PngHeader:
    """What a PNG file says of its picture."""

    width: int
    height: int
    bits: int
    colour_type: int  # 0 gray, 2 RGB, 3 palette, 4 gray and alpha, 6 RGB and alpha
    interlaced: bool

    @property
    def components(self) -> int:
        return _CHANNELS[self.colour_type]

    def check_decodable(self) -> None:
        """Raises UnsupportedError for what DVPP does not decode."""
        if self.interlaced:
            raise UnsupportedError("the PNG picture is interlaced (Adam7); accepted: not interlaced")

    def output_format(self, number: int) -> PixelFormat:
        """RGB888 (12) or RGBA8888 (16); 10000: as the file has it. Raises UnsupportedError for another."""
        if number == UNKNOWN:
            return _RGBA if self.colour_type in _HAS_ALPHA else _RGB
        if number not in (_RGB.number, _RGBA.number):
            raise UnsupportedError(f"PNG pictures are not decoded to pixel format {number}; accepted: 12 (RGB888), 16 (RGBA8888)")
        return FORMATS[number]


def read_header(data: bytes) -> PngHeader:
    """The header of a PNG file. Raises UsageError for bytes that are none."""
    if not data.startswith(_SIGNATURE) or len(data) < 33 or data[12:16] != b"IHDR":
        raise UsageError(f"{len(data)} bytes that begin with {data[:8].hex() or 'nothing'}; accepted: a PNG file")
    width, height, bits, colour_type, _, _, interlace = struct.unpack_from(">IIBBBBB", data, 16)
    if not width or not height or colour_type not in _CHANNELS:
        raise UsageError(f"the PNG header says {width} x {height} pixels of colour type {colour_type}; it is damaged")
    return PngHeader(width, height, bits, colour_type, interlace != 0)


def decode(data: bytes, target: Picture) -> None:
    """Decode a PNG file into `target`, RGB or RGBA of the file's size. 16 bits are cut to the upper 8; alpha is dropped for RGB.

    Raises UsageError for damaged data, UnsupportedError for what DVPP does not decode.
    """
    header = read_header(data)
    header.check_decodable()
    if (target.width, target.height) != (header.width, header.height):
        raise UsageError(f"the picture has {header.width} x {header.height} pixels; the target {target.width} x {target.height}")
    pixels = _pixels(data)
    view = target.view()
    store_rgb(pixels[..., :3], view)
    if view.format is _RGBA:
        view.planes[0][..., 3] = pixels[..., 3]


def _pixels(data: bytes) -> NDArray[np.uint8]:
    """[rows, columns, R G B A]."""
    library: Any = video_library()
    decoder = library.CodecContext.create("png", "r")
    try:
        frames = [*decoder.decode(library.Packet(data)), *decoder.decode(None)]
    except library.error.FFmpegError as error:
        raise UsageError(f"the PNG data cannot be decoded: {error}") from error
    if not frames:
        raise UsageError(f"the PNG data ends after {len(data)} bytes, before the picture is whole")
    frame = frames[0]
    if "16" in frame.format.name or "48" in frame.format.name or "64" in frame.format.name:
        wide = frame.to_ndarray(format="rgba64le")
        cut: NDArray[np.uint8] = (wide >> 8).astype(np.uint8)
        return cut
    pixels: NDArray[np.uint8] = frame.to_ndarray(format="rgba")
    return pixels

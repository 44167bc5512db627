"""JPEG files to YUV pictures and back, by libjpeg-turbo."""

from __future__ import annotations

from typing import Any

import numpy as np

from anycann.media.convert import Samples, gray_of, yuv_planes
from anycann.media.formats import FORMATS, GRAY, NV12, NV21, UNKNOWN, PixelFormat
from anycann.media.jpeg_encoder import Tables, encode_planes
from anycann.media.jpeg_header import JpegFile, JpegHeader
from anycann.media.jpeg_planes import decode_planes
from anycann.media.libraries import jpeg_library
from anycann.media.picture import Picture
from anycann.media.scratch import Scratch
from anycann.media.triples import split
from anycann.support.errors import UnsupportedError, UsageError

# what each subsampling can be decoded to: its own semi-planar formats, and NV12 and NV21; first what UNKNOWN means (V before U)
OUTPUTS: dict[str, tuple[int, ...]] = {
    "444": (6, 5, 1, 2),
    "422": (4, 3, 1, 2),
    "420": (2, 1),
    "440": (1001, 1000, 1, 2),
    "411": (2, 1),
    "gray": (2, 1, 0),
}
_STEPS = {"444": (1, 1), "422": (2, 1), "420": (2, 2), "440": (1, 2), "411": (4, 1)}
_NEUTRAL = 0x80
_UNIT = 32  # the most pixels that a unit of a scan is wide or high


def output_format(header: JpegHeader, number: int) -> PixelFormat:
    """The format a picture is decoded to when a program asks for format `number` (10000: as it is stored). Raises UnsupportedError."""
    accepted = OUTPUTS[header.subsampling]
    chosen = accepted[0] if number == UNKNOWN else number
    if chosen not in accepted:
        names = ", ".join(f"{entry} ({FORMATS[entry].name})" for entry in accepted)
        raise UnsupportedError(f"a JPEG picture stored as {header.subsampling} is not decoded to pixel format {number}; accepted: {names}")
    return FORMATS[chosen]


def decode(file: JpegFile, target: Picture, scratch: Scratch | None = None) -> None:
    """Decode `file` into `target`, of the size that the file is shown with and one of the OUTPUTS of what is shown.

    The samples are those of libjpeg-turbo's accurate transform. Odd sizes are rounded up in the chroma planes, and the row and column
    behind an odd edge repeat it where `target` has room for them; what is further outside is any. Where Exif mirrors an odd size, pixels
    that shared chroma are in two pairs: a pair takes that of its first pixel (DVPP's documents do not say). Raises UsageError for damaged
    data, UnsupportedError for what DVPP does not decode.
    """
    header, shown = file.header, file.header.shown
    header.check_decodable()
    if (target.width, target.height) != (shown.width, shown.height):
        raise UsageError(f"the picture has {shown.width} x {shown.height} pixels; the target {target.width} x {target.height}")
    scratch = scratch or Scratch()
    if header.orientation == 1:
        _decode_as_stored(file, target, scratch)
    else:
        stored = _picture_of_blocks(_turned_format(target.format) if header.is_transposed else target.format, header)
        _decode_as_stored(file, stored, scratch)
        for plane, source in zip(target.view().planes, stored.view().planes, strict=True):
            plane[:] = _turned(source, header)[: plane.shape[0], : plane.shape[1]]
    _repeat_edges(target)


def _decode_as_stored(file: JpegFile, target: Picture, scratch: Scratch) -> None:
    if not decode_planes(file, target, scratch):
        _decode_by_library(file, target, scratch)
    if file.header.components == 1:
        for plane in target.view().planes[1:]:
            plane[:] = _NEUTRAL


def _turned_format(form: PixelFormat) -> PixelFormat:
    """The format whose transposed planes are those of `form`."""
    alike = (other for other in FORMATS.values() if (other.layout, other.order) == (form.layout, form.order))
    return next(other for other in alike if (other.across, other.down) == (form.down, form.across))


def _picture_of_blocks(form: PixelFormat, header: JpegHeader) -> Picture:
    """Memory for all blocks of a coded picture."""
    stride, rows = (-(-size // _UNIT) * _UNIT for size in (header.width, header.height))
    return Picture(form, header.width, header.height, stride, rows, np.empty(form.nbytes(stride, rows), np.uint8))


def _turned(plane: Samples, header: JpegHeader) -> Samples:
    """By Exif: 2 mirrored left to right, 3 upside down, 4 mirrored top to bottom, 5 to 8 transposed 1, 4, 3 and 2."""
    mirrors = {2: (1, -1), 3: (-1, -1), 4: (-1, 1), 5: (1, 1), 6: (-1, 1), 7: (-1, -1), 8: (1, -1)}[header.orientation]
    mirrored = plane[:: mirrors[0], :: mirrors[1]]
    return mirrored.swapaxes(0, 1) if header.is_transposed else mirrored


def _decode_by_library(file: JpegFile, target: Picture, scratch: Scratch) -> None:
    """What the native decoder leaves: other chroma than the file has, unusual files, damaged ones."""
    header = file.header
    with scratch.lent(header.width * header.height * header.components) as memory:
        if header.components == 1:
            target.view().planes[0][:] = _decoded(file.data, "GRAY", memory)
        else:
            split(_decoded(file.with_components_as_stored(), "RGB", memory), target.view(), *_STEPS[header.subsampling])


def _decoded(data: bytes, colours: str, memory: Samples) -> Samples:
    """[rows, columns, samples]; chroma is repeated where it is subsampled, so that every stored sample is among them."""
    library: Any = jpeg_library()
    try:
        return library.decode_jpeg(data, colorspace=colours, fastupsample=True, buffer=memory)  # type: ignore[no-any-return]
    except ValueError as error:
        raise UsageError(f"the JPEG data cannot be decoded: {error}") from error


def _repeat_edges(target: Picture) -> None:
    """An odd width or height: DVPP's stride is even, and what a reader takes there is the last pixel again."""
    plane, stride = target.data, target.width_stride
    if target.height % 2 and target.height_stride > target.height:
        row = target.height * stride
        plane[row : row + target.width] = plane[row - stride : row - stride + target.width]
    if target.width % 2 and stride > target.width:
        rows = target.height + (target.height % 2 and target.height_stride > target.height)
        view = np.lib.stride_tricks.as_strided(plane, (rows, target.width + 1), (stride, 1))
        view[:, -1] = view[:, -2]


def most_bytes(width: int, height: int) -> int:
    """Room that a JPEG file of a 420 picture never exceeds (libjpeg-turbo's bound)."""
    return -(-width // 16) * 16 * (-(-height // 16) * 16) * 3 + 2048


def encode(source: Picture, quality: int, tables: Tables | None = None) -> bytes:
    """`source` as a baseline JPEG file with 1 <= quality <= 100, or `tables`: NV12 and NV21 as 420, packed 422 as 422, gray as gray."""
    library: Any = jpeg_library()
    if source.format is GRAY and tables is not None:
        return encode_planes([gray_of(source.view())], (1, 1), tables)
    if source.format is GRAY:
        return library.encode_jpeg(np.ascontiguousarray(gray_of(source.view()))[..., None], quality, "GRAY", "Gray")  # type: ignore[no-any-return]
    if source.format not in (NV12, NV21) and source.format.layout != "packed 422":
        raise UnsupportedError(f"pictures of {source.format.name} are not encoded; accepted: YUV420SP (1, 2) and YUV422 packed (7 to 10)")
    luma, u, v = (np.ascontiguousarray(plane) for plane in yuv_planes(source.view()))
    if tables is not None:
        return encode_planes([luma, u, v], (2, 2 if source.format.layout == "semi-planar" else 1), tables)
    return library.encode_jpeg_yuv_planes(luma, u, v, quality)  # type: ignore[no-any-return]

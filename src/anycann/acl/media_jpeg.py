"""acl.media: JPEG and PNG files to pictures, and pictures to JPEG files."""

from __future__ import annotations

import ctypes
import struct

from anycann.acl.codes import Code
from anycann.acl.entries import status, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.media_configs import DvppChannel, JpegeConfig
from anycann.acl.media_memory import any_bytes, device_bytes
from anycann.acl.media_pictures import PicDesc, series
from anycann.acl.media_tasks import submit
from anycann.acl.process import PROCESS
from anycann.media import jpeg, png
from anycann.media.formats import PixelFormat
from anycann.media.jpeg_header import JpegFile, JpegHeader, read_jpeg
from anycann.media.picture import Bytes, Picture
from anycann.runtime.allocations import copy_checked
from anycann.support.errors import UnsupportedError, describe

JPEGD, JPEGE, PNGD = 2, 4, 8
_CSS = {"444": 0, "422": 1, "420": 2, "gray": 3, "440": 4, "411": 5}
_UNKNOWN_CSS = 1000
_LEAST, _MOST = 32, 8192
_WIDE_STRIDE, _STRIDE, _ROWS = 128, 64, 16  # what decoded pictures are aligned to: 310 and 910, later chips, the height of all


# ---- what a file says
@value_and_status("acl.media.dvpp_jpeg_get_image_info", failed=(0, 0, 0), returns="(width, height, components, ret)")
def dvpp_jpeg_get_image_info(data: int, size: int) -> tuple[int, int, int]:
    """Width, height and components of a JPEG file in any memory."""
    header = _header(data, size)
    return header.width, header.height, header.components


@value_and_status(
    "acl.media.dvpp_jpeg_get_image_info_v2", failed=(0, 0, 0, _UNKNOWN_CSS), returns="(width, height, components, format, ret)"
)
def dvpp_jpeg_get_image_info_v2(data: int, size: int) -> tuple[int, int, int, int]:
    """As dvpp_jpeg_get_image_info, and the subsampling: 0 444, 1 422, 2 420, 3 gray, 4 440, 5 411, 1000 unknown."""
    header = _header(data, size)
    return header.width, header.height, header.components, _CSS.get(header.subsampling, _UNKNOWN_CSS)


@value_and_status("acl.media.dvpp_jpeg_predict_dec_size", returns="(bytes, ret)")
def dvpp_jpeg_predict_dec_size(data: int, size: int, output_format: int) -> int:
    """Bytes that the decoded picture needs, strides aligned as the chip does. output_format 10000: as the file has it, V before U."""
    header = decodable(_header(data, size))
    form = _chosen_format(header, output_format)
    return form.nbytes(*strides_for(header.width, header.height))


@value_and_status("acl.media.dvpp_jpeg_predict_enc_size", returns="(bytes, ret)")
def dvpp_jpeg_predict_enc_size(pic: int, config: int) -> int:
    """Bytes that the encoded picture never exceeds."""
    PROCESS.handles.get(config, JpegeConfig)
    picture = PROCESS.handles.get(pic, PicDesc)
    if picture.width <= 0 or picture.height <= 0:
        raise AclError(Code.INVALID_PARAM, f"the picture has {picture.width} x {picture.height} pixels; accepted: at least one")
    return jpeg.most_bytes(picture.width, picture.height)


@value_and_status("acl.media.dvpp_png_get_image_info", failed=(0, 0, 0), returns="(width, height, components, ret)")
def dvpp_png_get_image_info(data: int, size: int) -> tuple[int, int, int]:
    """Width, height and components of a PNG file in any memory."""
    header = png.read_header(any_bytes(data, size, "PNG data"))
    return header.width, header.height, header.components


@value_and_status("acl.media.dvpp_png_predict_dec_size", returns="(bytes, ret)")
def dvpp_png_predict_dec_size(data: int, size: int, output_format: int) -> int:
    """Bytes that the decoded picture needs: 12 RGB888, 16 RGBA8888, 10000 as the file has it; strides as the chip does."""
    header = png.read_header(any_bytes(data, size, "PNG data"))
    return png_layout(header, output_format)[1]


# ---- decoding
@status("acl.media.dvpp_jpeg_decode_async")
def dvpp_jpeg_decode_async(channel: int, data: int, size: int, pic: int, stream: int) -> None:
    """Decode a JPEG file in device memory into the memory of `pic`, turned as the camera noted it.

    The picture is as large as the file says, rounded down to even; strides are those of `pic` where its memory has room for them and they
    are aligned as the chip wants, else the chip's own. `pic` says afterwards what it holds.
    """
    found, target = PROCESS.handles.get(channel, DvppChannel), PROCESS.handles.get(pic, PicDesc)
    found.check_open_for(JPEGD)
    file = read_file(device_bytes(data, size, "the JPEG data").tobytes())
    picture = decode_target(decodable(file.header), target)

    def task() -> None:
        device_bytes(target.data, picture.nbytes, "the decoded picture")  # it may have been freed since
        jpeg.decode(file, picture, found.scratch)

    submit(stream, task, (target,))


@status("acl.media.dvpp_png_decode_async")
def dvpp_png_decode_async(channel: int, data: int, size: int, pic: int, stream: int) -> None:
    """Decode a PNG file in device memory into the memory of `pic`, RGB888 or RGBA8888. `pic` says afterwards what it holds."""
    PROCESS.handles.get(channel, DvppChannel).check_open_for(PNGD)
    target = PROCESS.handles.get(pic, PicDesc)
    content = device_bytes(data, size, "the PNG data").tobytes()
    header = png.read_header(content)
    header.check_decodable()
    form, needed, stride, rows = _png_target(header, target)
    picture = Picture(form, header.width, header.height, stride, rows, _room(target, needed))
    _describe(target, picture, header.width, header.height)
    submit(stream, lambda: png.decode(content, picture), (target,))


def _header(data: int, size: int) -> JpegHeader:
    return read_file(any_bytes(data, size, "JPEG data")).header.shown


def read_file(content: bytes) -> JpegFile:
    """The markers of a JPEG file. Raises UsageError."""
    return read_jpeg(content)


def decodable(header: JpegHeader) -> JpegHeader:
    """What it says of the turned picture. Raises AclError for one that the chip does not decode."""
    try:
        header.check_decodable()
    except UnsupportedError as error:
        raise AclError(Code.UNSUPPORTED_JPEG, describe(error)) from error
    if not (_LEAST <= header.width <= _MOST and _LEAST <= header.height <= _MOST):
        raise AclError(
            Code.INVALID_PARAM, f"the JPEG picture has {header.width} x {header.height} pixels; accepted: {_LEAST} to {_MOST} each way"
        )
    return header.shown


def _chosen_format(header: JpegHeader, number: int) -> PixelFormat:
    try:
        return jpeg.output_format(header, number)
    except UnsupportedError as error:
        raise AclError(Code.INVALID_PARAM, describe(error)) from error


def strides_for(width: int, height: int) -> tuple[int, int]:
    """Strides that the chip decodes to: 128 x 16 on 310 and 910, 64 x 16 on later ones."""
    across = _WIDE_STRIDE if series() in ("310", "910") else _STRIDE
    return -(-width // across) * across, -(-height // _ROWS) * _ROWS


def decode_target(header: JpegHeader, target: PicDesc, odd_sizes_up: bool = False) -> Picture:
    """The picture to decode to, which `target` then describes, rounded to even. Raises AclError for one that is too small."""
    form = _chosen_format(header, target.format)
    stride, rows = strides_for(header.width, header.height)
    own = target.width_stride, target.height_stride
    fits = own[0] >= header.width and own[0] % _STRIDE == 0 and own[1] >= header.height and own[1] % 2 == 0
    if fits and form.nbytes(*own) <= target.size:
        stride, rows = own
    picture = Picture(form, header.width, header.height, stride, rows, _room(target, form.nbytes(stride, rows)))
    odd_width, odd_height = header.width % form.across, header.height % form.down
    if odd_sizes_up:
        odd_width, odd_height = -odd_width, -odd_height
    _describe(target, picture, header.width - odd_width, header.height - odd_height)
    return picture


def _room(target: PicDesc, needed: int) -> Bytes:
    if target.size < needed:
        raise AclError(Code.INVALID_PARAM, f"the output picture has {target.size} bytes; the decoded picture needs {needed}")
    return device_bytes(target.data, needed, "the decoded picture")


def _describe(target: PicDesc, picture: Picture, width: int, height: int) -> None:
    target.format, target.width, target.height = picture.format.number, width, height
    target.width_stride, target.height_stride = picture.width_stride, picture.height_stride


def png_layout(header: png.PngHeader, number: int) -> tuple[PixelFormat, int, int, int]:
    """Format, bytes, strides: the width is aligned to 128 on 310 and 910, to 16 on later chips, the height to 16."""
    form = _png_format(header, number)
    across = _WIDE_STRIDE if series() in ("310", "910") else _ROWS
    stride, rows = form.row_bytes(-(-header.width // across) * across), -(-header.height // _ROWS) * _ROWS
    return form, form.nbytes(stride, rows), stride, rows


def _png_format(header: png.PngHeader, number: int) -> PixelFormat:
    try:
        return header.output_format(number)
    except UnsupportedError as error:
        raise AclError(Code.INVALID_PARAM, describe(error)) from error


def _png_target(header: png.PngHeader, target: PicDesc) -> tuple[PixelFormat, int, int, int]:
    form, needed, stride, rows = png_layout(header, target.format)
    own = target.width_stride, target.height_stride
    if own[0] >= form.row_bytes(header.width) and own[1] >= header.height and form.nbytes(*own) <= target.size:
        return form, form.nbytes(*own), *own
    return form, needed, stride, rows


# ---- encoding
@status("acl.media.dvpp_jpeg_encode_async")
def dvpp_jpeg_encode_async(channel: int, pic: int, data: int, size_ptr: int, config: int, stream: int) -> None:
    """Encode `pic` (YUV420SP or YUV422 packed) into the memory at `data`.

    `size_ptr`: address of a uint32: the room there is at `data`, and when the stream is done the size of the file.
    """
    PROCESS.handles.get(channel, DvppChannel).check_open_for(JPEGE)
    source, quality = PROCESS.handles.get(pic, PicDesc), PROCESS.handles.get(config, JpegeConfig).quality
    picture = source.picture("input")
    room = struct.unpack("<I", any_bytes(size_ptr, 4, "size of the JPEG data"))[0]
    device_bytes(data, room, "the JPEG data")
    if not (_LEAST <= picture.width <= _MOST and _LEAST <= picture.height <= _MOST):
        raise AclError(
            Code.INVALID_PARAM, f"the picture has {picture.width} x {picture.height} pixels; accepted: {_LEAST} to {_MOST} each way"
        )
    if picture.format.layout != "packed 422" and picture.format.number not in (1, 2):
        raise AclError(
            Code.INVALID_PARAM, f"pictures of {picture.format.name} are not encoded; accepted: YUV420SP (1, 2) and YUV422 packed (7 to 10)"
        )

    def task() -> None:
        coded = jpeg.encode(picture, quality)
        if len(coded) > room:
            raise AclError(Code.INVALID_PARAM, f"the JPEG file has {len(coded)} bytes; there is room for {room}")
        device_bytes(data, len(coded), "the JPEG data")[:] = memoryview(coded)
        length = ctypes.c_uint32(len(coded))
        copy_checked(size_ptr, ctypes.addressof(length), 4)

    submit(stream, task, (source,))

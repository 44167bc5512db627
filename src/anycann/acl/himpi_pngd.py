"""acl.himpi: PNG pictures decoded by channels with numbers."""

from __future__ import annotations

from collections import deque
from dataclasses import field
from typing import Any

from anycann.acl.codes import Code
from anycann.acl.entries import status, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.himpi_system import Channels, Dict, code_of, errors_of, number_in
from anycann.acl.media_jpeg import png_layout
from anycann.acl.media_memory import any_bytes, device_bytes
from anycann.acl.media_pictures import PicDesc
from anycann.acl.process import PROCESS
from anycann.media import png
from anycann.media.picture import Picture
from anycann.support.records import dataclass

_PICTURE = ("address", "buffer_size", "format", "width", "height", "width_stride", "height_stride")
_AS_STORED = 10000


@dataclass
class PngdChannel:
    """Decodes when a file is sent, and keeps what is done."""

    done: deque[tuple[dict[str, Any], dict[str, Any], AclError | None]] = field(default_factory=deque)


CHANNELS: Channels[PngdChannel] = Channels("VDEC")


@status("acl.himpi.pngd_create_chn")
def pngd_create_chn(channel: int, attributes: dict[str, Any]) -> None:
    """A channel with a number of the program's."""
    with errors_of("VDEC"):
        PROCESS.context()
        CHANNELS.check_free(channel)
        CHANNELS.add(channel, PngdChannel())


@status("acl.himpi.pngd_destroy_chn")
def pngd_destroy_chn(channel: int) -> None:
    """End a channel."""
    with errors_of("VDEC"):
        CHANNELS.remove(channel)


@status("acl.himpi.pngd_send_stream")
def pngd_send_stream(channel: int, stream: dict[str, Any], picture: dict[str, Any], timeout_ms: int) -> None:
    """Decode a file {addr, len, ...} into a picture {picture_address, picture_buffer_size, picture_format, ...}; sizes may be 0."""
    with errors_of("VDEC"):
        found = CHANNELS.get(channel)
        data = device_bytes(number_in(stream, "addr", "the stream"), number_in(stream, "len", "the stream"), "the PNG data").tobytes()
        target = PicDesc(*(number_in(picture, f"picture_{name}", "the picture") for name in _PICTURE))
        header = png.read_header(data)
        header.check_decodable()
        decoded = _target(header, target)
        try:
            png.decode(data, decoded)
            error = None
        except Exception as raised:
            error = AclError(Code.INVALID_PARAM, str(raised))
        described = (
            target.data,
            target.size,
            decoded.format.number,
            header.width,
            header.height,
            decoded.width_stride,
            decoded.height_stride,
        )
        found.done.append(({f"picture_{name}": number for name, number in zip(_PICTURE, described, strict=True)}, dict(stream), error))


def _target(header: png.PngHeader, target: PicDesc) -> Picture:
    form, needed, stride, rows = png_layout(header, target.format)
    if target.width_stride >= form.row_bytes(header.width) and target.height_stride >= header.height:
        stride, rows = target.width_stride, target.height_stride
        needed = form.nbytes(stride, rows)
    if needed > target.size:
        raise AclError(Code.INVALID_PARAM, f"the picture has {target.size} bytes; the decoded picture needs {needed}")
    return Picture(form, header.width, header.height, stride, rows, device_bytes(target.data, needed, "the picture"))


@value_and_status("acl.himpi.pngd_get_image_data", failed=({}, {}), returns="(picture, stream, ret)")
def pngd_get_image_data(channel: int, timeout_ms: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The next picture that is done, and the file it came from."""
    with errors_of("VDEC"):
        found = CHANNELS.get(channel)
        if not found.done:
            raise AclError(code_of("VDEC", "BUF_EMPTY"), "no file was sent that was not fetched")
        picture, stream, error = found.done.popleft()
        if error is not None:
            raise error
        return picture, stream


@value_and_status("acl.himpi.png_get_image_info", failed=({},), returns="(dict, ret)")
def png_get_image_info(stream: dict[str, Any]) -> dict[str, object]:
    """Size, strides, bytes and format of the picture of a file {addr, len, ...} in any memory."""
    with errors_of("VDEC"):
        return _information(stream)


def _information(stream: Dict) -> dict[str, object]:
    data = any_bytes(number_in(stream, "addr", "the stream"), number_in(stream, "len", "the stream"), "the PNG data")
    header = png.read_header(data)
    form, needed, stride, rows = png_layout(header, _AS_STORED)
    return {
        "width": header.width, "height": header.height, "width_stride": stride, "height_stride": rows, "img_buf_size": needed,
        "pixel_format": form.number, "reserved": [0] * 16,
    }  # fmt: skip

"""What programs of acl.media have at hand: a channel, a stream, memory, pictures and files."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from types import ModuleType

import numpy as np
from numpy.typing import NDArray
import simplejpeg

from tests.media.pictures import smooth

INVALID, UNSUPPORTED_JPEG = 100000, 148052


@dataclass
class Dvpp:
    """What a program has at hand: a channel and a stream."""

    acl: ModuleType
    channel: int
    stream: int

    @property
    def media(self) -> ModuleType:
        return self.acl.media

    def memory(self, nbytes: int, content: bytes | NDArray[np.uint8] | None = None) -> int:
        ptr, ret = self.media.dvpp_malloc(nbytes)
        assert ret == 0
        if content is not None:
            data = np.frombuffer(content, np.uint8) if isinstance(content, bytes) else content
            assert self.acl.rt.memcpy(ptr, nbytes, data.ctypes.data, data.nbytes, 1) == 0
        return int(ptr)

    def picture(self, width: int, height: int, stride: int, rows: int, form: int = 1, content: NDArray[np.uint8] | None = None) -> int:
        size = {12: 2, 13: 2}.get(form, 3) * stride * rows // 2
        pic = self.media.dvpp_create_pic_desc()
        data = self.memory(size, content)
        for name, number in (
            ("data", data), ("size", size), ("format", form), ("width", width), ("height", height), ("width_stride", stride),
            ("height_stride", rows),
        ):  # fmt: skip
            assert getattr(self.media, f"dvpp_set_pic_desc_{name}")(pic, number) == 0
            assert getattr(self.media, f"dvpp_get_pic_desc_{name}")(pic) == number
        return int(pic)

    def bytes_of(self, pic: int) -> NDArray[np.uint8]:
        size = self.media.dvpp_get_pic_desc_size(pic)
        back = np.empty(size, np.uint8)
        assert self.acl.rt.memcpy(back.ctypes.data, size, self.media.dvpp_get_pic_desc_data(pic), size, 2) == 0
        return back

    def done(self) -> int:
        return int(self.acl.rt.synchronize_stream(self.stream))

    def said(self) -> str:
        return str(self.acl.get_recent_err_msg())


def jpeg_file(width: int = 200, height: int = 120, kind: str = "420") -> bytes:
    return bytes(simplejpeg.encode_jpeg(smooth(width, height), quality=90, colorsubsampling=kind))


def address(data: bytes) -> int:
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0


# ---- descriptions


def gradient(width: int, height: int) -> NDArray[np.uint8]:
    y, x = np.mgrid[0:height, 0:width]
    luma = ((x + 2 * y) % 200).astype(np.uint8)
    chroma = np.stack([x[: height // 2, : width // 2] % 100, 50 + y[: height // 2, : width // 2] % 100], -1).astype(np.uint8)
    return np.concatenate([luma.ravel(), chroma.ravel()])

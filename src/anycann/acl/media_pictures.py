"""acl.media: descriptions of pictures and streams: where they lie, and what they hold."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import field
from typing import ClassVar

from anycann.acl.codes import Code
from anycann.acl.entries import status, value
from anycann.acl.errors import AclError
from anycann.acl.media_fields import Field, declare_fields, declare_life, one_of
from anycann.acl.media_memory import device_bytes
from anycann.acl.process import PROCESS
from anycann.media.formats import PixelFormat, pixel_format
from anycann.media.picture import Picture
from anycann.support.records import dataclass
from anycann.target.soc import soc_version

MOST_IN_A_BATCH = 256
# series -> what the width stride of a YUV picture is a multiple of; others take any
_STRIDE_ALIGNMENT = {"310": 16, "310P": 16, "910": 16}


@dataclass
class PicDesc:
    """A picture of a program. Strides and size are in bytes and rows as DVPP counts them; 0 is not set."""

    acl_word: ClassVar[str] = "picture description"
    data: int = 0
    size: int = 0
    format: int = 1
    width: int = 0
    height: int = 0
    width_stride: int = 0
    height_stride: int = 0
    ret_code: int = 0

    def picture(self, role: str) -> Picture:
        """The picture in place. Raises AclError if the description is wrong, the memory too small or not there."""
        form = pixel_format(self.format)
        self._check_strides(form, role)
        needed = form.nbytes(self.width_stride, self.height_stride)
        if self.size < needed:
            raise AclError(
                Code.INVALID_PARAM,
                f"the {role} picture has {self.size} bytes; {form.name} with strides {self.width_stride} x {self.height_stride} "
                f"needs {needed}",
            )
        return Picture(form, self.width, self.height, self.width_stride, self.height_stride, device_bytes(self.data, needed, role))

    def _check_strides(self, form: PixelFormat, role: str) -> None:
        least, alignment = form.row_bytes(self.width), stride_alignment(form)
        if self.width <= 0 or self.height <= 0:
            raise AclError(Code.INVALID_PARAM, f"the {role} picture has {self.width} x {self.height} pixels; accepted: at least one")
        if self.width_stride < least or self.height_stride < self.height:
            raise AclError(
                Code.INVALID_PARAM,
                f"the {role} picture has strides {self.width_stride} x {self.height_stride} for {self.width} x {self.height} pixels of "
                f"{form.name}; accepted: at least {least} x {self.height}",
            )
        if self.width_stride % alignment or self.height_stride % form.down:
            raise AclError(
                Code.INVALID_PARAM,
                f"the {role} picture has strides {self.width_stride} x {self.height_stride}; {PROCESS.soc_name} accepts multiples of "
                f"{alignment} x {form.down} for {form.name}",
            )


def stride_alignment(form: PixelFormat) -> int:
    """What this chip's VPC wants a width stride to be a multiple of."""
    return 1 if form.is_rgb else _STRIDE_ALIGNMENT.get(series(), 1)


def series() -> str:
    """The series of the chip that programs are told they run on: "310", "310P", "910B"."""
    return soc_version(PROCESS.soc_name).series


@dataclass
class BatchPicDesc:
    """Pictures that are processed together."""

    acl_word: ClassVar[str] = "batch picture description"
    pictures: list[int] = field(default_factory=list)  # handles


@dataclass
class StreamDesc:
    """A frame of a stream: coded bytes."""

    acl_word: ClassVar[str] = "stream description"
    data: int = 0
    size: int = 0
    format: int = 0
    timestamp: int = 0
    ret_code: int = 0
    eos: int = 0


def set_ret_code(handle: int, kind: type[PicDesc] | type[StreamDesc], code: int) -> None:
    """Say how it went in a description, if it is still there."""
    with suppress(AclError):
        PROCESS.handles.get(handle, kind).ret_code = code


STREAM_FORMATS = {0: "H.265 main", 1: "H.264 baseline", 2: "H.264 main", 3: "H.264 high"}
_ANY = Field("ret_code", lambda number: True, "any number")
declare_life(PicDesc, "dvpp_create_pic_desc", "dvpp_destroy_pic_desc")
declare_fields(
    PicDesc,
    "dvpp_{}_pic_desc",
    {name: Field(name) for name in ("data", "size", "format", "width", "height", "width_stride", "height_stride")} | {"ret_code": _ANY},
)
declare_life(StreamDesc, "dvpp_create_stream_desc", "dvpp_destroy_stream_desc")
declare_fields(
    StreamDesc,
    "dvpp_{}_stream_desc",
    {name: Field(name) for name in ("data", "size", "timestamp")}
    | {"format": Field("format", *one_of(STREAM_FORMATS)), "eos": Field("eos", *one_of({0: "goes on", 1: "ends"})), "ret_code": _ANY},
)


@value("acl.media.dvpp_create_batch_pic_desc", returns="batch")
def dvpp_create_batch_pic_desc(count: int) -> int:
    """`count` empty descriptions of pictures."""
    if not 1 <= count <= MOST_IN_A_BATCH:
        raise AclError(Code.INVALID_PARAM, f"a batch of {count} pictures; accepted: 1 to {MOST_IN_A_BATCH}")
    return PROCESS.handles.add(BatchPicDesc([PROCESS.handles.add(PicDesc()) for _ in range(count)]))


@value("acl.media.dvpp_get_pic_desc", returns="pic")
def dvpp_get_pic_desc(batch: int, index: int) -> int:
    """Description number `index` of a batch, which goes with the batch."""
    pictures = PROCESS.handles.get(batch, BatchPicDesc).pictures
    if not 0 <= index < len(pictures):
        raise AclError(Code.INVALID_PARAM, f"picture {index} of the batch is not there; accepted: 0 to {len(pictures) - 1}")
    return pictures[index]


@status("acl.media.dvpp_destroy_batch_pic_desc")
def dvpp_destroy_batch_pic_desc(batch: int) -> None:
    """Forget a batch and its descriptions."""
    for picture in PROCESS.handles.remove(batch, BatchPicDesc).pictures:
        with suppress(AclError):  # the program destroyed it by itself
            PROCESS.handles.remove(picture, PicDesc)

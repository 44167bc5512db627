"""acl.media: video to pictures. A channel decodes on a thread of its own and reports every frame to a callback of the program."""

from __future__ import annotations

from collections import deque
from dataclasses import field
from typing import ClassVar

from anycann.acl.codes import Code
from anycann.acl.entries import status, value_and_status
from anycann.acl.errors import AclError, as_acl_error
from anycann.acl.media_channels import Callback, ChannelWork, callback_of, check_reported, declare_callback, working
from anycann.acl.media_configs import PARAMETER_BYTES, check_matrix
from anycann.acl.media_fields import Field, declare_fields, declare_life, one_of
from anycann.acl.media_memory import device_bytes
from anycann.acl.media_pictures import STREAM_FORMATS, PicDesc, StreamDesc, set_ret_code
from anycann.acl.process import PROCESS
from anycann.media.convert import Matrix
from anycann.media.formats import pixel_format
from anycann.media.picture import Picture, View
from anycann.media.video_decoder import VideoDecoder, store
from anycann.support.records import dataclass

NO_PICTURE = 0x20000  # return code of a frame that has no picture of its own
_MOST_CHANNELS = 256
_OUTPUTS = {1: "YUV420SP NV12", 2: "YUV420SP NV21", 12: "RGB888", 13: "BGR888"}
_WIDTH_ALIGNMENT, _HEIGHT_ALIGNMENT = 16, 2


@dataclass
class VdecChannel:
    """What a program says of a channel, and the channel between create and destroy."""

    acl_word: ClassVar[str] = "VDEC channel description"
    channel_id: int = 0
    thread_id: int = 0
    entype: int = 0
    out_pic_format: int = 1
    out_pic_width: int = 0
    out_pic_height: int = 0
    ref_frame_num: int = 8
    out_mode: int = 0
    bit_depth: int = 0
    matrix: int = int(Matrix.BT601_WIDE)
    callback: Callback | None = None
    decoding: Decoding | None = field(default=None, repr=False)

    def open(self) -> Decoding:
        """The channel. Raises AclError if it was not created."""
        return working(self.decoding, "acl.media.vdec_create_channel")


@dataclass
class FrameConfig:
    """Nothing can be said of a single frame."""

    acl_word: ClassVar[str] = "VDEC frame configuration"


@dataclass(frozen=True, eq=False)
class Sent:
    """A frame that was sent: its two descriptions (0: none), and what the callback gets."""

    input: int
    output: int
    user_data: object


class Decoding(ChannelWork):
    """A created channel. The n-th picture shown is reported with the n-th frame sent; after `finish` the next frame begins a new stream."""

    def __init__(self, channel: VdecChannel, callback: Callback, owner: int):
        super().__init__("video decoder", owner, channel.thread_id)
        self._channel, self._callback = channel, callback
        self._decoder = VideoDecoder("hevc" if channel.entype == 0 else "h264")
        self._waiting: deque[Sent] = deque()

    def send(self, sent: Sent, data: bytes) -> None:
        """Decode a frame later; its bytes were copied."""
        self.later(lambda: self._decode(sent, data))

    def _decode(self, sent: Sent, data: bytes) -> None:
        self._waiting.append(sent)
        try:
            frames = self._decoder.decode(data)
        except Exception as error:
            self._waiting.remove(sent)
            self._report(sent, int(as_acl_error(error).code))
            return
        self._deliver(frames)

    def flush(self) -> None:
        """Report the pictures that were held back, and frames that none came of."""
        try:
            self._deliver(self._decoder.flush())
        finally:
            while self._waiting:
                self._report(self._waiting.popleft(), NO_PICTURE)

    def _deliver(self, frames: list[View]) -> None:
        for frame in frames:
            if self._waiting:
                sent = self._waiting.popleft()
                self._report(sent, self._store(sent, frame))

    def _store(self, sent: Sent, frame: View) -> int:
        """Write a picture where it belongs; 0 or the code of what went wrong."""
        if not sent.output:
            return 0
        try:
            target = PROCESS.handles.get(sent.output, PicDesc)
            store(frame, self._target(target, frame), Matrix(self._channel.matrix))
        except Exception as error:
            return int(as_acl_error(error).code)
        return 0

    def _target(self, target: PicDesc, frame: View) -> Picture:
        form = pixel_format(target.format)
        if not target.width_stride:
            stride = form.row_bytes(-(-frame.width // _WIDTH_ALIGNMENT) * _WIDTH_ALIGNMENT)
            rows = -(-frame.height // _HEIGHT_ALIGNMENT) * _HEIGHT_ALIGNMENT
            if form.nbytes(stride, rows) > target.size >= form.nbytes(form.row_bytes(frame.width), rows):
                stride = form.row_bytes(frame.width)  # a program that counted without alignment
            target.width, target.height, target.width_stride, target.height_stride = frame.width, frame.height, stride, rows
        needed = form.nbytes(target.width_stride, target.height_stride)
        if target.size < needed:
            raise AclError(Code.INVALID_PARAM, f"the output picture has {target.size} bytes; the decoded frame needs {needed}")
        memory = device_bytes(target.data, needed, "the decoded frame")
        return Picture(form, target.width, target.height, target.width_stride, target.height_stride, memory)

    def _report(self, sent: Sent, code: int) -> None:
        set_ret_code(sent.output, PicDesc, code)
        set_ret_code(sent.input, StreamDesc, code)
        self.reports.report(lambda: _ignore(self._callback(sent.input, sent.output, sent.user_data)))


def _ignore(result: object) -> None:
    """A callback's result has no meaning."""


declare_life(VdecChannel, "vdec_create_channel_desc", "vdec_destroy_channel_desc")
declare_life(FrameConfig, "vdec_create_frame_config", "vdec_destroy_frame_config")
declare_fields(
    VdecChannel,
    "vdec_{}_channel_desc",
    {name: Field(name) for name in ("thread_id", "out_pic_width", "out_pic_height")}
    | {
        "channel_id": Field("channel_id", lambda number: 0 <= number < _MOST_CHANNELS, f"0 to {_MOST_CHANNELS - 1}"),
        "entype": Field("entype", *one_of(STREAM_FORMATS)),
        "out_pic_format": Field("out_pic_format", *one_of(_OUTPUTS)),
        "out_mode": Field("out_mode", *one_of({0: "in order of display", 1: "at once"})),
        "bit_depth": Field("bit_depth", *one_of({0: "8 bits", 1: "10 bits, which become 8"})),
        "ref_frame_num": Field("ref_frame_num", lambda number: 0 <= number <= 16, "0 to 16"),
    },
)


declare_callback(VdecChannel, "vdec", "stream description, picture description")


@value_and_status("acl.media.vdec_set_channel_desc_param", returns="(desc, ret)")
def vdec_set_channel_desc_param(desc: int, kind: int, number: int) -> int:
    """kind 0: which YUV the stream has, where pictures are RGB; as in dvpp_set_channel_desc_param."""
    check_matrix(kind, number)
    PROCESS.handles.get(desc, VdecChannel).matrix = number
    return desc


@value_and_status("acl.media.vdec_get_channel_desc_param", failed=(0, 0), returns="(bytes, value, ret)")
def vdec_get_channel_desc_param(desc: int, kind: int) -> tuple[int, int]:
    """How many bytes the parameter has, and what was set."""
    channel = PROCESS.handles.get(desc, VdecChannel)
    check_matrix(kind, channel.matrix)
    return PARAMETER_BYTES, channel.matrix


@status("acl.media.vdec_create_channel")
def vdec_create_channel(desc: int) -> None:
    """Make a channel ready. Its description needs a callback and the thread that runs it, which calls acl.rt.process_report."""
    PROCESS.context()
    channel = PROCESS.handles.get(desc, VdecChannel)
    if channel.decoding is not None:
        raise AclError(Code.INVALID_PARAM, f"channel {channel.channel_id} was created before; destroy it first")
    callback = callback_of(channel, "acl.media.vdec_set_channel_desc_callback")
    others = PROCESS.handles.live(VdecChannel).values()
    if any(other.decoding is not None and other.channel_id == channel.channel_id for other in others):
        raise AclError(Code.INVALID_PARAM, f"another channel has number {channel.channel_id}; accepted: a number that is free")
    channel.decoding = Decoding(channel, callback, desc)


@status("acl.media.vdec_send_frame")
def vdec_send_frame(desc: int, stream_desc: int, pic: int, config: int, user_data: object) -> None:
    """Decode one frame into the memory of `pic`, and call the callback when it is there.

    A stream description with eos set ends the stream: it waits until everything sent before was reported. The frame's bytes may be
    overwritten as soon as this returns.
    """
    _send(desc, stream_desc, pic, user_data)


@status("acl.media.vdec_send_skipped_frame")
def vdec_send_skipped_frame(desc: int, stream_desc: int, config: int, user_data: object) -> None:
    """Decode one frame that others depend on, without a picture; the callback gets 0 for it."""
    _send(desc, stream_desc, 0, user_data)


def _send(desc: int, stream_desc: int, pic: int, user_data: object) -> None:
    channel = PROCESS.handles.get(desc, VdecChannel)
    decoding, frame = channel.open(), PROCESS.handles.get(stream_desc, StreamDesc)
    if frame.eos and not (frame.data and frame.size):
        check_reported(decoding.finish(), "decoded")
        return
    if not frame.size:
        raise AclError(Code.INVALID_PARAM, "the frame has 0 bytes and does not end the stream; accepted: at least 1, or eos")
    data = device_bytes(frame.data, frame.size, "the frame").tobytes()
    if pic:
        _check_output(PROCESS.handles.get(pic, PicDesc), channel)
    decoding.send(Sent(stream_desc, pic, user_data), data)
    if frame.eos:
        check_reported(decoding.finish(), "decoded")


def _check_output(target: PicDesc, channel: VdecChannel) -> None:
    sizes = (target.width, target.height, target.width_stride, target.height_stride)
    if any(sizes) and not all(sizes):
        raise AclError(
            Code.INVALID_PARAM,
            f"the output picture has width {sizes[0]}, height {sizes[1]} and strides {sizes[2]} x {sizes[3]}; accepted: all set, or none",
        )
    if target.format not in _OUTPUTS:
        raise AclError(Code.INVALID_PARAM, f"frames are not decoded to pixel format {target.format}; accepted: {one_of(_OUTPUTS)[1]}")
    device_bytes(target.data, target.size, "the output picture")


@status("acl.media.vdec_destroy_channel")
def vdec_destroy_channel(desc: int) -> None:
    """Report what was sent and end the channel; its description stays. Waits for the thread as long as it takes reports."""
    channel = PROCESS.handles.get(desc, VdecChannel)
    decoding, channel.decoding = channel.open(), None
    check_reported(decoding.close(), "decoded")

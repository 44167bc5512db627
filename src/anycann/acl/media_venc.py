"""acl.media: pictures to video. A channel encodes on a thread of its own and reports every coded frame to a callback of the program."""

from __future__ import annotations

from collections import deque
from dataclasses import field
from typing import Any, ClassVar

from anycann.acl.codes import Code
from anycann.acl.entries import status, value, value_and_status
from anycann.acl.errors import AclError, as_acl_error
from anycann.acl.media_channels import Callback, ChannelWork, callback_of, check_reported, declare_callback, working
from anycann.acl.media_fields import Field, declare_fields, declare_life, one_of
from anycann.acl.media_memory import device_bytes
from anycann.acl.media_pictures import STREAM_FORMATS, PicDesc, StreamDesc
from anycann.acl.memory import give_back, take_device_memory
from anycann.acl.process import PROCESS
from anycann.media.formats import pixel_format
from anycann.media.picture import Picture
from anycann.media.video_encoder import EncoderSettings, Profile, VideoEncoder
from anycann.runtime.device import Device
from anycann.support.records import dataclass

_INPUTS = {1: "YUV420SP NV12", 2: "YUV420SP NV21"}
_PROFILES: dict[int, Profile] = {0: "main", 1: "baseline", 2: "main", 3: "high"}
_RATE_MODES = {0: "variable", 1: "variable", 2: "constant"}
_MOST_PIXELS = 8192
_INTERVALS = 65536


@dataclass
class VencChannel:
    """What a program says of a channel, and the channel between create and destroy."""

    acl_word: ClassVar[str] = "VENC channel description"
    thread_id: int = 0
    entype: int = 0
    pic_format: int = 1
    pic_width: int = 0
    pic_height: int = 0
    key_frame_interval: int = 16
    buf_addr: int = 0
    buf_size: int = 0
    max_bit_rate: int = 0
    rc_mode: int = 0
    src_rate: int = 25
    max_ip_prop: int = 70
    callback: Callback | None = None
    encoding: Encoding | None = field(default=None, repr=False)

    def open(self) -> Encoding:
        """The channel. Raises AclError if it was not created."""
        return working(self.encoding, "acl.media.venc_create_channel")

    def settings(self) -> EncoderSettings:
        """What an encoder is told. Raises AclError for what is not set."""
        for size, name in ((self.pic_width, "width"), (self.pic_height, "height")):
            if not 0 < size <= _MOST_PIXELS or size % 2:
                raise AclError(Code.INVALID_PARAM, f"the {name} of the pictures is {size}; accepted: even numbers to {_MOST_PIXELS}")
        return EncoderSettings(
            "hevc" if self.entype == 0 else "h264",
            _PROFILES[self.entype],
            self.pic_width,
            self.pic_height,
            self.key_frame_interval,
            self.src_rate,
            self.max_bit_rate,
        )


@dataclass
class FrameConfig:
    """What a program says of one frame."""

    acl_word: ClassVar[str] = "VENC frame configuration"
    eos: int = 0
    force_i_frame: int = 0


class Encoding(ChannelWork):
    """A created channel."""

    def __init__(self, channel: VencChannel, callback: Callback, owner: int, device: Device):
        super().__init__("video encoder", owner, channel.thread_id)
        self._callback, self._device = callback, device
        self.settings = channel.settings()
        self._encoder = VideoEncoder(self.settings)
        self._waiting: deque[tuple[int, object]] = deque()

    def send(self, input_pic: int, picture: Picture, user_data: object, key_frame: bool) -> None:
        """Encode a picture later; its bytes were copied."""
        self.later(lambda: self._encode(input_pic, picture, user_data, key_frame))

    def _encode(self, input_pic: int, picture: Picture, user_data: object, key_frame: bool) -> None:
        self._waiting.append((input_pic, user_data))
        try:
            frames = self._encoder.encode(picture, key_frame)
        except Exception as error:
            self._waiting.pop()
            self._report(input_pic, b"", user_data, int(as_acl_error(error).code))
            return
        self._deliver(frames)

    def flush(self) -> None:
        """Report the frames that were held back, and pictures that none came of."""
        self._deliver(self._encoder.flush() if self._waiting else [])
        while self._waiting:
            input_pic, user_data = self._waiting.popleft()
            self._report(input_pic, b"", user_data, int(Code.FAILURE))

    def _deliver(self, frames: list[bytes]) -> None:
        for frame in frames:
            input_pic, user_data = self._waiting.popleft()
            self._report(input_pic, frame, user_data, 0)

    def _report(self, input_pic: int, frame: bytes, user_data: object, code: int) -> None:
        def report() -> None:
            address = take_device_memory(len(frame), 0, "dvpp", self._device, filled=True) if frame else 0
            if frame:
                device_bytes(address, len(frame), "the coded frame")[:] = memoryview(frame)
            desc = PROCESS.handles.add(StreamDesc(address, len(frame), ret_code=code))
            try:
                self._callback(input_pic, desc, user_data)
            finally:
                if desc in PROCESS.handles.live(StreamDesc):
                    PROCESS.handles.remove(desc, StreamDesc)
                if frame and PROCESS.allocations.find(address) is not None:
                    give_back(address, ("dvpp",), "the channel")

        self.reports.report(report)


declare_life(VencChannel, "venc_create_channel_desc", "venc_destroy_channel_desc")
declare_life(FrameConfig, "venc_create_frame_config", "venc_destroy_frame_config")
_FIELDS = {name: Field(name) for name in ("thread_id", "pic_width", "pic_height", "buf_addr", "buf_size", "max_bit_rate")} | {
    "entype": Field("entype", *one_of(STREAM_FORMATS)),
    "pic_format": Field("pic_format", *one_of(_INPUTS)),
    "key_frame_interval": Field("key_frame_interval", lambda number: 1 <= number <= _INTERVALS, f"1 to {_INTERVALS}"),
    "rc_mode": Field("rc_mode", *one_of(_RATE_MODES)),
    "src_rate": Field("src_rate", lambda number: 1 <= number <= 240, "1 to 240 frames a second"),
}
declare_fields(VencChannel, "venc_{}_channel_desc", _FIELDS)
_SWITCH = one_of({0: "no", 1: "yes"})
declare_fields(FrameConfig, "venc_{}_frame_config", {"eos": Field("eos", *_SWITCH), "force_i_frame": Field("force_i_frame", *_SWITCH)})


declare_callback(VencChannel, "venc", "picture description, stream description")


@value("acl.media.venc_get_channel_desc_channel_id", failed=-1, returns="id")
def venc_get_channel_desc_channel_id(desc: int) -> int:
    """The number of a created channel, in order of creation among those that are open."""
    channel = PROCESS.handles.get(desc, VencChannel)
    channel.open()
    open_ones = [other for other in PROCESS.handles.live(VencChannel).values() if other.encoding is not None]
    return next(number for number, other in enumerate(open_ones) if other is channel)


_CALLBACK = 1
_PROPORTION = Field("max_ip_prop", lambda number: 1 <= number <= 100, "1 to 100")
_PARAMETERS = {0: "thread_id", 2: "pic_format", 3: "entype", 4: "pic_width", 5: "pic_height", 6: "key_frame_interval", 7: "buf_addr",
               8: "buf_size", 9: "rc_mode", 10: "src_rate", 11: "max_bit_rate"}  # fmt: skip
_SETTERS = {number: _FIELDS[name] for number, name in _PARAMETERS.items()} | {12: _PROPORTION}
_KEPT = "parameter 12, how many times as many bits a key frame has at most as another, is kept, and changes nothing"


@status("acl.media.venc_set_channel_desc_param", limits=_KEPT)
def venc_set_channel_desc_param(desc: int, kind: int, given: object) -> None:
    """Set one field of the description: 0 thread, 1 callback, 2 format, 3 entype, 4 width, 5 height, 6 key frame interval, ..."""
    channel = PROCESS.handles.get(desc, VencChannel)
    if kind == _CALLBACK:
        if not callable(given):
            raise AclError(Code.INVALID_PARAM, f"the callback is {given!r:.60}; accepted: a function")
        channel.callback = given
        return
    _parameter(kind).put(channel, given)


@value_and_status("acl.media.venc_get_channel_desc_param", failed=(0,), returns="(value, ret)")
def venc_get_channel_desc_param(desc: int, kind: int) -> Any:
    """What was set."""
    channel = PROCESS.handles.get(desc, VencChannel)
    return channel.callback if kind == _CALLBACK else getattr(channel, _parameter(kind).attribute)


def _parameter(kind: int) -> Field:
    if kind not in _SETTERS:
        known = ", ".join(f"{number} ({field.attribute})" for number, field in sorted(_SETTERS.items()))
        raise AclError(Code.INVALID_PARAM, f"parameter {kind} of a VENC channel is not there; accepted: {known}, 1 (callback)")
    return _SETTERS[kind]


@status("acl.media.venc_create_channel")
def venc_create_channel(desc: int) -> None:
    """Make a channel ready. Its description needs a callback, a thread that calls acl.rt.process_report, and the size of the pictures."""
    device = PROCESS.context().device
    channel = PROCESS.handles.get(desc, VencChannel)
    if channel.encoding is not None:
        raise AclError(Code.INVALID_PARAM, "the channel was created before; destroy it first")
    callback = callback_of(channel, "acl.media.venc_set_channel_desc_callback")
    channel.encoding = Encoding(channel, callback, desc, device)


@status("acl.media.venc_send_frame")
def venc_send_frame(desc: int, input_pic: int, reserve: int, config: int, user_data: object) -> None:
    """Encode one picture, and call the callback with the coded frame, which is there until the callback returns.

    A configuration with eos set and no picture (0) ends the stream: it waits until everything sent before was reported. Strides that are
    not set are the size, aligned to 16 x 2.
    """
    channel, frame = PROCESS.handles.get(desc, VencChannel), PROCESS.handles.get(config, FrameConfig)
    encoding = channel.open()
    if input_pic:
        picture = _input(PROCESS.handles.get(input_pic, PicDesc), channel)
        encoding.send(input_pic, picture, user_data, bool(frame.force_i_frame))
    elif not frame.eos:
        raise AclError(Code.INVALID_PARAM, "there is no picture, and the frame does not end the stream; accepted: a picture, or eos")
    if frame.eos:
        check_reported(encoding.finish(), "encoded")


def _input(desc: PicDesc, channel: VencChannel) -> Picture:
    """A copy of the picture, which the program may overwrite."""
    stride = desc.width_stride or -(-channel.pic_width // 16) * 16
    rows = desc.height_stride or -(-channel.pic_height // 2) * 2
    form = pixel_format(channel.pic_format)
    needed = form.nbytes(stride, rows)
    if desc.size < needed:
        raise AclError(Code.INVALID_PARAM, f"the picture has {desc.size} bytes; {form.name} with strides {stride} x {rows} needs {needed}")
    data = device_bytes(desc.data, needed, "the picture").copy()
    return Picture(form, channel.pic_width, channel.pic_height, stride, rows, data)


@status("acl.media.venc_destroy_channel")
def venc_destroy_channel(desc: int) -> None:
    """Report what was sent and end the channel; its description stays. Waits for the thread as long as it takes reports."""
    channel = PROCESS.handles.get(desc, VencChannel)
    encoding, channel.encoding = channel.open(), None
    check_reported(encoding.close(), "encoded")

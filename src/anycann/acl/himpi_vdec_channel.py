"""What is behind a channel of acl.himpi that decodes: coded pictures go in, decoded ones wait until they are fetched."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import field
import threading
from typing import Any

from anycann.acl.codes import Code
from anycann.acl.errors import AclError
from anycann.acl.himpi_epoll import Readiness
from anycann.acl.himpi_system import Channels, code_of, number_in
from anycann.acl.himpi_vdec_limits import is_beyond
from anycann.acl.media_jpeg import decodable, decode_target, read_file
from anycann.acl.media_memory import device_bytes
from anycann.acl.media_pictures import PicDesc
from anycann.media import jpeg
from anycann.media.convert import ColourMatrix, Matrix
from anycann.media.formats import pixel_format
from anycann.media.picture import Picture, View
from anycann.media.scratch import Scratch
from anycann.media.video_decoder import VideoDecoder, store
from anycann.runtime.stream import Stream
from anycann.support.records import dataclass

JPEG, H264, H265 = 26, 96, 265
_TYPES = {JPEG: "JPEG", H264: "H.264", H265: "H.265"}
_FAILED = 1  # frame_flag of a picture that was not decoded
ALIGNMENT = 16


@dataclass
class Sent:
    """A frame that was sent: its stream, where its picture goes, and how it went."""

    stream: dict[str, Any]
    target: PicDesc | None
    flag: int = 0


@dataclass
class VdecChannel:
    """A decoder and what it has done; pictures come in the order they are shown."""

    attributes: dict[str, Any]
    parameters: dict[str, Any] = field(default_factory=dict)
    receiving: bool = False
    received: int = 0
    display_mode: int = 0
    odd_sizes_up: bool = False
    limits: dict[str, int] = field(default_factory=dict)
    beyond_limits: int = 0  # frames that had more
    scratch: Scratch = field(default_factory=Scratch, repr=False)

    def __post_init__(self) -> None:
        self.kind = number_in(self.attributes, "type", "hi_vdec_chn_attr")
        if self.kind not in _TYPES:
            raise AclError(Code.INVALID_PARAM, f"channel type {self.kind}; accepted: 26 (JPEG), 96 (H.264), 265 (H.265)")
        self._decoder = None if self.kind == JPEG else VideoDecoder("h264" if self.kind == H264 else "hevc")
        self._stream = Stream("VDEC channel")
        self._pending: deque[Sent] = deque()
        self._done: deque[Sent] = deque()
        self._changed = threading.Condition()
        self.ready = Readiness()
        self.matrix: ColourMatrix = Matrix.BT601_WIDE

    @property
    def left(self) -> int:
        """Frames that were sent and not fetched."""
        return len(self._pending) + len(self._done)

    def send(self, sent: Sent, data: bytes) -> None:
        """Decode later."""
        self.received += 1
        limits = self.limits
        self._stream.submit(lambda: self._decode(sent, data, limits))

    def fetch(self, timeout_ms: int) -> Sent:
        """The next frame that is done. Raises AclError if there is none in time."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._done, None if timeout_ms < 0 else timeout_ms / 1000):
                raise AclError(code_of("VDEC", "BUF_EMPTY"), f"no frame was done within {timeout_ms} ms")
            self.ready.take()
            return self._done.popleft()

    def close(self) -> None:
        """Do what waits and end."""
        self._stream.synchronize()
        self._stream.close()
        self.ready.close()

    def _decode(self, sent: Sent, data: bytes, limits: dict[str, int]) -> None:
        if sent.target is None and not data:
            self._flush(sent)
        elif self._decoder is None:
            self._attempt(sent, lambda: self._decode_jpeg(sent, data))
        elif limits and is_beyond(limits, data):
            self.beyond_limits += 1
            self._finish(sent, _FAILED)
        else:
            self._decode_frame(sent, data, self._decoder)

    def _decode_jpeg(self, sent: Sent, data: bytes) -> None:
        file = read_file(data)
        if sent.target is not None:
            jpeg.decode(file, decode_target(decodable(file.header), sent.target, self.odd_sizes_up), self.scratch)

    def _decode_frame(self, sent: Sent, data: bytes, decoder: VideoDecoder) -> None:
        self._pending.append(sent)
        try:
            frames = decoder.decode(data)
        except Exception:
            self._pending.remove(sent)
            self._finish(sent, _FAILED)
            return
        self._deliver(frames)

    def _flush(self, sent: Sent) -> None:
        if self._decoder is not None:
            self._deliver(self._decoder.flush())
        while self._pending:
            self._finish(self._pending.popleft(), _FAILED)
        self._finish(sent, 0)

    def _deliver(self, frames: list[View]) -> None:
        for frame in frames:
            if self._pending:
                sent = self._pending.popleft()
                self._attempt(sent, lambda sent=sent, frame=frame: _place(sent, frame, self.matrix))  # type: ignore[misc]

    def _attempt(self, sent: Sent, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            self._finish(sent, _FAILED)
        else:
            self._finish(sent, 0)

    def _finish(self, sent: Sent, flag: int) -> None:
        sent.flag = flag
        with self._changed:
            self._done.append(sent)
            self.ready.add()
            self._changed.notify_all()


def _place(sent: Sent, frame: View, matrix: ColourMatrix) -> None:
    target = sent.target
    if target is None:
        return
    form = pixel_format(target.format)
    if not target.width_stride:
        target.width_stride = form.row_bytes(-(-frame.width // ALIGNMENT) * ALIGNMENT)
        target.height_stride = -(-frame.height // 2) * 2
    target.width, target.height = frame.width, frame.height
    needed = form.nbytes(target.width_stride, target.height_stride)
    if needed > target.size:
        raise AclError(Code.INVALID_PARAM, f"the picture has {target.size} bytes; the decoded frame needs {needed}")
    memory = device_bytes(target.data, needed, "the picture")
    store(frame, Picture(form, frame.width, frame.height, target.width_stride, target.height_stride, memory), matrix)


CHANNELS: Channels[VdecChannel] = Channels("VDEC")

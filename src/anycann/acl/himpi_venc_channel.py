"""What is behind a channel of acl.himpi that encodes: pictures go in, coded ones wait until they are fetched."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import field
import itertools
import threading
from typing import Any

from anycann.acl.codes import Code
from anycann.acl.errors import AclError
from anycann.acl.himpi_epoll import Readiness
from anycann.acl.himpi_system import Channels, code_of, dict_in, number_in
from anycann.acl.himpi_venc_encoding import encoder_settings
from anycann.acl.himpi_venc_jpeg import JpegCodes, tables_from
from anycann.acl.himpi_venc_rates import H264, H265, frame_rates
from anycann.acl.media_memory import device_bytes
from anycann.acl.memory import give_back
from anycann.media import jpeg
from anycann.media.jpeg_encoder import Tables
from anycann.media.picture import Picture
from anycann.media.regions import Region
from anycann.media.video_encoder import EncoderSettings, VideoEncoder
from anycann.runtime.stream import Stream
from anycann.support.records import dataclass

JPEG = 26
REGION = "region"  # the beginning of the names that settings have for regions
_TYPES = {JPEG: "JPEG", H264: "H.264", H265: "H.265"}
_LEAST = {JPEG: 32, H264: 128, H265: 128}
_MOST = {JPEG: 8192, H264: 4096, H265: 4096}
_DEFAULT_QUALITY, _NEUTRAL = 100, 128
_TABLE = 64


@dataclass
class Coded:
    """A coded picture. `place`: memory of the program's that it was written to, and its size; 0: it gets memory when it is fetched."""

    data: bytes
    pts: int
    number: int
    place: int = 0
    quantiser: int = 0  # the mean one of a frame of video, where it is known


@dataclass
class VencChannel:
    """An encoder and what it has done, in the order in which pictures were sent."""

    attributes: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)  # what functions of himpi_venc_settings set, by their names
    receiving: bool = False
    left_to_receive: int = -1
    key_frame_asked: bool = False
    ready: Readiness = field(default_factory=Readiness)
    fetched: dict[int, int] = field(default_factory=dict)  # address of a coded picture given to the program -> its own memory, or 0

    def __post_init__(self) -> None:
        given = dict_in(self.attributes, "venc_attr", "hi_venc_chn_attr")
        self.kind = number_in(given, "type", "venc_attr")
        if self.kind not in _TYPES:
            raise AclError(Code.INVALID_PARAM, f"channel type {self.kind}; accepted: 26 (JPEG), 96 (H.264), 265 (H.265)")
        self.width, self.height = (number_in(given, f"pic_{axis}", "venc_attr") for axis in ("width", "height"))
        least, most = _LEAST[self.kind], _MOST[self.kind]
        if not (least <= self.width <= most and least <= self.height <= most):
            raise AclError(
                Code.INVALID_PARAM,
                f"pictures of {self.width} x {self.height} for {_TYPES[self.kind]}; accepted: {least} to {most} each way",
            )
        self.own_buffer = bool(given.get("buf_size", 1))
        self.encoding = None if self.kind == JPEG else encoder_settings(self.kind, self.attributes, self.settings)
        self._rates = frame_rates(self.kind, self.attributes, self.settings)
        self._encoder = None if self.encoding is None else VideoEncoder(self.encoding)
        self._stream, self._numbers, self._changed = Stream("VENC channel"), itertools.count(), threading.Condition()
        self._done: deque[Coded] = deque()
        self.waiting = 0  # pictures that were sent and are not coded
        self._sent = 0
        self.jpeg: dict[str, Any] = {
            "qfactor": _DEFAULT_QUALITY, **{f"{name}_qt": [1] * _TABLE for name in ("y", "cb", "cr")}, "mcu_per_ecs": 0, "ecs_output_en": 0,
        }  # fmt: skip
        self.jpeg_codes: JpegCodes | None = None  # the program's own
        self.jpeg_tables: Tables | None = None
        self.compact = False

    def use(self, attributes: dict[str, Any], settings: dict[str, Any]) -> None:
        """Encode with these from the next picture on. Raises AclError, and changes nothing, for what is not accepted."""
        rates, own = frame_rates(self.kind, attributes, settings), settings.get("chn_param", {})
        enough = number_in(own, "poll_wake_up_frame_cnt", "hi_venc_chn_param") if "poll_wake_up_frame_cnt" in own else 1
        if enough < 1:
            raise AclError(Code.INVALID_PARAM, f"poll_wake_up_frame_cnt is {enough}; accepted: 1 and more")
        if self.encoding is not None:
            self.encoding = encoder_settings(self.kind, attributes, settings)
        self.attributes, self.settings, self._rates = attributes, settings, rates
        self.ready.wake_with(enough)

    def use_jpeg(self, parameters: dict[str, Any], codes: JpegCodes | None, compact: bool) -> None:
        """Make JPEG files with these from the next picture on. Raises AclError, and changes nothing, for what is not accepted."""
        self.jpeg_tables = tables_from(parameters, codes, compact)
        self.jpeg, self.jpeg_codes, self.compact = parameters, codes, compact

    def regions(self) -> list[Region]:
        """Those of acl.himpi.venc_set_roi_attr, the greatest number first, which holds where they overlap."""
        return [
            self.settings[name] for name in sorted((n for n in self.settings if n.startswith(REGION)), reverse=True) if self.settings[name]
        ]

    def send(self, picture: Picture, pts: int, place: tuple[int, int] = (0, 0)) -> None:
        """Encode later. `picture` is the channel's own copy."""
        taken, self._sent = is_taken(self._sent, *self._rates), self._sent + 1
        if self.left_to_receive > 0:
            self.left_to_receive -= 1
            self.receiving = self.left_to_receive > 0
        if not taken:
            return
        key, self.key_frame_asked = self.key_frame_asked, False
        regions = self.regions()
        jpeg_settings, encoding = (int(self.jpeg["qfactor"]), self.jpeg_tables), self.encoding
        if self.settings.get("chn_param", {}).get("color_to_grey_en", 0):
            _make_grey(picture)
        with self._changed:
            self.waiting += 1
        self._stream.submit(lambda: self._encode(picture, pts, place, key, jpeg_settings, encoding, regions))

    def _encode(
        self,
        picture: Picture,
        pts: int,
        place: tuple[int, int],
        key: bool,
        jpeg_settings: tuple[int, Tables | None],
        encoding: EncoderSettings | None,
        regions: Sequence[Region],
    ) -> None:
        coded: list[bytes] = []
        try:
            if self._encoder is None or encoding is None:
                coded = [jpeg.encode(picture, *jpeg_settings)]
            else:
                coded = self._encoder.change(encoding) if encoding != self._encoder.settings else []
                coded += self._encoder.encode(picture, key, regions)
            self._write(coded, place)
        finally:
            with self._changed:
                self.waiting -= 1
                for data in coded:
                    quantiser = 0 if self._encoder is None else round(self._encoder.quantiser or 0)
                    self._done.append(Coded(data, pts, next(self._numbers), place[0], quantiser))
                    self.ready.add()
                self._changed.notify_all()

    def _write(self, coded: list[bytes], place: tuple[int, int]) -> None:
        for data in coded if place[0] else ():
            if len(data) > place[1]:
                coded.clear()
                raise AclError(code_of("VENC", "BUF_FULL"), f"the JPEG file has {len(data)} bytes; there is room for {place[1]}")
            device_bytes(place[0], len(data), "the JPEG data")[:] = memoryview(data)

    @property
    def done(self) -> tuple[Coded, ...]:
        """What is coded and not fetched, and told by the descriptor."""
        with self._changed:
            return tuple(self._done)

    def fetch(self, timeout_ms: int) -> Coded:
        """The next coded picture. Raises AclError if there is none in time."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._done, None if timeout_ms < 0 else timeout_ms / 1000):
                raise AclError(code_of("VENC", "BUF_EMPTY"), f"no picture was encoded within {timeout_ms} ms")
            self.ready.take()
            return self._done.popleft()

    def close(self) -> None:
        """Do what waits, end, and take back what was fetched and not released."""
        self._stream.synchronize()
        self._stream.close()
        self.ready.close()
        for address in [own for own in self.fetched.values() if own]:
            give_back(address, ("dvpp",), "acl.himpi.venc_get_stream")


def is_taken(number: int, coming: int, coded: int) -> bool:
    """Whether picture `number` is coded where so many come in a second, and so many are coded; -1: all of them."""
    return not 0 < coded < coming or number * coded % coming < coded


def _make_grey(picture: Picture) -> None:
    view = picture.view()
    if view.format.layout == "semi-planar":
        view.planes[1][:] = _NEUTRAL
    else:  # Y U Y V in some order
        for place, letter in enumerate(view.format.order):
            if letter != "Y":
                view.planes[0][..., place] = _NEUTRAL


CHANNELS: Channels[VencChannel] = Channels("VENC")

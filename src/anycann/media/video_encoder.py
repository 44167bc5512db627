"""Pictures to H.264 and H.265 frames, by FFmpeg with x264 and x265."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
import io
from typing import Any, Literal, TypeAlias

import numpy as np

from anycann.media.convert import convert
from anycann.media.formats import NV12
from anycann.media.libraries import video_library
from anycann.media.picture import Picture, new_picture
from anycann.media.regions import Marker, Region
from anycann.support.errors import UnsupportedError, UsageError
from anycann.support.records import dataclass

_LIBRARIES = {"h264": "libx264", "hevc": "libx265"}
_FAR = {"h264": "32", "hevc": "92"}  # pixels that a block may have moved
_LIMITED_RANGE, _FULL_RANGE = 1, 2  # as FFmpeg counts
_DOUBLE = 6  # so much more of a quantiser is a step twice as large
ALL_QUANTISERS = (0, 51)
_USUAL_QUANTISER, _LAMBDA = 26, 118  # before the first frame; what FFmpeg multiplies quantisers with
_SCENE = 40  # how unlike the last picture a new scene is, as x264 counts
_BLOCK = 16  # pixels that a block of H.264 is high and wide
_NO_REGIONS = (Region(0, 0, _BLOCK, _BLOCK, 0),)

Profile: TypeAlias = Literal["main", "baseline", "high"]


@dataclass(frozen=True)
class Slices:
    """How a frame of H.264 is split: after so many bytes, or after so many rows of blocks; 0: not by these."""

    nbytes: int
    rows: int


@dataclass(frozen=True)
class Colours:
    """What a stream says of its colours, by the numbers of H.273."""

    full_range: bool
    primaries: int
    transfer: int
    matrix: int


@dataclass(frozen=True)
class Times:
    """What a stream says of its times: ticks a second; H.265: ticks of a frame. x264 always says that frames come at equal times."""

    ticks_a_second: Fraction
    ticks_of_a_frame: int = 0


@dataclass(frozen=True)
class EncoderSettings:
    """What a stream is encoded with. `bit_rate_kbps` 0: by quality, or by `quantisers`, those of key frames and of the others.

    intra_refresh: parts of each frame are coded anew, and none is a key frame after the first. aspect: width of a pixel by its height.
    quantiser_range: least and greatest. keys_of_scenes: a new scene of H.264 begins with a key frame. far_moves: blocks are looked for
    further away in the frame before. times: those of the frame rate if nothing is said.
    """

    codec: Literal["h264", "hevc"]
    profile: Profile
    width: int
    height: int
    key_frame_interval: int
    frame_rate: int = 25
    bit_rate_kbps: int = 0
    slices: Slices | None = None
    intra_refresh: bool = False
    colours: Colours | None = None
    aspect: Fraction | None = None
    quantisers: tuple[int, int] | None = None
    quantiser_range: tuple[int, int] = ALL_QUANTISERS
    keys_of_scenes: bool = False
    far_moves: bool = False
    times: Times | None = None


class VideoEncoder:
    """Gives one coded frame for each picture, without delay; the first has the parameter sets."""

    def __init__(self, settings: EncoderSettings):
        """Raises UsageError if the library for video is not installed or refuses the settings."""
        self._library: Any = video_library()
        self.settings = settings
        self._count = 0
        self._context = self._open(settings)
        self._writer = self._new_writer(settings)
        self._marker = _new_marker(settings)
        self.quantiser: float | None = None  # the mean one of the frame that was coded last, where it is known

    def _open(self, wanted: EncoderSettings) -> Any:
        name = _LIBRARIES[wanted.codec]
        try:
            context = self._library.CodecContext.create(name, "w")
        except self._library.error.FFmpegError as error:
            raise UnsupportedError(f"this FFmpeg has no encoder {name}: {error}") from error
        try:
            _describe(context, wanted)
            context.open()
        except (self._library.error.FFmpegError, OverflowError) as error:
            raise UsageError(f"pictures of {wanted.width} x {wanted.height} cannot be encoded as {wanted.codec}: {error}") from error
        return context

    def encode(self, picture: Picture, force_key_frame: bool = False, regions: Sequence[Region] = ()) -> list[bytes]:
        """The coded frames that are complete with this YUV picture of the encoder's size: one, as a rule.

        Of regions that overlap the first one holds. An absolute quantiser is reached from the mean one of the frame before. Where
        quantisers are fixed nothing is done about regions.
        """
        frame = self._frame(picture)
        if self.settings.quantisers is None and (regions or self.settings.codec == "hevc"):  # x265 crashes where only later frames have any
            frame = self._marker.mark(frame, regions or _NO_REGIONS, self._usual())
        if force_key_frame:
            frame.pict_type = self._library.video.frame.PictureType.I
        return self._written(self._context.encode(frame))

    def _usual(self) -> float:
        """What the next frame's quantisers are about outside regions. x265 tells the mean of all, x264 what it began with."""
        if self.quantiser is None:
            return _USUAL_QUANTISER
        return self.quantiser - (self._marker.mean if self.settings.codec == "hevc" else 0)

    def change(self, settings: EncoderSettings) -> list[bytes]:
        """Go on with others; the frames that the encoder held back, where it begins anew. Another bit rate of H.264 needs no key frame.

        Raises UsageError, and goes on as before, if the library refuses them.
        """
        before = self.settings
        by_quality = not (before.bit_rate_kbps and settings.bit_rate_kbps)
        if settings.codec == "h264" and not by_quality and replace(before, bit_rate_kbps=settings.bit_rate_kbps) == settings:
            self._context.bit_rate, self.settings = settings.bit_rate_kbps * 1000, settings
            return []
        context, writer = self._open(settings), self._new_writer(settings)
        coded = self.flush()
        self._context, self._writer, self.settings = context, writer, settings
        self._marker = _new_marker(settings)
        return coded

    def flush(self) -> list[bytes]:
        """The coded frames still held back."""
        return self._written(self._context.encode(None))

    def _written(self, packets: Iterable[Any]) -> list[bytes]:
        packets = list(packets)
        for statistics in (each for packet in packets for each in packet.iter_sidedata() if each.data_type == "quality_stats"):
            self.quantiser = int.from_bytes(bytes(statistics)[:4], "little") / _LAMBDA
        if self._writer is not None:
            packets = [changed for packet in packets for changed in self._writer.filter(packet)]
        return [bytes(packet) for packet in packets]

    def _new_writer(self, wanted: EncoderSettings) -> Any:
        """What writes to the stream's parameter sets what the encoder does not; None if that is nothing."""
        if wanted.times is None:
            return None
        rate = wanted.times.ticks_a_second
        own = "" if wanted.codec == "h264" else f":num_ticks_poc_diff_one={wanted.times.ticks_of_a_frame}"
        container = self._library.open(io.BytesIO(), "w", format=wanted.codec)
        stream = container.add_stream(_LIBRARIES[wanted.codec], rate=wanted.frame_rate)
        stream.width, stream.height, stream.pix_fmt = wanted.width, wanted.height, "yuv420p"
        description = f"{wanted.codec}_metadata=tick_rate={rate.numerator}/{rate.denominator}{own}"
        return self._library.bitstream.BitStreamFilterContext(description, stream)

    def _frame(self, picture: Picture) -> Any:
        if (picture.width, picture.height) != (self.settings.width, self.settings.height):
            raise UsageError(
                f"the picture has {picture.width} x {picture.height} pixels; the encoder {self.settings.width} x {self.settings.height}"
            )
        packed = new_picture(NV12, picture.width, picture.height).view()
        convert(picture.view(), packed)
        frame = self._library.VideoFrame(picture.width, picture.height, "yuv420p")
        luma, chroma = packed.planes
        for plane, samples in zip(frame.planes, (luma[..., 0], chroma[..., 0], chroma[..., 1]), strict=True):
            rows, columns = samples.shape
            lines = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
            lines[:rows, :columns] = samples
        frame.pts, frame.time_base = self._count, Fraction(1, self.settings.frame_rate)
        self._count += 1
        return frame


def _new_marker(settings: EncoderSettings) -> Marker:
    return Marker(settings.width, settings.height, settings.frame_rate, ALL_QUANTISERS[1])


def _describe(context: Any, wanted: EncoderSettings) -> None:
    context.width, context.height, context.pix_fmt = wanted.width, wanted.height, "yuv420p"
    context.time_base = Fraction(1, wanted.frame_rate)
    context.framerate = Fraction(wanted.frame_rate)
    context.gop_size = wanted.key_frame_interval
    if wanted.bit_rate_kbps:
        context.bit_rate = wanted.bit_rate_kbps * 1000
    if wanted.colours is not None:
        context.color_range = _FULL_RANGE if wanted.colours.full_range else _LIMITED_RANGE
        context.color_primaries, context.color_trc = wanted.colours.primaries, wanted.colours.transfer
        context.colorspace = wanted.colours.matrix
    if wanted.aspect is not None:
        context.sample_aspect_ratio = wanted.aspect
    context.options = _options(wanted)


def _options(settings: EncoderSettings) -> dict[str, str]:
    """Of the library: one key frame in each interval, no more where a scene changes unless that is wanted, as on the chip."""
    options = {"preset": "veryfast", "tune": "zerolatency", "forced-idr": "1"}
    own = {"scenecut": str(_SCENE * settings.keys_of_scenes), "intra-refresh": str(int(settings.intra_refresh))}
    if settings.far_moves:
        own["merange"] = _FAR[settings.codec]
    if settings.quantisers is not None:
        key, others = settings.quantisers
        own |= {"qp": str(others), "ipratio": f"{2 ** ((others - key) / _DOUBLE):.6f}"}
    elif settings.quantiser_range != ALL_QUANTISERS:
        least, most = settings.quantiser_range
        own |= {"qpmin": str(least), "qpmax": str(most)}
    if settings.codec == "h264":
        own |= _h264_slices(settings)
        return options | {"profile": settings.profile, "x264-params": _joined(own)}
    return options | {"x265-params": _joined({"log-level": "none", "repeat-headers": "1", "open-gop": "0"} | own)}


def _h264_slices(settings: EncoderSettings) -> dict[str, str]:
    if settings.slices is None:
        return {}
    if settings.slices.nbytes:
        return {"slice-max-size": str(settings.slices.nbytes)}
    return {"slice-max-mbs": str(settings.slices.rows * -(-settings.width // _BLOCK))}


def _joined(parameters: dict[str, str]) -> str:
    return ":".join(f"{name}={setting}" for name, setting in parameters.items())

"""Pictures to H.264 and H.265 frames, by FFmpeg with x264 and x265."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np

from anycann.media.convert import convert
from anycann.media.formats import NV12
from anycann.media.libraries import video_library
from anycann.media.picture import Picture, new_picture
from anycann.support.errors import UnsupportedError, UsageError

Profile: TypeAlias = Literal["main", "baseline", "high"]


@dataclass(frozen=True)
class EncoderSettings:
    """What a stream is encoded with. `bit_rate_kbps` 0: by quality."""

    codec: Literal["h264", "hevc"]
    profile: Profile
    width: int
    height: int
    key_frame_interval: int
    frame_rate: int = 25
    bit_rate_kbps: int = 0


class VideoEncoder:
    """Gives one coded frame for each picture, without delay; the first has the parameter sets."""

    def __init__(self, settings: EncoderSettings):
        """Raises UsageError if the library for video is not installed or refuses the settings."""
        self._library: Any = video_library()
        self.settings = settings
        self._count = 0
        self._context = self._open()

    def _open(self) -> Any:
        wanted = self.settings
        name = {"h264": "libx264", "hevc": "libx265"}[wanted.codec]
        try:
            context = self._library.CodecContext.create(name, "w")
        except self._library.error.FFmpegError as error:
            raise UnsupportedError(f"this FFmpeg has no encoder {name}: {error}") from error
        context.width, context.height, context.pix_fmt = wanted.width, wanted.height, "yuv420p"
        context.time_base = Fraction(1, wanted.frame_rate)
        context.framerate = Fraction(wanted.frame_rate)
        context.gop_size = wanted.key_frame_interval
        if wanted.bit_rate_kbps:
            context.bit_rate = wanted.bit_rate_kbps * 1000
        context.options = _options(wanted)
        try:
            context.open()
        except self._library.error.FFmpegError as error:
            raise UsageError(f"pictures of {wanted.width} x {wanted.height} cannot be encoded as {wanted.codec}: {error}") from error
        return context

    def encode(self, picture: Picture, force_key_frame: bool = False) -> list[bytes]:
        """The coded frames that are complete with this YUV picture of the encoder's size: one, as a rule."""
        frame = self._frame(picture)
        if force_key_frame:
            frame.pict_type = self._library.video.frame.PictureType.I
        return [bytes(packet) for packet in self._context.encode(frame)]

    def flush(self) -> list[bytes]:
        """The coded frames still held back."""
        return [bytes(packet) for packet in self._context.encode(None)]

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


def _options(settings: EncoderSettings) -> dict[str, str]:
    options = {"preset": "veryfast", "tune": "zerolatency"}
    if settings.codec == "h264":
        return options | {"profile": settings.profile, "forced-idr": "1"}
    return options | {"x265-params": "log-level=none:repeat-headers=1", "forced-idr": "1"}

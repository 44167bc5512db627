"""H.264 and H.265 frames to pictures, by FFmpeg."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from anycann.media.convert import ColourMatrix, Matrix, convert
from anycann.media.formats import FORMATS
from anycann.media.libraries import video_library
from anycann.media.picture import Bytes, Picture, View
from anycann.support.errors import UsageError

Codec: TypeAlias = Literal["h264", "hevc"]
_CHROMA = {"420": (2, 2), "422": (2, 1), "444": (1, 1)}


class VideoDecoder:
    """Takes a stream frame by frame, in the order they were coded, and gives pictures in the order they are shown."""

    def __init__(self, codec: Codec):
        """Raises UsageError if the library for video is not installed."""
        self._library: Any = video_library()
        self._codec = codec
        self._context = self._open()

    def _open(self) -> Any:
        context = self._library.CodecContext.create(self._codec, "r")
        context.thread_type = "SLICE"  # threads by frame would hold pictures back
        context.flags |= int(getattr(self._library.codec.context.Flags, "low_delay", 0))
        return context

    def decode(self, data: bytes) -> list[View]:
        """The pictures that are complete with this frame: none, one or several. Raises UsageError for damaged data."""
        return self._take(self._library.Packet(data))

    def flush(self) -> list[View]:
        """The pictures still held back; after that a new stream may begin."""
        frames = self._take(None)
        self._context = self._open()
        return frames

    def _take(self, packet: Any) -> list[View]:
        try:
            return [_view(frame) for frame in self._context.decode(packet)]
        except EOFError:
            return []
        except self._library.error.FFmpegError as error:
            raise UsageError(f"the {self._codec} frame cannot be decoded: {error}") from error


def _view(frame: Any) -> View:
    """A decoded frame as YUV of 8 bits, semi-planar with its own subsampling."""
    name = frame.format.name
    bits = frame.format.components[0].bits
    kind = next((kind for kind in _CHROMA if kind in name), None)
    if not name.startswith(("yuv", "gray")) or (kind is None and not name.startswith("gray")):
        frame, name, bits, kind = frame.reformat(format="yuv420p"), "yuv420p", 8, "420"
    planes = [_plane(frame.planes[number], bits) for number in range(len(frame.planes))]
    if kind is None:
        return View(FORMATS[0], frame.width, frame.height, (planes[0][: frame.height, : frame.width, None],))
    across, down = _CHROMA[kind]
    rows, columns = -(-frame.height // down), -(-frame.width // across)
    chroma = np.stack([plane[:rows, :columns] for plane in planes[1:]], axis=-1)
    form = FORMATS[{"420": 1, "422": 3, "444": 5}[kind]]
    return View(form, frame.width, frame.height, (planes[0][: frame.height, : frame.width, None], chroma))


def _plane(plane: Any, bits: int) -> Bytes:
    """[rows, line]; more than 8 bits are cut to the upper 8."""
    if bits == 8:
        return np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
    wide: NDArray[np.uint16] = np.frombuffer(plane, np.uint16).reshape(-1, plane.line_size // 2)
    return (wide >> (bits - 8)).astype(np.uint8)


def store(frame: View, target: Picture, matrix: ColourMatrix = Matrix.BT601_WIDE) -> None:
    """Write a decoded frame to `target`, of the frame's size and any format. Raises UsageError for another size."""
    if (frame.width, frame.height) != (target.width, target.height):
        raise UsageError(f"the frame has {frame.width} x {frame.height} pixels; the target {target.width} x {target.height}")
    convert(frame, target.view(), matrix)

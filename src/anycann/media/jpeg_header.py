"""What a JPEG file says of its picture, read from its markers (ITU-T T.81 annex B) without decoding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
import struct
from typing import NamedTuple

from anycann.support.errors import UnsupportedError, UsageError
from anycann.support.records import dataclass

_START, _SCAN, _END = 0xD8, 0xDA, 0xD9
_SCAN_MARKER = b"\xff\xda"
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JFIF, _EXIF, _ADOBE = 0xE0, 0xE1, 0xEE
_EXIF_MARK, _BYTE_ORDERS = b"Exif\0\0", {b"II*\0": "<", b"MM\0*": ">"}
_ORIENTATION, _SHORT, _ENTRY_BYTES = 0x0112, 3, 12
_FIRST_TRANSPOSED, _LAST = 5, 8
_TRANSPOSED = {"422": "440", "440": "422"}
_ALONE = frozenset({0x01, *range(0xD0, 0xD8)})  # markers without a length
_AS_STORED = b"\xff\xd8\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x00"
_KINDS = {0xC1: "extended sequential", 0xC2: "progressive", 0xC3: "lossless"}
_SUBSAMPLINGS: dict[tuple[tuple[int, int], ...], str] = {
    ((1, 1), (1, 1), (1, 1)): "444",
    ((2, 1), (1, 1), (1, 1)): "422",
    ((2, 2), (1, 1), (1, 1)): "420",
    ((1, 2), (1, 1), (1, 1)): "440",
    ((4, 1), (1, 1), (1, 1)): "411",
}


@dataclass(frozen=True)
class JpegHeader:
    """`subsampling`: "444", "422", "420", "440", "411", "gray" or "unknown". `frame`: the marker SOFn that says how it was coded.

    Sizes and subsampling are those of the coded picture; `orientation` is Exif's number of how it is to be turned, 1 for not at all.
    """

    width: int
    height: int
    components: int
    subsampling: str
    bits: int
    frame: int
    adobe_transform: int | None
    has_jfif: bool
    orientation: int = 1

    @property
    def is_transposed(self) -> bool:
        """Whether rows become columns."""
        return self.orientation >= _FIRST_TRANSPOSED

    @property
    def shown(self) -> JpegHeader:
        """The same of the picture once it is turned."""
        if not self.is_transposed:
            return replace(self, orientation=1)
        turned = _TRANSPOSED.get(self.subsampling, self.subsampling)
        return replace(self, width=self.height, height=self.width, subsampling=turned, orientation=1)

    def check_decodable(self) -> None:
        """Raises UnsupportedError for what DVPP does not decode: all but baseline Huffman-coded YUV of 8 bits."""
        if self.bits != 8:
            raise UnsupportedError(f"the JPEG picture has {self.bits} bits a sample; accepted: 8")
        if self.frame not in (0xC0, 0xC1):
            kind = _KINDS.get(self.frame, "arithmetic or differential")
            raise UnsupportedError(f"the JPEG picture is {kind} (SOF{self.frame - 0xC0}); accepted: baseline with Huffman codes (SOF0)")
        if self.components not in (1, 3):
            raise UnsupportedError(f"the JPEG picture has {self.components} components (CMYK or other); accepted: 1 (gray) or 3 (YUV)")
        if self.components == 3 and self.adobe_transform == 0 and not self.has_jfif:
            raise UnsupportedError("the JPEG picture is stored as RGB; accepted: YUV")
        if self.subsampling == "unknown":
            raise UnsupportedError("the JPEG picture has an unusual subsampling; accepted: 444, 422, 420, 440, 411 and gray")


class Segment(NamedTuple):
    """A marker with its length: `code` at `start`, its body from `start` + 4 to `end`."""

    code: int
    start: int
    end: int


@dataclass(frozen=True)
class JpegFile:
    """A JPEG file and what its markers say."""

    data: bytes
    header: JpegHeader
    segments: tuple[Segment, ...]

    def with_components_as_stored(self) -> bytes:
        """The same picture, marked (Adobe, transform 0) so that a decoder leaves Y, Cb and Cr as they are."""
        kept = [self.data[each.start : each.end] for each in self.segments if each.code not in (_JFIF, _ADOBE)]
        return b"".join([_AS_STORED, *kept, self.data[self.segments[-1].end :]])


def read_jpeg(data: bytes) -> JpegFile:
    """The markers of a JPEG file. Raises UsageError for bytes that are none, or that end before the picture begins."""
    head = _head(data)
    segments = _segments_of(head) if head else None
    if segments is None:
        segments = tuple(_segments(data))
        head = data[: segments[-1].end]
    return JpegFile(data, _header_of(head, segments), segments)


def _head(data: bytes) -> bytes:
    """What is in front of what looks like a scan: the same for all pictures of a camera. Empty where nothing does."""
    at = data.find(_SCAN_MARKER)
    return data[: at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")] if at > 0 else b""


@lru_cache(maxsize=64)
def _segments_of(head: bytes) -> tuple[Segment, ...] | None:
    """The segments of a head, or None where its end is not that of a scan's header: a small picture inside has a scan too."""
    try:
        return tuple(_segments(head))
    except UsageError:
        return None


@lru_cache(maxsize=64)
def _header_of(head: bytes, segments: tuple[Segment, ...]) -> JpegHeader:
    return _read_header(head, segments)


def _read_header(data: bytes, segments: tuple[Segment, ...]) -> JpegHeader:
    jfif, transform, frame, orientation = False, None, None, 1
    for segment in segments:
        body = data[segment.start + 4 : segment.end]
        if segment.code == _JFIF:
            jfif = jfif or body.startswith(b"JFIF")
        elif segment.code == _ADOBE and body.startswith(b"Adobe") and len(body) >= 12:
            transform = body[11]
        elif segment.code == _EXIF and body.startswith(_EXIF_MARK):
            orientation = _orientation(body[len(_EXIF_MARK) :])
        elif segment.code in _FRAMES:
            frame = (segment.code, body)
    if frame is None:
        raise UsageError("the JPEG data has no frame header (SOF) before its first scan; it is damaged")
    return _header(*frame, transform, jfif, orientation)


def _orientation(tiff: bytes) -> int:
    """What the first directory of Exif data says; 1 where it cannot be read."""
    order = _BYTE_ORDERS.get(tiff[:4])
    if order is None or len(tiff) < 8:
        return 1
    (at,) = struct.unpack_from(f"{order}I", tiff, 4)
    (count,) = struct.unpack_from(f"{order}H", tiff, at) if at + 2 <= len(tiff) else (0,)
    for entry in range(at + 2, min(at + 2 + count * _ENTRY_BYTES, len(tiff) - _ENTRY_BYTES + 1), _ENTRY_BYTES):
        tag, kind, _, value = struct.unpack_from(f"{order}HHIH", tiff, entry)
        if (tag, kind) == (_ORIENTATION, _SHORT):
            return int(value) if 1 <= value <= _LAST else 1
    return 1


def _header(code: int, body: bytes, transform: int | None, jfif: bool, orientation: int) -> JpegHeader:
    if len(body) < 6 or len(body) < 6 + 3 * body[5]:
        raise UsageError(f"the frame header of the JPEG data has {len(body)} bytes; it is damaged")
    height, width, count = int.from_bytes(body[1:3], "big"), int.from_bytes(body[3:5], "big"), body[5]
    if not height or not width or not count:
        raise UsageError(f"the JPEG data says it has {width} x {height} pixels of {count} components; it is damaged")
    factors = [(body[7 + 3 * number] >> 4, body[7 + 3 * number] & 15) for number in range(count)]
    return JpegHeader(width, height, count, _subsampling(factors), body[0], code, transform, jfif, orientation)


def _subsampling(factors: list[tuple[int, int]]) -> str:
    if len(factors) == 1:
        return "gray"
    across, down = max(a for a, _ in factors), max(d for _, d in factors)
    if len(factors) == 3 and factors[1] == factors[2] == (across, down):
        return "444" if factors[0] == (across, down) else "unknown"
    return _SUBSAMPLINGS.get(tuple(factors), "unknown")


def _segments(data: bytes) -> Iterator[Segment]:
    """The segments up to and with the first scan's header. Raises UsageError where the data ends before."""
    if data[:2] != bytes((0xFF, _START)):
        raise UsageError(f"the data begins with {data[:2].hex() or 'nothing'}; accepted: a JPEG file, which begins with ffd8")
    at = 2
    while True:
        if at + 4 > len(data):
            raise UsageError(f"the JPEG data ends after {len(data)} bytes, before the picture begins")
        if data[at] != 0xFF:
            raise UsageError(f"the JPEG data has {data[at]:#04x} at byte {at} where a marker begins (0xff); it is damaged")
        code = data[at + 1]
        if code == 0xFF or code in _ALONE:  # fill byte, or a marker without a body
            at += 1 if code == 0xFF else 2
            continue
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if code == _END or end > len(data) or end < at + 4:
            raise UsageError(f"the JPEG data ends after {len(data)} bytes, before the picture begins")
        yield Segment(code, at, end)
        if code == _SCAN:
            return
        at = end

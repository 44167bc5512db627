"""A section of many parts: a JSON index that says where each lies, then the parts. Only the parts that are asked for are decoded."""

from __future__ import annotations

import json
import struct

from anycann.om import codec
from anycann.support.errors import ModelError

_INDEX_BYTES = struct.Struct("<Q")
_ALIGNMENT_BYTES = 16


class BlobWriter:
    """Collects parts; `add` gives the [offset, length] to put into the index. Offsets count from the end of the index."""

    def __init__(self) -> None:
        self._parts = bytearray()

    def add(self, part: bytes) -> list[int]:
        """Append `part` at a 16-byte border."""
        self._parts += bytes(-len(self._parts) % _ALIGNMENT_BYTES)
        self._parts += part
        return [len(self._parts) - len(part), len(part)]

    def finish(self, index: dict[str, object]) -> bytes:
        """The section: the length of the index (u64), the index, zeros up to a 16-byte border, the parts."""
        text = json.dumps(index, separators=(",", ":")).encode()
        front = _INDEX_BYTES.pack(len(text)) + text
        return front + bytes(-len(front) % _ALIGNMENT_BYTES) + bytes(self._parts)


class BlobReader:
    """The index of a section and access to its parts. `where` ("model.om, section programs") begins every message."""

    def __init__(self, data: bytes, where: str) -> None:
        self.where = where
        if len(data) < _INDEX_BYTES.size:
            raise ModelError(f"{where} has {len(data)} bytes; accepted: at least {_INDEX_BYTES.size}")
        (length,) = _INDEX_BYTES.unpack_from(data)
        end = _INDEX_BYTES.size + length
        if end > len(data):
            raise ModelError(f"{where} has an index of {length} bytes; accepted: up to {len(data) - _INDEX_BYTES.size}")
        self.index = self.mapping(codec.parse_json(data[_INDEX_BYTES.size : end], f"{where}, index"), "its index")
        self._parts = memoryview(data)[end + -end % _ALIGNMENT_BYTES :]

    def mapping(self, value: object, what: str) -> dict[str, object]:
        """`value` if it is a JSON object."""
        if not isinstance(value, dict):
            raise ModelError(f"{self.where}: {what} is {value!r:.60}; accepted: an object")
        return value

    def part(self, place: object, what: str) -> bytes:
        """The part at `place`, an [offset, length] of the index."""
        offset, length = place if isinstance(place, list) and len(place) == 2 else (-1, -1)
        if not (isinstance(offset, int) and isinstance(length, int)) or min(offset, length) < 0 or offset + length > len(self._parts):
            raise ModelError(f"{self.where}: {what} is at {place!r:.60}; accepted: an offset and a length within {len(self._parts)} bytes")
        return bytes(self._parts[offset : offset + length])

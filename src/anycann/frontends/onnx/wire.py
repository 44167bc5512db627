"""The protobuf wire format, as far as it takes to leave big weights where they are: in the mapped file.

`compact` copies a serialised ModelProto without the big `raw_data` of its tensors. Each is replaced by an external-data entry that points
into the same bytes, so that protobuf parses a small message whatever the size of the file (its own limit is 2 GiB).
Source: protobuf.dev/programming-guides/encoding, onnx.proto.
"""

from __future__ import annotations

from anycann.support.errors import ModelError
from anycann.support.records import dataclass

BIG_BYTES = 4096  # raw_data of at least so many bytes stays in the file
SELF = "\0the model file itself"  # the external-data location that means: these very bytes
MAX_DEPTH = 100  # protobuf's own limit of nesting

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types; 3 and 4 are groups, which ONNX does not use

# Message -> field number -> message in that field. Only the ways that lead to tensors; all else is copied as it is.
FIELDS: dict[str, dict[int, str]] = {
    "Model": {7: "Graph", 25: "Function"},
    "Graph": {1: "Node", 5: "Tensor", 15: "SparseTensor"},
    "Function": {7: "Node"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph", 22: "SparseTensor", 23: "SparseTensor"},
    "SparseTensor": {1: "Tensor", 2: "Tensor"},
}
RAW_DATA, EXTERNAL_DATA, DATA_LOCATION = 9, 13, 14  # fields of TensorProto


@dataclass(frozen=True)
class Field:
    """One field of a message: its number, wire type, and the extents of the whole field and of its content."""

    number: int
    wire_type: int
    begin: int
    content: int
    end: int


def compact(data: memoryview) -> bytes:
    """The ModelProto in `data` with every big `raw_data` turned into external data at location SELF.

    Raises ModelError, with the offset in bytes, where `data` is not in the wire format.
    """
    return b"".join(_rewrite(data, 0, len(data), "Model", 0))


def _rewrite(data: memoryview, begin: int, end: int, message: str, depth: int) -> list[bytes | memoryview]:
    """The pieces of the message in data[begin:end], compacted."""
    if depth > MAX_DEPTH:
        raise ModelError(f"messages nest deeper than {MAX_DEPTH} at byte {begin}: the file is damaged or hostile")
    if message == "Tensor":
        return _rewrite_tensor(data, begin, end)
    pieces: list[bytes | memoryview] = []
    position = begin
    while position < end:
        field = _read_field(data, position, end)
        position = field.end
        inner = FIELDS[message].get(field.number)
        if inner is None or field.wire_type != BYTES or field.end - field.content < BIG_BYTES:
            pieces.append(data[field.begin : field.end])
            continue
        body = _rewrite(data, field.content, field.end, inner, depth + 1)
        pieces += [_key(field.number, BYTES), _varint(sum(map(len, body))), *body]
    return pieces


def _rewrite_tensor(data: memoryview, begin: int, end: int) -> list[bytes | memoryview]:
    """A TensorProto, its `raw_data` replaced when it is big. The last of several counts, as in protobuf."""
    pieces: list[bytes | memoryview] = []
    raw: Field | None = None
    position = begin
    while position < end:
        field = _read_field(data, position, end)
        position = field.end
        if field.number == RAW_DATA and field.wire_type == BYTES:
            raw = field
        else:
            pieces.append(data[field.begin : field.end])
    if raw is not None and raw.end - raw.content >= BIG_BYTES:
        entries = {"location": SELF, "offset": str(raw.content), "length": str(raw.end - raw.content)}
        pieces += [_text_entry(key, value) for key, value in entries.items()]
        pieces.append(_key(DATA_LOCATION, VARINT) + b"\x01")
    elif raw is not None:
        pieces.append(data[raw.begin : raw.end])
    return pieces


def _read_field(data: memoryview, begin: int, end: int) -> Field:
    """The field that starts at byte `begin`; it must end before byte `end`."""
    key, position = _read_varint(data, begin, end)
    number, wire_type = key >> 3, key & 7
    content = position
    if number == 0:
        raise ModelError(f"not an ONNX file, or damaged: field number 0 at byte {begin}")
    if wire_type == VARINT:
        _, position = _read_varint(data, position, end)
    elif wire_type == FIXED64:
        position += 8
    elif wire_type == FIXED32:
        position += 4
    elif wire_type == BYTES:
        nbytes, content = _read_varint(data, position, end)
        position = content + nbytes
    else:
        raise ModelError(f"not an ONNX file, or damaged: wire type {wire_type} at byte {begin}; 0, 1, 2 and 5 exist")
    if position > end:
        raise ModelError(f"truncated: the field at byte {begin} ends at byte {position}, beyond byte {end} where its message ends")
    return Field(number, wire_type, begin, content, position)


def _read_varint(data: memoryview, position: int, end: int) -> tuple[int, int]:
    """The number at `position` (seven bits a byte, lowest first) and the position after it."""
    value = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
    raise ModelError(f"truncated or damaged: a number at byte {position} has no end")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _key(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _delimited(number: int, content: bytes) -> bytes:
    return _key(number, BYTES) + _varint(len(content)) + content


def _text_entry(key: str, value: str) -> bytes:
    """A StringStringEntryProto of `external_data`."""
    return _delimited(EXTERNAL_DATA, _delimited(1, key.encode()) + _delimited(2, value.encode()))

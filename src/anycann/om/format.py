"""The container: a header, a table of named sections, and the sections, each on a page of its own. `docs/om-format.md` says it in bytes."""

from __future__ import annotations

from hashlib import blake2b
import re
import struct

from anycann.om import checksum
from anycann.support.errors import ModelError, UnsupportedError
from anycann.support.records import dataclass

MAGIC = b"\x89AOM\r\n\x1a\n"  # as PNG does it: damaged by a text-mode transfer, and unlike any text
VERSION = 2
PAGE_BYTES = 4096
MAX_SECTIONS = 1024
MAX_FILE_BYTES = 1 << 46

HEADER = struct.Struct("<8sIIQQ16s16x")  # magic, version, sections, file bytes, table bytes, digest
ENTRY = struct.Struct("<40sIIQQ32s")  # name, checksum kind, zero, offset, bytes, digest

_NAME = re.compile(r"[a-z0-9/_.-]{1,40}")
_FOREIGN = {
    b"IMOD": "an offline model of Ascend's own atc, which holds Ascend machine code",
    b"PK\x03\x04": "a zip archive",
    b"\x7fELF": "an ELF binary",
    b"\x89PNG": "a PNG picture",
    b"\x89HDF": "an HDF5 file",
}


@dataclass(frozen=True)
class Section:
    """`nbytes` bytes at `offset` of the file (a multiple of 4096), with their checksum and its kind."""

    name: str
    offset: int
    nbytes: int
    kind: int
    digest: bytes


def page_aligned(offset: int) -> int:
    """The first page border at or after `offset`."""
    return -(-offset // PAGE_BYTES) * PAGE_BYTES


def first_section_offset(sections: int) -> int:
    """Where the first of that many sections begins."""
    return page_aligned(HEADER.size + sections * ENTRY.size)


def pack_front(sections: list[Section]) -> bytes:
    """Header, table and padding up to the first section, for sections that follow each other on page borders."""
    table = b"".join(ENTRY.pack(s.name.encode(), s.kind, 0, s.offset, s.nbytes, s.digest) for s in sections)
    file_bytes = page_aligned(sections[-1].offset + sections[-1].nbytes)
    header = HEADER.pack(MAGIC, VERSION, len(sections), file_bytes, len(table), bytes(16))
    header = HEADER.pack(MAGIC, VERSION, len(sections), file_bytes, len(table), _front_digest(header, table))
    return (header + table).ljust(first_section_offset(len(sections)), b"\0")


def _front_digest(header: bytes, table: bytes) -> bytes:
    """Of the header with zeros in place of the digest, and the table."""
    return blake2b(header[: HEADER.size - 32] + bytes(32) + table, digest_size=16).digest()


def read_sections(content: memoryview, source: str) -> dict[str, Section]:
    """The section table of a file's whole `content`, of any version that was ever written.

    Raises ModelError for a damaged file or something else, UnsupportedError for a version from the future.
    """
    _check_magic(content, source)
    (version,) = struct.unpack_from("<I", content, len(MAGIC))
    if version > VERSION:
        raise UnsupportedError(f"{source} has version {version} of the offline model format; this AnyCANN reads versions 1 to {VERSION}")
    if version not in _READERS:
        raise ModelError(f"{source} is damaged: its header gives version {version}; accepted: 1 to {VERSION}")
    return _READERS[version](content, source)


def _check_magic(content: memoryview, source: str) -> None:
    if not len(content):
        raise ModelError(f"{source} is empty; accepted: an offline model written by atc")
    start = bytes(content[: len(MAGIC)])
    if start != MAGIC and not (len(start) < len(MAGIC) and MAGIC.startswith(start)):
        looks = next((f", it looks like {text}" for first, text in _FOREIGN.items() if start.startswith(first)), "")
        raise ModelError(
            f"{source} is no offline model of AnyCANN{looks}: it begins with {start.hex(' ')}; accepted: {MAGIC.hex(' ')}, as atc writes it"
        )
    if len(content) < HEADER.size:
        raise ModelError(f"{source} is truncated: {len(content)} bytes are no whole header; accepted: at least {HEADER.size}")


def _read_sections(content: memoryview, source: str) -> dict[str, Section]:
    _, _, count, file_bytes, table_bytes, digest = HEADER.unpack_from(content)
    if not 0 < count <= MAX_SECTIONS or table_bytes != count * ENTRY.size:
        raise ModelError(f"{source} is damaged: its header gives {count} sections in {table_bytes} bytes; accepted: 1 to {MAX_SECTIONS}")
    front = HEADER.size + table_bytes
    if len(content) < max(front, file_bytes):
        raise ModelError(f"{source} is truncated: it has {len(content)} bytes where its header announces {max(front, file_bytes)}")
    if len(content) != file_bytes:
        raise ModelError(f"{source} is damaged: it has {len(content)} bytes where its header announces {file_bytes}")
    header, table = bytes(content[: HEADER.size]), bytes(content[HEADER.size : front])
    if _front_digest(header, table) != digest or any(header[-16:]):
        raise ModelError(f"{source} is damaged: the checksum of its header and section table does not match")
    sections = [_entry(fields, source) for fields in ENTRY.iter_unpack(table)]
    _check_places(content, sections, front, source)
    return {section.name: section for section in sections}


_READERS = {1: _read_sections, 2: _read_sections}  # the container is the same; graphs of version 2 may refer to packed weights


def _entry(fields: tuple[bytes, int, int, int, int, bytes], source: str) -> Section:
    raw, kind, zero, offset, nbytes, digest = fields
    name = raw.rstrip(b"\0").decode("ascii", "replace")
    if not _NAME.fullmatch(name) or zero:
        raise ModelError(f"{source} is damaged: {name!r} is no section name; accepted: up to 40 of a-z 0-9 / _ . -")
    if kind not in checksum.NAMES:
        raise ModelError(f"{source} is damaged: section {name} has checksum kind {kind}; accepted: {', '.join(map(str, checksum.NAMES))}")
    if max(offset, nbytes) > MAX_FILE_BYTES:
        raise ModelError(f"{source} is damaged: section {name} gives offset {offset} and {nbytes} bytes; accepted: up to {MAX_FILE_BYTES}")
    return Section(name, offset, nbytes, kind, digest)


def _check_places(content: memoryview, sections: list[Section], front: int, source: str) -> None:
    """Sections follow each other on page borders, with zeros between: none overlaps another, leaves the file, or hides anything."""
    seen: set[str] = set()
    end = front
    for section in sections:
        where = f"{source} is damaged: section {section.name}"
        if section.name in seen:
            raise ModelError(f"{where} is there twice; accepted: each name once")
        if section.offset + section.nbytes > len(content):
            raise ModelError(f"{where} ends at byte {section.offset + section.nbytes} of a file of {len(content)}")
        if section.offset < end:
            raise ModelError(f"{where} begins at byte {section.offset}, inside what ends at byte {end}")
        if section.offset != page_aligned(end):
            raise ModelError(f"{where} begins at byte {section.offset}; accepted: {page_aligned(end)}, the next page border")
        _check_zeros(content, end, section.offset, source)
        seen.add(section.name)
        end = section.offset + section.nbytes
    if len(content) != page_aligned(end):
        raise ModelError(f"{source} is damaged: it goes on after its last section, to byte {len(content)}; accepted: {page_aligned(end)}")
    _check_zeros(content, end, len(content), source)


def _check_zeros(content: memoryview, start: int, end: int, source: str) -> None:
    if any(content[start:end]):
        raise ModelError(f"{source} is damaged: the padding from byte {start} to {end} is not zero")

"""Offline model files taken apart and put together again, valid checksums included, as an attacker would do it."""

from collections.abc import Mapping
import io

from anycann.om import checksum, format
from anycann.om.model import OfflineModel
from anycann.om.writer import write_offline_model


def file_bytes(model: OfflineModel) -> bytes:
    """The file of `model`."""
    file = io.BytesIO()
    write_offline_model(file, model)
    return file.getvalue()


def contents(data: bytes) -> dict[str, bytes]:
    """The bytes of each section."""
    sections = format.read_sections(memoryview(data), "file")
    return {name: data[s.offset : s.offset + s.nbytes] for name, s in sections.items()}


def seal(parts: Mapping[str, bytes]) -> bytes:
    """A file of these sections, all checksums right."""
    offset, sections = format.first_section_offset(len(parts)), []
    for name, data in parts.items():
        kind = checksum.BLOCK_SUMS if name == "constants" else checksum.BLAKE2B
        sections.append(format.Section(name, offset, len(data), kind, checksum.digest_of(kind, data)))
        offset = format.page_aligned(offset + len(data))
    return seal_sections(sections, {s.offset: parts[s.name] for s in sections})


def seal_sections(sections: list[format.Section], placed: Mapping[int, bytes]) -> bytes:
    """A file with this table, whatever it says, and these bytes at these offsets."""
    front = format.pack_front(sections)
    size = max([len(front), *(format.page_aligned(offset + len(data)) for offset, data in placed.items())])
    file = bytearray(front.ljust(size, b"\0"))
    for offset, data in placed.items():
        file[offset : offset + len(data)] = data
    return bytes(file)

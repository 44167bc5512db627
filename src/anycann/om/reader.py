"""Reads an offline model file: weights are mapped, programs decoded when asked for, machine code handed out only if it may be trusted."""

from __future__ import annotations

import mmap
import os

import numpy as np

from anycann.om import checksum, format
from anycann.om.code import CodeSection, code_from_bytes
from anycann.om.constants import ALIGNMENT_BYTES, PIECE_BYTES, aligned_empty
from anycann.om.metadata import metadata_from_bytes
from anycann.om.model import Bytes, OfflineModel
from anycann.om.programs import programs_from_bytes
from anycann.om.signature import compiler_version
from anycann.support.errors import ModelError
from anycann.support.files import file_error
from anycann.support.logging import get_logger
from anycann.support.mapped import forget_pages, want_huge_pages

_FIXED = ("metadata", "graph", "programs", "constants")
_CODE = "code/"


def read_offline_model(source: str | os.PathLike[str] | bytes | bytearray | memoryview) -> OfflineModel:
    """The model in a file or in memory. Everything is checked against its checksum; programs are checked further at their first use.

    `constants` of a file are a read-only mapping that lives as long as anything refers to it; don't truncate or overwrite the file in place
    meanwhile (replacing it, as AnyCANN does, is fine). Constants in memory are used where they are if they lie on a 64-byte border, else
    copied. Raises ModelError (damaged or no offline model), UnsupportedError (made by a later version), UsageError or DeviceError (no
    such file, no permission).
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _read(memoryview(source).cast("B").toreadonly(), "the offline model in memory")
    name = os.fspath(source)
    return _read(_mapped(name), name)


def is_offline_model(start: bytes) -> bool:
    """True if a file that starts with these bytes (8 are enough) is an offline model of AnyCANN, of whatever version."""
    return start.startswith(format.MAGIC)


def _mapped(path: str) -> memoryview:
    """The content of a file, mapped and read-only; the mapping lives as long as the view."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                return memoryview(b"")
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            want_huge_pages(mapping)
            return memoryview(mapping)
    except OSError as error:
        raise file_error(path, "read", error) from error
    except ValueError as error:  # a device or a pipe
        raise ModelError(f"{path} can't be mapped into memory ({error}); accepted: a regular file") from error


def _read(content: memoryview, source: str) -> OfflineModel:
    sections = format.read_sections(content, source)
    for name in _FIXED:
        if name not in sections:
            raise ModelError(f"{source} has no section {name}; accepted: {', '.join(_FIXED)} and code sections")
    metadata, graph, programs = (_section_bytes(content, sections[name], source) for name in _FIXED[:3])
    constants = _constants(content, sections["constants"], source)
    codes = [_code(content, section, source) for name, section in sections.items() if name.startswith(_CODE)]
    trusted = {code.target_key: code.objects for code in codes if code.is_trusted(programs)}
    for code in codes:
        if code.target_key not in trusted:
            get_logger("om").info("machine code of %s for %s is not used: %s", source, code.target_key, _reason(code))
    symbols = frozenset.intersection(*(frozenset(code.objects) for code in codes)) if codes else None
    decoded, regions = programs_from_bytes(programs, constants.nbytes, symbols, f"{source}, section programs", bool(trusted))
    return OfflineModel(metadata_from_bytes(metadata, f"{source}, section metadata"), graph, constants, decoded, regions, trusted)


def _section_bytes(content: memoryview, section: format.Section, source: str) -> bytes:
    """A copy of a section, checked: what is used is what was checked, even if the file changes meanwhile."""
    data = bytes(content[section.offset : section.offset + section.nbytes])
    _check_digest(checksum.digest_of(section.kind, data), section, source)
    return data


def _check_constants(constants: Bytes, section: format.Section, source: str) -> None:
    """Read all of it, and let each piece go from memory once it is read: a program touches only the weights it was packed with."""
    total = checksum.checksum(section.kind)
    for start in range(0, constants.nbytes, PIECE_BYTES):
        piece = constants[start : start + PIECE_BYTES]
        total.update(piece.data)
        forget_pages(piece)
    _check_digest(total.digest(), section, source)


def _check_digest(digest: bytes, section: format.Section, source: str) -> None:
    if digest != section.digest:
        raise ModelError(f"{source} is damaged: the {checksum.NAMES[section.kind]} checksum of section {section.name} does not match")


def _constants(content: memoryview, section: format.Section, source: str) -> Bytes:
    constants: Bytes = np.frombuffer(content[section.offset : section.offset + section.nbytes], np.uint8)
    _check_constants(constants, section, source)
    if constants.ctypes.data % ALIGNMENT_BYTES and constants.size:
        copy = aligned_empty(constants.size)
        copy[:] = constants
        copy.flags.writeable = False
        return copy
    return constants


def _code(content: memoryview, section: format.Section, source: str) -> CodeSection:
    return code_from_bytes(_section_bytes(content, section, source), section.name, f"{source}, section {section.name}")


def _reason(code: CodeSection) -> str:
    if code.compiler != compiler_version():
        return f"it was compiled by {code.compiler}, here is {compiler_version()}"
    return "it is not signed by this installation, nor by a key of ANYCANN_TRUSTED_KEYS"

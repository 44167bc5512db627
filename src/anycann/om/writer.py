"""Writes an offline model file, whole or not at all; weights stream through without a second copy of them in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
import os
from typing import BinaryIO

from anycann.om import checksum, format
from anycann.om.code import code_to_bytes, section_name
from anycann.om.constants import PIECE_BYTES
from anycann.om.metadata import check_metadata, metadata_to_bytes
from anycann.om.model import Bytes, ConstantStore, OfflineModel
from anycann.om.programs import Lazy, programs_to_bytes
from anycann.om.validate import Surroundings, check_program, check_region_program
from anycann.support.errors import InternalError, ModelError
from anycann.support.files import atomic_write
from anycann.support.mapped import HUGE_PAGE_BYTES


def write_offline_model(destination: str | os.PathLike[str] | BinaryIO, model: OfflineModel) -> None:
    """Write `model` as the file `destination`, or into an open binary file that can seek, from where it stands.

    The same model gives the same bytes on the same installation (another one signs with another key). A path is replaced atomically.
    Raises DeviceError (full disk, no permission), UsageError (no such folder), InternalError (a model that no reader would accept).
    """
    check_model(model)
    if isinstance(destination, (str, os.PathLike)):
        with atomic_write(destination) as file:
            _write(file, model)
    else:
        _write(destination, model)


def check_model(model: OfflineModel) -> None:
    """A program that the reader would refuse is a fault of the compiler, and is found here, not by the user of the file."""
    stored = (model.programs, model.regions)
    if model.code and any(isinstance(mapping, Lazy) and not mapping.trusted for mapping in stored):
        raise InternalError("programs of a file that is not trusted can't be signed anew; compile the model's graph again")
    constant_bytes = model.constants.nbytes
    symbols = frozenset.intersection(*map(frozenset, model.code.values())) if model.code else None
    surroundings = Surroundings(constant_bytes, model.regions.keys(), symbols)
    try:
        check_metadata(model.metadata, "metadata")
        for key, program in model.programs.items():
            check_program(program, surroundings, f"program {key!r}")
        for name, region in model.regions.items():
            for key, program in region.programs.items():
                check_region_program(key, program, surroundings, f"program {key!r} of region {name!r}")
    except ModelError as error:
        raise InternalError(f"the compiled model is inconsistent: {error}") from error


def _write(file: BinaryIO, model: OfflineModel) -> None:
    start, rest = file.tell(), sections_of(model)
    write_rest(file, start, write_constants(file, _constant_pieces(model.constants), len(model.code)), rest)


def write_constants(file: BinaryIO, pieces: Iterable[memoryview], codes: int) -> format.Section:
    """The front of a file with `codes` sections of code, still empty, and the constants. They are first: a file grows while a model is
    compiled (`ahead.py`), and they are known before the rest of it."""
    offset = constants_offset(codes)
    file.write(bytes(offset))
    return _write_section(file, "constants", offset, checksum.BLOCK_SUMS, pieces)


def write_rest(file: BinaryIO, start: int, constants: format.Section, rest: Mapping[str, bytes]) -> None:
    """All but the constants of a file that begins at `start` and ends, so far, where the constants do; `rest` is that of `sections_of`."""
    sections = [constants]
    for name, content in rest.items():
        offset = format.page_aligned(sections[-1].offset + sections[-1].nbytes)
        sections.append(_write_section(file, name, offset, checksum.BLAKE2B, [memoryview(content)]))
    end = file.tell()
    file.seek(start)
    file.write(format.pack_front(sections))
    file.seek(end)


def constants_offset(codes: int) -> int:
    """Where constants begin in a file with that many sections of code."""
    return format.first_section_offset(len(("constants", "metadata", "graph", "programs")) + codes)


def sections_of(model: OfflineModel) -> dict[str, bytes]:
    """Name and content of each section behind the constants, in the order of the file."""
    programs = programs_to_bytes(model.programs, model.regions)
    codes = {section_name(key): code_to_bytes(key, objects, programs) for key, objects in sorted(model.code.items())}
    return {"metadata": metadata_to_bytes(model.metadata), "graph": model.graph, "programs": programs, **codes}


def _constant_pieces(constants: Bytes | ConstantStore) -> Iterator[memoryview]:
    if not hasattr(constants, "pieces"):
        view = memoryview(constants).cast("B")  # type: ignore[arg-type]
        return (view[start : start + PIECE_BYTES] for start in range(0, len(view), PIECE_BYTES))
    return constants.pieces()


def _write_section(file: BinaryIO, name: str, offset: int, kind: int, pieces: Iterable[memoryview]) -> format.Section:
    """Write the content and zeros up to a page border."""
    nbytes, digest = 0, checksum.checksum(kind)
    for block in _blocks(pieces, file.tell()):
        file.write(block)
        digest.update(block)
        nbytes += len(block)
    file.write(bytes(format.page_aligned(nbytes) - nbytes))
    return format.Section(name, offset, nbytes, kind, digest.digest())


def _blocks(pieces: Iterable[memoryview], position: int) -> Iterator[memoryview]:
    """The same bytes, to be written from `position` on, in blocks that end where huge pages of the file end; each holds until the next.

    What is written at once the system keeps together: a process that maps the file soon after has it in huge pages. Only blocks that
    several pieces share are copied.
    """
    block = memoryview(bytearray(HUGE_PAGE_BYTES))
    filled, room = 0, HUGE_PAGE_BYTES - position % HUGE_PAGE_BYTES
    for piece in pieces:
        start = 0
        while start < len(piece):
            part = piece[start : start + room - filled]
            start += len(part)
            if len(part) == room:
                yield part
                room = HUGE_PAGE_BYTES
                continue
            block[filled : filled + len(part)] = part
            filled += len(part)
            if filled == room:
                yield block[:filled]
                filled, room = 0, HUGE_PAGE_BYTES
    yield block[:filled]

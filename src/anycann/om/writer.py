"""Writes an offline model file, whole or not at all; weights stream through without a second copy of them in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    _check(model)
    if isinstance(destination, (str, os.PathLike)):
        with atomic_write(destination) as file:
            _write(file, model)
    else:
        _write(destination, model)


def _check(model: OfflineModel) -> None:
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
    contents = list(_contents(model))
    start = file.tell()
    file.write(bytes(format.first_section_offset(len(contents))))
    offset = format.first_section_offset(len(contents))
    sections = []
    for name, kind, pieces in contents:
        nbytes, digest = _write_section(file, kind, pieces)
        sections.append(format.Section(name, offset, nbytes, kind, digest))
        offset = format.page_aligned(offset + nbytes)
    end = file.tell()
    file.seek(start)
    file.write(format.pack_front(sections))
    file.seek(end)


def _contents(model: OfflineModel) -> Iterator[tuple[str, int, Iterable[memoryview]]]:
    """Name, kind of checksum and content of each section, in the order of the file. The constants are last: they are the large ones."""
    programs = programs_to_bytes(model.programs, model.regions)
    yield "metadata", checksum.BLAKE2B, [memoryview(metadata_to_bytes(model.metadata))]
    yield "graph", checksum.BLAKE2B, [memoryview(model.graph)]
    yield "programs", checksum.BLAKE2B, [memoryview(programs)]
    for target_key, objects in sorted(model.code.items()):
        yield section_name(target_key), checksum.BLAKE2B, [memoryview(code_to_bytes(target_key, objects, programs))]
    yield "constants", checksum.BLOCK_SUMS, _constant_pieces(model.constants)


def _constant_pieces(constants: Bytes | ConstantStore) -> Iterator[memoryview]:
    if not hasattr(constants, "pieces"):
        view = memoryview(constants).cast("B")  # type: ignore[arg-type]
        return (view[start : start + PIECE_BYTES] for start in range(0, len(view), PIECE_BYTES))
    return constants.pieces()


def _write_section(file: BinaryIO, kind: int, pieces: Iterable[memoryview]) -> tuple[int, bytes]:
    """Write the content and zeros up to a page border; the content's length and checksum."""
    nbytes, digest = 0, checksum.checksum(kind)
    for block in _blocks(pieces, file.tell()):
        file.write(block)
        digest.update(block)
        nbytes += len(block)
    file.write(bytes(format.page_aligned(nbytes) - nbytes))
    return nbytes, digest.digest()


def _blocks(pieces: Iterable[memoryview], position: int) -> Iterator[memoryview]:
    """The same bytes, to be written from `position` on, in blocks that end where huge pages of the file end; each holds until the next.

    What is written at once the system keeps together: a process that maps the file soon after has it in huge pages.
    """
    block = memoryview(bytearray(HUGE_PAGE_BYTES))
    filled, room = 0, HUGE_PAGE_BYTES - position % HUGE_PAGE_BYTES
    for piece in pieces:
        start = 0
        while start < len(piece):
            part = piece[start : start + room - filled]
            block[filled : filled + len(part)] = part
            filled, start = filled + len(part), start + len(part)
            if filled == room:
                yield block[:filled]
                filled, room = 0, HUGE_PAGE_BYTES
    yield block[:filled]

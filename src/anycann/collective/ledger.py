"""What each rank of a group does in it: a page of memory of every rank that the others on its machine read.

A rank writes down each collective as it begins it. Whoever comes later sees what the others began as the same one in order: calls that do
not match are found before their data travel, and a wait that fails can say where the others are. Ranks elsewhere are not seen.
"""

from __future__ import annotations

from collections.abc import Callable
import mmap
import os
from pathlib import Path
import struct
from typing import NamedTuple
import weakref
import zlib

_ENTRY = struct.Struct("<QIH114s")  # number of the collective, checksum of number and words, bytes of the words, the words
_ENTRIES = 32  # the latest ones; a page
_BYTES = _ENTRY.size * _ENTRIES
_WORDS_BYTES = 114


class MismatchError(Exception):
    """Two ranks began different collectives where all must begin the same."""


class _Other(NamedTuple):
    rank: int
    process: int
    page: mmap.mmap


class Begun(NamedTuple):
    """A collective that this rank began: which one of its group, counted from 1, and what must be the same on all ranks."""

    number: int
    words: str


class Ledger:
    """The pages of one group. `exchange` takes this rank's words and returns those of all ranks by rank; it may wait for them."""

    def __init__(self, rank: int, exchange: Callable[[str], list[str]]):
        self._rank, self._count = rank, 0
        file = _file()
        self._page = mmap.mmap(-1 if file is None else file, _BYTES)
        if file is not None:
            weakref.finalize(self, os.close, file)
        said = exchange(f"{_machine()} {os.getpid()} {file}")
        self._others = [other for at, words in enumerate(said) if at != rank and (other := _opened(at, words))]

    def begin(self, words: str) -> Begun:
        """This rank begins its next collective; `words` must be the same on all ranks. Raises MismatchError if they are not."""
        self._count += 1
        at, said = _place(self._count), _said(words)
        self._page[at : at + _ENTRY.size] = _ENTRY.pack(self._count, _checksum(self._count, said), len(said), said)
        for other in self._others:
            number, theirs = _entry(other.page, at)
            if number == self._count and theirs != said:
                raise MismatchError(
                    f"the ranks do not agree on collective {number} of this group: {words} on rank {self._rank}, "
                    f"{_read(theirs)} on rank {other.rank}"
                )
        return Begun(self._count, words)

    def others(self, begun: Begun) -> str:
        """Where each rank of this machine is that has not come to a collective which this rank began, or has ended; "" if there is none."""
        return "; ".join(words for other in self._others if (words := _where(other, begun)))


def _file() -> int | None:
    """A file without a name, so that nothing is left behind however a rank ends; None where the system has none."""
    if not hasattr(os, "memfd_create"):
        return None
    file = os.memfd_create("anycann-ledger")
    os.ftruncate(file, _BYTES)
    return file


def _where(other: _Other, begun: Begun) -> str:
    number, theirs = _entry(other.page, _place(begun.number))
    ended = ", and has ended" if _has_ended(other.process) else ""
    if number == begun.number and theirs != _said(begun.words):
        return f"rank {other.rank} began {_read(theirs)} in its place{ended}"
    latest, said = max(_entry(other.page, at) for at in range(0, _BYTES, _ENTRY.size))
    if latest >= begun.number:
        return f"rank {other.rank} has ended" if ended else ""
    last = f"its last was number {latest}, {_read(said)}" if latest else "it began none"
    return f"rank {other.rank} has not begun number {begun.number} of this group, {begun.words}: {last}{ended and ', and it has ended'}"


def _place(number: int) -> int:
    return number % _ENTRIES * _ENTRY.size


def _said(words: str) -> bytes:
    return words.encode()[:_WORDS_BYTES]


def _read(said: bytes) -> str:
    return said.decode(errors="ignore")


def _entry(page: mmap.mmap, at: int) -> tuple[int, bytes]:
    """Number and words of an entry; (0, b"") for none, and for one that is just being written."""
    number, checksum, length, said = _ENTRY.unpack_from(page, at)
    said = said[:length]
    return (number, said) if number and checksum == _checksum(number, said) else (0, b"")


def _checksum(number: int, said: bytes) -> int:
    return zlib.crc32(said, number & 0xFFFFFFFF)


def _opened(rank: int, words: str) -> _Other | None:
    """The page of a rank that said these words; None where it cannot be seen from here."""
    machine, process, file = words.split()
    if machine != _machine() or file == "None":
        return None
    try:
        descriptor = os.open(f"/proc/{process}/fd/{file}", os.O_RDONLY)
    except OSError:
        return None
    try:
        return _Other(rank, int(process), mmap.mmap(descriptor, _BYTES, prot=mmap.PROT_READ))
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)


def _machine() -> str:
    """What two processes share that can see each other: a running system, and in it the same numbers of processes."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"none/{os.getpid()}"


def _has_ended(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"

"""A processor in software that runs functions of this process, in this process's memory.

Guest addresses are the addresses of this process: page tables map each GiB in use to one of the guest's physical memory, and the emulator
asks for a page of it when it is first touched. What the emulator does not know (matrix tiles) is an "invalid opcode" there, and
`matrix_tiles.py` computes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import ctypes
import mmap
import struct
import threading
from typing import Any

from tests.emulation.bochs import load_bochs
from tests.emulation.matrix_tiles import MatrixTiles

_PAGE, _GIB = 1 << 12, 1 << 30
_TABLES_AT, _FIRST_SLOT = 5 * _GIB, 8  # physical; what is below 4 GiB has holes for devices
_GROWS = 64  # GiB below the C library, where the system puts what is mapped later, and above the heap
_PRESENT, _LARGE = 0x7, 0x87
_STACK_BYTES = 1 << 20
_ARGUMENTS = ("rdi", "rsi", "rdx", "rcx")  # System V ABI, AMD64 supplement, section 3.2.3
_INVALID_OPCODE = 6
_CALL_RAX_AND_HALT = b"\xff\xd0\xf4"


class EmulationError(Exception):
    """What the processor refused to do."""


class EmulatedProcessor:
    """Calls functions of this process in the emulator, one at a time, whichever thread asks. There can be one in a process."""

    def __init__(self) -> None:
        self._bochs = load_bochs()
        self._tables = _PageTables(self._bochs.memory)
        self._tiles = MatrixTiles()
        self._stack, self._stack_address = _memory(_STACK_BYTES)
        self._start, self._start_address = _memory(_PAGE)
        self._start[: len(_CALL_RAX_AND_HALT)] = _CALL_RAX_AND_HALT
        self._exceptions: list[int] = []
        self._lock = threading.Lock()
        self._session, self._hook = self._bochs.Session(), self._bochs.Hook()
        self._session.missing_page_handler = self._tables.touch
        self._hook.hlt = lambda session, _: session.stop()
        self._hook.exception = self._stop_at
        self._tables.map_process()

    def call(self, address: int, arguments: Sequence[int]) -> None:
        """Run the function at `address` with up to four whole numbers. Raises EmulationError for what the processor refuses."""
        with self._lock:
            self._session.cpu.state = self._state(address, arguments)
            while True:
                self._exceptions.clear()
                self._session.run([self._hook])
                if not self._exceptions:
                    return
                vector, state = self._exceptions[0], self._session.cpu.state
                if vector != _INVALID_OPCODE or not self._tiles.run(state):  # which leaves it behind the instruction
                    code = ctypes.string_at(state.rip - 12, 12).hex()
                    raise EmulationError(f"exception {vector} at the end of {code}, CR2 {state.cr2:#x}")

    def _stop_at(self, session: Any, _: int, vector: int, __: int) -> None:
        self._exceptions.append(vector)
        session.stop()

    def _state(self, address: int, arguments: Sequence[int]) -> Any:
        state = self._bochs.State()
        self._bochs.cpu.set_long_mode(state)
        state.cr3 = self._tables.root
        state.cr4 |= 1 << 9 | 1 << 10 | 1 << 18  # SSE, its exceptions, XSAVE
        state.xcr0 = 0xE7  # x87, SSE, AVX, AVX-512
        state.mxcsr, state.mxcsr_mask, state.rflags = 0x1F80, 0xFFFF, 0x2
        state.cs = self._segment(0x08, 0xA09B)  # code of 64 bits
        state.ds = state.es = state.ss = state.fs = state.gs = self._segment(0x10, 0xC093)
        for register, argument in zip(_ARGUMENTS, arguments, strict=False):
            setattr(state, register, argument % 2**64)
        state.rsp = self._stack_address + _STACK_BYTES - _PAGE
        state.rax, state.rip = address, self._start_address
        return state

    def _segment(self, selector: int, attributes: int) -> Any:
        segment = self._bochs.Segment()
        segment.present, segment.selector, segment.base, segment.limit, segment.attr = True, selector, 0, 0xFFFFFFFF, attributes
        return segment


class _PageTables:
    """The guest's page tables, in large pages of one GiB."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory
        self._buffer, self._address = _memory(256 * _PAGE)
        self._count = 0
        self._top = self._new()
        self._middle: dict[int, int] = {}
        self._slots: list[int] = []  # the GiB of this process at each GiB of the guest's physical memory

    @property
    def root(self) -> int:
        """What CR3 holds."""
        return self._physical(self._top)

    def map_process(self) -> None:
        """Map every GiB in which this process has memory, and those where the system will put more."""
        for gib in sorted(set(_gibs_in_use())):
            if gib // 512 not in self._middle:
                self._middle[gib // 512] = table = self._new()
                self._set(self._top, gib // 512, self._physical(table) | _PRESENT)
            self._set(self._middle[gib // 512], gib % 512, (_FIRST_SLOT + len(self._slots)) * _GIB | _LARGE)
            self._slots.append(gib)

    def touch(self, physical: int) -> None:
        """Let the guest have the page at `physical`."""
        gib = self._slots[physical // _GIB - _FIRST_SLOT]
        self._memory.page_insert(physical & -_PAGE, gib * _GIB + (physical % _GIB & -_PAGE))

    def _new(self) -> int:
        self._count += 1
        self._memory.page_insert(self._physical(self._count), self._address + self._count * _PAGE)
        return self._count

    def _physical(self, table: int) -> int:
        return _TABLES_AT + table * _PAGE

    def _set(self, table: int, index: int, entry: int) -> None:
        struct.pack_into("<Q", self._buffer, table * _PAGE + index * 8, entry)


def _gibs_in_use() -> Iterator[int]:
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, permissions = line.split()[:2]
            begin, end = (int(address, 16) for address in span.split("-"))
            if permissions.startswith("r") and end < 1 << 47:
                yield from range(begin // _GIB, (end - 1) // _GIB + 1)
            if "libc.so" in line:
                yield from range(begin // _GIB - _GROWS, begin // _GIB)
            if "[heap]" in line:
                yield from range(end // _GIB, end // _GIB + _GROWS)


def _memory(nbytes: int) -> tuple[mmap.mmap, int]:
    buffer = mmap.mmap(-1, nbytes)
    return buffer, ctypes.addressof(ctypes.c_char.from_buffer(buffer))

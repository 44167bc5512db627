"""A processor in software that runs functions of this process, in this process's memory.

Guest addresses are the addresses of this process: page tables map each GiB that is touched to one of the guest's physical memory, where the
emulator asks for the pages. Whatever is not mapped yet is a page fault, which ends in a handler that only returns: the instruction is tried
again. What the emulator does not know (matrix tiles) is an "invalid opcode", and `matrix_tiles.py` computes it.
"""

from __future__ import annotations

from collections.abc import Sequence
import ctypes
import mmap
import struct
import threading
from typing import Any

from tests.emulation.bochs import load_bochs
from tests.emulation.matrix_tiles import MatrixTiles

_PAGE, _GIB = 1 << 12, 1 << 30
_TABLES_AT, _FIRST_SLOT = 5 * _GIB, 8  # physical; what is below 4 GiB has holes for devices
_PRESENT, _LARGE = 0x7, 0x87
_STACK_BYTES = 1 << 20
_ARGUMENTS = ("rdi", "rsi", "rdx", "rcx")  # System V ABI, AMD64 supplement, section 3.2.3
_INVALID_OPCODE, _PAGE_FAULT = 6, 14
_CODE_BYTES = 12  # that are shown of what was refused; no instruction on tiles is longer
_CALL_RAX_AND_HALT, _RETURN = b"\xff\xd0\xf4", b"\x48\x83\xc4\x08\x48\xcf"  # the second one drops the error code: add rsp, 8; iretq
_CODE, _DATA, _TASK = 0x08, 0x10, 0x18  # selectors


class EmulationError(Exception):
    """What the processor refused to do."""


class EmulatedProcessor:
    """Calls functions of this process in the emulator, one at a time, whichever thread asks. There can be one in a process."""

    def __init__(self) -> None:
        self._bochs = load_bochs()
        self._tables = _PageTables(self._bochs.memory)
        self._tiles = MatrixTiles()
        self._stack, self._stack_address = _memory(_STACK_BYTES)
        self._frame = _Frame()
        self._exceptions: list[int] = []
        self._lock = threading.Lock()
        self._session, self._hook = self._bochs.Session(), self._bochs.Hook()
        self._session.missing_page_handler = self._tables.touch
        self._hook.hlt = lambda session, _: session.stop()
        self._hook.exception = self._on_exception

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
                code = _code_before(state.rip)  # it is behind the instruction
                if vector != _INVALID_OPCODE or not self._tiles.run(state, code):
                    raise EmulationError(f"exception {vector} at the end of {code.hex()}, CR2 {state.cr2:#x}")

    def _on_exception(self, session: Any, _: int, vector: int, __: int) -> None:
        if vector != _PAGE_FAULT or not self._tables.map(session.cpu.state.cr2):
            self._exceptions.append(vector)
            session.stop()

    def _state(self, address: int, arguments: Sequence[int]) -> Any:
        state = self._bochs.State()
        self._bochs.cpu.set_long_mode(state)
        state.cr3 = self._tables.root
        state.cr4 |= 1 << 9 | 1 << 10 | 1 << 18  # SSE, its exceptions, XSAVE
        state.xcr0 = 0xE7  # x87, SSE, AVX, AVX-512
        state.mxcsr, state.mxcsr_mask, state.rflags = 0x1F80, 0xFFFF, 0x2
        state.cs = self._segment(_CODE, 0xA09B)  # code of 64 bits
        state.ds = state.es = state.ss = state.fs = state.gs = self._segment(_DATA, 0xC093)
        state.tr = self._segment(_TASK, 0x8B, self._frame.task, 103)
        state.gdtr, state.idtr = (self._table(*table) for table in (self._frame.segments, self._frame.interrupts))
        for register, argument in zip(_ARGUMENTS, arguments, strict=False):
            setattr(state, register, argument % 2**64)
        state.rsp = self._stack_address + _STACK_BYTES - _PAGE
        state.rax, state.rip = address, self._frame.start
        return state

    def _segment(self, selector: int, attributes: int, base: int = 0, limit: int = 0xFFFFFFFF) -> Any:
        segment = self._bochs.Segment()
        segment.present, segment.selector, segment.base, segment.limit, segment.attr = True, selector, base, limit, attributes
        return segment

    def _table(self, base: int, limit: int) -> Any:
        table = self._bochs.GlobalSegment()
        table.base, table.limit = base, limit
        return table


class _Frame:
    """What a kernel is called from, and the tables by which a page fault is handled, on a stack of its own (volume 3, chapter 6)."""

    def __init__(self) -> None:
        self._buffer, self.start = _memory(2 * _PAGE)
        self._put(0, _CALL_RAX_AND_HALT)
        handler = self._put(16, _RETURN)
        self.segments = self._put(64, struct.pack("<3Q", 0, 0x00AF9B000000FFFF, 0x00CF93000000FFFF)), 3 * 8 - 1
        self.task = self._put(128, struct.pack("<36xQ60x", self.start + 2 * _PAGE - 64))  # the first stack for interrupts
        low, middle, high = handler & 0xFFFF, handler >> 16 & 0xFFFF, handler >> 32
        gate = struct.pack("<HHBBHII", low, _CODE, 1, 0x8E, middle, high, 0)
        self.interrupts = self._put(256, bytes(_PAGE_FAULT * 16) + gate), (_PAGE_FAULT + 1) * 16 - 1

    def _put(self, at: int, content: bytes) -> int:
        self._buffer[at : at + len(content)] = content
        return self.start + at


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

    def map(self, address: int) -> bool:
        """Map the GiB around `address`; False if this process has no memory there, or it is mapped."""
        gib = address // _GIB
        if gib in self._slots or not _is_readable(address):
            return False
        if gib // 512 not in self._middle:
            self._middle[gib // 512] = table = self._new()
            self._set(self._top, gib // 512, self._physical(table) | _PRESENT)
        self._set(self._middle[gib // 512], gib % 512, (_FIRST_SLOT + len(self._slots)) * _GIB | _LARGE)
        self._slots.append(gib)
        return True

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


def _code_before(end: int) -> bytes:
    """The last bytes before `end`, fewer than usual where memory begins among them."""
    within = (end - 1) % _PAGE + 1
    count = _CODE_BYTES if within >= _CODE_BYTES or _is_readable(end - _CODE_BYTES) else within
    return ctypes.string_at(end - count, count)


def _is_readable(address: int) -> bool:
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, permissions = line.split()[:2]
            begin, end = (int(border, 16) for border in span.split("-"))
            if begin <= address < end:
                return permissions.startswith("r")
    return False


def _memory(nbytes: int) -> tuple[mmap.mmap, int]:
    buffer = mmap.mmap(-1, nbytes)
    return buffer, ctypes.addressof(ctypes.c_char.from_buffer(buffer))

"""Object code into memory without LLVM: the sections of relocatable ELF objects side by side, their relocations applied.

Only what the large code model needs on x86-64 is known (System V ABI, AMD64 supplement, section 4.4): absolute 64-bit addresses and
distances within the mapping. A process that only runs models then never loads LLVM, which takes 40 MB of memory and 0.1 s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
import ctypes
import mmap
import struct

from anycann.support.errors import DeviceError, InternalError
from anycann.support.records import dataclass

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_PROGBITS, _SYMTAB, _RELA, _NOBITS, _UNWIND, _ALLOC = 1, 2, 4, 8, 0x70000001, 2
_ABSOLUTE_64, _RELATIVE_32, _CALL_32, _RELATIVE_64 = 1, 2, 4, 24
KNOWN_RELOCATIONS = frozenset({_ABSOLUTE_64, _RELATIVE_32, _CALL_32, _RELATIVE_64})
_EXECUTABLE = 0x1 | 0x4  # PROT_READ | PROT_EXEC
_FRAMES, _CATCHES = b".eh_frame", b".gcc_except_table"
_FRAMES_END = 4  # bytes of zeros behind the last frame


@dataclass(frozen=True)
class _Section:
    name: bytes
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int


class _Object:
    """One parsed ELF64 object. Raises InternalError for a damaged one."""

    def __init__(self, data: bytes):
        self.data = data
        try:
            self._parse(data)
            self.symbols = self._symbols()
            self.relocations = self._relocations()
        except (struct.error, ValueError, IndexError) as error:
            raise InternalError(f"object code is damaged: {error}") from error

    def _parse(self, data: bytes) -> None:
        fields = _HEADER.unpack_from(data)
        at, size, count, names = fields[6], fields[11], fields[12], fields[13]
        if data[:6] != b"\x7fELF\x02\x01" or size != _SECTION.size or at + count * size > len(data) or names >= count:
            raise InternalError("object code is not a 64-bit little-endian ELF file")
        rows = [_SECTION.unpack_from(data, at + i * size) for i in range(count)]
        strings = rows[names]
        self.sections = [_Section(_text(data, strings[4] + r[0]), r[1], r[2], r[4], r[5], r[6], r[7], max(1, r[8])) for r in rows]
        self.catches = any(section.name == _CATCHES for section in self.sections)
        for section in self.sections:
            if section.kind != _NOBITS and section.offset + section.size > len(data):
                raise InternalError("a section of the object code ends beyond the file")

    def loads(self, section: _Section) -> bool:
        """Whether `section` must be in memory: how frames lie is only read where exceptions pass, in objects that catch some."""
        needed = self.catches if section.name == _FRAMES else not section.name.startswith(b".note")
        return needed and bool(section.flags & _ALLOC) and section.kind in (_PROGBITS, _NOBITS, _UNWIND)

    def _symbols(self) -> list[tuple[bytes, int, int]]:
        """(name, section number, value) of every symbol, in the order relocations number them."""
        table = next((s for s in self.sections if s.kind == _SYMTAB), None)
        if table is None:
            return []
        strings = self.sections[table.link].offset
        found = []
        for at in range(table.offset, table.offset + table.size, _SYMBOL.size):
            name, _, _, section, value, _ = _SYMBOL.unpack_from(self.data, at)
            found.append((_text(self.data, strings + name), section, value))
        return found

    def _relocations(self) -> list[tuple[int, int, int, int, int]]:
        """(section number, offset, type, symbol number, addend) of every relocation of a loaded section."""
        found = []
        for table in self.sections:
            if table.kind != _RELA or not self.loads(self.sections[table.info]):
                continue
            for at in range(table.offset, table.offset + table.size, _RELOCATION.size):
                offset, info, addend = _RELOCATION.unpack_from(self.data, at)
                found.append((table.info, offset, info & 0xFFFFFFFF, info >> 32, addend))
        return found


def _text(data: bytes, at: int) -> bytes:
    return data[at : data.index(b"\0", at)]


class ElfImage:
    """Objects (symbol -> ELF) in one executable mapping; `addresses` has every function they define, `frames` what the C++ runtime must
    be told of so that exceptions may pass through those that catch some.

    external(name): the address of a library function. Raises InternalError for objects of another form (check `is_supported` first) and
    DeviceError where the system does not let a process make code executable.
    """

    def __init__(self, objects: Mapping[str, bytes], external: Callable[[str], int]):
        parsed = [_Object(data) for data in objects.values()]
        places, size = _places(parsed)
        self._memory = mmap.mmap(-1, max(size, mmap.PAGESIZE))
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.addresses: dict[str, int] = {}
        self.frames: list[int] = []
        for number, each in enumerate(parsed):
            for index, section in enumerate(each.sections):
                if (number, index) in places and section.kind != _NOBITS:
                    start = places[number, index]
                    self._memory[start : start + section.size] = each.data[section.offset : section.offset + section.size]
                    self.frames += [self._base + start] if section.name == _FRAMES else []
            self._relocate(number, each, places, external)
        self._protect(len(self._memory))

    def _relocate(self, number: int, each: _Object, places: Mapping[tuple[int, int], int], external: Callable[[str], int]) -> None:
        values: list[int | None] = []
        symbols = each.symbols
        for name, section, value in symbols:
            place = places.get((number, section))
            values.append(None if place is None else self._base + place + value)
            if place is not None and name and not name.startswith(b"."):
                self.addresses[name.decode()] = self._base + place + value
        for section, offset, kind, symbol, addend in each.relocations:
            target = values[symbol]
            if target is None:
                target = external(symbols[symbol][0].decode())
            self._apply(places[number, section] + offset, kind, target + addend)

    def _apply(self, at: int, kind: int, value: int) -> None:
        if kind == _ABSOLUTE_64:
            struct.pack_into("<Q", self._memory, at, value & 0xFFFFFFFFFFFFFFFF)
        elif kind == _RELATIVE_64:
            struct.pack_into("<q", self._memory, at, value - self._base - at)
        elif kind in (_RELATIVE_32, _CALL_32) and abs(value - self._base - at) < 1 << 31:
            struct.pack_into("<i", self._memory, at, value - self._base - at)
        else:
            raise InternalError(f"relocation {kind} of the object code is not known or does not reach")

    def _protect(self, size: int) -> None:
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        if protect(self._base, size, _EXECUTABLE):
            raise DeviceError(f"the system does not let this process make code executable (mprotect: error {ctypes.get_errno()})")


def _places(parsed: list[_Object]) -> tuple[dict[tuple[int, int], int], int]:
    """Offset of each loaded section (object number, section number), and the size of all."""
    places: dict[tuple[int, int], int] = {}
    end = 0
    for number, each in enumerate(parsed):
        for index, section in enumerate(each.sections):
            if each.loads(section):
                start = -(-end // section.alignment) * section.alignment
                places[number, index] = start
                end = start + section.size + (_FRAMES_END if section.name == _FRAMES else 0)
    return places, end


def defined_functions(data: bytes) -> list[str]:
    """Names of the functions an object defines."""
    return [name.decode() for name, section, _ in _Object(data).symbols if section and section < 0xFF00 and name]


def is_supported(objects: Mapping[str, bytes]) -> bool:
    """True if these are x86-64 objects with known relocations only."""
    for data in objects.values():
        if data[18:20] != b"\x3e\x00":
            return False
        if any(kind not in KNOWN_RELOCATIONS for _, _, kind, _, _ in _Object(data).relocations):
            return False
    return True

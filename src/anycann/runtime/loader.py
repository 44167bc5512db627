"""Object code in memory, ready to call."""

from __future__ import annotations

from collections.abc import Mapping
import ctypes
from functools import lru_cache
from typing import Protocol

from anycann.codegen.object_form import LIBRARY
from anycann.runtime.elf import ElfImage, defined_functions, is_supported
from anycann.support.errors import InternalError, UnsupportedError, UsageError
from anycann.target.target import Target, host, processor

_MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine of ELF


class LoadedCode:
    """Kernels loaded from `objects` (symbol -> ELF object code made by `emit_object`), callable as long as this is referenced.

    `functions`: addresses of library functions beside those that any kernel may call. `frames`: where it says how exceptions pass through
    code that catches some; whoever loads such code tells the C++ runtime.

    The code must be trusted: it runs in this process. Raises UnsupportedError for code of another machine, or for a `target` with vector
    features that this processor lacks.
    """

    def __init__(self, objects: Mapping[str, bytes], target: Target | None = None, functions: Mapping[str, int] | None = None):
        self.target = target or host()
        _check_processor(self.target)
        library = {**_library(), **(functions or {})}
        for symbol, data in objects.items():
            _check_object(symbol, data, library)
        self._image: _Image = ElfImage(objects, library.__getitem__) if is_supported(objects) else _JitImage(objects, library)

    @property
    def frames(self) -> list[int]:
        """Tables of frames that nobody has registered yet."""
        return self._image.frames

    def address(self, symbol: str) -> int:
        """Where the function `symbol` is. Raises InternalError if no object defines it."""
        known = self._image.addresses.get(symbol)
        if not known:
            raise InternalError(f"the program runs kernel {symbol!r}, but no object that was loaded defines it")
        return known


class _Image(Protocol):
    """Code in memory and where its functions are."""

    addresses: dict[str, int]
    frames: list[int]


class _JitImage:
    """Objects of another form than `elf` knows (other processors), loaded by LLVM's MCJIT."""

    def __init__(self, objects: Mapping[str, bytes], library: Mapping[str, int]):
        import llvmlite.binding as llvm  # 40 MB, only where it is needed

        from anycann.codegen.objects import llvm_lock

        self.frames: list[int] = []  # LLVM registers them
        with llvm_lock:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
            for name, address in library.items():
                llvm.add_symbol(name, address)
            machine = llvm.Target.from_default_triple().create_target_machine()  # the engine that gets it frees it
            self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
            for data in objects.values():
                self._engine.add_object_file(llvm.ObjectFileRef.from_data(data))
            self._engine.finalize_object()
            names = [name for data in objects.values() for name in defined_functions(data)]
            self.addresses = {name: self._engine.get_function_address(name) for name in names}


def _check_processor(target: Target) -> None:
    """Running an instruction the processor lacks would kill the process."""
    here = processor()
    if target.triple.split("-")[0] != here.triple.split("-")[0]:
        raise UnsupportedError(f"the code is for {target.triple}, this machine is {here.triple}; compile it for this machine")
    available = frozenset(here.features.split(","))
    lacking = [feature[1:] for feature in target.features.split(",") if feature.startswith("+") and feature not in available]
    if lacking and here.features:
        raise UnsupportedError(
            f"the code is for {target.name} and needs {', '.join(lacking)}, which this processor lacks; compile it for host"
        )


def _check_object(symbol: str, data: bytes, library: Mapping[str, int]) -> None:
    machine = processor().triple.split("-")[0]
    if len(data) < 64 or data[:6] != b"\x7fELF\x02\x01":
        raise UsageError(f"kernel {symbol!r}: {len(data)} bytes that are not a 64-bit ELF object")
    found = _MACHINES.get(int.from_bytes(data[18:20], "little"), "another machine")
    if found != machine:
        raise UnsupportedError(f"kernel {symbol!r} is code for {found}; this machine is {machine}")
    for name in LIBRARY - library.keys():
        if name.encode() in data:
            raise UnsupportedError(f"kernel {symbol!r} needs the library function {name}, which this system lacks (install libgcc)")


@lru_cache(maxsize=1)
def _library() -> dict[str, int]:
    """Addresses of the functions kernels may call, those that this system has."""
    libraries = [ctypes.CDLL(None)]
    for name in ("libm.so.6", "libgcc_s.so.1"):
        try:
            libraries.append(ctypes.CDLL(name))
        except OSError:
            continue
    found = {}
    for name in LIBRARY:
        function = next((getattr(library, name) for library in libraries if hasattr(library, name)), None)
        address = ctypes.cast(function, ctypes.c_void_p).value if function else None
        if address:
            found[name] = address
    return found

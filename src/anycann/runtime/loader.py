"""Object code in memory, ready to call."""

from __future__ import annotations

from collections.abc import Mapping
import ctypes
from functools import lru_cache

import llvmlite.binding as llvm

from anycann.codegen.objects import LIBRARY, llvm_lock
from anycann.support.errors import InternalError, UnsupportedError, UsageError
from anycann.target.target import Target, host

_MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine of ELF


class LoadedCode:
    """Kernels loaded from `objects` (symbol -> ELF object code made by `emit_object`), callable as long as this is referenced.

    The code must be trusted: it runs in this process. Raises UnsupportedError for code of another machine, or for a `target` with vector
    features that this processor lacks.
    """

    def __init__(self, objects: Mapping[str, bytes], target: Target | None = None):
        self.target = target or host()
        _check_processor(self.target)
        missing = _register_library()
        for symbol, data in objects.items():
            _check_object(symbol, data, missing)
        with llvm_lock:
            self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _native_machine())
            for data in objects.values():
                self._engine.add_object_file(llvm.ObjectFileRef.from_data(data))
            self._engine.finalize_object()
        self._addresses: dict[str, int] = {}

    def address(self, symbol: str) -> int:
        """Where the function `symbol` is. Raises InternalError if no object defines it."""
        known = self._addresses.get(symbol)
        if known is None:
            known = self._addresses[symbol] = self._engine.get_function_address(symbol)
        if not known:
            raise InternalError(f"the program runs kernel {symbol!r}, but no object that was loaded defines it")
        return known


def _check_processor(target: Target) -> None:
    """Running an instruction the processor lacks would kill the process."""
    if target.triple.split("-")[0] != llvm.get_process_triple().split("-")[0]:
        raise UnsupportedError(f"the code is for {target.triple}, this machine is {llvm.get_process_triple()}; compile it for this machine")
    available = _processor_features()
    lacking = [f[1:] for f in target.features.split(",") if f.startswith("+") and not available.get(f[1:], False)]
    if lacking and available:
        raise UnsupportedError(
            f"the code is for {target.name} and needs {', '.join(lacking)}, which this processor lacks; compile it for host"
        )


@lru_cache(maxsize=1)
def _processor_features() -> dict[str, bool]:
    return dict(llvm.get_host_cpu_features())


def _check_object(symbol: str, data: bytes, missing: frozenset[bytes]) -> None:
    machine = llvm.get_process_triple().split("-")[0]
    if len(data) < 64 or data[:6] != b"\x7fELF\x02\x01":
        raise UsageError(f"kernel {symbol!r}: {len(data)} bytes that are not a 64-bit ELF object")
    found = _MACHINES.get(int.from_bytes(data[18:20], "little"), "another machine")
    if found != machine:
        raise UnsupportedError(f"kernel {symbol!r} is code for {found}; this machine is {machine}")
    for name in missing:
        if name in data:
            raise UnsupportedError(
                f"kernel {symbol!r} needs the library function {name.decode()}, which this system lacks (install libgcc)"
            )


def _native_machine() -> llvm.TargetMachine:
    """A new one each time: the engine that gets it frees it."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine()


@lru_cache(maxsize=1)
def _register_library() -> frozenset[bytes]:
    """Tell the loader where the functions kernels may call are. Returns the names that this system lacks."""
    libraries = [ctypes.CDLL(None)]
    for name in ("libm.so.6", "libgcc_s.so.1"):
        try:
            libraries.append(ctypes.CDLL(name))
        except OSError:
            continue
    missing = set()
    for name in LIBRARY:
        function = next((getattr(library, name) for library in libraries if hasattr(library, name)), None)
        address = ctypes.cast(function, ctypes.c_void_p).value if function else None
        if address:
            llvm.add_symbol(name, address)
        else:
            missing.add(name.encode())
    return frozenset(missing)

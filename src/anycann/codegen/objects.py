"""LLVM IR text to object code. Objects are what is cached, kept in an offline model and loaded; no IR survives compiling."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
import os
import struct
import threading

import llvmlite.binding as llvm

from anycann.codegen.object_form import EXCEPTIONS, LIBRARY, PIPELINE
from anycann.support.errors import InternalError
from anycann.target.target import Target

__all__ = ["LIBRARY", "PIPELINE", "emit_assembly", "emit_object", "llvm_lock", "undefined_symbols"]

# Kernels of less text get LLVM's whole list of passes: 4 % of the time of all, and small loops of two rounds become none.
SHORT_CHARACTERS = 8_000
# Held around every use of LLVM that takes time, and across fork, so that a child never inherits it locked.
llvm_lock = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=llvm_lock.acquire, after_in_parent=llvm_lock.release, after_in_child=llvm_lock.release)


def emit_object(ir_text: str, target: Target) -> bytes:
    """Relocatable ELF object code of the module `ir_text` for `target` (any target, not only this machine's).

    Safe to call from several threads, which compile one after the other: LLVM is used under one lock. Raises InternalError if the text does
    not parse or verify, or if its code calls a function outside `LIBRARY` and `EXCEPTIONS`.
    """
    with llvm_lock, _optimised(ir_text, target) as (module, machine):
        data = bytes(machine.emit_object(module))
    _check_calls(data, ir_text)
    return data


def emit_assembly(ir_text: str, target: Target) -> str:
    """The assembly that `emit_object` would encode, for reading and for tests. Raises InternalError likewise."""
    with llvm_lock, _optimised(ir_text, target) as (module, machine):
        return str(machine.emit_assembly(module))


@contextmanager
def _optimised(ir_text: str, target: Target) -> Iterator[tuple[llvm.ModuleRef, llvm.TargetMachine]]:
    """The parsed, verified and optimised module in a context of its own, which frees its types and constants."""
    machine = _machine(target)
    own_context = llvm.create_context()
    try:
        module = llvm.parse_assembly(ir_text, own_context)
        module.verify()
    except RuntimeError as error:
        raise InternalError(f"LLVM refuses the IR of a kernel: {str(error).strip()}\nIt begins:\n{_head(ir_text)}") from error
    with module:
        module.triple = target.triple
        module.data_layout = str(machine.target_data)
        _optimise(module, machine, len(ir_text) < SHORT_CHARACTERS or "alwaysinline" in ir_text)
        yield module, machine


def _optimise(module: llvm.ModuleRef, machine: llvm.TargetMachine, whole: bool) -> None:
    """Run what simplifies one function, or the `whole` list, which also joins functions and simplifies before and after."""
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_unrolling = options.slp_vectorization = options.loop_vectorization = False
    if whole:
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
        return
    for function in module.functions:
        if not function.is_declaration:
            builder = llvm.create_pass_builder(machine, options)  # for one run: it leaves callbacks in it that point to what it had
            builder.getFunctionPassManager().run(function, builder)


# LLVM takes `vpdpwssd` apart again, into a product and a sum, where a chain of them looks long; here other sums run beside it.
_WORDS_AT_ONCE = "+fast-dpwssd"


@lru_cache(maxsize=16)
def _machine(target: Target) -> llvm.TargetMachine:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    tuned = f"{target.features},{_WORDS_AT_ONCE}" if target.is_x86 else target.features
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=tuned, opt=2, reloc="static", codemodel="large"
    )


def _head(text: str, lines: int = 12) -> str:
    rows = text.splitlines()
    return "\n".join(rows[:lines] + (["..."] if len(rows) > lines else []))


def _check_calls(data: bytes, ir_text: str) -> None:
    """The loader ends the process when it meets a name it cannot resolve, so such an object must never leave the compiler."""
    unknown = [name for name in undefined_symbols(data) if name not in LIBRARY | EXCEPTIONS]
    if unknown:
        raise InternalError(f"a kernel calls {', '.join(unknown)}, which kernels must not; its IR begins:\n{_head(ir_text)}")


def undefined_symbols(data: bytes) -> list[str]:
    """Names that the 64-bit little-endian ELF object `data` leaves to the loader. Raises InternalError if it is no such object."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise InternalError("object code is not a 64-bit little-endian ELF file")
    (sections_at,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, sections_at + i * size) for i in range(count)]
    names = []
    for _, kind, _, _, offset, nbytes, link, *_ in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        strings = sections[link][4]
        for at in range(offset + 24, offset + nbytes, 24):
            name, _, _, section = struct.unpack_from("<IBBH", data, at)
            if section == 0 and name:
                names.append(data[strings + name : data.index(b"\0", strings + name)].decode())
    return names

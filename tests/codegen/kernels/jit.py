"""Compile a kernel's text, load it and run it on numpy arrays: what every kernel test does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import ctypes
from functools import lru_cache
import itertools

import llvmlite.binding as llvm
import numpy as np

from anycann.codegen.emitter import Emitter
from anycann.codegen.objects import emit_object
from anycann.target.target import NAMED, Target

ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


class Compiled:
    """A kernel in memory. Calling it runs the parts of `0..tasks` one after the other, last part first, with poisoned scratch."""

    def __init__(self, e: Emitter, family: str, target: Target, scratch_bytes: int = 0):
        symbol, ir = e.finish(family)
        self.engine = load(emit_object(ir, target))
        self.entry = ENTRY(self.engine.get_function_address(symbol))
        self.scratch_bytes = scratch_bytes

    def __call__(self, arrays: Sequence[np.ndarray], tasks: int, parts: int = 1) -> None:
        self.run([array.ctypes.data for array in arrays], tasks, parts)

    def run(self, addresses: Sequence[int], tasks: int, parts: int = 1) -> None:
        table = (ctypes.c_void_p * len(addresses))(*addresses)
        memory = np.full(self.scratch_bytes + 128, 0xFF, np.uint8)
        at = (64 - memory.ctypes.data % 64) % 64
        borders = [tasks * i // parts for i in range(parts + 1)]
        for begin, end in reversed(list(itertools.pairwise(borders))):
            self.entry(table, begin, end, memory.ctypes.data + at)
        assert (memory[at + self.scratch_bytes :] == 0xFF).all(), "the kernel wrote past its scratch"


def load(code: bytes) -> llvm.ExecutionEngine:
    """The object in memory. Each engine owns, and frees, the target machine it was made with."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


@lru_cache(maxsize=1)
def runnable() -> tuple[Target, ...]:
    """The named targets whose code this machine runs."""
    has = dict(llvm.get_host_cpu_features())
    here = llvm.get_process_triple().split("-")[0]

    def runs(target: Target) -> bool:
        needed = [feature[1:] for feature in target.features.split(",") if feature.startswith("+")]
        return target.triple.startswith(here) and all(has.get(feature, False) for feature in needed)

    return tuple(target for target in NAMED.values() if runs(target))


def compiles_everywhere(write: Callable[[Target], Emitter]) -> None:
    """Emit an object for every named target; `write(target)` answers with the emitter."""
    for target in NAMED.values():
        emit_object(write(target).finish("check")[1], target)

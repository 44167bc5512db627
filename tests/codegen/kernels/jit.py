"""Compile a kernel's text, load it and run it on numpy arrays: what every kernel test does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
import ctypes
from functools import lru_cache
import itertools
import mmap
import os
from pathlib import Path
import subprocess
import sys

import numpy as np

import anycann
from anycann.codegen.emitter import Emitter
from anycann.codegen.objects import emit_object
from anycann.runtime.loader import LoadedCode
from anycann.support.errors import UnsupportedError
from anycann.target.target import NAMED, Target, by_name

ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


@lru_cache(maxsize=128)  # texts of up to half a megabyte
def object_of(ir_text: str, target: Target) -> bytes:
    """Its object code; a text that a test has had lately is not compiled again."""
    return emit_object(ir_text, target)


class Compiled:
    """A kernel in memory. Calling it runs the parts of `0..tasks` one after the other, last part first, with poisoned scratch."""

    def __init__(self, e: Emitter, family: str, target: Target, scratch_bytes: int = 0):
        symbol, ir = e.finish(family)
        self.code = LoadedCode({symbol: object_of(ir, target)}, target)
        self.entry = ENTRY(self.code.address(symbol))
        self.scratch_bytes = scratch_bytes

    def __call__(self, arrays: Sequence[np.ndarray], tasks: int, parts: int = 1) -> None:
        self.run([array.ctypes.data for array in arrays], tasks, parts)

    def call(self, arrays: Sequence[np.ndarray], begin: int, end: int, scratch: int) -> None:
        """Some tasks, in scratch memory that is kept; its lowest bit is what `codegen/resuming.py` says."""
        self.entry((ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays)), begin, end, scratch)

    def run(self, addresses: Sequence[int], tasks: int, parts: int = 1) -> None:
        table = (ctypes.c_void_p * len(addresses))(*addresses)
        memory = np.full(self.scratch_bytes + 128, 0xFF, np.uint8)
        at = (64 - memory.ctypes.data % 64) % 64
        borders = [tasks * i // parts for i in range(parts + 1)]
        for begin, end in reversed(list(itertools.pairwise(borders))):
            self.entry(table, begin, end, memory.ctypes.data + at)
        assert (memory[at + self.scratch_bytes :] == 0xFF).all(), "the kernel wrote past its scratch"


@lru_cache(maxsize=1)
def runnable() -> tuple[Target, ...]:
    """The named targets whose code this machine runs."""
    return tuple(target for target in NAMED.values() if runs(target))


def runs(target: Target) -> bool:
    """True if this machine runs the target's code."""
    try:
        LoadedCode({}, target)
    except UnsupportedError:
        return False
    return True


def distinct(*targets: Target) -> list[Target]:
    """The targets without those that get the kernels of one before them, tiles for other caches aside: on a processor with AVX2 and no more
    `avx2` does."""
    first: dict[object, Target] = {}
    for target in targets:
        vectors = frozenset(f for f in target.features.split(",") if f.startswith(_OF_VECTORS))
        first.setdefault((target.triple, target.lanes, target.registers, vectors), target)
    return list(first.values())


def distinct_names(*names: str) -> list[str]:
    """The same of targets that are named, `host` among them."""
    return [target.name for target in distinct(*map(by_name, names))]


_OF_VECTORS = ("+avx", "+fma", "+f16c", "+amx", "+sve", "+dotprod", "+i8mm", "+bf16")  # what kernels are written for


def assert_compiles_everywhere(write: Callable[[Target], Emitter], targets: Sequence[Target] = tuple(NAMED.values())) -> None:
    """LLVM takes the kernel for every target; `write(target)` answers with the emitter."""
    for target in targets:
        assert object_of(write(target).finish("check")[1], target)


class Guarded:
    """Memory between two pages that nothing may touch: reading or writing there kills the process.

    It ends where the second one begins, or (`front`) begins where the first one ends: what lies within the page that it does not fill is
    not guarded on the other side, see `guarded`.
    """

    def __init__(self, content: np.ndarray, front: bool = False):
        page = mmap.PAGESIZE
        pages = -(-max(1, content.nbytes) // page)
        self.map = mmap.mmap(-1, (pages + 2) * page)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        libc = ctypes.CDLL(None, use_errno=True)
        for guard in (base, base + (pages + 1) * page):
            assert libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(page), 0) == 0
        offset = page if front else (pages + 1) * page - content.nbytes
        self.address = base + offset
        self.array = np.frombuffer(self.map, content.dtype, content.size, offset).reshape(content.shape)
        self.array[...] = content


def guarded(*contents: np.ndarray) -> Iterator[tuple[Guarded, ...]]:
    """The arrays, each right before a page that nothing may touch, then each right behind one."""
    for front in (False, True):
        yield tuple(Guarded(content, front) for content in contents)


def assert_passes_in_child(module: str, function: str) -> None:
    """Run `module.function()` in a process of its own, which it may kill; fail with what it wrote unless it ends well."""
    paths = os.pathsep.join([str(Path(anycann.__file__).parents[1]), str(Path(__file__).parents[3])])
    emulated = os.environ.get("ANYCANN_TEST_EMULATE")
    text = f"from {module} import {function}; {function}()"
    if emulated:
        text = f"from tests.emulation.plugin import emulate; emulation = emulate({emulated!r}); {text}; emulation.check()"
    child = subprocess.run(
        [sys.executable, "-c", text], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=300
    )
    assert child.returncode == 0, f"the child ended with {child.returncode}:\n{child.stdout[-1500:]}{child.stderr[-1500:]}"

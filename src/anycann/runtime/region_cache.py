"""Regions compiled for the shapes they met: control flow bodies, and what follows a shape that only running can tell."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import field
import threading
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from anycann.om.plan import TensorSpec
from anycann.runtime.memory import numpy_dtype
from anycann.support.errors import context
from anycann.support.records import dataclass

if TYPE_CHECKING:
    from anycann.runtime.executor import CompiledProgram

DEFAULT_CAPACITY = 64

RunOnHost: TypeAlias = "Callable[[str, tuple[TensorSpec, ...], Sequence[object]], list[object] | None]"
RegionCompiler: TypeAlias = "Callable[[str, tuple[TensorSpec, ...]], CompiledProgram]"
Signature: TypeAlias = "tuple[str, tuple[tuple[np.dtype | None, tuple[int | str | None, ...]], ...]]"


@dataclass
class _Entry:
    """A compiled region, or the lock under which one thread compiles it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    program: CompiledProgram | None = None


class RegionCache:
    """Compiles each region once for each signature (dtypes and shapes) of its inputs and keeps the `capacity` used last.

    `compile_region(region name, input specs)` gets one TensorSpec an input, in order; sequences and None have dtype "object" and shape
    (), tensors of strings "object" and their shape. Threads that need the same region wait for one compilation. `run_on_host` computes a
    region without compiling it; it answers None where that is better done.
    """

    def __init__(self, compile_region: RegionCompiler, capacity: int = DEFAULT_CAPACITY, run_on_host: RunOnHost | None = None):
        self._compile = compile_region
        self._run_on_host = run_on_host
        self._capacity = capacity
        self._lock = threading.Lock()
        self._entries: OrderedDict[Signature, _Entry] = OrderedDict()
        self.compiled = 0  # how often a region was compiled, which says whether `known` may know more than before

    def known(self, region: str, inputs: Sequence[TensorSpec]) -> CompiledProgram | None:
        """The program of `region` for inputs of these types, if it is here."""
        entry = self._entries.get((region, tuple((numpy_dtype(spec.dtype), spec.shape) for spec in inputs)))
        return None if entry is None else entry.program

    def on_host(self, region: str, names: Sequence[str], inputs: Sequence[object]) -> list[object] | None:
        """The outputs of `region`, arrays of their own, where it has no program for `inputs` and the host may compute it; else None."""
        if self._run_on_host is None or not all(type(value) is np.ndarray for value in inputs):
            return None
        entry = self._entries.get(_signature(region, inputs))
        if entry is not None and entry.program is not None:
            return None
        return self._run_on_host(region, tuple(map(_spec, names, inputs)), inputs)

    def program(self, region: str, names: Sequence[str], inputs: Sequence[object]) -> CompiledProgram:
        """The program of `region` for `inputs`; their `names` are for messages. Errors of compiling pass through with the region named."""
        signature = _signature(region, inputs)
        with self._lock:
            entry = self._entries.setdefault(signature, _Entry())
            self._entries.move_to_end(signature)
            if len(self._entries) > self._capacity:
                self._entries.popitem(last=False)
        if entry.program is None:
            with entry.lock:
                if entry.program is None:
                    specs = tuple(_spec(name, value) for name, value in zip(names, inputs, strict=True))
                    with context(f"while compiling region {region!r} for {_describe(specs)}"):
                        entry.program = self._compile(region, specs)
                    self.compiled += 1
        return entry.program


def _signature(region: str, inputs: Sequence[object]) -> Signature:
    return region, tuple((v.dtype, v.shape) if isinstance(v, np.ndarray) else (None, ()) for v in inputs)


def _spec(name: str, value: object) -> TensorSpec:
    if not isinstance(value, np.ndarray):
        return TensorSpec(name, "object", ())
    return TensorSpec(name, "object" if value.dtype.kind in "OUST" else value.dtype.name, value.shape)


def _describe(specs: tuple[TensorSpec, ...]) -> str:
    return ", ".join(f"{spec.name} {spec.dtype}{list(spec.shape)}" for spec in specs) or "no inputs"

"""Where torch's dispatcher keeps kernels: operators that only look at sizes and strides run torch's compiled cpu kernel on npu tensors,
others generated code (`native_boxed_ir.py`), without passing through Python.

torch keeps the kernels of an operator in a table by device. Where the table and its entries are is found by registering kernels for an
operator of our own and looking what changed; the entry of the cpu is then copied over that of the npu. Whatever is not as expected leaves
the Python kernel in place, which does the same.
"""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import torch

from anycann.adapters.torch.device.native_words import FUNCTION_AT
from anycann.support.records import dataclass

_WORDS = 160  # of an operator's entry that are looked at
_BACKENDS_BETWEEN = 12  # from the cpu to PrivateUse1: CUDA, HIP, XLA, MPS, IPU, XPU, HPU, VE, Lazy, MTIA, MAIA
_COPIED = 4  # words of a kernel: its object, how it is called with a stack, how it is called with arguments, the same with symbolic sizes
_kept: list[Any] = []


@dataclass(frozen=True)
class Table:
    """Word offsets of the entries for the cpu and for the npu in an operator's entry."""

    cpu: int
    npu: int

    def run_compiled(self, operator: str, overload: str) -> None:
        """Let `operator` on npu tensors run the cpu's kernel."""
        words = _entry(operator, overload)
        if not words[self.cpu] or not words[self.cpu + 1]:
            return
        ctypes.c_uint32.from_address(words[self.cpu] + 8).value += 1  # one more refers to the kernel's object
        for word in range(_COPIED):
            words[self.npu + word] = words[self.cpu + word]

    def npu_kernel(self, operator: str, overload: str) -> Kernel | None:
        """The kernel of Python that `operator` has for npu tensors; None if it has another, or none for the cpu's."""
        words = _entry(operator, overload)
        compiled = words[self.cpu + 2] or words[self.cpu + 3]
        if not compiled or not words[self.cpu + 1] or not words[self.npu + 1] or words[self.npu + 2]:
            return None
        function = ctypes.c_uint64.from_address(words[self.npu] + FUNCTION_AT).value
        return Kernel(function, words[self.npu + 1], ctypes.addressof(words) + 8 * self.cpu, ctypes.addressof(words) + 8 * (self.npu + 1))


@dataclass(frozen=True)
class Kernel:
    """Addresses: the Python function, what calls it with a stack, the entry of the cpu's kernel, and where `call` is kept."""

    function: int
    call: int
    cpu_at: int
    call_at: int

    def replace_call(self, code: int) -> None:
        """Let `code` be called in the place of `call`, with the same object, by all threads from now on."""
        ctypes.c_uint64.from_address(self.call_at).value = code


def find() -> Table | None:
    """The table, or None if this torch keeps kernels in another way."""
    definition = torch.library.Library("anycann_probe", "DEF")
    definition.define("probe(Tensor x) -> Tensor")
    states = [_snapshot()]
    for key in ("CPU", "PrivateUse1"):
        library = torch.library.Library("anycann_probe", "IMPL", key)
        library.impl("probe", _probe)
        _kept.append(library)
        states.append(_snapshot())
    _kept.append(definition)
    cpu, npu = (_first_change(before, after) for before, after in itertools.pairwise(states))
    if cpu is None or npu is None or npu - cpu != _BACKENDS_BETWEEN * (_COPIED + 1):
        return None
    return Table(cpu, npu)


def _probe(x: Any) -> Any:
    return x


def _entry(operator: str, overload: str) -> Any:
    """The entry of an operator in torch's dispatcher, as words."""
    handle = torch._C._dispatch_find_schema_or_throw(operator, overload)
    _kept.append(handle)
    held = ctypes.c_uint64.from_address(id(handle) + 16).value
    return (ctypes.c_uint64 * _WORDS).from_address(ctypes.c_uint64.from_address(held).value)


def _snapshot() -> list[int]:
    return list(_entry("anycann_probe::probe", ""))


def _first_change(before: list[int], after: list[int]) -> int | None:
    """Where two neighbouring words that were empty are not any more."""
    changed = [at for at, (old, new) in enumerate(zip(before, after, strict=True)) if not old and new]
    return changed[0] if len(changed) == 2 and changed[1] == changed[0] + 1 else None

"""torch's own random draws of zeros and ones, sixteen numbers at a time: the same values, and the same generator afterwards.

On the cpu torch draws each element for itself: two numbers of the Mersenne Twister, of which 53 bits are compared with p. It takes 9 ns an
element, a quarter of a training step of a small encoder with dropout. The recurrence of the Twister (Matsumoto and Nishimura, 1998) looks
back 227 numbers at least, so generated code does the same with vectors in 1 ns. Which numbers torch takes for what is its own affair: the
code is used only if both agree when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable
import ctypes
from functools import cache
import math
import threading
from typing import Any

import numpy as np
import torch

from anycann.adapters.torch.device.bernoulli_ir import BLOCK, bernoulli_ir
from anycann.adapters.torch.device.machine_code import load

# torch's state of a generator: how many numbers are left and one more, which comes next, and the block, each in 64 bits
_LEFT, _NEXT, _STATE = slice(8, 12), slice(16, 24), slice(24, 24 + 8 * BLOCK)
_BITS = 53  # of a number that is compared with p
_WORTH = 2048  # elements: reading and writing the state takes 6 us, as long as torch takes for a thousand

_drawing = threading.Lock()  # from reading a state until it is set: two threads would draw the same numbers
_Draw = Callable[[int, int, int, int, int], int]


def draw(generator: torch.Generator, p: float, out: torch.Tensor) -> torch.Tensor:
    """Fill `out`, a cpu tensor of booleans without gaps, as `out.bernoulli_(p, generator=generator)` does, and return it."""
    code = _code()
    if out.numel() < _WORTH or code is None or not 0 <= p <= 1:
        return out.bernoulli_(p, generator=generator)
    with _drawing:
        _draw(code, generator, p, out)
    return out


def _draw(code: _Draw, generator: torch.Generator, p: float, out: torch.Tensor) -> None:
    state = generator.get_state()
    fields = state.numpy()
    left, following, block = fields[_LEFT].view(np.int32), fields[_NEXT].view(np.uint64), fields[_STATE].view(np.uint64)
    words = np.zeros(2 * BLOCK, np.uint32)
    words[:BLOCK] = block
    consumed = code(words.ctypes.data, BLOCK - (int(left[0]) - 1), out.numel(), math.ceil(p * 2**_BITS), out.data_ptr())
    block[:] = words[:BLOCK]
    left[0], following[0] = BLOCK - consumed + 1, consumed
    generator.set_state(state)


@cache
def _code() -> _Draw | None:
    """The code, or None where it does not run or torch draws in another way."""
    try:
        module = load("torch_npu_bernoulli", bernoulli_ir())
    except Exception:  # no place for code, or LLVM does not know the processor
        return None
    words = (ctypes.c_int64,) * 5
    code = ctypes.PYFUNCTYPE(ctypes.c_int64, *words)(module.address("torch_npu_bernoulli"))
    return code if _agrees(code) else None


def _agrees(code: Any) -> bool:
    """Whether torch draws the same, from a fresh generator and then over several blocks."""
    ours, its = torch.Generator("cpu"), torch.Generator("cpu")
    for generator in (ours, its):
        generator.manual_seed(20031)
    for count, p in ((5, 0.5), (1, 0.1), (1700, 0.9)):
        for generator in (ours, its):
            torch.rand(1, generator=generator, device="cpu")
        got, wanted = (torch.zeros(count, dtype=torch.bool, device="cpu") for _ in range(2))
        _draw(code, ours, p, got)
        wanted.bernoulli_(p, generator=its)
        if not torch.equal(got, wanted) or not torch.equal(ours.get_state(), its.get_state()):
            return False
    return True

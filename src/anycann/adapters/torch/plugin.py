"""What `import torch_npu` installs into torch, in order: the device first, then what stands on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
import gc
from types import ModuleType

import torch

from anycann.adapters.torch import amp, distributed, distribution, operators, profiler, transfer
from anycann.adapters.torch.device import backend
from anycann.adapters.torch.graph import install as graph

# Each is called once with the module `torch_npu`, after the device is there.
PARTS: tuple[Callable[[ModuleType], None], ...] = (
    amp.install,
    distributed.install,
    distribution.install,
    graph.install,
    operators.install,
    profiler.install,
    transfer.install,
)


@cache
def install(torch_npu: ModuleType) -> None:
    """Make torch know the device `npu`, and give `torch_npu` its names. Raises RuntimeError if another backend has the place."""
    torch_npu.__dict__["__version__"] = torch.__version__.partition("+")[0]  # the torch it is for, as on Ascend
    with _no_collection():
        backend.install(torch_npu)
        for part in PARTS:
            part(torch_npu)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Thousands of kernels are made, and none is garbage: a collection among them looks through all of torch, for 70 ms."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

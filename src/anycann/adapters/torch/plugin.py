"""What `import torch_npu` installs into torch, in order: the device first, then what stands on it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import ModuleType

import torch

from anycann.adapters.torch import amp, distributed, operators, profiler, transfer
from anycann.adapters.torch.device import backend
from anycann.adapters.torch.graph import install as graph

# Each is called once with the module `torch_npu`, after the device is there.
PARTS: tuple[Callable[[ModuleType], None], ...] = (
    amp.install,
    distributed.install,
    graph.install,
    operators.install,
    profiler.install,
    transfer.install,
)


@cache
def install(torch_npu: ModuleType) -> None:
    """Make torch know the device `npu`, and give `torch_npu` its names. Raises RuntimeError if another backend has the place."""
    torch_npu.__dict__["__version__"] = torch.__version__.partition("+")[0]  # the torch it is for, as on Ascend
    backend.install(torch_npu)
    for part in PARTS:
        part(torch_npu)

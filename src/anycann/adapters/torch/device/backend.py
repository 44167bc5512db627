"""Installs the device into torch: the order matters, and nothing can be taken back."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import torch
from torch.autograd import graph as autograd_graph
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from anycann.adapters.torch.device import (
    accelerator,
    accounts,
    aliasing,
    data_parallel,
    devices,
    generators,
    namespace,
    parameters,
    pinned_memory,
    private_names,
    registration,
    scripts,
    sharing,
    storage,
    tensor_types,
    virtual_devices,
)


class _Hooks(torch._C._acc.PrivateUse1Hooks):
    """What torch's C++ code asks of a device."""

    def is_available(self) -> bool:
        return True

    def is_built(self) -> bool:
        return True

    def has_primary_context(self, index: int) -> bool:
        return True


class _Guard(torch._C._acc.DeviceGuard):
    """What torch's C++ code asks of the current device."""

    def type_(self) -> Any:
        return accelerator.device_type()


def install(torch_npu: ModuleType) -> None:
    """Register the device `npu` and `torch.npu`. Raises RuntimeError if another backend has torch's one place for such devices."""
    taken = torch._C._get_privateuse1_backend_name()
    if taken not in ("privateuseone", devices.NAME) or hasattr(torch, devices.NAME):
        raise RuntimeError(f"torch has the device {taken!r} already, and has place for one")
    npu = namespace.make(torch_npu)
    _setup_privateuseone_for_python_backend(devices.NAME, npu, _Hooks(), _Guard())
    _name_submodules(npu)
    private_names.install(torch_npu)
    accounts.set_limits()
    aliasing.use_layout_if_verified()
    registration.install()
    generators.install()
    storage.install()
    pinned_memory.install()
    parameters.install()
    data_parallel.install()
    sharing.install()
    scripts.install()
    tensor_types.install()
    virtual_devices.install()
    accelerator.install(npu)
    _run_backward_on_the_calling_thread()


def _name_submodules(npu: ModuleType) -> None:
    """`import torch.npu.amp` finds what `import torch_npu.npu.amp` does."""
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{npu.__name__}."):
            sys.modules[f"torch.npu{name.removeprefix(npu.__name__)}"] = module


def _run_backward_on_the_calling_thread() -> None:
    """Backward of an npu tensor would go to a thread of its device, which waits for Python's lock at each kernel: half the speed.

    The setting belongs to a thread, so each backward makes it for the thread it is called from.
    """
    torch._C._set_multithreading_enabled(False)
    run = autograd_graph._engine_run_backward

    def on_this_thread(*args: Any, **keywords: Any) -> Any:
        torch._C._set_multithreading_enabled(False)
        return run(*args, **keywords)

    autograd_graph._engine_run_backward = torch.autograd._engine_run_backward = on_this_thread

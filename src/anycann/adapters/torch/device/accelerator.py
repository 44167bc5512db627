"""`torch.accelerator`, whose functions ask torch's C++ code for what only Python knows here."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from anycann.adapters.torch.device import devices


def install(npu: ModuleType) -> None:
    """Answer `torch.accelerator.*` with the functions of `torch.npu`."""
    accelerator = torch.accelerator
    accelerator.device_count = devices.count
    accelerator.current_device_index = accelerator.current_device_idx = devices.current
    accelerator.set_device_index = accelerator.set_device_idx = lambda device: devices.make_current(devices.index_of(device))
    accelerator.device_index = npu.device
    accelerator.synchronize = lambda device=None: None
    for name in ("empty_cache", "memory_stats", "memory_allocated", "max_memory_allocated",
                 "memory_reserved", "max_memory_reserved", "reset_peak_memory_stats", "reset_accumulated_memory_stats"):  # fmt: skip
        if hasattr(npu, name):
            setattr(accelerator, name, getattr(npu, name))
    if hasattr(npu, "mem_get_info"):
        accelerator.get_memory_info = npu.mem_get_info


def device_type() -> Any:
    """The type of device that torch's C++ code knows the npu as."""
    return torch._C._autograd.DeviceType.PrivateUse1

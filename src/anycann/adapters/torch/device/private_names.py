"""`torch_npu._C`: the functions below `torch.npu` that programs call by the names they have in Ascend's extension."""

from __future__ import annotations

from collections.abc import Callable
import sys
from types import ModuleType
from typing import Any

import torch

from anycann.adapters.torch.device import device_guards, devices, memory, properties, settings, streams, versions


def option(name: str) -> bytes | None:
    """The value of an option as `torch.npu.set_option` or a switch (`torch.npu.config`, ...) left it; None if neither did."""
    value = _SWITCHES[name]() if name in _SWITCHES else settings.options.get(name)
    if isinstance(value, bool):
        value = "enable" if value else "disable"
    return None if value is None else str(value).encode()


_SWITCHES: dict[str, Callable[[], Any]] = {
    "ALLOW_INTERNAL_FORMAT": lambda: settings.config.allow_internal_format,
    "ALLOW_MATMUL_HF32": lambda: settings.matmul.allow_hf32,
    "ALLOW_CONV_HF32": lambda: settings.conv.allow_hf32,
    "CUBE_MATH_TYPE": lambda: int(settings.matmul.cube_math_type),
    "TORCH_NPU_USE_COMPATIBLE_IMPL": lambda: int(settings.are_compatible_impl_enabled()),
}


def _has_primary_context(device: int) -> bool:
    """Whether npu `device` is there: all are ready from the start. Raises RuntimeError for one that is not."""
    return devices.checked(device) >= 0


def _raw_stream(device: int) -> int:
    """The handle of the current stream of npu `device`."""
    return int(streams.current_stream(device).npu_stream)


def _words(stream: Any) -> tuple[int, int, int]:
    """A stream as the extension says it: number, npu, and torch's number of the kind of device."""
    return stream.stream_id, stream.device_index, stream.device_type


def _set_stream(stream_id: int, device_index: int, device_type: int) -> None:
    """Send work to the stream of these words."""
    streams.set_stream(streams.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))


def _empty_strided(size: Any, stride: Any, dtype: Any = None) -> Any:
    """An uninitialised tensor on the current npu."""
    return torch.empty_strided(size, stride, dtype=dtype, device=devices.NAME)


def _weak_reference(tensor: Any) -> Any:
    """A tensor on the same memory, without its history. It keeps the memory, which Ascend's does not: reading it is always safe."""
    return tensor.detach()


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "_npu_getOption": option,
    "_npu_setOption": settings.set_option,
    "_npu_init": device_guards.init,
    "_npu_isInBadFork": device_guards._is_in_bad_fork,
    "_npu_getDeviceCount": device_guards.device_count,
    "_npu_getDevice": device_guards.current_device,
    "_npu_setDevice": device_guards.set_device,
    "_npu_synchronize": device_guards.synchronize,
    "_npu_hasPrimaryContext": _has_primary_context,
    "_npu_get_soc_version": properties.get_soc_version,
    "_npu_is_support_inf_nan": properties.is_support_inf_nan,
    "_npu_canDeviceAccessPeer": properties.can_device_access_peer,
    "_npu_getCurrentStream": lambda device: _words(streams.current_stream(device)),
    "_npu_getDefaultStream": lambda device: _words(streams.default_stream(device)),
    "_npu_setStream": _set_stream,
    "_npu_getCurrentRawStream": _raw_stream,
    "_npu_getCurrentRawStreamNoWait": _raw_stream,
    "_npu_emptyCache": memory.empty_cache,
    "_npu_memoryStats": memory.memory_stats_as_nested_dict,
    "_npu_memorySnapshot": memory._snapshot,
    "_npu_resetPeakMemoryStats": memory.reset_peak_memory_stats,
    "_npu_resetAccumulatedMemoryStats": memory.reset_accumulated_memory_stats,
    "_npu_setMemoryFraction": memory.set_per_process_memory_fraction,
    "_npu_getMemoryFraction": memory.get_per_process_memory_fraction,
    "_npu_npuCachingAllocator_raw_alloc": memory.caching_allocator_alloc,
    "_npu_npuCachingAllocator_raw_delete": memory.caching_allocator_delete,
    "_npu_npuCachingAllocator_set_allocator_settings": memory._set_allocator_settings,
    "_npu_ipc_collect": memory.ipc_collect,
    "_npu_set_sync_debug_mode": settings.set_sync_debug_mode,
    "_npu_get_sync_debug_mode": settings.get_sync_debug_mode,
    "_npu_set_deterministic_level": settings.set_deterministic_level,
    "_empty_strided_npu": _empty_strided,
    "_weak_ref_tensor": _weak_reference,
    "_get_cann_version": versions.get_cann_version,
    "_is_gte_cann_version": versions.is_cann_at_least,
}


def install(torch_npu: ModuleType) -> None:
    """Fill the module `torch_npu._C`."""
    name = f"{torch_npu.__name__}._C"
    module = sys.modules.setdefault(name, ModuleType(name, __doc__))
    module.__dict__.update(_FUNCTIONS)
    torch_npu.__dict__["_C"] = module

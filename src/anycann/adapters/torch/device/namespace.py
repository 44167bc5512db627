"""The module `torch.npu`, which is `torch_npu.npu`: the public names of the files of this package, put together in one place."""

from __future__ import annotations

import sys
from types import FunctionType, ModuleType
from typing import Any

import torch

from anycann.adapters.torch.device import (
    device_guards,
    devices,
    graphs,
    marks,
    memory,
    older_names,
    overflow,
    properties,
    random_state,
    settings,
    streams,
    tensor_types,
    versions,
)

_SOURCES = (device_guards, graphs, marks, memory, older_names, overflow, properties, random_state, settings, streams)
_OBJECTS = ("config", "conv", "matmul", "default_generators", "memory_cached", "max_memory_cached", "reset_max_memory_allocated",
            "reset_max_memory_cached", "obfuscation_calculate", "obfuscation_finalize", "obfuscation_initialize", "npurt")  # fmt: skip
_PRIVATE = ("_is_in_bad_fork", "_snapshot", "_dump_snapshot", "_record_memory_history", "_set_allocator_settings")
_NARROW_TYPES = ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn_x2")
# Ascend's numbers of dtypes that torch has not, which arguments for dtypes take: 256 + aclDataType
_NUMBERED_TYPES = {"int4": 285, "uint1": 286, "hifloat8": 290, "float6_e3m2": 294, "float6_e2m3": 295, "float4_e1m2fn_x2": 297}
_SUBMODULES = {"memory": memory, "streams": streams, "random": random_state, "graphs": graphs, "npu_config": settings}
_UTILITIES = (device_guards, older_names, overflow, properties, settings, streams, versions)  # of `torch.npu.utils`


def make(torch_npu: ModuleType) -> ModuleType:
    """Fill and return the module `torch_npu.npu`."""
    name = f"{torch_npu.__name__}.npu"
    npu = sys.modules.setdefault(name, ModuleType(name, __doc__))
    for source in _SOURCES:
        npu.__dict__.update(_public_names(source))
    npu.__dict__.update(tensor_types.tensor_types() | tensor_types.storage_types() | _others())
    for submodule, module in _SUBMODULES.items():
        npu.__dict__[submodule] = sys.modules[f"{name}.{submodule}"] = module
    npu.__dict__["utils"] = sys.modules[f"{name}.utils"] = _utilities(f"{name}.utils")
    npu.__dict__["__all__"] = sorted(entry for entry in npu.__dict__ if not entry.startswith("_"))
    torch_npu.__dict__["npu"] = npu
    torch_npu.__dict__.update(_NUMBERED_TYPES | {name: getattr(torch, name) for name in _NARROW_TYPES if hasattr(torch, name)})
    return npu


def _utilities(name: str) -> ModuleType:
    """`torch.npu.utils`: overflow and versions, and again what `torch.npu` has of devices, streams and switches."""
    utilities = ModuleType(name, _utilities.__doc__)
    for source in _UTILITIES:
        utilities.__dict__.update(_public_names(source))
    utilities.__dict__.update(_get_device_index=devices.index_of, _is_gte_cann_version=versions.is_cann_at_least)
    return utilities


def _public_names(source: ModuleType) -> dict[str, Any]:
    """The functions and classes that `source` defines, and the objects and private names that belong to `torch.npu`."""
    own = {
        name: value
        for name, value in vars(source).items()
        if isinstance(value, (type, FunctionType)) and value.__module__ == source.__name__ and not name.startswith("_")
    }
    return own | {name: vars(source)[name] for name in (*_OBJECTS, *_PRIVATE) if name in vars(source)}


def _others() -> dict[str, Any]:
    return {
        "OutOfMemoryError": torch.OutOfMemoryError,
        "CubeMathType": settings.CubeMathType,
        "_initialized": True,  # checkpointing asks whether there is a state of random numbers to keep
        "_lazy_init": device_guards.init,
        "_lazy_call": lambda function, **keywords: function(),
        "_exchange_device": device_guards.exchange_device,
        "_maybe_exchange_device": device_guards.exchange_device,
        "is_autocast_enabled": lambda: torch.is_autocast_enabled(devices.NAME),
        "set_autocast_enabled": lambda enabled: torch.set_autocast_enabled(devices.NAME, enabled),
        "get_autocast_dtype": lambda: torch.get_autocast_dtype(devices.NAME),
        "set_autocast_dtype": lambda dtype: torch.set_autocast_dtype(devices.NAME, dtype),
    }

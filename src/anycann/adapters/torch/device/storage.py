"""Untyped storages on an npu: made, copied and moved through tensors, since torch's C++ code asks an allocator that is not there."""

from __future__ import annotations

from typing import Any

import torch
from torch import serialization

from anycann.adapters.torch.device import devices
from anycann.adapters.torch.device.aliasing import mark_storage, resize_memory

_make, _copy, _resize = torch._C.StorageBase.__new__, torch._C.StorageBase.copy_, torch._C.StorageBase.resize_


def install() -> None:
    """Teach `torch.UntypedStorage` and `torch.save` the npu."""
    torch.UntypedStorage.__new__ = staticmethod(_new_storage)
    torch.UntypedStorage.copy_ = _copy_storage
    torch.UntypedStorage.resize_ = _resize_storage
    serialization.register_package(5, _location_of, _moved_to)


def _new_storage(cls: Any, *args: Any, device: Any = None, **keywords: Any) -> Any:
    if device is None:
        return _make(cls, *args, **keywords)
    named = torch.device(device)
    if named.type != devices.NAME:
        return _make(cls, *args, device=device, **keywords)
    size = args[0] if args else 0
    if isinstance(size, int):
        return torch.empty(size, dtype=torch.uint8, device=named).untyped_storage()
    filled = torch.empty(len(size), dtype=torch.uint8, device=named).untyped_storage()
    return filled.copy_(torch.UntypedStorage(size))


def _copy_storage(target: Any, source: Any, non_blocking: Any = None) -> Any:
    if devices.NAME not in (source.device.type, target.device.type):
        return _copy(target, source, non_blocking)
    _as_bytes(target).copy_(_as_bytes(source))
    return target


def _resize_storage(storage: Any, size: int) -> Any:
    if storage.device.type != devices.NAME:
        return _resize(storage, size)
    resize_memory(storage, size, _resize)
    mark_storage(_as_bytes(storage))
    return storage


def _as_bytes(storage: Any) -> Any:
    """The storage as a tensor of bytes."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _location_of(storage: Any) -> str | None:
    """What `torch.save` writes down: `npu:1`, or None for storages of others."""
    return f"{devices.NAME}:{storage.device.index}" if storage.device.type == devices.NAME else None


def _moved_to(storage: Any, location: Any) -> Any:
    """The storage that `torch.load` puts at `location`, or None if that is no npu."""
    if str(location).split(":")[0] != devices.NAME:
        return None
    index = devices.index_of(location)
    if storage.device.type == devices.NAME and storage.device.index == index:
        return storage
    return torch.UntypedStorage(storage.nbytes(), device=torch.device(devices.NAME, index)).copy_(storage)

"""Npu tensors between processes (`torch.multiprocessing` queues and arguments): their memory becomes shared, as of cpu tensors."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import reduction
from typing import Any

import torch
from torch.multiprocessing import reductions

from anycann.adapters.torch.device import devices
from anycann.adapters.torch.device.aliasing import mark_memory


def install() -> None:
    """Teach torch's pickling for other processes the storages of npus."""
    reduction.register(torch.UntypedStorage, _reduce)


def _reduce(storage: Any) -> Any:
    if storage.device.type != devices.NAME:
        return reductions.reduce_storage(storage)
    index = storage.device.index
    mark_memory(storage, None)
    try:
        rebuild, arguments = reductions.reduce_storage(storage)
    finally:
        mark_memory(storage, index)
    return _rebuild, (index, rebuild, arguments)


def _rebuild(index: int, rebuild: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    storage = rebuild(*arguments)
    mark_memory(storage, index)
    return storage

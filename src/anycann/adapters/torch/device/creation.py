"""Kernels that no cpu kernel can stand for: new memory, and copies between the host and the npus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from anycann.adapters.torch.device import devices
from anycann.adapters.torch.device.aliasing import adopt, host_alias, mark_storage, tensors_are_known, to_host
from anycann.adapters.torch.device.bernoulli import draw
from anycann.adapters.torch.device.generators import default_generator

_aten = torch.ops.aten
_HOST_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


def empty(
    size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None, memory_format: Any = None
) -> Any:
    """aten::empty.memory_format."""
    _only_strided(layout)
    return adopt(torch.empty(size, dtype=dtype, device="cpu", memory_format=memory_format or torch.contiguous_format), _index(device))


def empty_strided(size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Any:
    """aten::empty_strided."""
    _only_strided(layout)
    return adopt(torch.empty_strided(size, stride, dtype=dtype, device="cpu"), _index(device))


def efficient_zeros(size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Any:
    """aten::_efficientzerotensor: zeros that take memory, since torch's code for those without asks devices it was built with."""
    return adopt(torch.zeros(size, dtype=dtype, device="cpu"), _index(device))


def _index(device: Any) -> int:
    """The npu of a device that torch's dispatcher gives: always a torch.device, or None."""
    index = None if device is None else device.index
    return devices.current() if index is None else devices.checked(index)


def _only_strided(layout: Any) -> None:
    if layout not in (None, torch.strided):
        raise RuntimeError(f"layout {layout} is not supported on npu; accepted: torch.strided")


def resize(tensor: Any, size: Any, *, memory_format: Any = None) -> Any:
    """aten::resize_: torch's own code for the cpu, on the npu tensor."""
    if not tensors_are_known():
        return _resize_by_copying(tensor, size, memory_format or torch.contiguous_format)
    if torch.are_deterministic_algorithms_enabled() and torch.utils.deterministic.fill_uninitialized_memory:
        return _resize_and_fill(tensor, size, memory_format)
    _aten.resize_.default.redispatch(_HOST_KEYS, tensor, size, memory_format=memory_format)
    mark_storage(tensor)
    return tensor


def _resize_and_fill(tensor: Any, size: Any, memory_format: Any) -> Any:
    """torch would fill new memory before it is the npu's: it resizes, and the memory is filled afterwards."""
    start = tensor.untyped_storage().nbytes() // tensor.element_size()
    torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        resize(tensor, size, memory_format=memory_format)
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = True
    _fill_as_new(tensor, start)
    return tensor


def _fill_as_new(tensor: Any, start: int) -> None:
    """Give the elements of the memory from `start` on what torch gives new elements where algorithms are deterministic."""
    storage = tensor.untyped_storage()
    count = storage.nbytes() // tensor.element_size() - start
    if count > 0:
        new = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage, start, [count])
        host_alias(new).copy_(torch.empty(count, dtype=tensor.dtype))


def _resize_by_copying(tensor: Any, size: Any, memory_format: Any) -> Any:
    """Resize a tensor on memory that cannot grow: onto new memory that begins with the bytes of the old."""
    shape = torch.empty(size, dtype=tensor.dtype, device="meta", memory_format=memory_format)
    start, old = tensor.storage_offset(), tensor.untyped_storage()
    needed = (shape.untyped_storage().nbytes() if shape.numel() else 0) + start * tensor.element_size()
    if needed > old.nbytes():
        grown = adopt(torch.empty(needed, dtype=torch.uint8, device="cpu"), tensor.get_device())
        whole = host_alias(torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(old))
        host_alias(grown)[: whole.numel()].copy_(whole)
        old = grown.untyped_storage()
    _aten.set_.source_Storage_storage_offset.redispatch(_HOST_KEYS, tensor, old, start, list(shape.shape), list(shape.stride()))
    return tensor


def set_empty(tensor: Any) -> Any:
    """aten::set_: no memory, no elements."""
    storage = empty([0], dtype=tensor.dtype, device=tensor.device).untyped_storage()
    _aten.set_.source_Storage_storage_offset.redispatch(_HOST_KEYS, tensor, storage, 0, [0], [1])
    return tensor


def item(tensor: Any) -> Any:
    """aten::_local_scalar_dense."""
    return host_alias(tensor).item()


def copy(target: Any, source: Any, non_blocking: bool = False) -> Any:
    """aten::copy_, between any two of the host and the npus."""
    to_host(target).copy_(to_host(source))
    return target


def copy_from(source: Any, target: Any, non_blocking: bool = False) -> Any:
    """aten::_copy_from."""
    return copy(target, source)


def copy_from_and_resize(source: Any, target: Any) -> Any:
    """aten::_copy_from_and_resize."""
    return copy(target.resize_(source.shape), source)


def dropout(tensor: Any, p: float, train: bool | None) -> tuple[Any, Any]:
    """aten::native_dropout, with the random numbers of the tensor's npu."""
    index, host = tensor.get_device(), host_alias(tensor)
    if p == 0 or train is False or not host.numel():
        return adopt(host.clone(), index), adopt(torch.ones_like(host, dtype=torch.bool), index)
    mask = draw(default_generator(index), 1 - p, torch.empty_like(host, dtype=torch.bool))
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return adopt((mask * host).mul_(scale), index), adopt(mask, index)


def record_stream(tensor: Any, stream: Any) -> None:
    """aten::record_stream: keep the memory until the work of `stream` is done, which it is."""


KERNELS: dict[str, Callable[..., Any]] = {
    "native_dropout": dropout,
    "record_stream": record_stream,
    "empty.memory_format": empty,
    "empty_strided": empty_strided,
    "_efficientzerotensor": efficient_zeros,
    "resize_": resize,
    "set_": set_empty,
    "_local_scalar_dense": item,
    "copy_": copy,
    "_copy_from": copy_from,
    "_copy_from_and_resize": copy_from_and_resize,
}

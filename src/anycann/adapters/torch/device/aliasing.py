"""One piece of memory seen as a cpu tensor or as an npu tensor, without copying.

A DLPack capsule keeps its tensor alive and names a device in plain memory: with another device in it, torch imports the capsule as a
tensor of that device (DLPack 1.0, `DLManagedTensor.dl_tensor.device`). A tensor that nobody else has seen changes its device in place
(`layout.py`).
"""

from __future__ import annotations

from typing import Any

import torch

from anycann.adapters.torch.device import sparse
from anycann.adapters.torch.device.failures import out_of_memory
from anycann.adapters.torch.device.layout import WORDS, Layout, discover
from anycann.adapters.torch.device.native import Claim, make_claim

_DEVICE_FIELD = 1  # word of DLManagedTensor: type in the lower 32 bits, index in the upper
_CAPSULE_POINTER = 2  # word of a PyCapsule object
_CPU, _EXTENSION = 1, 12  # kDLCPU, kDLExtDev
_export, _import = torch._C._to_dlpack, torch._C._from_dlpack

_layout: Layout | None = None
_claim: Claim | None = None


def use_layout_if_verified() -> None:
    """Find out where this torch keeps a tensor's device and memory; new tensors change in place from now on, if it is as expected."""
    global _layout, _claim
    _layout = discover(import_to_npu)
    _claim = make_claim(_layout, to_npu) if _layout is not None else None


def tensors_are_known() -> bool:
    """Whether tensors change their device in place; if not, each npu tensor stands on memory that a cpu tensor of ours holds."""
    return _layout is not None


def claim() -> Claim | None:
    """The generated code that moves tensors, or None where Python does."""
    return _claim


def host_alias(tensor: Any) -> Any:
    """The cpu tensor on the memory of an npu tensor, with its sizes, strides, and conjugate and negative bits; detached."""
    capsule = _export(tensor)
    WORDS[(WORDS[(id(capsule) >> 3) + _CAPSULE_POINTER] >> 3) + _DEVICE_FIELD] = _CPU
    alias = _import(capsule)
    if tensor.is_conj():
        alias = alias.conj()
    if tensor.is_neg():
        alias = torch._neg_view(alias)
    return alias


def import_to_npu(tensor: Any, index: int) -> Any:
    """An npu tensor on the memory of a cpu tensor, which stays a cpu tensor."""
    tensor = resolved(tensor)
    capsule = _export(tensor)
    WORDS[(WORDS[(id(capsule) >> 3) + _CAPSULE_POINTER] >> 3) + _DEVICE_FIELD] = _EXTENSION | index << 32
    return _import(capsule)


def adopt(tensor: Any, index: int) -> Any:
    """Make a cpu tensor that nobody else holds (a kernel's result) an npu tensor, and return it.

    Raises torch.OutOfMemoryError if the npu has a limit and no room below it.
    """
    if _claim is not None:
        claimed = _claim.call(tensor, index)
        if claimed is tensor:
            return tensor
        if claimed is NotImplemented:
            raise out_of_memory(tensor, index)
    tensor = resolved(tensor)
    if _layout is None:
        return import_to_npu(tensor, index)
    if _claim is not None:
        return _claim.call(tensor, index) or sparse.to_npu(tensor, index)
    return tensor if _layout.move_to_npu(tensor._cdata, index) else sparse.to_npu(tensor, index)


def adopt_or_import(tensor: Any, index: int, hosts: list[Any]) -> Any:
    """`adopt`, but a tensor in the memory of one of `hosts`, which are the program's, stays, and an npu tensor beside it is returned."""
    memory = tensor.untyped_storage()._cdata
    shared = any(host.untyped_storage()._cdata == memory for host in hosts)
    return import_to_npu(tensor, index) if shared else adopt(tensor, index)


def mark_storage(tensor: Any) -> None:
    """Say again that the memory of an npu tensor is the npu's, after torch's cpu code gave it new memory."""
    if _claim is not None:
        if _claim.account(tensor, tensor.get_device()) is NotImplemented:
            raise out_of_memory(tensor, tensor.get_device())
    elif _layout is not None:
        _layout.mark_storage(tensor._cdata, tensor.get_device())


def change_kind(tensor: Any, device: Any) -> None:
    """Make a cpu tensor one of an npu or the reverse, as `device` says; what memory it has is of the old kind, and must be replaced.

    Raises RuntimeError if this torch keeps a tensor's device where nobody knows.
    """
    if _layout is None:
        raise RuntimeError("this torch lays out tensors in a way that AnyCANN does not know; a tensor keeps its device")
    _layout.change_kind(tensor._cdata, device.index if device.type == "npu" else None)


def mark_memory(storage: Any, index: int | None) -> None:
    """Make a storage that of npu `index`, or of the host for None; the tensors on it must be of that kind already."""
    if _layout is None:
        raise RuntimeError("this torch lays out tensors in a way that AnyCANN does not know; npu tensors are not shared between processes")
    _layout.mark_memory(storage._cdata, index)


def resize_memory(storage: Any, size_bytes: int, resize: Any) -> None:
    """Give an npu's storage another size in place: `resize` is torch's own function, which knows host memory.

    Raises RuntimeError if the storage stands on memory of somebody else.
    """
    if _layout is None:
        raise RuntimeError("this torch lays out tensors in a way that AnyCANN does not know; storages of the npu keep their size")
    index = storage.device.index
    _layout.mark_memory(storage._cdata, None)
    try:
        resize(storage, size_bytes)
    finally:
        _layout.mark_memory(storage._cdata, index)


def resolved(tensor: Any) -> Any:
    """`tensor` with its conjugate and negative bits carried out: a capsule has no room for them."""
    if tensor.is_conj():
        tensor = tensor.resolve_conj()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    return tensor


def to_host(value: Any) -> Any:
    """`value` with every npu tensor in it (also in lists and tuples) as its cpu alias, npu devices as cpu, generators as they run."""
    if isinstance(value, torch.Tensor):
        if not value.is_npu:
            return value
        return host_alias(value) if value.layout == torch.strided else sparse.to_host(value)
    if type(value) in (list, tuple):
        return type(value)(to_host(item) for item in value)
    if isinstance(value, torch.device) and value.type == "npu":
        return torch.device("cpu")
    return value


def to_npu(value: Any, index: int) -> Any:
    """`value` with every cpu tensor in it (also in lists and tuples) adopted by npu `index`."""
    if isinstance(value, torch.Tensor):
        return adopt(value, index)
    if isinstance(value, (list, tuple)):
        return type(value)(to_npu(item, index) for item in value)
    return value

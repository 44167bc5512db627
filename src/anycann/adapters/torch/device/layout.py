"""Where this torch keeps the device of a tensor and of its memory: found by comparing two tensors, and believed only after a trial."""

from __future__ import annotations

from collections.abc import Callable
import ctypes
from typing import Any

import torch

from anycann.support.records import dataclass

# All of memory as words; an index is an address divided by the word's size. torch_npu changes only words of objects it holds.
WORDS = (ctypes.c_uint64 * (1 << 59)).from_address(0)
HALF_WORDS = (ctypes.c_uint16 * (1 << 60)).from_address(0)

_TENSOR_BYTES, _STORAGE_BYTES = 192, 64
_NPU_TYPE, _CPU_DEVICE = 20, 0xFF00  # c10::Device in 16 bits: the type, and the index above it (255: none)


@dataclass(frozen=True)
class Layout:
    """Offsets in bytes: the dispatch keys and the device in a TensorImpl, its storage pointer, and the device in a StorageImpl.

    `keys` are the bits by which the dispatch keys of an npu tensor differ from those of a cpu tensor.
    """

    keys_at: int
    keys: int
    device_at: int
    storage_at: int
    storage_device_at: int

    def move_to_npu(self, tensor: int, index: int) -> bool:
        """Make the cpu TensorImpl at address `tensor`, and its memory, those of npu `index`; False if it has no memory of its own."""
        storage = WORDS[(tensor + self.storage_at) >> 3]
        if not storage:
            return False
        device = _NPU_TYPE | index << 8
        WORDS[(tensor + self.keys_at) >> 3] ^= self.keys
        HALF_WORDS[(tensor + self.device_at) >> 1] = device
        HALF_WORDS[(storage + self.storage_device_at) >> 1] = device
        return True

    def change_kind(self, tensor: int, index: int | None) -> None:
        """Make the cpu TensorImpl at address `tensor` one of npu `index`, or the reverse for None; its memory stays as it is."""
        WORDS[(tensor + self.keys_at) >> 3] ^= self.keys
        HALF_WORDS[(tensor + self.device_at) >> 1] = _CPU_DEVICE if index is None else _NPU_TYPE | index << 8

    def mark_storage(self, tensor: int, index: int) -> None:
        """Make the memory of the TensorImpl at address `tensor` that of npu `index`."""
        HALF_WORDS[(WORDS[(tensor + self.storage_at) >> 3] + self.storage_device_at) >> 1] = _NPU_TYPE | index << 8

    def mark_memory(self, storage: int, index: int | None) -> None:
        """Make the StorageImpl at address `storage` that of npu `index`, or of the host for None."""
        HALF_WORDS[(storage + self.storage_device_at) >> 1] = _CPU_DEVICE if index is None else _NPU_TYPE | index << 8


def discover(import_to_npu: Callable[[Any, int], Any]) -> Layout | None:
    """The layout of this torch, or None if it cannot be told from a tensor and its import to the npu, or does not do what it should."""
    host = torch.empty(3, 5)
    device = import_to_npu(host, 3)
    layout = _compare(host, device)
    return layout if layout is not None and _works(layout) else None


def _compare(host: Any, device: Any) -> Layout | None:
    keys = torch._C._dispatch_keys(host).raw_repr(), torch._C._dispatch_keys(device).raw_repr()
    tensors = _bytes(host._cdata, _TENSOR_BYTES), _bytes(device._cdata, _TENSOR_BYTES)
    storages = host.untyped_storage()._cdata, device.untyped_storage()._cdata
    memories = _bytes(storages[0], _STORAGE_BYTES), _bytes(storages[1], _STORAGE_BYTES)
    devices = _CPU_DEVICE, _NPU_TYPE | 3 << 8
    found = (
        _only(tensors, 8, keys),
        _only(tensors, 2, devices),
        _only(tensors, 8, storages),
        _only(memories, 2, devices),
    )
    if any(offset is None for offset in found):
        return None
    keys_at, device_at, storage_at, storage_device_at = (offset or 0 for offset in found)
    return Layout(keys_at, keys[0] ^ keys[1], device_at, storage_at, storage_device_at)


def _bytes(address: int, size: int) -> bytes:
    return ctypes.string_at(address, size)


def _only(pair: tuple[bytes, bytes], size: int, values: tuple[int, int]) -> int | None:
    """The one aligned offset at which the first has the first value and the second the second; None if there is none or several."""
    wanted = tuple(value.to_bytes(size, "little") for value in values)
    places = range(0, len(pair[0]) - size + 1, size)
    hits = [at for at in places if pair[0][at : at + size] == wanted[0] and pair[1][at : at + size] == wanted[1]]
    return hits[0] if len(hits) == 1 else None


def _works(layout: Layout) -> bool:
    """Whether a tensor moved by `layout` says so of itself, and of its memory, and nothing else of it changed."""
    tensor = torch.arange(6).reshape(2, 3)[1:]
    before = tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.data_ptr()
    layout.move_to_npu(tensor._cdata, 2)
    after = tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.data_ptr()
    device = torch.device("npu", 2)
    return before == after and tensor.device == device and tensor.untyped_storage().device == device and not tensor.is_cpu

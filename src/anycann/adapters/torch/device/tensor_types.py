"""The old names of tensors and storages by type: `torch.npu.FloatTensor` is a float32 tensor on the current npu."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

_TYPES = {
    "Float": torch.float32, "Half": torch.float16, "BFloat16": torch.bfloat16, "Double": torch.float64, "Byte": torch.uint8,
    "Char": torch.int8, "Short": torch.int16, "Int": torch.int32, "Long": torch.int64, "Bool": torch.bool,
}  # fmt: skip


class _TensorType(type):
    """`isinstance(t, torch.npu.FloatTensor)` asks for the dtype and the device."""

    dtype: Any

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch.Tensor) and instance.is_npu and instance.dtype == cls.dtype

    def __call__(cls, *args: Any, **keywords: Any) -> Any:
        """A tensor of sizes (`FloatTensor(2, 3)`, without values), or of values (`FloatTensor([1, 2])`)."""
        device = keywords.get("device", "npu")
        if len(args) == 1 and not isinstance(args[0], (int, torch.Size)):
            return torch.as_tensor(args[0], dtype=cls.dtype, device=device)
        size = args[0] if args and isinstance(args[0], torch.Size) else args
        return torch.empty(size, dtype=cls.dtype, device=device)


class _StorageType(torch.storage._LegacyStorage):
    """Storages by type."""

    @classmethod
    def from_buffer(cls, *args: Any, **keywords: Any) -> Any:
        """Refused, as by torch: Python's buffers are on the host."""
        raise RuntimeError("from_buffer: Not available for NPU storage")


_type = torch._C.TensorBase.type
_set_default = torch.set_default_tensor_type


def install() -> None:
    """Let `Tensor.type` take the classes and names of this file."""
    torch.Tensor.type = _type_or_convert
    torch.set_default_tensor_type = _set_default_type


def _set_default_type(kind: Any) -> None:
    """`torch.set_default_tensor_type`: with a class of this file, new tensors are of its dtype, and on the npu."""
    named = tensor_types().get(kind.removeprefix("torch.npu.")) if isinstance(kind, str) and kind.startswith("torch.npu.") else kind
    if isinstance(named, _TensorType):
        torch.set_default_dtype(named.dtype)
        torch.set_default_device("npu")
        return
    torch.set_default_device(None)
    _set_default(named)


def _type_or_convert(tensor: Any, dtype: Any = None, non_blocking: bool = False, **keywords: Any) -> Any:
    """`Tensor.type`: the name of the type, or the tensor with another type and device."""
    if isinstance(dtype, _TensorType):
        return tensor.to(torch.device("npu"), dtype.dtype, non_blocking)
    return _type(tensor, dtype, non_blocking, **keywords) if dtype is not None else _type(tensor)


@cache
def tensor_types() -> dict[str, Any]:
    """`FloatTensor` and the others by name."""
    module = "torch.npu"
    return {f"{name}Tensor": _TensorType(f"{name}Tensor", (), {"dtype": dtype, "__module__": module}) for name, dtype in _TYPES.items()}


def storage_types() -> dict[str, Any]:
    """`FloatStorage` and the others by name."""
    return {
        f"{name}Storage": type(
            f"{name}Storage",
            (_StorageType,),
            {"dtype": torch._utils.classproperty(lambda cls: cls._dtype), "_dtype": dtype, "__module__": "torch.npu"},
        )
        for name, dtype in _TYPES.items()
    }

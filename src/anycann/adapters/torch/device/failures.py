"""What an operator on the npu says when it fails: torch's own error type and text, then the operator and its arguments."""

from __future__ import annotations

from typing import Any

import torch

from anycann.adapters.torch.device import accounts
from anycann.adapters.torch.device.accounts import Field

_KINDS = (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError)


def explained(error: Exception, op: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Exception:
    """`error` with the operator and the shapes it was called with added to its text; its type stays."""
    if isinstance(error, NotImplementedError) and "Could not run" in str(error):
        return NotImplementedError(f"{op} is not there for npu: torch has no cpu kernel for it\nin {call_text(op, args, keywords)}")
    if type(error) not in (*_KINDS, torch._C._LinAlgError):
        return error
    return type(error)(f"{error}\nin {call_text(op, args, keywords)}")


def mixed_devices(op: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> RuntimeError:
    """The error of tensors on several devices, in torch's words."""
    found = sorted({str(tensor.device) for tensor in _tensors((*args, *keywords.values()))}, key=lambda name: (name == "cpu", name))
    return RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {found[0]} and {found[-1]}! "
        f"(when checking arguments of {call_text(op, args, keywords)})"
    )


def out_of_memory(tensor: Any, index: int) -> Exception:
    """The error of a tensor that an npu has no room for; counted."""
    accounts.add(index, Field.OUT_OF_MEMORY, 1)
    limit, held = accounts.read(index, Field.LIMIT), accounts.read(index, Field.ALLOCATED)
    wanted = f"Tried to allocate {_size_text(tensor.untyped_storage().nbytes())}"
    amounts = f"{_size_text(limit)} total capacity; {_size_text(held)} already allocated; {_size_text(limit - held)} free"
    return torch.OutOfMemoryError(f"NPU out of memory. {wanted} (NPU {index}; {amounts}; ANYCANN_DEVICE_MEMORY sets the capacity)")


def _size_text(size: int) -> str:
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.2f} {unit}"
    return f"{size} bytes"


def call_text(op: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> str:
    """The call as text: `aten::mm(npu:0 float32[2, 3], npu:0 float32[4, 5])`."""
    words = [_argument_text(value) for value in args] + [f"{name}={_argument_text(value)}" for name, value in keywords.items()]
    return f"{op._schema.name}({', '.join(words)})"


def _argument_text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.device} {str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, (list, tuple)):
        shown = ", ".join(_argument_text(item) for item in value[:4])
        return f"[{shown}, ...]" if len(value) > 4 else f"[{shown}]"
    return repr(value)


def _tensors(values: Any) -> list[Any]:
    found = [value for value in values if isinstance(value, torch.Tensor)]
    for value in values:
        if isinstance(value, (list, tuple)):
            found += _tensors(value)
    return found

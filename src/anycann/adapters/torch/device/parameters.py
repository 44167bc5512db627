"""`p.data = other` across devices, as between torch's own: a module that moves to an npu keeps its Parameter objects, so that an
optimizer made before holds what trains. torch's C++ code changes a tensor only into one of the same kind, so its kind is changed first.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

from anycann.adapters.torch.device import devices
from anycann.adapters.torch.device.aliasing import change_kind, tensors_are_known

_data = torch._C.TensorBase.data
_same_kind = torch._has_compatible_shallow_copy_type
_TYPES = (torch.Tensor, torch.nn.Parameter, torch.nn.UninitializedParameter, torch.nn.UninitializedBuffer)
_PLAIN = ("cpu", devices.NAME)


def install() -> None:
    """Let tensors change between the cpu and npus in place, and uninitialised parameters move to them."""
    torch.Tensor.data = property(_data.__get__, _set_data)
    torch._has_compatible_shallow_copy_type = _compatible
    UninitializedTensorMixin._allowed_methods += [torch.Tensor.npu, torch.Tensor.is_npu.__get__]


def _compatible(*args: Any, **kwargs: Any) -> bool:
    """`torch._has_compatible_shallow_copy_type(input, from_)`; torch.compile wants it to take anything."""
    return _same_kind(*args, **kwargs) or (tensors_are_known() and _may_change(*args, **kwargs))


def _may_change(input: Any, from_: Any) -> bool:
    """Whether one is on the cpu and the other on an npu, both of torch's own kind."""
    kinds = (input.device.type, from_.device.type)
    plain = all(type(value) in _TYPES and value.layout == torch.strided for value in (input, from_))
    return plain and kinds in (_PLAIN, _PLAIN[::-1])


def _set_data(tensor: Any, new: Any) -> None:
    if isinstance(new, torch.Tensor) and new.device.type != tensor.device.type and _may_change(tensor, new):
        change_kind(tensor, new.device)
    _data.__set__(tensor, new)

"""Pinned memory: all host memory is, as far as npus here are concerned; tensors only remember that they were asked to be."""

from __future__ import annotations

from typing import Any
import warnings

import torch

_MARK = "_pinned_for_npu"
_kept: list[Any] = []


def install() -> None:
    """Make `pin_memory` and `is_pinned` work without an accelerator of torch's own, for Python and for torch's C++ code."""
    torch.Tensor.pin_memory = _pin_memory
    torch.Tensor.is_pinned = _is_pinned
    host = torch.library.Library("aten", "IMPL", "CPU")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # both have a kernel, which asks for an accelerator
        host.impl("is_pinned", lambda tensor, device=None: True)  # DistributedDataParallel insists on it
        host.impl("_pin_memory", lambda tensor, device=None: tensor.clone())
    _kept.append(host)


def _pin_memory(tensor: Any, device: Any = None) -> Any:
    """`Tensor.pin_memory`: a copy that is pinned. Raises RuntimeError for tensors that are not on the cpu."""
    if tensor.device.type != "cpu":
        raise RuntimeError(f"cannot pin '{tensor.type()}' only dense CPU tensors can be pinned")
    if _is_pinned(tensor):
        return tensor
    pinned = tensor.clone()
    setattr(pinned, _MARK, True)
    return pinned


def _is_pinned(tensor: Any, device: Any = None) -> bool:
    """`Tensor.is_pinned`."""
    return getattr(tensor, _MARK, False)

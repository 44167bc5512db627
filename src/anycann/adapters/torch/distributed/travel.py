"""How tensors go through gloo: as they are where it knows their dtype, else as another dtype of the same bytes, or, to be reduced, widened.

| dtype                      | moved as                | reduced as                                    |
| -------------------------- | ----------------------- | --------------------------------------------- |
| int16, uint16              | float16 (same bytes)    | int32, copied back                            |
| uint32                     | int32                   | int64, copied back                            |
| uint64                     | int64                   | not: gloo says so                             |
| float8, 1-byte floats      | uint8                   | float32, copied back                          |
| bool                       | bool                    | uint8, every sum that is not 0 becomes True   |
| complex64, complex128      | pairs of real numbers   | as they are (sums and averages)               |
| all others                 | as they are             | as they are                                   |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from anycann.adapters.torch.device.aliasing import host_alias, resolved

_ONE_BYTE_FLOATS = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
_FLOAT8 = {getattr(torch, name): torch.uint8 for name in _ONE_BYTE_FLOATS if hasattr(torch, name)}
_SAME_BYTES = {torch.int16: torch.float16, torch.uint16: torch.float16, torch.uint32: torch.int32, torch.uint64: torch.int64, **_FLOAT8}
_WIDER = {torch.int16: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64} | dict.fromkeys(_FLOAT8, torch.float32)

Finish = Callable[[], None]


def moved(tensor: Any) -> Any:
    """The host tensor on the memory of `tensor`, in a dtype that gloo moves."""
    host = _host(tensor)
    if host.is_complex():
        return torch.view_as_real(host)
    return host.view(_SAME_BYTES[host.dtype]) if host.dtype in _SAME_BYTES else host


def reduced(tensor: Any, finishes: list[Finish]) -> Any:
    """The host tensor that gloo reduces; what must be done with a result afterwards is added to `finishes`."""
    host = _host(tensor)
    if host.dtype is torch.bool:
        bytes_ = host.view(torch.uint8)
        finishes.append(lambda: bytes_.clamp_(max=1))
        return bytes_
    if host.dtype not in _WIDER:
        return host
    wide = host.to(_WIDER[host.dtype])
    finishes.append(lambda: host.copy_(wide))
    return wide


def _host(tensor: Any) -> Any:
    if tensor.layout is not torch.strided:
        raise RuntimeError(f"hccl takes dense tensors, got a {tensor.layout} tensor of {tuple(tensor.shape)}; to_dense() makes one")
    return resolved(host_alias(tensor)) if tensor.is_npu else tensor

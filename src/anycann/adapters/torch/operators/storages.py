"""Functions on memory: how much a tensor stands on, tensors that move to the memory of others, memory shared with the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from anycann.adapters.torch.device.aliasing import host_alias, import_to_npu
from anycann.adapters.torch.operators.registry import require, sizes


def get_storage_size(self: torch.Tensor) -> int:
    """The number of elements that the memory of a tensor holds."""
    return self.untyped_storage().nbytes() // self.element_size()


def npu_change_data_ptr(dst: torch.Tensor, src: torch.Tensor, index: int) -> int:
    """Puts dst, with its shape and strides, on the memory that src stands on, `index` elements behind its beginning; returns 0.

    The memory of dst is a part of that of src and as large as before; it lives as long as one of them.
    """
    operator, held = "npu_change_data_ptr", get_storage_size(src) - index
    spanned = 1 + sum((size - 1) * stride for size, stride in zip(dst.shape, dst.stride(), strict=True)) if dst.numel() else 0
    size = max(spanned, min(get_storage_size(dst), held))
    fits = dst.dtype == src.dtype and index >= 0 and size <= held and src.is_npu
    require(fits, operator, f"{sizes(dst)} at element {index} of {sizes(src)}", "the same dtype, and memory for all of dst on an npu")
    part = host_alias(src.detach().as_strided([size], [1], index))
    with torch.no_grad():
        dst.set_(import_to_npu(part, src.get_device()).untyped_storage(), 0, dst.shape, dst.stride())
    return 0


def empty_with_swapped_memory(size: Sequence[int], *, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
    """An uninitialised npu tensor whose memory is the host's, as that of all tensors is here."""
    return torch.empty(size, dtype=dtype, device=device or "npu")


FUNCTIONS: dict[str, Any] = {function.__name__: function for function in (get_storage_size, npu_change_data_ptr, empty_with_swapped_memory)}

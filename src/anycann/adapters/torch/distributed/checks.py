"""What HCCL refuses before anything travels: gloo reads and writes on, past what a tensor holds or leaves out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def check_tensors(name: str, arguments: Iterable[Any], flat: bool = False) -> None:
    """Raises RuntimeError for tensors on several devices, and that are not contiguous: in their format, unless they are taken as `flat`."""
    tensors = list(_tensors(arguments))
    for tensor in tensors:
        if not (tensor.is_contiguous() if flat else is_dense(tensor)):
            sizes, strides = tuple(tensor.shape), tensor.stride()
            raise RuntimeError(f"Tensors must be contiguous, got the sizes {sizes} with the strides {strides} in hccl {name.strip('_')}")
    places = {tensor.device for tensor in tensors}
    if len(places) > 1:
        told = ", ".join(sorted(map(str, places)))
        raise RuntimeError(f"Corresponding input/output tensors to hccl {name.strip('_')} must all reside on the same device, got {told}")


def check_splits(sizes: Iterable[int], ranks: int) -> None:
    """Raises RuntimeError where rows are to be split evenly over ranks and cannot be."""
    for size in sizes:
        if size % ranks:
            raise RuntimeError(f"Tensor's dim 0 does not divide equally across group size: {size} over {ranks} ranks in hccl alltoall_base")


def is_dense(tensor: Any) -> bool:
    """Whether a tensor is contiguous in its format."""
    return bool(tensor.is_contiguous() or (tensor.dim() in _FORMATS and tensor.is_contiguous(memory_format=_FORMATS[tensor.dim()])))


def _tensors(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        else:
            yield from _tensors(value)

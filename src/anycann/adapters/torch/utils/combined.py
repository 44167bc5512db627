"""Tensors side by side in one piece of memory: optimizers and gradient scalers then work on the one tensor that holds them all."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def npu_combine_tensors(list_of_tensor: Sequence[torch.Tensor], require_copy_value: bool = True) -> torch.Tensor | None:
    """Move tensors into a new one of one axis, which is returned; they become parts of it, with their values unless told otherwise.

    None if there is nothing to hold. Raises RuntimeError for tensors that are missing, not contiguous, not on an npu, or of several dtypes.
    """
    if not list_of_tensor:
        return None
    for tensor in list_of_tensor:
        _check(tensor, list_of_tensor[0])
    total = sum(tensor.numel() for tensor in list_of_tensor)
    if total == 0:
        return None
    combined = torch.zeros(total, dtype=list_of_tensor[0].dtype, device=list_of_tensor[0].device)
    places = combined.split([tensor.numel() for tensor in list_of_tensor])
    for tensor, place in zip(list_of_tensor, places, strict=True):
        if require_copy_value:
            place.copy_(tensor.detach().reshape(-1))
        tensor.data = place.view(tensor.shape)
    return combined


def _check(tensor: torch.Tensor | None, first: torch.Tensor) -> None:
    if tensor is None:
        raise RuntimeError("Tensors to combine must not have `None`.")
    if tensor.dtype != first.dtype:
        raise RuntimeError(f"Tensors to combine must have the same dtype, got {first.dtype} and {tensor.dtype}.")
    if tensor.device.type != "npu":
        raise RuntimeError(f"Tensors to combine must be on NPU, got {tensor.device.type}.")
    if not tensor.is_contiguous():
        raise RuntimeError(f"Tensors to combine must be contiguous, got the sizes {tuple(tensor.shape)}, strides {tensor.stride()}.")


def get_part_combined_tensor(combined_tensor: torch.Tensor | None, index: int, size: int) -> torch.Tensor | None:
    """The `size` elements from `index` on, in the same memory; None for none. Raises RuntimeError if there are fewer."""
    if combined_tensor is None or size == 0:
        return None
    if index + size > combined_tensor.numel():
        raise RuntimeError(f"(index + size) ({index + size}) > the elements of the combined tensor ({combined_tensor.numel()})")
    return combined_tensor[index : index + size]


def is_combined_tensor_valid(combined_tensor: torch.Tensor | None, list_of_tensor: Sequence[torch.Tensor | None]) -> bool:
    """Whether all of the list still lie in the combined tensor's memory, and contiguously."""
    if not list_of_tensor:
        return True
    if combined_tensor is None:
        return False
    begin = combined_tensor.data_ptr()
    end = begin + combined_tensor.numel() * combined_tensor.element_size()
    return all(tensor is not None and begin <= tensor.data_ptr() < end and tensor.is_contiguous() for tensor in list_of_tensor)

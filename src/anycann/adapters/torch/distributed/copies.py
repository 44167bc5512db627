"""Lists with a tensor of each rank: HCCL takes them with gaps, and of any sizes; gloo takes copies without gaps, all of one size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from anycann.adapters.torch.distributed.checks import is_dense
from anycann.adapters.torch.distributed.travel import Finish

# The argument with a tensor of each rank: HCCL copies these to or from one piece of memory.
_LISTS = {"allgather_": 0, "gather_": 0, "reduce_scatter_": 1, "scatter_": 1}
_OF_ANY_SIZES = ("allgather_", "reduce_scatter_")


def copied(name: str, rank: int, tensors: Sequence[Any]) -> tuple[Sequence[Any], list[Finish]]:
    """The tensors for gloo, and what must be done afterwards. Raises RuntimeError if this rank's tensor is not as the list says."""
    at = _LISTS.get(name)
    if at is None:
        return tensors, []
    if name in _OF_ANY_SIZES and len({tensor.shape for tensor in tensors[at][0]}) > 1:
        return _widened(name, rank, tensors, tensors[at][0])
    finishes: list[Finish] = []

    def packed(tensor: Any) -> Any:
        if is_dense(tensor):
            return tensor
        copy = tensor.detach().contiguous()
        if at == 0:
            finishes.append(lambda: tensor.detach().copy_(copy))
        return copy

    return [each(packed, item) if place == at else item for place, item in enumerate(tensors)], finishes


def _widened(name: str, rank: int, tensors: Sequence[Any], parts: Sequence[Any]) -> tuple[list[Any], list[Finish]]:
    """All as long as the longest, with zeros; of the written ones the beginnings are copied back."""
    (own,) = tensors[1] if name == "allgather_" else tensors[0]
    if own.shape != parts[rank].shape:
        sizes = [tuple(part.shape) for part in parts]
        raise RuntimeError(f"hccl {name.strip('_')}: a tensor of {tuple(own.shape)} on rank {rank}, the list says {sizes}")
    longest = max(part.numel() for part in parts)
    finishes: list[Finish] = []

    def wide(tensor: Any) -> Any:
        values = tensor.detach()
        copy = values.new_zeros(longest)
        copy[: values.numel()] = values.reshape(-1)
        return copy

    def written(tensor: Any) -> Any:
        copy = tensor.detach().new_zeros(longest)
        finishes.append(lambda: tensor.detach().copy_(copy[: tensor.numel()].view(tensor.shape)))
        return copy

    return [each(written, tensors[0]), each(wide, tensors[1])], finishes


def each(change: Callable[[Any], Any], item: Any) -> Any:
    """A tensor, or the tensors of lists, changed."""
    if isinstance(item, torch.Tensor):
        return change(item)
    return [each(change, part) for part in item]

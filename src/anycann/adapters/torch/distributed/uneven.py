"""`torch_npu.distributed`: collectives whose ranks hold parts of different length, and a group after a fault of a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C._distributed_c10d import _create_work_from_future  # type: ignore[attr-defined]
import torch.distributed as dist
from torch.distributed.distributed_c10d import _rank_not_in_group, _warn_not_in_group


def all_gather_into_tensor_uneven(
    output: torch.Tensor, input: torch.Tensor, output_split_sizes: Sequence[int] | None = None, group: Any = None, async_op: bool = False
) -> Any:
    """Put the inputs of all ranks, the k-th of `output_split_sizes[k]` rows, below each other into every rank's output.

    Without sizes all are as long. Returns a work with `async_op`, else None. Raises ValueError if the sizes are not those of the tensors.
    """
    if not output_split_sizes:
        return dist.all_gather_into_tensor(output, input, group=group, async_op=async_op)
    if _is_outside("all_gather_into_tensor_uneven", group):
        return None
    sizes = _checked("all_gather_into_tensor_uneven", output_split_sizes, output, input, group)
    longest, rest = max(sizes), input.shape[1:]
    sent, gathered = input.new_zeros(longest, *rest), input.new_empty(len(sizes), longest, *rest)
    sent[: len(input)] = input

    def finish() -> torch.Tensor:
        return output.copy_(torch.cat([part[:rows] for part, rows in zip(gathered, sizes, strict=True)]))

    return _finished(dist.all_gather_into_tensor(gathered, sent, group=group, async_op=async_op), finish)


def reduce_scatter_tensor_uneven(
    output: torch.Tensor,
    input: torch.Tensor,
    input_split_sizes: Sequence[int] | None = None,
    op: Any = dist.ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Any:
    """Reduce the inputs of all ranks; rank k gets `input_split_sizes[k]` rows of the result, those below the parts of lower ranks.

    Without sizes all are as long. Returns a work with `async_op`, else None. Raises ValueError if the sizes are not those of the tensors.
    """
    if not input_split_sizes:
        return dist.reduce_scatter_tensor(output, input, op=op, group=group, async_op=async_op)
    if _is_outside("reduce_scatter_tensor_uneven", group):
        return None
    sizes = _checked("reduce_scatter_tensor_uneven", input_split_sizes, input, output, group)
    whole = input.clone()
    part = whole.split(sizes)[dist.get_rank(group)]
    work = dist.all_reduce(whole, op=op, group=group, async_op=async_op)
    return _finished(work, lambda: output.copy_(part))


def _finished(work: Any, finish: Callable[[], torch.Tensor]) -> Any:
    """Finish now if there is no work to wait for; else a work that is done when `work` is, and then finishes."""
    if work is None:
        finish()
        return None

    def finish_after(future: Any) -> list[torch.Tensor]:
        future.value()
        return [finish()]

    return _create_work_from_future(work.get_future().then(finish_after))


def _is_outside(name: str, group: Any) -> bool:
    """Whether this rank is not of the group: then nothing is done, and torch warns, as for its own collectives."""
    outside = _rank_not_in_group(group)
    if outside:
        _warn_not_in_group(name)
    return bool(outside)


def _checked(name: str, sizes: Sequence[int], whole: torch.Tensor, part: torch.Tensor, group: Any) -> list[int]:
    rank, count = dist.get_rank(group), dist.get_world_size(group)
    if len(sizes) != count or sum(sizes) != whole.shape[0] or sizes[rank] != part.shape[0]:
        raise ValueError(
            f"{name}: split sizes {list(sizes)} on rank {rank} of {count}, for tensors of {whole.shape[0]} rows (all ranks) "
            f"and {part.shape[0]} rows (this rank)"
        )
    return list(sizes)


def reinit_process_group(group: Any = None, rebuild_link: bool = True) -> None:
    """Go on with a group after `torch.npu.restart_device`: its connections are of the hosts and outlive a device.

    Raises ValueError if torch.distributed was not initialized, or the group was destroyed.
    """
    dist.get_world_size(group)

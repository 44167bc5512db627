"""Collectives whose ranks hold parts of different length. Runs on two ranks or more."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
import torch_npu

GATHER, REDUCE = torch_npu.distributed.all_gather_into_tensor_uneven, torch_npu.distributed.reduce_scatter_tensor_uneven


def sizes() -> list[int]:
    """Rank k holds 2 * k + 1 rows, but the last none."""
    return [2 * rank + 1 for rank in range(dist.get_world_size() - 1)] + [0]


def rows(rank: int) -> torch.Tensor:
    """Two columns that tell of which rank and row they are."""
    return 100.0 * rank + torch.arange(2.0 * sizes()[rank]).view(-1, 2)


def check_inputs_of_every_length_are_gathered() -> None:
    rank, wanted = dist.get_rank(), torch.cat([rows(rank) for rank in range(dist.get_world_size())])
    for waits in (False, True):
        output = torch.full_like(wanted, -1, device="npu")
        work = GATHER(output, rows(rank).npu(), sizes(), async_op=waits)
        assert (work is not None) == waits
        if waits:
            work.wait()
        assert torch.equal(output.cpu(), wanted)


def check_sums_go_to_ranks_in_parts_of_every_length() -> None:
    rank, total = dist.get_rank(), sum(sizes())
    values = torch.arange(2.0 * total).view(-1, 2)
    wanted = (dist.get_world_size() * values).split(sizes())[rank]
    for waits in (False, True):
        output, given = torch.full_like(wanted, -1, device="npu"), values.npu()
        work = REDUCE(output, given, sizes(), async_op=waits)
        if waits:
            work.wait()
        assert torch.equal(output.cpu(), wanted)
        assert torch.equal(given.cpu(), values)


def check_lists_take_tensors_of_every_length() -> None:
    rank, parts = dist.get_rank(), [rows(rank) for rank in range(dist.get_world_size())]
    for dtype in (torch.float32, torch.int16):
        for waits in (False, True):
            outputs = [torch.full_like(part, -1, dtype=dtype, device="npu") for part in parts]
            work = dist.all_gather(outputs, parts[rank].to("npu", dtype), async_op=waits)
            if waits:
                work.wait()
            assert [output.tolist() for output in outputs] == [part.tolist() for part in parts]
            output, given = torch.full_like(outputs[rank], -1), [part.to("npu", dtype) for part in parts]
            work = dist.reduce_scatter(output, given, async_op=waits)
            if waits:
                work.wait()
            assert output.tolist() == (dist.get_world_size() * parts[rank]).tolist()
            assert [part.tolist() for part in given] == [part.tolist() for part in parts]


def check_a_tensor_that_is_not_as_its_list_says_is_refused() -> None:
    lists = [torch.ones(rank + 1, device="npu") for rank in range(dist.get_world_size())]
    other, said = torch.ones(9, device="npu"), rf"a tensor of \(9,\) on rank {dist.get_rank()}, the list says \[\(1,\), \(2,\)"
    with pytest.raises(RuntimeError, match=f"hccl allgather: {said}"):
        dist.all_gather(lists, other)
    with pytest.raises(RuntimeError, match=f"hccl reduce_scatter: {said}"):
        dist.reduce_scatter(other, lists)


def check_without_sizes_all_parts_are_as_long() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    gathered, mine = torch.empty(2 * world, device="npu"), torch.full((2,), float(rank), device="npu")
    GATHER(gathered, mine)
    assert gathered.tolist() == [rank for rank in range(world) for _ in range(2)]
    REDUCE(mine, gathered, op=dist.ReduceOp.MAX)
    assert mine.tolist() == [rank, rank]


def check_ranks_outside_the_group_are_warned_and_do_nothing() -> None:
    first, one = dist.new_group([0]), torch.ones(1, device="npu")
    for collective in (GATHER, REDUCE):
        output = torch.zeros(1, device="npu")
        with nullcontext() if dist.get_rank() == 0 else pytest.warns(UserWarning, match="does not belong to the given group"):
            assert collective(output, one, [1], group=first) is None
        assert output.item() == (dist.get_rank() == 0)


def check_sizes_that_do_not_fit_are_refused() -> None:
    one = torch.ones(1, device="npu")
    with pytest.raises(ValueError, match="all_gather_into_tensor_uneven: split sizes"):
        GATHER(one, one, [1, 1])
    with pytest.raises(ValueError, match="reduce_scatter_tensor_uneven: split sizes"):
        REDUCE(one, one, [1, 1])
    torch_npu.distributed.reinit_process_group()

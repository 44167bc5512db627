"""Each collective on each dtype, and what is built on them. Runs on two ranks or more."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch_npu  # noqa: F401

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.float8_e4m3fn,
)


def rank() -> int:
    return dist.get_rank()


def size() -> int:
    return dist.get_world_size()


def tensor(*values: float, dtype: torch.dtype = torch.float32) -> Any:
    return torch.tensor(values, dtype=torch.float32).to(dtype).to(f"npu:{rank()}")


def said(value: Any) -> list[float]:
    assert value.device == torch.device("npu", rank())
    return [float(number) for number in value.cpu().to(torch.float64)]


def check_all_reduce() -> None:
    for dtype in DTYPES:
        values = tensor(1, 2, rank(), dtype=dtype)
        dist.all_reduce(values)
        assert said(values) == [size(), 2 * size(), size() * (size() - 1) / 2], dtype
        values = tensor(1, rank(), dtype=dtype)
        work = dist.all_reduce(values, op=dist.ReduceOp.MAX, async_op=True)
        work.wait()
        assert said(values) == [1, size() - 1], dtype


def check_products_minima_averages_and_bits() -> None:
    for op, want in ((dist.ReduceOp.PRODUCT, 2.0 ** size()), (dist.ReduceOp.MIN, 2), (dist.ReduceOp.AVG, 2)):
        values = tensor(2)
        dist.all_reduce(values, op=op)
        assert said(values) == [want], op
    for op, want in ((dist.ReduceOp.BAND, 4), (dist.ReduceOp.BOR, 4 + 2 ** size() * 8 - 8), (dist.ReduceOp.BXOR, 2 ** size() * 8 - 8)):
        values = tensor(4 + 8 * 2 ** rank(), dtype=torch.int32)
        dist.all_reduce(values, op=op)
        assert said(values)[0] in (want, want + 4), op  # an odd number of ranks keeps the common bit in BXOR


def check_the_sum_of_truths_is_a_truth() -> None:
    values = torch.tensor([True, False, rank() == 1], device="npu")
    dist.all_reduce(values)
    assert values.view(torch.uint8).tolist() == [1, 0, 1]


def check_complex_numbers() -> None:
    values = torch.tensor([1 + 2j], device="npu")
    dist.all_reduce(values)
    assert values.tolist() == [size() * (1 + 2j)]
    gathered = [torch.zeros(1, dtype=torch.complex64, device="npu") for _ in range(size())]
    dist.all_gather(gathered, torch.tensor([complex(rank(), 1)], device="npu"))
    assert [each.item() for each in gathered] == [complex(other, 1) for other in range(size())]


def check_formats_and_nothing_at_all() -> None:
    for values in (
        torch.arange(16.0, device="npu").view(4, 4)[:3],
        torch.randn(1, 2, 3, 3).npu().to(memory_format=torch.channels_last),
        torch.ones(0, device="npu"),
        torch.tensor(3.0, device="npu"),
    ):
        dist.broadcast(values, 0)
        want = values * size()
        dist.all_reduce(values)
        assert torch.equal(values, want)


def check_movements() -> None:
    for dtype in DTYPES:
        values = tensor(rank(), dtype=dtype)
        dist.broadcast(values, size() - 1)
        assert said(values) == [size() - 1], dtype
        parts = [tensor(9, dtype=dtype) for _ in range(size())]
        dist.all_gather(parts, tensor(rank(), dtype=dtype))
        assert [said(part) for part in parts] == [[other] for other in range(size())], dtype
        whole = tensor(*[9] * size(), dtype=dtype)
        dist.all_gather_into_tensor(whole, tensor(rank(), dtype=dtype))
        assert said(whole) == list(range(size())), dtype
        dist.all_to_all_single(whole, tensor(*[rank()] * size(), dtype=dtype))
        assert said(whole) == list(range(size())), dtype
        dist.all_to_all(parts, [tensor(rank() + 10, dtype=dtype) for _ in range(size())])
        assert [said(part) for part in parts] == [[other + 10] for other in range(size())], dtype


def check_reductions_to_parts() -> None:
    for dtype in DTYPES:
        part = tensor(9, dtype=dtype)
        dist.reduce_scatter_tensor(part, tensor(*range(size()), dtype=dtype))
        assert said(part) == [rank() * size()], dtype
        dist.reduce_scatter(part, [tensor(other + 1, dtype=dtype) for other in range(size())])
        assert said(part) == [(rank() + 1) * size()], dtype


def check_one_root() -> None:
    for dtype in DTYPES:
        parts = [tensor(9, dtype=dtype) for _ in range(size())] if rank() == 0 else None
        dist.gather(tensor(rank(), dtype=dtype), parts, 0)
        assert parts is None or [said(part) for part in parts] == [[other] for other in range(size())], dtype
        part = tensor(9, dtype=dtype)
        dist.scatter(part, [tensor(other, dtype=dtype) for other in range(size())] if rank() == 0 else None, 0)
        assert said(part) == [rank()], dtype
        dist.reduce(part, 0)
        assert rank() or said(part) == [size() * (size() - 1) / 2], dtype


def check_uneven_all_to_all() -> None:
    for dtype in DTYPES:
        counts = [other + 1 for other in range(size())]
        send = torch.full((sum(counts), 2), rank(), dtype=torch.float32).to(dtype).npu()
        received = torch.zeros(size() * counts[rank()], 2).to(dtype).npu()
        dist.all_to_all_single(received, send, [counts[rank()]] * size(), counts)
        want = [[other] * 2 for other in range(size()) for _ in range(counts[rank()])]
        assert received.cpu().to(torch.float64).tolist() == want, dtype


def check_tensors_of_any_shape_are_gathered() -> None:
    whole = torch.empty(1, 3 * size(), device="npu")
    dist.all_gather_into_tensor(whole, torch.full((1, 3), float(rank()), device="npu"))
    assert whole.tolist() == [[float(other) for other in range(size()) for _ in range(3)]]


def check_messages() -> None:
    for dtype in DTYPES:
        values = tensor(rank(), dtype=dtype)
        if rank() == 1:
            dist.send(values, 0, tag=7)
        if rank() == 0:
            assert dist.recv(values, tag=7) == 1  # other ranks send already what comes below
            assert said(values) == [1], dtype
    received = tensor(-1)
    operations = [
        dist.P2POp(dist.isend, tensor(rank()), (rank() + 1) % size()),
        dist.P2POp(dist.irecv, received, (rank() - 1) % size()),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert said(received) == [(rank() - 1) % size()]


def check_works() -> None:
    values = tensor(1)
    work = dist.all_reduce(values, async_op=True)
    assert said(work.get_future().wait()[0]) == [size()]
    assert work.wait()
    assert work.is_completed()
    assert said(work.get_future().value()[0]) == [size()]


def check_coalesced() -> None:
    first, second = tensor(1), tensor(rank())
    with dist._coalescing_manager(async_ops=True) as manager:
        dist.all_reduce(first)
        dist.all_reduce(second)
    manager.wait()
    assert said(first) + said(second) == [size(), size() * (size() - 1) / 2]
    whole = [tensor(*[9] * size()) for _ in range(2)]
    with dist._coalescing_manager():
        for each in whole:
            dist.all_gather_into_tensor(each, tensor(rank()))
    assert [said(each) for each in whole] == [list(range(size()))] * 2


def check_parts_of_a_tensor_by_columns() -> None:
    mine = torch.arange(2.0 * size(), device="npu").view(2, size()) + rank()
    columns = mine.chunk(size(), dim=1)  # HCCL copies lists of tensors, so that these may have gaps
    wanted = [[rank() + other, size() + rank() + other] for other in range(size())]
    result = torch.zeros(2, 1, device="npu")
    dist.reduce_scatter(result, list(columns))
    assert result.flatten().tolist() == torch.tensor(wanted).sum(0).tolist()
    dist.scatter(result, list(columns) if rank() == 0 else None, src=0)
    assert result.flatten().tolist() == wanted[0]
    whole = torch.zeros(2, size(), device="npu")
    dist.all_gather(list(whole.chunk(size(), dim=1)), columns[0].contiguous())
    assert whole.tolist() == [[*map(float, range(size()))], [float(size() + other) for other in range(size())]]


def check_functional_collectives() -> None:
    import torch.distributed._functional_collectives as functional

    values = functional.wait_tensor(functional.all_reduce(tensor(1), "sum", dist.group.WORLD))
    assert said(values) == [size()]
    values = functional.wait_tensor(functional.all_gather_tensor(tensor(rank()), 0, dist.group.WORLD))
    assert said(values) == list(range(size()))
    values = functional.wait_tensor(functional.reduce_scatter_tensor(tensor(*range(size())), "avg", 0, dist.group.WORLD))
    assert said(values) == [rank()]

    def summed(x: Any) -> Any:
        return functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1

    assert said(torch.compile(summed, backend="npu", fullgraph=True)(tensor(1, rank()))) == [2 * size() + 1, size() * (size() - 1) + 1]


def check_objects() -> None:
    shared: list[Any] = [{"from": rank()}]
    dist.broadcast_object_list(shared, 1)
    assert shared == [{"from": 1}]
    gathered = [None] * size()
    dist.all_gather_object(gathered, ("object", rank()))
    assert gathered == [("object", other) for other in range(size())]
    mine: list[Any] = [None]
    dist.scatter_object_list(mine, [str(other) for other in range(size())] if rank() == 0 else None, 0)
    assert mine == [str(rank())]


def check_groups() -> None:
    pair = dist.new_group([0, 1], backend="hccl")
    if rank() < 2:
        values = tensor(1)
        dist.all_reduce(values, group=pair)
        assert said(values) == [2]
        assert dist.get_backend(pair) == "hccl"
    assert (dist.new_group([0]) is dist.GroupMember.NON_GROUP_MEMBER) == (rank() != 0)
    alone = dist.split_group(split_ranks=[[other] for other in range(size())])
    values = tensor(1)
    dist.all_reduce(values, group=alone)
    assert said(values) == [1]


def check_barriers() -> None:
    dist.barrier()
    dist.barrier(device_ids=[rank()])
    dist.barrier(async_op=True).wait()


def check_names() -> None:
    backend = dist.group.WORLD._get_backend(torch.device("npu"))
    names = [None] * size()
    dist.all_gather_object(names, backend.get_hccl_comm_name(rank()))
    assert len(set(names)) == 1
    assert names[0]
    assert dist.get_backend() == "hccl"
    assert dist.is_hccl_available()


def check_host_tensors_are_refused_as_on_ascend() -> None:
    with pytest.raises(RuntimeError, match="No backend type associated with device type cpu"):
        dist.all_reduce(torch.ones(1))


def check_what_cannot_be_done_says_where() -> None:
    with pytest.raises(RuntimeError, match="Tensors must be contiguous"):
        dist.all_gather_into_tensor(torch.empty(2, 2 * size(), device="npu").t(), torch.empty(2, 2, device="npu"))
    gaps = torch.ones(4, 4, device="npu").t()[::2]  # gloo sums what lies between, without a word
    for refused in (lambda: dist.all_reduce(gaps), lambda: dist.broadcast(gaps, 0), lambda: dist.send(gaps, (rank() + 1) % size())):
        with pytest.raises(RuntimeError, match=r"Tensors must be contiguous, got the sizes \(2, 4\) with the strides \(2, 4\)"):
            refused()
    other = torch.device("npu", (rank() + 1) % size())
    with pytest.raises(RuntimeError, match=r"tensors to hccl reduce_scatter must all reside on the same device, got npu:\d, npu:\d"):
        dist.reduce_scatter(tensor(0), [torch.zeros(1, device=other) for _ in range(size())])
    with pytest.raises(RuntimeError, match=f"Tensor's dim 0 does not divide equally across group size.*{2 * size() + 1}"):
        dist.all_to_all_single(torch.zeros(2 * size() + 1, device="npu"), torch.zeros(2 * size() + 1, device="npu"))
    assert gaps.tolist() == [[1.0] * 4] * 2
    with pytest.raises(dist.DistBackendError, match=f"hccl allreduce on rank {rank()} of {size()}"):
        dist.all_reduce(torch.ones(2, device="npu"), op=dist.ReduceOp.BAND)

"""The npu kernels of torch's collectives (`c10d::*`): each gives the cpu kernel the same memory, and the same group's gloo.

Everything of torch that communicates ends in these operators: torch.distributed, the reducer of DistributedDataParallel, functional
collectives with FSDP and DTensor on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import functools
from typing import Any
import warnings

import torch
from torch._C._distributed_c10d import _create_work_from_future  # type: ignore[attr-defined]
import torch.distributed as dist

from anycann.adapters.torch.distributed import agreement
from anycann.adapters.torch.distributed.agreement import Call
from anycann.adapters.torch.distributed.checks import check_splits, check_tensors
from anycann.adapters.torch.distributed.copies import copied, each
from anycann.adapters.torch.distributed.travel import Finish, moved, reduced

_HOST = torch.device("cpu")

# Their first argument is written; a reduction computes with the dtype, a movement only needs its bytes.
REDUCTIONS = (
    "allreduce_",
    "allreduce_coalesced_",
    "reduce_",
    "reduce_scatter_",
    "_reduce_scatter_base_",
    "reduce_scatter_tensor_coalesced_",
)
MOVEMENTS = (
    "broadcast_",
    "allgather_",
    "_allgather_base_",
    "allgather_coalesced_",
    "allgather_into_tensor_coalesced_",
    "gather_",
    "scatter_",
    "alltoall_",
    "alltoall_base_",
)
# One tensor holds the parts of all ranks: HCCL takes it in any shape, gloo splits its first dimension.
FLAT = ("_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_", "_allgather_base_", "allgather_into_tensor_coalesced_")
# Their work knows the sender and has no future.
POINT_TO_POINT = ("send", "recv_", "recv_any_source_")

_library: Any = None


def install() -> None:
    """Register the kernels; they stand in for torch's own, which would look for a backend written for npu memory."""
    global _library
    _library = torch.library.Library("c10d", "IMPL", "PrivateUse1")
    kernels: dict[str, Callable[..., Any]] = {name: _collective(name, _reduced_arguments) for name in REDUCTIONS}
    kernels |= {name: _collective(name, _moved_arguments) for name in MOVEMENTS}
    kernels |= {name: _point_to_point(name) for name in POINT_TO_POINT}
    kernels["barrier"] = _barrier
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*Overriding a previously registered kernel")
        for name, kernel in kernels.items():
            _library.impl(name, kernel)


def _collective(name: str, prepare: Callable[[Sequence[Any]], tuple[list[Any], list[Finish]]]) -> Callable[..., Any]:
    """A kernel that returns what the cpu kernel does: a work, or the tensors that were written and a work."""
    op = getattr(torch.ops.c10d, name).default
    tensors_too = len(op._schema.returns) == 2
    group_at, async_at = _position(op, "process_group"), _position(op, "async_op")
    shaped = functools.partial(each, _flattened) if name in FLAT else _unchanged
    words = agreement.described_by(op, name)

    def kernel(*args: Any) -> Any:
        group = dist.ProcessGroup.unbox(args[group_at])
        given, copies = copied(name, group.rank(), args[:group_at])
        check_tensors(name, given, flat=name in FLAT)
        if name == "alltoall_base_":
            check_splits(
                (tensor.shape[0] for tensor, splits in zip(args[:2], args[group_at + 1 :], strict=False) if not splits), group.size()
            )
        hosts, finishes = prepare(shaped(given))
        finishes += copies
        call = agreement.call(name, group, words(args))
        try:
            result = op(*hosts, _host_group(group).boxed(), *args[group_at + 1 :])
        except RuntimeError as error:
            raise call.explained(error) from error
        work = dist.Work.unbox(result[-1] if tensors_too else result)
        asynchronous = args[async_at] if async_at < len(args) else True
        boxed = (_later if asynchronous else _now)(work, args[0], finishes, call).boxed()
        return (args[0], boxed) if tensors_too else boxed

    return kernel


def _later(work: Any, result: Any, finishes: list[Finish], call: Call) -> Any:
    """A work that is done when `work` and the finishes are, with `result` in its future; done at once where gloo has no future."""

    def done(future: Any) -> Any:
        try:
            future.value()
        except RuntimeError as error:
            raise call.explained(error) from error
        _finish(finishes)
        return _flat(result)

    try:
        future = work.get_future()
    except RuntimeError:  # some works of gloo's stand for several
        return _now(work, result, finishes, call)
    return _create_work_from_future(future.then(done))


def _now(work: Any, result: Any, finishes: list[Finish], call: Call) -> Any:
    """Wait here, where the program would do nothing else."""
    try:
        work.wait()
    except RuntimeError as error:
        raise call.explained(error) from error
    _finish(finishes)
    return work


def _finish(finishes: list[Finish]) -> None:
    for finish in finishes:
        finish()


def _flat(result: Any) -> list[Any]:
    """The tensors as gloo's own futures hold them: one list."""
    if isinstance(result, torch.Tensor):
        return [result]
    return [tensor for item in result for tensor in ([item] if isinstance(item, torch.Tensor) else item)]


def _moved_arguments(tensors: Sequence[Any]) -> tuple[list[Any], list[Finish]]:
    return [each(moved, item) for item in tensors], []


def _reduced_arguments(tensors: Sequence[Any]) -> tuple[list[Any], list[Finish]]:
    """The first argument is written, so its results are finished; the others are only read."""
    finishes: list[Finish] = []
    unread: list[Finish] = []
    written = each(functools.partial(reduced, finishes=finishes), tensors[0])
    return [written, *(each(functools.partial(reduced, finishes=unread), item) for item in tensors[1:])], finishes


def _flattened(tensor: Any) -> Any:
    return tensor.detach().view(-1)


def _unchanged(tensors: Any) -> Any:
    return tensors


def _point_to_point(name: str) -> Callable[..., Any]:
    op = getattr(torch.ops.c10d, name).default

    def kernel(tensors: Any, boxed_group: Any, *args: Any) -> Any:
        group = dist.ProcessGroup.unbox(boxed_group)
        check_tensors(name, tensors)
        try:
            return op([moved(tensor) for tensor in tensors], _host_group(group).boxed(), *args)
        except RuntimeError as error:
            where = f"hccl {name.strip('_')} on rank {group.rank()} of {group.size()}"
            raise Call(where).explained(error) from error

    return kernel


def _barrier(tensor: Any, boxed_group: Any, device_ids: Any, async_op: bool = True, timeout: int = -1) -> Any:
    group = dist.ProcessGroup.unbox(boxed_group)
    call = agreement.call("barrier", group, "barrier")
    try:
        work = dist.Work.unbox(torch.ops.c10d.barrier(torch.empty(1), _host_group(group).boxed(), [], async_op, timeout))
    except RuntimeError as error:
        raise call.explained(error) from error
    return (_later if async_op else _now)(work, [], [], call).boxed()


def _host_group(group: Any) -> Any:
    """A group of torch's in which the gloo of `group` serves the host: the cpu kernels look for it there."""
    host_group = dist.ProcessGroup(group.rank(), group.size())
    host_group._register_backend(_HOST, dist.ProcessGroup.BackendType.CUSTOM, group._get_backend(torch.device("npu")))
    host_group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
    return host_group


def _position(op: Any, argument: str) -> int:
    names = [each.name for each in op._schema.arguments]
    return names.index(argument) if argument in names else len(names)

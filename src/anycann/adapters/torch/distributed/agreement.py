"""What all ranks must say alike of a collective: noted in the group's ledger before data travel, and told when a wait fails.

Gloo does not compare: ranks that sum and ranks that take the maximum get numbers that are neither, other sizes end the process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from anycann.collective.ledger import Begun, Ledger, MismatchError

# HCCL does the same for each of these, whichever name the program called
_FAMILIES = {
    "allreduce_coalesced_": "allreduce",
    "_allgather_base_": "allgather",
    "allgather_coalesced_": "allgather",
    "allgather_into_tensor_coalesced_": "allgather",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "alltoall_base_": "alltoall",
}
_OWN_SIZES = ("alltoall_", "alltoall_base_")  # each rank sends and gets what it likes
# the root alone writes; each rank's part may have a size of its own
_READ_ARGUMENT = {"gather_": 1, "reduce_scatter_": 1, "_reduce_scatter_base_": 1, "reduce_scatter_tensor_coalesced_": 1}


class Call(NamedTuple):
    """A collective that this rank is in.

    It knows no group: what a thread of gloo's finishes would be the last to hold it, and a group ends only when its threads have.
    """

    where: str
    ledger: Ledger | None = None
    begun: Begun | None = None

    def explained(self, error: Exception) -> Exception:
        """`error` with the collective, the rank it met, and the ranks that are elsewhere; one rank's end is an error on all that wait."""
        others = self.ledger.others(self.begun) if self.ledger and self.begun else ""
        return dist.DistBackendError(f"{self.where}: {error}" + (f" [{others}]" if others else ""))


def call(name: str, group: Any, words: str) -> Call:
    """Begin a collective of `group`. Raises DistBackendError if another rank began one with other words in its place."""
    where = f"hccl {name.strip('_')} on rank {group.rank()} of {group.size()}"
    ledger = getattr(group._get_backend(torch.device("npu")), "ledger", None)
    if ledger is None:
        return Call(where)
    try:
        return Call(where, ledger, ledger.begin(words))
    except MismatchError as error:
        raise dist.DistBackendError(f"{where}: {error}") from None


def described_by(op: Any, name: str) -> Callable[[Sequence[Any]], str]:
    """How calls of this operator of c10d are told: "allreduce of 4 float32, SUM"."""
    names = [each.name for each in op._schema.arguments]
    family = _FAMILIES.get(name, name.strip("_"))
    read = _READ_ARGUMENT.get(name, 0)
    root_at = names.index("root_rank") if "root_rank" in names else None
    op_at = names.index("reduce_op") if "reduce_op" in names else None

    def words(args: Sequence[Any]) -> str:
        count, dtype = _counted(args[read])
        said = f"{family} of {'' if name in _OWN_SIZES else f'{count} '}{dtype}"
        if op_at is not None:
            said += f", {dist.ReduceOp.RedOpType(args[op_at]._get_method('op')()).name}"
        return said if root_at is None else f"{said}, root {args[root_at]}"

    return words


def _counted(item: Any) -> tuple[int, str]:
    """How many numbers tensors, or lists of them, have in all, and the dtype of the first."""
    if isinstance(item, torch.Tensor):
        return item.numel(), str(item.dtype).removeprefix("torch.")
    counts = [_counted(part) for part in item]
    return sum(count for count, _ in counts), counts[0][1] if counts else ""

"""Products of experts joined to the exchange of their rows between the ranks of a group."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from anycann.adapters.torch.operators.exchange import by_expert, exchanged
from anycann.adapters.torch.operators.parallel import group_backend
from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import bound, opaque, refuse_given, require, sizes

_BEFORE, _BEHIND = "npu_alltoallv_gmm", "npu_gmm_alltoallv"
_ARGUMENTS = (
    "Tensor gmm_x, Tensor gmm_weight, str hcom, int ep_world_size, int[] send_counts, int[] recv_counts, *, "
    "Tensor? send_counts_tensor=None, Tensor? recv_counts_tensor=None, Tensor? mm_x=None, Tensor? mm_weight=None, "
    "bool trans_gmm_weight=False, bool trans_mm_weight=False"
)


def _checked(operator: str, a: SimpleNamespace) -> None:
    refuse_given(operator, "it is reserved", send_counts_tensor=a.send_counts_tensor, recv_counts_tensor=a.recv_counts_tensor)
    depth = a.gmm_weight.shape[-1 if a.trans_gmm_weight else 1] if a.gmm_weight.dim() == 3 else None
    fits = a.gmm_x.dim() == 2 and a.gmm_x.shape[1] == depth
    require(fits, operator, f"gmm_x and gmm_weight of {sizes(a.gmm_x, a.gmm_weight)}", "(rows, k), and (experts, k, n), or its transpose")
    numbers, rows = a.gmm_weight.shape[0] * a.ep_world_size, a.gmm_x.shape[0]
    fits = len(a.send_counts) == len(a.recv_counts) == numbers and sum(a.send_counts) == rows
    told = f"{len(a.send_counts)} send_counts of {sum(a.send_counts)} rows and {len(a.recv_counts)} recv_counts for gmm_x of {rows} rows"
    require(fits, operator, told, f"{numbers} each (ranks * experts of each), which sum up to the rows of gmm_x and of what comes")
    require((a.mm_x is None) == (a.mm_weight is None), operator, "one of mm_x and mm_weight", "both or none")


def _counts(a: SimpleNamespace, counts: list[int]) -> torch.Tensor:
    """(ranks, experts of one rank)."""
    return torch.tensor(counts).view(a.ep_world_size, a.gmm_weight.shape[0])


def _grouped(a: SimpleNamespace, rows: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Rows that lie expert after expert, each part times its weight."""
    weight = a.gmm_weight.transpose(1, 2) if a.trans_gmm_weight else a.gmm_weight
    parts = wide(rows).split(counts.tolist())
    return torch.cat([part @ wide(w) for part, w in zip(parts, weight, strict=True)]).to(rows.dtype)


def _shared(a: SimpleNamespace) -> torch.Tensor | None:
    """The product of the experts that all tokens go to."""
    if a.mm_x is None:
        return None
    product = wide(a.mm_x) @ wide(a.mm_weight.t() if a.trans_mm_weight else a.mm_weight)
    return product.to(a.mm_x.dtype)


def _columns(a: SimpleNamespace) -> int:
    return int(a.gmm_weight.shape[1 if a.trans_gmm_weight else 2])


def _shared_shape(a: SimpleNamespace) -> torch.Tensor | None:
    if a.mm_x is None:
        return None
    return a.mm_x.new_empty(a.mm_x.shape[0], a.mm_weight.shape[0 if a.trans_mm_weight else 1])


def _shapes_behind(*given: Any, **options: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    a = bound(_BEHIND, given, options)
    return a.gmm_x.new_empty(sum(a.recv_counts), _columns(a)), _shared_shape(a)


def _shapes_before(*given: Any, **options: Any) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    a = bound(_BEFORE, given, options)
    rows = sum(a.recv_counts)
    permuted = a.gmm_x.new_empty(rows, a.gmm_x.shape[1]) if a.permute_out_flag else None
    return a.gmm_x.new_empty(rows, _columns(a)), _shared_shape(a), permuted


@opaque(f"{_BEFORE}({_ARGUMENTS}, bool permute_out_flag=False, str? comm_mode=None) -> (Tensor, Tensor, Tensor)", shape=_shapes_before)
def alltoallv_gmm(*given: Any, **options: Any) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """(what comes, expert after expert, times each expert's weight (experts, k, n); mm_x @ mm_weight or None; what came, if asked for):
    gmm_x lies by global expert, the counts are (ranks, experts of one rank). `comm_mode` says how Ascend moves the rows."""
    a = bound(_BEFORE, given, options)
    _checked(_BEFORE, a)
    sent, received = _counts(a, a.send_counts), _counts(a, a.recv_counts)
    rows = exchanged(group_backend(_BEFORE, a.hcom), a.gmm_x, sent.sum(1).tolist(), received.sum(1).tolist())[by_expert(received)]
    return _grouped(a, rows, received.sum(0)), _shared(a), rows if a.permute_out_flag else None


@opaque(f"{_BEHIND}({_ARGUMENTS}, str? comm_mode=None) -> (Tensor, Tensor)", shape=_shapes_behind)
def gmm_alltoallv(*given: Any, **options: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(the rows of gmm_x, which lie expert after expert, times each expert's weight, back on the ranks they are of, by global expert;
    mm_x @ mm_weight or None): the way back of `npu_alltoallv_gmm`, with its recv_counts as send_counts."""
    a = bound(_BEHIND, given, options)
    _checked(_BEHIND, a)
    sent, received = _counts(a, a.send_counts), _counts(a, a.recv_counts)
    y = _grouped(a, a.gmm_x, sent.sum(0))
    rows = torch.empty_like(y)
    rows[by_expert(sent)] = y
    return exchanged(group_backend(_BEHIND, a.hcom), rows, sent.sum(1).tolist(), received.sum(1).tolist()), _shared(a)

"""Where the axes of queries and keys lie: BSH, SBH, BSND, BNSD, and TND, where sequences follow one another."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from anycann.adapters.torch.operators.registry import require, sizes

DENSE = ("BSH", "SBH", "BSND", "BNSD")
_RANKS = {"BSH": 3, "SBH": 3, "BSND": 4, "BNSD": 4, "NBSD": 4, "TND": 3, "NTD": 3}


def check(operator: str, layout: str, accepted: Sequence[str], *tensors: torch.Tensor) -> None:
    """Raises if the layout is unknown or a tensor has not its rank."""
    require(layout in accepted, operator, f"layout {layout!r}", ", ".join(accepted))
    right = all(tensor.dim() == _RANKS[layout] for tensor in tensors)
    require(right, operator, f"tensors of {sizes(*tensors)} for layout {layout}", f"{_RANKS[layout]} axes")


def to_bnsd(x: torch.Tensor, layout: str, heads: int) -> torch.Tensor:
    """A view as (B, N, S, D)."""
    if layout == "BSH":
        return x.unflatten(2, (heads, -1)).transpose(1, 2)
    if layout == "SBH":
        return x.unflatten(2, (heads, -1)).permute(1, 2, 0, 3)
    return x.transpose(1, 2) if layout == "BSND" else x


def from_bnsd(x: torch.Tensor, layout: str) -> torch.Tensor:
    """(B, N, S, D) in a layout, contiguous."""
    if layout == "BSH":
        return x.transpose(1, 2).flatten(2).contiguous()
    if layout == "SBH":
        return x.permute(2, 0, 1, 3).flatten(2).contiguous()
    if layout == "NBSD":
        return x.transpose(0, 1).contiguous()
    return x.transpose(1, 2).contiguous() if layout == "BSND" else x.contiguous()


def heads_of_keys(operator: str, query: torch.Tensor, key: torch.Tensor, layout: str, heads: int) -> int:
    """How many heads the keys have."""
    if layout in ("BSND", "BNSD", "TND"):
        axis = {"BSND": 2, "BNSD": 1, "TND": 1}[layout]
        require(
            query.shape[axis] == heads, operator, f"{heads} heads for queries of {sizes(query)} in {layout}", f"{query.shape[axis]} heads"
        )
        groups = key.shape[axis]
    else:
        require(query.shape[2] % heads == 0, operator, f"{heads} heads for queries of {sizes(query)} in {layout}", "a divisor of H")
        groups = key.shape[2] // (query.shape[2] // heads)
    require(groups > 0 and heads % groups == 0, operator, f"{heads} heads of queries on {groups} of keys", "a multiple")
    return groups


def lengths_of(operator: str, name: str, cumulated: Sequence[int] | None, total: int) -> list[int]:
    """Lengths of the sequences of which the sums are given; trailing zeros stand for sequences left out."""
    require(cumulated is not None, operator, f"layout TND without {name}", "the cumulated lengths of the sequences")
    sums = list(cumulated or [])
    while len(sums) > 1 and sums[-1] == 0:
        sums.pop()
    lengths = [after - before for before, after in zip([0, *sums], sums, strict=False)]
    fits = all(length >= 0 for length in lengths) and sums[-1] <= total
    require(fits, operator, f"{name} {list(cumulated or [])} for {total} tokens", "sums that do not fall, the last at most the tokens")
    return lengths

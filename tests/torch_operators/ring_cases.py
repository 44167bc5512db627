"""Attention over two parts of the keys, put together: that over all of them."""

from __future__ import annotations

from typing import Any

import torch

from tests.torch_operators.walk import case

_Q, _KEYS, _VALUES = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 6, 5), torch.randn(2, 3, 6, 5)


def _attended(keys: slice) -> tuple[torch.Tensor, ...]:
    """(result, largest, sums) in float64 of (B, N, S, D) on some of the keys."""
    scores = _Q.double() @ _KEYS[:, :, keys].double().mT
    largest = scores.amax(-1, keepdim=True)
    weights = torch.exp(scores - largest)
    total = weights.sum(-1, keepdim=True)
    return weights @ _VALUES[:, :, keys].double() / total, largest.expand(-1, -1, -1, 8), total.expand(-1, -1, -1, 8)


def _laid_out(layout: str, keys: slice) -> list[Any]:
    out, largest, total = _attended(keys)
    if layout == "SBH":
        return [out.permute(2, 0, 1, 3).flatten(2), largest, total]
    return [x.transpose(1, 2).flatten(0, 1) for x in (out, largest, total)]


for _layout, _lengths in (("SBH", None), ("TND", torch.tensor([4, 8]))):
    _parts = [x.float().contiguous() for keys in (slice(0, 2), slice(2, 6)) for x in _laid_out(_layout, keys)]
    _whole = [x.numpy() for x in _laid_out(_layout, slice(0, 6))]
    case(
        "npu_ring_attention_update",
        *_parts,
        options={"input_layout": _layout, "actual_seq_qlen": _lengths},
        reference=lambda *a, whole=_whole, **options: whole,
    )

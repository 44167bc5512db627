"""Attention over parts of the keys, put together."""

from __future__ import annotations

import torch

from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import composed, refuse, require, sizes

_OPERATOR = "npu_ring_attention_update"


@composed(
    f"{_OPERATOR}(Tensor prev_attn_out, Tensor prev_softmax_max, Tensor prev_softmax_sum, Tensor cur_attn_out, Tensor cur_softmax_max, "
    'Tensor cur_softmax_sum, *, Tensor? actual_seq_qlen=None, str input_layout="SBH", str input_softmax_layout="")'
    " -> (Tensor, Tensor, Tensor)",
    missing="an input_softmax_layout that is not that of the attention",
)
def ring_attention_update(
    prev_attn_out: torch.Tensor,
    prev_softmax_max: torch.Tensor,
    prev_softmax_sum: torch.Tensor,
    cur_attn_out: torch.Tensor,
    cur_softmax_max: torch.Tensor,
    cur_softmax_sum: torch.Tensor,
    *,
    actual_seq_qlen: torch.Tensor | None = None,
    input_layout: str = "SBH",
    input_softmax_layout: str = "",
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(result, largest scores, sums of exponentials) of attention on the keys of both: (S, B, H) with (B, N, S, 8), or (T, N, D) with
    (T, N, 8), of which all eight are equal."""
    require(input_layout in ("SBH", "TND"), _OPERATOR, f"input_layout only supports 'SBH' or 'TND', but got {input_layout}", "SBH or TND")
    if input_softmax_layout not in ("", input_layout):
        refuse(_OPERATOR, f"input_softmax_layout={input_softmax_layout!r}", "sums in the layout of the attention are computed")
    given = (prev_attn_out, prev_softmax_max, prev_softmax_sum, cur_attn_out, cur_softmax_max, cur_softmax_sum)
    fits = prev_attn_out.dim() == 3 and prev_softmax_max.dim() == (4 if input_layout == "SBH" else 3)
    fits = fits and all(a.shape == b.shape for a, b in zip(given[:3], given[3:], strict=True))
    require(fits, _OPERATOR, sizes(*given), "equal shapes before and now; (S, B, H) and (B, N, S, 8), or (T, N, D) and (T, N, 8)")
    largest = torch.maximum(prev_softmax_max, cur_softmax_max)
    shares = [total * torch.exp(top - largest) for top, total in ((prev_softmax_max, prev_softmax_sum), (cur_softmax_max, cur_softmax_sum))]
    total = shares[0] + shares[1]
    parts = [_weighted(out, (share / total)[..., 0]) for out, share in zip((prev_attn_out, cur_attn_out), shares, strict=True)]
    return (parts[0] + parts[1]).to(prev_attn_out.dtype), largest, total


def _weighted(out: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """out times the share of each row and head: (B, N, S) for (S, B, H), (T, N) for (T, N, D)."""
    by_head = share.permute(2, 0, 1) if share.dim() == 3 else share
    split = wide(out).reshape(*by_head.shape, -1)
    return (split * by_head[..., None]).reshape(out.shape)

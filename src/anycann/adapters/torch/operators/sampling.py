"""Which tokens a model may say next, by their logits, and random numbers."""

from __future__ import annotations

import torch

from anycann.adapters.torch.operators.registry import composed, require, sizes


@composed("npu_top_k_top_p(Tensor logits, Tensor? p=None, Tensor? k=None) -> Tensor")
def top_k_top_p(logits: torch.Tensor, p: torch.Tensor | None = None, k: torch.Tensor | None = None) -> torch.Tensor:
    """logits (B, V) with -inf for all but the k (B,) largest, and of those all but the fewest that have more than p (B,) of the softmax.

    Equal to the k-th largest stay; the largest stays always.
    """
    operator = "npu_top_k_top_p"
    rows = logits.shape[:1]
    require(logits.dim() == 2 and all(x is None or x.shape == rows for x in (p, k)), operator, sizes(logits, p, k), "(B, V), (B,) and (B,)")
    ordered, places = logits.sort(dim=-1, stable=True)
    if k is not None:
        least = ordered.gather(1, (logits.shape[1] - k.long())[:, None])
        ordered = ordered.masked_fill(ordered < least, -torch.inf)
    if p is not None:
        running = ordered.float().softmax(-1).cumsum(-1)
        left_out = running <= 1 - p.float()[:, None]
        left_out[:, -1] = False
        ordered = ordered.masked_fill(left_out, -torch.inf)
    return torch.empty_like(ordered).scatter(-1, places, ordered)


@composed("npu_sim_exponential_(Tensor(a!) self, float lambd=1, *, Generator? generator=None) -> Tensor(a!)", differentiable=False)
def sim_exponential_(self: torch.Tensor, lambd: float = 1, *, generator: torch.Generator | None = None) -> torch.Tensor:
    """Fills the tensor with numbers of the exponential distribution of rate lambd."""
    return self.exponential_(lambd, generator=generator)

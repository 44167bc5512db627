"""Cross entropies: whole, and in the steps of a vocabulary that is split over devices."""

from __future__ import annotations

import torch

from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import composed, refuse, require, sizes

_Pair = tuple[torch.Tensor, torch.Tensor]
_REDUCTIONS = ("mean", "sum", "none")


@composed(
    "npu_cross_entropy_loss(Tensor input, Tensor target, Tensor? weight=None, str reduction='mean', int ignore_index=-100, "
    "float label_smoothing=0.0, float lse_square_scale_for_zloss=0.0, bool return_zloss=False) -> (Tensor, Tensor, Tensor, Tensor)",
    missing="lse_square_scale_for_zloss, return_zloss",
)
def cross_entropy_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    lse_square_scale_for_zloss: float = 0.0,
    return_zloss: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(loss (1,) or (N,), log of the softmax, two empty tensors) of logits (N, C) and classes (N,), weighted by class.

    A negative ignore_index ignores none. Only the loss has gradients.
    """
    operator = "npu_cross_entropy_loss"
    if lse_square_scale_for_zloss or return_zloss:
        refuse(operator, "the z-loss", "the interface does not take it yet")
    require(reduction in _REDUCTIONS, operator, f"reduction {reduction!r}", ", ".join(_REDUCTIONS))
    require(input.dim() == 2 and target.shape == input.shape[:1], operator, sizes(input, target), "(N, C) and (N,)")
    logarithms, classes = torch.log_softmax(wide(input), -1), input.shape[1]
    weights, counted, seen = _weights(logarithms, target, weight, ignore_index)
    of_target = weights[seen] * counted
    loss = -(1 - label_smoothing) * logarithms.gather(1, seen[:, None])[:, 0] * of_target
    loss = loss - label_smoothing / classes * (logarithms @ weights) * counted
    if reduction != "none":
        loss = loss.sum(0, keepdim=True) / (of_target.sum() if reduction == "mean" else 1)
    nothing = input.new_empty(0)
    return loss.to(input.dtype), logarithms.detach().to(input.dtype), nothing, nothing.clone()


def _weights(
    logarithms: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, ignore_index: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(weight of each class, 1 for each row that counts, class of each row, any where the row does not count)."""
    weights = logarithms.new_ones(logarithms.shape[1]) if weight is None else weight.to(logarithms.dtype)
    counted = torch.ones_like(target, dtype=torch.bool) if ignore_index < 0 else target != ignore_index
    return weights, counted.to(logarithms.dtype), target.where(counted, 0)


@composed(
    "npu_cross_entropy_loss_backward(Tensor grad_loss, Tensor log_prob, Tensor target, Tensor? weight=None, Tensor? grad_zloss=None, "
    "Tensor? lse_for_zloss=None, str reduction='mean', int ignore_index=-100, float label_smoothing=0.0, "
    "float lse_square_scale_for_zloss=0.0) -> Tensor",
    missing="grad_zloss, lse_for_zloss",
)
def cross_entropy_loss_backward(
    grad_loss: torch.Tensor,
    log_prob: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    grad_zloss: torch.Tensor | None = None,
    lse_for_zloss: torch.Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    lse_square_scale_for_zloss: float = 0.0,
) -> torch.Tensor:
    """Gradient of `npu_cross_entropy_loss` by its input, from the log of the softmax."""
    if lse_square_scale_for_zloss:
        refuse("npu_cross_entropy_loss_backward", "lse_square_scale_for_zloss", "the interface does not take it yet")
    logarithms = wide(log_prob)
    weights, counted, seen = _weights(logarithms, target, weight, ignore_index)
    of_target, smooth = weights[seen] * counted, label_smoothing / logarithms.shape[1]
    # the loss is minus the sum of `shares` times the logarithms
    shares = (smooth * counted)[:, None] * weights
    shares = shares.scatter_add(1, seen[:, None], ((1 - label_smoothing) * of_target)[:, None])
    by_input = logarithms.exp() * shares.sum(1, keepdim=True) - shares
    above = wide(grad_loss) / (of_target.sum() if reduction == "mean" else 1)
    return (by_input * (above if reduction != "none" else above[:, None])).to(log_prob.dtype)


@composed(
    "npu_fused_linear_online_max_sum(Tensor input, Tensor weight, Tensor target, int vocab_start_index, int vocab_end_index, "
    "bool return_logits=False) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def linear_online_max_sum(
    input: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    vocab_start_index: int,
    vocab_end_index: int,
    return_logits: bool = False,
) -> tuple[torch.Tensor | None, ...]:
    """Of logits = input @ weight.T of a part of the vocabulary: (largest of each row, sum of exponentials below it, logit of the target
    below it, bits of rows whose target is elsewhere, targets in this part or 0, the logits or None). Both ends belong to the part.
    """
    require(target.shape == input.shape[:1], "npu_fused_linear_online_max_sum", sizes(input, weight, target), "(N, H), (V, H) and (N,)")
    logits = (wide(input) @ wide(weight).T).to(input.dtype)
    largest = wide(logits).amax(-1)
    below = wide(logits) - largest[:, None]
    elsewhere = (target < vocab_start_index) | (target > vocab_end_index)
    own = torch.where(elsewhere, 0, target - vocab_start_index)
    predicted = torch.where(elsewhere, 0.0, below.gather(1, own.long()[:, None])[:, 0])
    kept = logits if return_logits else None
    return largest, below.exp().sum(-1), predicted, _packed(elsewhere), own.to(target.dtype), kept


def _packed(bits: torch.Tensor) -> torch.Tensor:
    """uint8 with eight of them each, the first in the highest bit, ones behind the last."""
    padded = torch.nn.functional.pad(bits, (0, -bits.shape[0] % 8), value=True).reshape(-1, 8)
    return (padded.to(torch.uint8) << torch.arange(7, -1, -1, dtype=torch.uint8, device=bits.device)).sum(1, dtype=torch.uint8)


def _unpacked(packed: torch.Tensor, count: int) -> torch.Tensor:
    places = torch.arange(7, -1, -1, dtype=torch.uint8, device=packed.device)
    return ((packed[:, None] >> places) & 1).reshape(-1)[:count].bool()


@composed(
    "npu_fused_cross_entropy_loss_with_max_sum(Tensor logits_max, Tensor sum_exp_logits, Tensor predicted_logits, *, "
    "float? label_smoothing=0.0, Tensor? input=None, Tensor? weight=None, Tensor? vocab_parallel_logits=None) -> (Tensor, Tensor)",
    missing="label_smoothing, input and weight",
)
def cross_entropy_loss_with_max_sum(
    logits_max: torch.Tensor,
    sum_exp_logits: torch.Tensor,
    predicted_logits: torch.Tensor,
    *,
    label_smoothing: float | None = 0.0,
    input: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    vocab_parallel_logits: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(loss of each row, softmax of the logits or None), from what all parts of the vocabulary have together."""
    if label_smoothing or input is not None or weight is not None:
        refuse("npu_fused_cross_entropy_loss_with_max_sum", "label_smoothing, input or weight", "the interface does not take it yet")
    loss = torch.log(sum_exp_logits) - predicted_logits
    if vocab_parallel_logits is None:
        return loss, None
    return loss, (vocab_parallel_logits.float() - logits_max[:, None]).exp() / sum_exp_logits[:, None]


@composed(
    "npu_fused_linear_cross_entropy_loss_with_max_sum_backward(Tensor grad, Tensor input, Tensor weight, Tensor target_mask, "
    "Tensor masked_target, float label_smoothing=0.0, Tensor? logits_max=None, Tensor? sum_exp_logits=None, Tensor? softmax=None)"
    " -> (Tensor, Tensor)",
    missing="label_smoothing",
)
def linear_cross_entropy_loss_with_max_sum_backward(
    grad: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor,
    target_mask: torch.Tensor,
    masked_target: torch.Tensor,
    label_smoothing: float = 0.0,
    logits_max: torch.Tensor | None = None,
    sum_exp_logits: torch.Tensor | None = None,
    softmax: torch.Tensor | None = None,
) -> _Pair:
    """Gradients by input and weight, from the softmax, or from the largest logits and the sums of exponentials."""
    operator = "npu_fused_linear_cross_entropy_loss_with_max_sum_backward"
    if label_smoothing:
        refuse(operator, "label_smoothing", "the interface does not take it yet")
    if softmax is None:
        require(logits_max is not None and sum_exp_logits is not None, operator, "no softmax", "softmax, or logits_max and sum_exp_logits")
        assert logits_max is not None
        assert sum_exp_logits is not None
        softmax = (wide(input) @ wide(weight).T - logits_max[:, None]).exp() / sum_exp_logits[:, None]
    here = (~_unpacked(target_mask, input.shape[0])).float()
    by_logits = softmax.float().scatter_add(1, masked_target.long()[:, None], -here[:, None]) * grad.float()[:, None]
    return (by_logits @ wide(weight)).to(input.dtype), (by_logits.T @ wide(input)).to(weight.dtype)

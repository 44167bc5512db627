"""Cross entropies, whole and of a split vocabulary, by their formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.torch_operators.walk import case, rand, randn

Array = np.ndarray


def _logarithms(x: Array) -> Array:
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def _entropy(
    x: Array, target: Array, weight: Array | None = None, reduction: str = "mean", ignore_index: int = -100, label_smoothing: float = 0.0
) -> tuple[Array | None, ...]:
    rows, classes = x.shape
    weight = np.ones(classes) if weight is None else weight
    counted = np.array([ignore_index < 0 or t != ignore_index for t in target], np.float64)
    target = np.where(counted, target, 0)  # what does not count may be no class
    logarithms = _logarithms(x)
    smooth = label_smoothing / classes
    losses = np.array(
        [
            -counted[n] * ((1 - label_smoothing) * weight[target[n]] * logarithms[n, target[n]] + smooth * (weight * logarithms[n]).sum())
            for n in range(rows)
        ]
    )
    total = (weight[target] * counted).sum()
    loss = {"mean": losses.sum(keepdims=True) / total, "sum": losses.sum(keepdims=True), "none": losses}[reduction]
    return loss, logarithms, None, None


_TARGETS = torch.tensor([0, 4, 2, 2, 1])
_WEIGHTED: dict[str, Any] = {"weight": rand(6, low=0.2), "ignore_index": 2, "label_smoothing": 0.1}
case("npu_cross_entropy_loss", randn(5, 6), _TARGETS, reference=_entropy, differentiable=True)
for _reduction in ("mean", "sum", "none"):
    case("npu_cross_entropy_loss", randn(5, 6), _TARGETS, options={"reduction": _reduction, **_WEIGHTED}, reference=_entropy)
_BEYOND = {"ignore_index": 255}
case("npu_cross_entropy_loss", randn(3, 6), torch.tensor([255, 3, 255]), options=_BEYOND, reference=_entropy, differentiable=True)


def _entropy_backward(above: Array, logarithms: Array, target: Array, **options: Any) -> Array:
    """By differences of the formula: logits equal to their own logarithms have the same softmax."""
    step, result = 1e-6, np.zeros_like(logarithms)
    for place in np.ndindex(*logarithms.shape):
        moved = np.zeros_like(logarithms)
        moved[place] = step
        higher, lower = (_entropy(logarithms + sign * moved, target, **options)[0] for sign in (1, -1))
        assert higher is not None
        assert lower is not None
        result[place] = ((higher - lower) * above).sum() / (2 * step)
    return result


case(
    "npu_cross_entropy_loss_backward",
    randn(1),
    torch.log_softmax(randn(3, 6), -1),
    torch.tensor([255, 3, 255]),
    options=_BEYOND,
    reference=_entropy_backward,
)
_LOGARITHMS = torch.log_softmax(randn(5, 6), -1)
for _reduction, _rows in (("mean", 1), ("sum", 1), ("none", 5)):
    _options = {"reduction": _reduction, **_WEIGHTED}
    case("npu_cross_entropy_loss_backward", randn(_rows), _LOGARITHMS, _TARGETS, options=_options, reference=_entropy_backward)


def _partial(x: Array, w: Array, target: Array, first: int, last: int, return_logits: bool) -> tuple[Array, ...]:
    logits = x @ w.T
    below = logits - logits.max(1, keepdims=True)
    elsewhere = np.array([t < first or t > last for t in target])
    own = np.array([0 if out else t - first for t, out in zip(target, elsewhere, strict=True)])
    predicted = np.array([0.0 if out else below[n, own[n]] for n, out in enumerate(elsewhere)])
    bits = [bool(out) for out in elsewhere] + [True] * (-len(target) % 8)
    packed = [int("".join("01"[bit] for bit in bits[i : i + 8]), 2) for i in range(0, len(bits), 8)]
    return logits.max(1), np.exp(below).sum(1), predicted, np.array(packed), own, logits if return_logits else None


_OF_ROWS = torch.randint(0, 15, (11,), dtype=torch.int32)
case("npu_fused_linear_online_max_sum", randn(11, 4), randn(5, 4), _OF_ROWS, 5, 9, True, reference=_partial)
case("npu_fused_linear_online_max_sum", randn(11, 4), randn(5, 4), _OF_ROWS, 5, 9, False, reference=_partial)


def _from_sums(largest: Array, sums: Array, predicted: Array, vocab_parallel_logits: Array) -> tuple[Array, Array]:
    return np.log(sums) - predicted, np.exp(vocab_parallel_logits - largest[:, None]) / sums[:, None]


case(
    "npu_fused_cross_entropy_loss_with_max_sum",
    randn(3),
    rand(3, low=1, high=5),
    randn(3),
    options={"vocab_parallel_logits": randn(3, 7)},
    reference=_from_sums,
)


def _partial_backward(
    above: Array, x: Array, w: Array, packed: Array, own: Array, logits_max: Any = None, sum_exp_logits: Any = None, softmax: Any = None
) -> tuple[Array, Array]:
    if softmax is None:
        softmax = np.exp(x @ w.T - logits_max[:, None]) / sum_exp_logits[:, None]
    by_logits = softmax.copy()
    elsewhere = "".join(f"{byte:08b}" for byte in packed)
    for row, column in enumerate(own):
        by_logits[row, column] -= elsewhere[row] == "0"
    by_logits *= above[:, None]
    return by_logits @ w, by_logits.T @ x


_MASK, _OWN = torch.tensor([0b01001110, 0b10111111], dtype=torch.uint8), torch.randint(0, 5, (10,), dtype=torch.int32)
for _given in ({"softmax": rand(10, 5)}, {"logits_max": randn(10), "sum_exp_logits": rand(10, low=1, high=5)}):
    case(
        "npu_fused_linear_cross_entropy_loss_with_max_sum_backward",
        randn(10), randn(10, 4), randn(5, 4), _MASK, _OWN, options=_given, reference=_partial_backward,
    )  # fmt: skip

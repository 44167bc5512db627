"""softmax(scale q k + bias) v and its gradients, some rows at a time, so that the scores of long sequences are never all in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from anycann.support.records import dataclass

_LARGEST_BLOCK = 1 << 22  # scores in memory at a time
_LEAST = torch.finfo(torch.float32).min
_FUSED_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_LEAST_ROWS_TO_REPEAT_KEYS = 16


@dataclass(frozen=True)
class Problem:
    """One attention: q (B, N, Sq, D), k (B, Nk, Sk, D), v (B, Nk, Sk, Dv), in the precision it is computed in; N is a multiple of Nk.

    bias, masked (True: not attended) and kept (dropout) broadcast to (B, N, Sq, Sk); the bias is added before scaling or after it. sink
    (N,): the score of a key without value.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    scale: float
    bias: torch.Tensor | None = None
    bias_is_scaled: bool = True
    masked: torch.Tensor | None = None
    kept: torch.Tensor | None = None
    keep_probability: float = 1.0
    sink: torch.Tensor | None = None


@dataclass(frozen=True)
class Result:
    """out (B, N, Sq, Dv); largest score and sum of exp(score - largest) of each row: (B, N, Sq). Rows with nothing to attend are zeros."""

    out: torch.Tensor
    largest: torch.Tensor
    total: torch.Tensor

    @property
    def logarithm(self) -> torch.Tensor:
        """log of the sum of exp(score): infinite for rows with nothing to attend, as inference reports them."""
        return torch.where(self.total > 0, self.largest + torch.log(self.total), torch.inf)


@dataclass(frozen=True)
class Gradients:
    """Gradients by q, k, v, the bias (in the shape it was given in) and the sink."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    bias: torch.Tensor | None
    sink: torch.Tensor | None


def attend(problem: Problem) -> Result:
    """Computes it."""
    parts = [_attend_rows(_rows(problem, block)) for block in _blocks(problem)]
    return Result(*(torch.cat([getattr(part, name) for part in parts], 2) for name in ("out", "largest", "total")))


def attend_plainly(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool) -> Result | None:
    """The same without mask or under the main diagonal, by torch's fused kernel, which takes 16 bits as they are; None: it is not for it.

    It tells only the logarithm of the sums: `largest` is that, and `total` 1.
    """
    if not _fits(q, k, v, causal):
        return None
    k, v = (_repeated(x, q.shape[1]) for x in (k, v))
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    out, logarithm = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, scale=scale)
    return Result(out, logarithm, torch.ones_like(logarithm))


def differentiate_plainly(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool, above: torch.Tensor, result: Result
) -> Gradients | None:
    """Gradients by q, k and v, by the same kernel's own; `above` and `result.out` in the dtype of q."""
    if not _fits(q, k, v, causal):
        return None
    logarithm = result.largest + torch.log(result.total)
    repeated = [_repeated(x, q.shape[1]).contiguous() for x in (k, v)]
    by_q, by_k, by_v = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        above.contiguous(), q.contiguous(), *repeated, result.out.contiguous(), logarithm, 0.0, causal, scale=scale
    )
    if k.shape[1] != q.shape[1]:
        by_k, by_v = (x.unflatten(1, (k.shape[1], -1)).float().sum(2).to(k.dtype) for x in (by_k, by_v))
    return Gradients(by_q, by_k, by_v, None, None)


def _fits(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> bool:
    """Whether the fused kernel computes it, and with a gain."""
    known = q.device.type == "cpu" and q.dtype in _FUSED_DTYPES and q.shape[-1] == v.shape[-1] and q.shape[2] > 0 and k.shape[2] > 0
    shared = k.shape[1] != q.shape[1]
    return known and not (causal and q.shape[2] != k.shape[2]) and not (shared and q.shape[2] < _LEAST_ROWS_TO_REPEAT_KEYS)


def _repeated(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1)


def with_largest(problem: Problem, plain: Result) -> Result:
    """What `attend_plainly` told, with the largest scores and the sums apart."""
    largest = torch.cat([_masked_scores(_rows(problem, block)).amax(-1) for block in _blocks(problem)], 2)
    return Result(plain.out, largest, torch.exp(plain.logarithm.to(largest.dtype) - largest))


def _masked_scores(problem: Problem) -> torch.Tensor:
    scores = _scores(problem)
    return scores if problem.masked is None else scores.masked_fill(problem.masked, -torch.inf)


def _attend_rows(problem: Problem) -> Result:
    scores = _masked_scores(problem)
    largest = scores.amax(-1) if scores.shape[-1] else scores.new_full(scores.shape[:-1], -torch.inf)
    if problem.sink is not None:
        largest = torch.maximum(largest, problem.sink[:, None])
    largest = largest.clamp(min=_LEAST)
    weights = torch.exp(scores - largest[..., None])
    total = weights.sum(-1)
    if problem.sink is not None:
        total = total + torch.exp(problem.sink[:, None] - largest)
    probabilities = weights / torch.where(total > 0, total, 1.0)[..., None]
    return Result(_grouped_product(_dropped(problem, probabilities), problem.v), largest, total)


def differentiate(problem: Problem, above: torch.Tensor, result: Result) -> Gradients:
    """Gradients from those of `out`, (B, N, Sq, Dv), and from what `attend` returned (or parts of a longer sequence came to)."""
    by_q = torch.empty_like(problem.q)
    by_k, by_v = torch.zeros_like(problem.k), torch.zeros_like(problem.v)
    by_bias = None if problem.bias is None else torch.zeros_like(problem.bias)
    by_sink = None if problem.sink is None else torch.zeros_like(problem.sink)
    for block in _blocks(problem):
        part = _rows(problem, block)
        one = _differentiate_rows(part, above[:, :, block], *(t[:, :, block] for t in (result.out, result.largest, result.total)))
        by_q[:, :, block] = one.q
        by_k += one.k
        by_v += one.v
        if by_bias is not None and one.bias is not None:
            rows = by_bias if by_bias.shape[2] == 1 else by_bias[:, :, block]
            rows += one.bias
        if by_sink is not None and one.sink is not None:
            by_sink += one.sink
    return Gradients(by_q, by_k, by_v, by_bias, by_sink)


def _differentiate_rows(problem: Problem, above: torch.Tensor, out: torch.Tensor, largest: torch.Tensor, total: torch.Tensor) -> Gradients:
    inverse = torch.where(total > 0, 1 / total, 0.0)
    probabilities = torch.exp(_scores(problem) - largest[..., None]) * inverse[..., None]
    if problem.masked is not None:
        probabilities = probabilities.masked_fill(problem.masked, 0.0)
    by_probabilities = _dropped(problem, _grouped_product(above, problem.v.transpose(-1, -2)))
    common = (above * out).sum(-1, keepdim=True)
    by_scores = probabilities * (by_probabilities - common)
    by_product = by_scores * problem.scale
    by_bias = None
    if problem.bias is not None:
        by_bias = (by_product if problem.bias_is_scaled else by_scores).sum_to_size(problem.bias.shape)
    by_sink = None
    if problem.sink is not None:
        by_sink = -(torch.exp(problem.sink[:, None] - largest) * inverse * common.squeeze(-1)).sum((0, 2))
    return Gradients(
        _grouped_product(by_product, problem.k),
        _sum_over_groups(by_product.transpose(-1, -2), problem.q, problem.k.shape[1]),
        _sum_over_groups(_dropped(problem, probabilities).transpose(-1, -2), above, problem.v.shape[1]),
        by_bias,
        by_sink,
    )


def _scores(problem: Problem) -> torch.Tensor:
    product = _grouped_product(problem.q, problem.k.transpose(-1, -2))
    if problem.bias is None:
        return product * problem.scale
    if problem.bias_is_scaled:
        return (product + problem.bias) * problem.scale
    return product * problem.scale + problem.bias


def _dropped(problem: Problem, x: torch.Tensor) -> torch.Tensor:
    return x if problem.kept is None else x * problem.kept / problem.keep_probability


def _grouped_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """(B, N, m, k) by (B, Nk, k, n): every N / Nk heads on the left share one on the right."""
    batch, heads, groups = left.shape[0], left.shape[1], right.shape[1]
    if heads == groups:
        return left @ right
    stacked = left.reshape(batch, groups, heads // groups * left.shape[2], left.shape[3]) @ right
    return stacked.reshape(batch, heads, left.shape[2], right.shape[-1])


def _sum_over_groups(left: torch.Tensor, right: torch.Tensor, groups: int) -> torch.Tensor:
    """(B, N, m, k) @ (B, N, k, n), summed over the heads of each group: (B, groups, m, n)."""
    product = left @ right
    return product.reshape(product.shape[0], groups, product.shape[1] // groups, *product.shape[2:]).sum(2)


def _blocks(problem: Problem) -> Iterator[slice]:
    rows = problem.q.shape[2]
    step = max(1, _LARGEST_BLOCK // max(1, problem.q.shape[0] * problem.q.shape[1] * problem.k.shape[2]))
    for begin in range(0, max(rows, 1), step):
        yield slice(begin, min(begin + step, rows))


def _rows(problem: Problem, block: slice) -> Problem:
    def some(x: torch.Tensor | None) -> torch.Tensor | None:
        return x if x is None or x.shape[-2] == 1 else x[..., block, :]

    return replace(problem, q=problem.q[:, :, block], bias=some(problem.bias), masked=some(problem.masked), kept=some(problem.kept))

"""Attention of training: the forms of `npu_fusion_attention`, forward and backward, in every layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from anycann.adapters.torch.operators.attention import core, layouts, masks
from anycann.adapters.torch.operators.dropout import kept_by_seed, unpacked
from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import refuse, require
from anycann.support.records import dataclass

LAYOUTS = (*layouts.DENSE, "TND")
_COPIES = 8  # statistics are kept eight times, one for each lane of a block
_UNSCALED, _SCALED = 0, 1  # pse_type


@dataclass(frozen=True)
class Call:
    """What a call says beside its tensors."""

    operator: str
    heads: int
    layout: str
    scale: float
    keep_probability: float
    sparsity: masks.Sparsity
    query_sums: Sequence[int] | None = None
    key_sums: Sequence[int] | None = None
    pse_type: int = _SCALED
    softmax_layout: str = ""
    seed: int = 0
    offset: int = 0

    def __post_init__(self) -> None:
        require(0 < self.keep_probability <= 1, self.operator, f"keep_prob {self.keep_probability}", "above 0, to 1")
        require(self.softmax_layout in ("", "TND"), self.operator, f"softmax_layout {self.softmax_layout!r}", "'' and 'TND'")
        if self.pse_type not in (_UNSCALED, _SCALED):
            refuse(
                self.operator, f"pse_type={self.pse_type}", "biases that the operator makes itself are not there; pass pse with type 0 or 1"
            )

    @property
    def packed(self) -> bool:
        """Whether sequences of different lengths follow one another."""
        return self.layout == "TND"


@dataclass(frozen=True)
class Tensors:
    """The tensors of a call; `dropout` is a bit mask."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    pse: torch.Tensor | None = None
    mask: torch.Tensor | None = None
    sink: torch.Tensor | None = None
    dropout: torch.Tensor | None = None


@dataclass(frozen=True)
class Answer:
    """In the layout of the call: the result and the statistics as the interface returns them; and how many scores there are."""

    out: torch.Tensor
    largest: torch.Tensor
    total: torch.Tensor
    scores: int


@dataclass(frozen=True)
class _Piece:
    problem: core.Problem
    query_rows: slice
    key_rows: slice


def forward(call: Call, tensors: Tensors) -> Answer:
    """Computes a call."""
    _check(call, tensors)
    pieces = list(_pieces(call, tensors))
    results = [_attend(call, tensors, piece.problem) for piece in pieces]
    scores = sum(_scores_of(piece.problem) for piece in pieces)
    dtype = tensors.query.dtype
    if not call.packed:
        out = layouts.from_bnsd(results[0].out, call.layout).to(dtype)
        return Answer(out, _copied(results[0].largest), _copied(results[0].total), scores)
    out = tensors.query.new_zeros(*tensors.query.shape[:2], tensors.value.shape[-1])
    for piece, result in zip(pieces, results, strict=True):
        out[piece.query_rows] = result.out[0].transpose(0, 1).to(dtype)
    largest, total = ([getattr(result, name)[0] for result in results] for name in ("largest", "total"))
    tokens = tensors.query.shape[0]
    return Answer(out, _packed_statistics(call, largest, tokens), _packed_statistics(call, total, tokens), scores)


def backward(call: Call, tensors: Tensors, above: torch.Tensor, answer: Answer) -> core.Gradients:
    """Gradients by query, key, value, pse and sink, in their layouts and dtypes."""
    _check(call, tensors)
    pieces = list(_pieces(call, tensors))
    results = _results(call, tensors, answer, pieces)
    parts = [
        _differentiate(call, tensors, piece.problem, _piece_of(call, above, piece.query_rows), result)
        for piece, result in zip(pieces, results, strict=True)
    ]
    by_pse = _by_pse(tensors.pse, [part.bias for part in parts])
    by_sink = None if tensors.sink is None else sum((part.sink for part in parts if part.sink is not None), torch.zeros_like(tensors.sink))
    if not call.packed:
        one = parts[0]
        by = [layouts.from_bnsd(x, call.layout).to(tensors.query.dtype) for x in (one.q, one.k, one.v)]
        return core.Gradients(by[0], by[1], by[2], by_pse, by_sink)
    by_q, by_k, by_v = (torch.zeros_like(x) for x in (tensors.query, tensors.key, tensors.value))
    for piece, part in zip(pieces, parts, strict=True):
        for whole, rows, x in ((by_q, piece.query_rows, part.q), (by_k, piece.key_rows, part.k), (by_v, piece.key_rows, part.v)):
            whole[rows] = x[0].transpose(0, 1).to(whole.dtype)
    return core.Gradients(by_q, by_k, by_v, by_pse, by_sink)


def _is_causal(call: Call, tensors: Tensors) -> bool:
    return tensors.mask is not None and call.sparsity.mode in (2, 3)


def _is_plain(call: Call, tensors: Tensors, problem: core.Problem) -> bool:
    extras = (problem.bias, problem.kept, problem.sink)
    return (tensors.mask is None or _is_causal(call, tensors)) and all(extra is None for extra in extras)


def _attend(call: Call, tensors: Tensors, problem: core.Problem) -> core.Result:
    if _is_plain(call, tensors, problem):
        q, k, v = (x.to(tensors.query.dtype) for x in (problem.q, problem.k, problem.v))
        plain = core.attend_plainly(q, k, v, problem.scale, _is_causal(call, tensors))
        if plain is not None:
            return core.with_largest(problem, plain)
    return core.attend(problem)


def _differentiate(call: Call, tensors: Tensors, problem: core.Problem, above: torch.Tensor, result: core.Result) -> core.Gradients:
    if _is_plain(call, tensors, problem):
        q, k, v, out, given = (x.to(tensors.query.dtype) for x in (problem.q, problem.k, problem.v, result.out, above))
        plain = core.differentiate_plainly(q, k, v, problem.scale, _is_causal(call, tensors), given, replace(result, out=out))
        if plain is not None:
            return plain
    return core.differentiate(problem, wide(above), result)


def _check(call: Call, tensors: Tensors) -> None:
    layouts.check(call.operator, call.layout, LAYOUTS, tensors.query, tensors.key, tensors.value)
    same = tensors.query.dtype == tensors.key.dtype == tensors.value.dtype
    require(same, call.operator, f"dtypes {tensors.query.dtype}, {tensors.key.dtype}, {tensors.value.dtype}", "one dtype")


def _pieces(call: Call, tensors: Tensors) -> Iterator[_Piece]:
    """The attentions of a call: one, or one for each sequence."""
    groups = layouts.heads_of_keys(call.operator, tensors.query, tensors.key, call.layout, call.heads)
    sink = None if tensors.sink is None else wide(tensors.sink).to(wide(tensors.query).dtype)
    if not call.packed:
        q = layouts.to_bnsd(tensors.query, call.layout, call.heads)
        k, v = (layouts.to_bnsd(x, call.layout, groups) for x in (tensors.key, tensors.value))
        masked = masks.masked(call.sparsity, tensors.mask, q.shape[2], k.shape[2])
        yield _piece(call, tensors, q, k, v, masked, sink, slice(None), slice(None), 0)
        return
    queries = layouts.lengths_of(call.operator, "actual_seq_qlen", call.query_sums, tensors.query.shape[0])
    keys = layouts.lengths_of(call.operator, "actual_seq_kvlen", call.key_sums, tensors.key.shape[0])
    require(len(queries) == len(keys), call.operator, f"{len(queries)} sequences of queries, {len(keys)} of keys", "equal numbers")
    row, column, scores = 0, 0, 0
    for entry, (rows, columns) in enumerate(zip(queries, keys, strict=True)):
        query_rows, key_rows = slice(row, row + rows), slice(column, column + columns)
        q = tensors.query[query_rows].transpose(0, 1)[None]
        k, v = (x[key_rows].transpose(0, 1)[None] for x in (tensors.key, tensors.value))
        masked = masks.masked(call.sparsity, tensors.mask, rows, columns, entry, len(queries))
        yield _piece(call, tensors, q, k, v, masked, sink, query_rows, key_rows, scores, entry)
        row, column, scores = row + rows, column + columns, scores + call.heads * rows * columns


def _piece(
    call: Call,
    tensors: Tensors,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    masked: torch.Tensor | None,
    sink: torch.Tensor | None,
    query_rows: slice,
    key_rows: slice,
    scores_before: int,
    entry: int | None = None,
) -> _Piece:
    pse = tensors.pse if entry is None or tensors.pse is None or tensors.pse.shape[0] == 1 else tensors.pse[entry : entry + 1]
    bias = masks.position_bias(call.operator, pse, q.shape[2], k.shape[2], call.sparsity.mode)
    problem = core.Problem(
        wide(q), wide(k), wide(v), call.scale, None if bias is None else wide(bias), call.pse_type == _SCALED, masked, sink=sink
    )
    kept = _kept(call, tensors.dropout, [*q.shape[:3], k.shape[2]], scores_before)
    return _Piece(replace(problem, kept=kept, keep_probability=call.keep_probability), query_rows, key_rows)


def _kept(call: Call, dropout: torch.Tensor | None, shape: list[int], before: int) -> torch.Tensor | None:
    if call.keep_probability == 1:
        return None
    if dropout is None:
        return kept_by_seed(shape, 1 - call.keep_probability, call.seed, call.offset + before)
    return unpacked(dropout, [dropout.numel() * 8])[before : before + torch.Size(shape).numel()].reshape(shape)


def _scores_of(problem: core.Problem) -> int:
    return problem.q.shape[0] * problem.q.shape[1] * problem.q.shape[2] * problem.k.shape[2]


def _copied(statistic: torch.Tensor) -> torch.Tensor:
    return statistic[..., None].expand(*statistic.shape, _COPIES).contiguous()


def _packed_statistics(call: Call, parts: list[torch.Tensor], tokens: int) -> torch.Tensor:
    """(T, N, 8) of (N, S) for each sequence: really so, or, unless asked for, each sequence's part as (N, S, 8) in its place."""
    flat = [(part.T if call.softmax_layout == "TND" else part).reshape(-1) for part in parts]
    statistics = torch.cat(flat)
    missing = tokens * call.heads - statistics.shape[0]
    return _copied(torch.cat([statistics, statistics.new_zeros(missing)]).reshape(tokens, call.heads))


def _results(call: Call, tensors: Tensors, answer: Answer, pieces: list[_Piece]) -> list[core.Result]:
    largest, total = answer.largest[..., 0].to(wide(tensors.query).dtype), answer.total[..., 0].to(wide(tensors.query).dtype)
    if not call.packed:
        return [core.Result(wide(layouts.to_bnsd(answer.out, call.layout, call.heads)), largest, total)]
    results = []
    for piece in pieces:
        rows, shape = piece.query_rows, (call.heads, piece.query_rows.stop - piece.query_rows.start)
        if call.softmax_layout == "TND":
            statistics = [x[rows].T for x in (largest, total)]
        else:
            places = slice(rows.start * call.heads, rows.stop * call.heads)
            statistics = [x.reshape(-1)[places].reshape(shape) for x in (largest, total)]
        results.append(core.Result(wide(_piece_of(call, answer.out, rows)), statistics[0][None], statistics[1][None]))
    return results


def _piece_of(call: Call, x: torch.Tensor, rows: slice) -> torch.Tensor:
    return x[rows].transpose(0, 1)[None] if call.packed else layouts.to_bnsd(x, call.layout, call.heads)


def _by_pse(pse: torch.Tensor | None, by_bias: list[torch.Tensor | None]) -> torch.Tensor | None:
    if pse is None:
        return None
    parts = [masks.bias_gradient(pse if pse.shape[0] == part.shape[0] else pse[:1], part) for part in by_bias if part is not None]
    if len(parts) > 1 and pse.shape[0] > 1:
        return torch.cat(parts).to(pse.dtype)
    return sum(parts[1:], parts[0]).to(pse.dtype)

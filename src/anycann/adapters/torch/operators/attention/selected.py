"""Attention that reads chosen keys only: which are chosen (lightning indexer), attention on them, and keys made of windows of keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from anycann.adapters.torch.operators.attention.pages import read_pages
from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import bound, composed, refuse, require, sizes
from anycann.support.records import dataclass

_ALL = (1 << 63) - 1  # tokens before and behind: no limit
_EVERYTHING, _CAUSAL = 0, 3  # sparse_mode; _CAUSAL: from the lower right corner
_ENDS = f"int pre_tokens={_ALL}, int next_tokens={_ALL}"
_INDEXER, _SPARSE = "npu_lightning_indexer", "npu_sparse_flash_attention"


@dataclass(frozen=True)
class _Sequence:
    """Queries at `rows` of the flattened ones, keys of `keys` (length, N2, D) each."""

    rows: slice
    keys: tuple[torch.Tensor, ...]

    def allowed(self, mode: int) -> torch.Tensor:
        """(queries, keys): which keys a query may read."""
        count, length, device = self.rows.stop - self.rows.start, len(self.keys[0]), self.keys[0].device
        if mode == _EVERYTHING:
            return torch.ones(count, length, dtype=torch.bool, device=device)
        return torch.arange(length, device=device) <= torch.arange(count, device=device)[:, None] + length - count


def _checked(name: str, a: Any, layout_keys: str) -> None:
    require(a.layout_query in ("BSND", "TND"), name, f"layout_query={a.layout_query!r}", "BSND and TND")
    fits = layout_keys in (a.layout_query, "PA_BSND")
    require(fits, name, f"keys of {layout_keys!r} for queries of {a.layout_query!r}", "the same, and PA_BSND")
    if a.sparse_mode not in (_EVERYTHING, _CAUSAL) or (a.pre_tokens, a.next_tokens) != (_ALL, _ALL):
        refuse(name, f"sparse_mode={a.sparse_mode} with these pre_tokens and next_tokens", "modes 0 and 3 without limits are documented")


def _sequences(a: Any, of_queries: Any, of_keys: Any, layout_keys: str, tensors: tuple[Any, ...]) -> Iterator[_Sequence]:
    """Each sequence of the batch; lengths are their ends where tokens lie one behind another."""
    ends = None if of_queries is None else of_queries.tolist()
    lengths = None if of_keys is None else of_keys.tolist()
    batches, longest = (len(ends or ()), 0) if a.layout_query == "TND" else a.query.shape[:2]
    for number in range(batches):
        if a.layout_query == "TND":
            assert ends is not None
            rows = slice(ends[number - 1] if number else 0, ends[number])
        else:
            rows = slice(number * longest, number * longest + (longest if ends is None else ends[number]))
        yield _Sequence(rows, tuple(_keys_of(tensor, number, lengths, layout_keys, a.block_table) for tensor in tensors))


def _keys_of(tensor: torch.Tensor, number: int, lengths: list[int] | None, layout: str, table: torch.Tensor | None) -> torch.Tensor:
    if layout == "BSND":
        return wide(tensor[number, : None if lengths is None else lengths[number]])
    assert lengths is not None
    if layout == "TND":
        return wide(tensor[lengths[number - 1] if number else 0 : lengths[number]])
    assert table is not None
    pages = read_pages(tensor.transpose(1, 2), table[number], lengths[number], tensor.shape[2], tensor.shape[1])
    return wide(pages.transpose(0, 1))


def _lengths_given(name: str, a: Any, of_queries: Any, of_keys: Any, layout_keys: str) -> None:
    require(a.layout_query == "BSND" or of_queries is not None, name, "no lengths of the queries", "their ends where layout_query is TND")
    require(layout_keys == "BSND" or of_keys is not None, name, "no lengths of the keys", "lengths for keys in pages, ends for TND")
    require(layout_keys != "PA_BSND" or a.block_table is not None, name, "no block_table", "the pages of each sequence (B, pages)")


@composed(
    f"{_INDEXER}(Tensor query, Tensor key, Tensor weights, *, Tensor? actual_seq_lengths_query=None, "
    "Tensor? actual_seq_lengths_key=None, Tensor? block_table=None, str layout_query='BSND', str layout_key='BSND', "
    f"int sparse_count=2048, int sparse_mode=3, {_ENDS}, bool return_value=False) -> (Tensor, Tensor)",
    differentiable=False,
)
def lightning_indexer(*given: Any, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """int32 (..., 1, sparse_count): the keys with the largest sum over heads of weights relu(q k), the largest first, -1 behind the last
    that a query may read; and with return_value those sums. query (B, S, N, D) or (T, N, D), weights without D, one head of keys."""
    a = bound(_INDEXER, given, options)
    _checked(_INDEXER, a, a.layout_key)
    lengths = a.actual_seq_lengths_query, a.actual_seq_lengths_key
    _lengths_given(_INDEXER, a, *lengths, a.layout_key)
    fits = a.weights.shape == a.query.shape[:-1] and a.key.shape[-2] == 1 and a.key.shape[-1] == a.query.shape[-1]
    require(fits, _INDEXER, sizes(a.query, a.key, a.weights), "(..., N, D), one head of keys of D, weights (..., N)")
    queries, weights = wide(a.query).flatten(0, -3), wide(a.weights).flatten(0, -2)
    shape = (*a.query.shape[:-2], 1, a.sparse_count)
    places = torch.full((len(queries), a.sparse_count), -1, dtype=torch.int32, device=a.query.device)
    values = torch.full(places.shape, -torch.inf, dtype=a.query.dtype, device=a.query.device)
    for sequence in _sequences(a, *lengths, a.layout_key, (a.key,)):
        rows, keys = sequence.rows, sequence.keys[0][:, 0]
        scores = ((queries[rows] @ keys.t()).relu() * weights[rows][..., None]).sum(1)
        scores = scores.masked_fill(~sequence.allowed(a.sparse_mode), -torch.inf)
        best, which = scores.sort(dim=1, descending=True, stable=True)
        count = min(a.sparse_count, scores.shape[1])
        places[rows, :count] = which[:, :count].masked_fill(best[:, :count] == -torch.inf, -1).to(torch.int32)
        values[rows, :count] = best[:, :count].to(values.dtype)
    return places.reshape(shape), values.reshape(shape) if a.return_value else values.new_empty(0)


@composed(
    f"{_SPARSE}(Tensor query, Tensor key, Tensor value, Tensor sparse_indices, float scale_value, *, Tensor? block_table=None, "
    "Tensor? actual_seq_lengths_query=None, Tensor? actual_seq_lengths_kv=None, Tensor? query_rope=None, Tensor? key_rope=None, "
    f"int sparse_block_size=1, str layout_query='BSND', str layout_kv='BSND', int sparse_mode=3, {_ENDS}, int attention_mode=0, "
    "bool return_softmax_lse=False, Tensor? sinks=None) -> (Tensor, Tensor, Tensor)",
)
def sparse_flash_attention(*given: Any, **options: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Attention of each query on the blocks of keys that sparse_indices (..., 1, blocks) names, up to the first -1; and with
    return_softmax_lse the largest scores and sums of exponentials, (B, 1, S, N) or (1, T, N).

    The second halves of queries and keys, which positions turn, may be given apart (query_rope, key_rope). sinks (N,) are scores more.
    """
    a = bound(_SPARSE, given, options)
    _checked(_SPARSE, a, a.layout_kv)
    lengths = a.actual_seq_lengths_query, a.actual_seq_lengths_kv
    _lengths_given(_SPARSE, a, *lengths, a.layout_kv)
    fits = a.key.shape[-2] == a.value.shape[-2] == 1 and a.sparse_indices.shape[:-1] == (*a.query.shape[:-2], 1)
    require(fits, _SPARSE, sizes(a.query, a.key, a.value, a.sparse_indices), "one head of keys, indices (..., 1, blocks) of each query")
    parts = (a.key, a.value) if a.key_rope is None else (a.key, a.value, a.key_rope)
    queries = wide(a.query if a.query_rope is None else torch.cat((a.query, a.query_rope), -1)).flatten(0, -3)
    chosen = a.sparse_indices.flatten(0, -2)
    results, statistics, end = [], [], 0
    for sequence in _sequences(a, *lengths, a.layout_kv, parts):
        rows, (keys, values, *rope) = sequence.rows, (tensor[:, 0] for tensor in sequence.keys)
        may = sequence.allowed(a.sparse_mode) & _named(chosen[rows], a.sparse_block_size, len(keys))
        scores = queries[rows] @ torch.cat((keys, *rope), -1).t() * a.scale_value
        found, *sums = _attended(scores.masked_fill(~may[:, None], -torch.inf), values, a.sinks)
        gap = (0, 0, 0, 0, rows.start - end, 0)  # queries behind the end of the sequence before
        results.append(torch.nn.functional.pad(found, gap))
        statistics.append([torch.nn.functional.pad(one, gap[2:]) for one in sums])
        end = rows.stop
    missing = len(queries) - end
    result = torch.nn.functional.pad(torch.cat(results), (0, 0, 0, 0, 0, missing)).reshape(*a.query.shape[:-1], -1).to(a.query.dtype)
    if not a.return_softmax_lse:
        return result, scores.new_empty(0), scores.new_empty(0)
    largest, sums = (torch.nn.functional.pad(torch.cat(parts), (0, 0, 0, missing)) for parts in zip(*statistics, strict=True))
    return result, *(one.reshape(a.query.shape[:-1]).unsqueeze(-3) for one in (largest, sums))


def _named(chosen: torch.Tensor, block: int, length: int) -> torch.Tensor:
    """(queries, keys): whether a key lies in one of the blocks that come before the first -1."""
    valid = (chosen >= 0).to(torch.int8).cummin(1).values.bool()
    places = (chosen.long()[..., None] * block + torch.arange(block, device=chosen.device)).flatten(1)
    places = torch.where(valid.repeat_interleave(block, 1) & (places < length), places, length)
    named = torch.zeros(len(chosen), length + 1, dtype=torch.bool, device=chosen.device)
    return named.scatter(1, places, True)[:, :length]


def _attended(scores: torch.Tensor, values: torch.Tensor, sinks: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    """The results (queries, heads, D), largest scores and sums (queries, heads) of scores (queries, heads, keys); zeros without any key."""
    all_scores = scores if sinks is None else torch.cat((scores, wide(sinks)[None, :, None].expand(len(scores), -1, 1)), -1)
    none = all_scores.new_full((*all_scores.shape[:-1], 1), -torch.inf)
    largest = torch.cat((all_scores, none), -1).amax(-1, keepdim=True)
    shifted = torch.where(largest == -torch.inf, 0, largest)
    total = (all_scores - shifted).exp().sum(-1, keepdim=True)
    weights = (scores - shifted).exp() / torch.where(total == 0, 1, total)
    return weights @ values, largest[..., 0], total[..., 0]


@composed(
    "npu_nsa_compress(Tensor input, Tensor weight, int compress_block_size, int compress_stride, *, int[]? actual_seq_len=None) -> Tensor"
)
def nsa_compress(
    input: torch.Tensor, weight: torch.Tensor, compress_block_size: int, compress_stride: int, *, actual_seq_len: list[int] | None = None
) -> torch.Tensor:
    """(windows, N, D): sums over windows of compress_block_size tokens of input (T, N, D), each by its weight (compress_block_size, N).

    A window begins every compress_stride tokens of a sequence, if it lies in it whole; actual_seq_len are the ends of the sequences.
    """
    name = "npu_nsa_compress"
    fits = input.dim() == 3 and weight.shape == (compress_block_size, input.shape[1])
    require(fits and actual_seq_len is not None, name, sizes(input, weight), "(T, N, D), (compress_block_size, N), and actual_seq_len")
    assert actual_seq_len is not None
    found = [input.new_empty(0, *input.shape[1:])]
    for begin, end in zip((0, *actual_seq_len), actual_seq_len, strict=False):
        if end - begin >= compress_block_size:
            windows = wide(input[begin:end]).unfold(0, compress_block_size, compress_stride)
            found.append((windows * wide(weight).t()[:, None]).sum(-1).to(input.dtype))
    return torch.cat(found)

"""Attention that reads chosen keys only, where keys are bytes with scales, or are chosen by blocks of queries and keys."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from anycann.adapters.torch.operators.attention.selected import lightning_indexer, sparse_flash_attention
from anycann.adapters.torch.operators.precision import dtype_of, wide
from anycann.adapters.torch.operators.registry import bound, composed, refuse, refuse_given, require, sizes

_LIMITS = "int pre_tokens=9223372036854775807, int next_tokens=9223372036854775807"
_INDEXER, _SPARSE, _BLOCKS = "npu_quant_lightning_indexer", "npu_kv_quant_sparse_flash_attention", "npu_block_sparse_attention"
_BYTES = (torch.int8, torch.float8_e4m3fn)
_AT_BOTH = ("actual_seq_lengths_query", "block_table", "layout_query", "sparse_mode", "pre_tokens", "next_tokens")
_AT_INDEXER = (*_AT_BOTH, "actual_seq_lengths_key", "layout_key", "sparse_count")
_AT_SPARSE = (*_AT_BOTH, "actual_seq_lengths_kv", "layout_kv", "sparse_block_size", "sinks")


def _alike(a: SimpleNamespace, names: tuple[str, ...]) -> dict[str, Any]:
    """The arguments that the operator without quantisation has too."""
    return {name: getattr(a, name) for name in names}


@composed(
    f"{_INDEXER}(Tensor query, Tensor key, Tensor weights, Tensor query_dequant_scale, Tensor key_dequant_scale, int query_quant_mode, "
    "int key_quant_mode, *, Tensor? actual_seq_lengths_query=None, Tensor? actual_seq_lengths_key=None, Tensor? block_table=None, "
    f"str layout_query='BSND', str layout_key='BSND', int sparse_count=2048, int sparse_mode=3, {_LIMITS}, int? query_dtype=None, "
    "int? key_dtype=None) -> Tensor",
    missing="hifloat8",
    differentiable=False,
)
def quant_lightning_indexer(*given: Any, **options: Any) -> torch.Tensor:
    """The places that `npu_lightning_indexer` finds for queries and keys of int8 or float8_e4m3fn, which have a scale for each token and
    head (quant modes 0)."""
    a = bound(_INDEXER, given, options)
    for name in ("query_quant_mode", "key_quant_mode"):
        if getattr(a, name) != 0:
            refuse(_INDEXER, f"{name}={getattr(a, name)}", "0 (a scale for each token and head) is documented")
    for name, x in (("query_dtype", a.query), ("key_dtype", a.key)):
        dtype = dtype_of(getattr(a, name), _INDEXER, name, x.dtype)
        require(dtype == x.dtype, _INDEXER, f"{name} {dtype} of {sizes(x)}", "the dtype that the tensor has")
    of_bytes = a.query.dtype in _BYTES and a.key.dtype in _BYTES
    fits = of_bytes and a.query_dequant_scale.shape == a.query.shape[:-1] and a.key_dequant_scale.shape == a.key.shape[:-1]
    told = sizes(a.query, a.key, a.query_dequant_scale, a.key_dequant_scale)
    require(fits, _INDEXER, told, "int8 or float8_e4m3fn (..., N, D), scales (..., N)")
    query, key = (x.float() * s.float()[..., None] for x, s in ((a.query, a.query_dequant_scale), (a.key, a.key_dequant_scale)))
    return lightning_indexer(query, key, a.weights, **_alike(a, _AT_INDEXER))[0]


def _latent(a: SimpleNamespace) -> tuple[torch.Tensor, torch.Tensor]:
    """(the part of the keys that is the values too, the part that positions turn) of bytes: values, turned floats, float32 scales."""
    narrow, turned = a.query.shape[-1] - a.rope_head_dim, a.rope_head_dim * a.query.element_size()
    scales = -(-narrow // a.tile_size)
    wanted = narrow + turned + 4 * scales
    fits = a.key.dtype in _BYTES and a.key.shape[-1] == wanted
    require(fits, _SPARSE, f"key of {sizes(a.key)} for query of {sizes(a.query)}", f"int8 or float8_e4m3fn (..., {wanted})")
    values, rope, by_tile = a.key.split((narrow, turned, 4 * scales), -1)
    # copies: views of other dtypes must begin at addresses that fit them
    rope, by_tile = (part.view(torch.uint8).clone(memory_format=torch.contiguous_format) for part in (rope, by_tile))
    factors = by_tile.view(torch.float32).repeat_interleave(a.tile_size, -1)[..., :narrow]
    return (values.float() * factors).to(a.query.dtype), rope.view(a.query.dtype)


@composed(
    f"{_SPARSE}(Tensor query, Tensor key, Tensor value, Tensor sparse_indices, float scale_value, int key_quant_mode, "
    "int value_quant_mode, *, Tensor? key_dequant_scale=None, Tensor? value_dequant_scale=None, Tensor? block_table=None, "
    "Tensor? actual_seq_lengths_query=None, "
    "Tensor? actual_seq_lengths_kv=None, int sparse_block_size=1, str layout_query='BSND', str layout_kv='BSND', int sparse_mode=3, "
    f"{_LIMITS}, int attention_mode=0, int quant_scale_repo_mode=1, int tile_size=128, int rope_head_dim=64, int? key_dtype=None, "
    "int? value_dtype=None, Tensor? sinks=None) -> Tensor",
    missing="hifloat8",
    differentiable=False,
)
def kv_quant_sparse_flash_attention(*given: Any, **options: Any) -> torch.Tensor:
    """`npu_sparse_flash_attention` of latent keys as bytes: (..., 1, D) int8 or float8_e4m3fn with a float32 scale for each tile_size of
    them, which are the values too, then rope_head_dim floats of the query's dtype, then the scales. Results lack the rope's part."""
    a = bound(_SPARSE, given, options)
    refuse_given(_SPARSE, "scales lie in the keys", key_dequant_scale=a.key_dequant_scale, value_dequant_scale=a.value_dequant_scale)
    refuse_given(_SPARSE, "hifloat8 is not computed", key_dtype=a.key_dtype, value_dtype=a.value_dtype)
    modes = {"key_quant_mode": 2, "value_quant_mode": 2, "attention_mode": 2, "quant_scale_repo_mode": 1}
    for name, accepted in modes.items():
        if getattr(a, name) != accepted:
            refuse(_SPARSE, f"{name}={getattr(a, name)}", f"{accepted} is documented")
    values, rope = _latent(a)
    return sparse_flash_attention(a.query, torch.cat((values, rope), -1), values, a.sparse_indices, a.scale_value, **_alike(a, _AT_SPARSE))[
        0
    ]


@composed(
    f"{_BLOCKS}(Tensor query, Tensor key, Tensor value, Tensor block_sparse_mask, int[] block_shape, *, str q_input_layout='TND', "
    "str kv_input_layout='TND', int num_key_value_heads=1, float scale_value=0.0, int inner_precise=1, int[]? actual_seq_lengths=None, "
    "int[]? actual_seq_lengths_kv=None, int? softmax_lse_flag=0) -> (Tensor, Tensor)"
)
def block_sparse_attention(*given: Any, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """(softmax(scale_value q k) v over the blocks of keys that block_sparse_mask (B, N, blocks of queries, blocks of keys) names for each
    block of queries; float32 logs of sums (..., 1)) of (B, N, S, D), or of (T, N, D) with the lengths of the sequences. Queries without
    keys give zeros, and minus infinity as the log. `inner_precise`: everything is computed in float32."""
    a = bound(_BLOCKS, given, options)
    layouts = (a.q_input_layout, a.kv_input_layout)
    require(layouts in (("TND", "TND"), ("BNSD", "BNSD")), _BLOCKS, f"layouts {layouts}", "TND or BNSD for both")
    require(len(a.block_shape) >= 2 and min(a.block_shape[:2]) > 0, _BLOCKS, f"block_shape={a.block_shape}", "[queries, keys] of a block")
    if a.q_input_layout == "BNSD":
        return _padded(a)
    of_queries, of_keys = a.actual_seq_lengths, a.actual_seq_lengths_kv
    given_both = of_queries is not None and of_keys is not None and (sum(of_queries), sum(of_keys)) == (len(a.query), len(a.key))
    require(given_both, _BLOCKS, f"lengths {of_queries} and {of_keys} of {sizes(a.query, a.key)}", "lengths that sum up to the tokens")
    parts = (x.transpose(0, 1).split(n, 1) for x, n in ((a.query, of_queries), (a.key, of_keys), (a.value, of_keys)))
    outs = [_blocks(a, b, *sequence) for b, sequence in enumerate(zip(*parts, strict=True))]
    out, logs = (torch.cat(found, 1).transpose(0, 1) for found in zip(*outs, strict=True))
    return out, logs


def _padded(a: SimpleNamespace) -> tuple[torch.Tensor, torch.Tensor]:
    """Of sequences (B, N, S, D), of which the first tokens count."""
    results = []
    for batch in range(len(a.query)):
        queries = a.actual_seq_lengths[batch] if a.actual_seq_lengths else a.query.shape[2]
        keys = a.actual_seq_lengths_kv[batch] if a.actual_seq_lengths_kv else a.key.shape[2]
        found = _blocks(a, batch, a.query[batch, :, :queries], a.key[batch, :, :keys], a.value[batch, :, :keys])
        results.append([torch.nn.functional.pad(x, (0, 0, 0, a.query.shape[2] - queries)) for x in found])
    out, logs = (torch.stack(parts) for parts in zip(*results, strict=True))
    return out, logs


def _blocks(
    a: SimpleNamespace, batch: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """(result, logs of sums) of one sequence: (heads, tokens, D)."""
    heads, queries, keys = query.shape[0], query.shape[1], key.shape[1]
    rows, columns = (torch.arange(n, device=query.device) // size for n, size in ((queries, a.block_shape[0]), (keys, a.block_shape[1])))
    may = a.block_sparse_mask[batch][:, rows][:, :, columns].bool()
    key, value = (wide(x).repeat_interleave(heads // x.shape[0], 0) for x in (key, value))
    none = ~may.any(-1, keepdim=True)
    scores = (wide(query) @ key.transpose(1, 2) * a.scale_value).masked_fill(~may, -torch.inf).masked_fill(none, 0.0)
    logs = torch.logsumexp(scores.detach(), -1, keepdim=True).masked_fill(none, -torch.inf)
    return (torch.softmax(scores, -1).masked_fill(none, 0.0) @ value).to(query.dtype), logs.float()

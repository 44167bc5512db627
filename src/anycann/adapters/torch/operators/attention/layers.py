"""Whole attention layers of earlier programs: with projections, and with masks that are added."""

from __future__ import annotations

import torch
from torch.nn import functional

from anycann.adapters.torch.operators.dropout import packed, unpacked
from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import composed, refuse, require, sizes

_Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
_SCORE = (
    "Tensor query_layer, Tensor key_layer, Tensor value_layer, Tensor attention_mask, Scalar scale, float keep_prob, "
    "bool query_transpose=False, bool key_transpose=False, bool bmm_score_transpose_a=False, bool bmm_score_transpose_b=False, "
    "bool value_transpose=False, bool dx_transpose=False"
)


@composed(f"npu_fused_attention_score_fwd({_SCORE}) -> (Tensor, Tensor, Tensor)", missing="transposed operands")
def fused_attention_score_forward(
    query_layer: torch.Tensor,
    key_layer: torch.Tensor,
    value_layer: torch.Tensor,
    attention_mask: torch.Tensor,
    scale: float,
    keep_prob: float,
    query_transpose: bool = False,
    key_transpose: bool = False,
    bmm_score_transpose_a: bool = False,
    bmm_score_transpose_b: bool = False,
    value_transpose: bool = False,
    dx_transpose: bool = False,
) -> _Triple:
    """(result (B S, N D), softmax (B, N, S, S), bytes of the dropout mask) of layers (B, N, S, D) and a mask that is added."""
    operator = "npu_fused_attention_score"
    if query_transpose or key_transpose or bmm_score_transpose_a or bmm_score_transpose_b or value_transpose:
        refuse(operator, "a transposed operand", "which axes change places is not documented")
    require(0 < keep_prob <= 1, operator, f"keep_prob {keep_prob}", "above 0, to 1")
    scores = wide(query_layer) @ wide(key_layer).transpose(-1, -2) * scale + wide(attention_mask)
    probabilities = torch.softmax(scores, -1)
    kept = torch.rand_like(probabilities) < keep_prob
    context = (probabilities * kept / keep_prob) @ wide(value_layer)
    result = context.transpose(1, 2).reshape(query_layer.shape[0] * query_layer.shape[2], -1)
    return result.to(query_layer.dtype), probabilities.to(query_layer.dtype), kept.to(torch.uint8)


@composed(f"npu_fused_attention_score({_SCORE}) -> Tensor", missing="transposed operands")
def fused_attention_score(
    query_layer: torch.Tensor,
    key_layer: torch.Tensor,
    value_layer: torch.Tensor,
    attention_mask: torch.Tensor,
    scale: float,
    keep_prob: float,
    query_transpose: bool = False,
    key_transpose: bool = False,
    bmm_score_transpose_a: bool = False,
    bmm_score_transpose_b: bool = False,
    value_transpose: bool = False,
    dx_transpose: bool = False,
) -> torch.Tensor:
    """The result of `npu_fused_attention_score_fwd`."""
    turned = (query_transpose, key_transpose, bmm_score_transpose_a, bmm_score_transpose_b, value_transpose, dx_transpose)
    return fused_attention_score_forward(query_layer, key_layer, value_layer, attention_mask, scale, keep_prob, *turned)[0]


@composed(
    "npu_multi_head_attention(Tensor query, Tensor key, Tensor value, Tensor query_weight, Tensor key_weight, Tensor value_weight, "
    "Tensor attn_mask, Tensor out_proj_weight, Tensor? query_bias, Tensor? key_bias, Tensor? value_bias, Tensor? out_proj_bias, "
    "Tensor? dropout_mask, int attn_head_num, int attn_dim_per_head, int src_len, int tgt_len, float dropout_prob, "
    "bool softmax_use_float) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def multi_head_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    query_weight: torch.Tensor,
    key_weight: torch.Tensor,
    value_weight: torch.Tensor,
    attn_mask: torch.Tensor,
    out_proj_weight: torch.Tensor,
    query_bias: torch.Tensor | None,
    key_bias: torch.Tensor | None,
    value_bias: torch.Tensor | None,
    out_proj_bias: torch.Tensor | None,
    dropout_mask: torch.Tensor | None,
    attn_head_num: int,
    attn_dim_per_head: int,
    src_len: int,
    tgt_len: int,
    dropout_prob: float,
    softmax_use_float: bool,
) -> tuple[torch.Tensor, ...]:
    """(result, dropout bit mask, heads of query, key, value, scores, softmax, context) of rows (B tgt_len, E) and (B src_len, E).

    attn_mask (B, 1 or N, tgt, src) is added to the scores; queries are scaled by 1 / sqrt(attn_dim_per_head).
    """
    batch = query.shape[0] // tgt_len
    fits = query.shape[0] == batch * tgt_len and key.shape[0] == batch * src_len
    require(fits, "npu_multi_head_attention", f"query and key of {sizes(query, key)}", f"multiples of {tgt_len} and {src_len} rows")

    def heads(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        y = functional.linear(x, weight, bias)
        return y.reshape(batch, -1, attn_head_num, attn_dim_per_head).transpose(1, 2).contiguous()

    q = heads(query, query_weight, query_bias) * attn_dim_per_head**-0.5
    k, v = heads(key, key_weight, key_bias), heads(value, value_weight, value_bias)
    scores = q @ k.transpose(-1, -2) + attn_mask.to(q.dtype)
    probabilities = torch.softmax(wide(scores) if softmax_use_float else scores, -1).to(scores.dtype)
    mask = packed(torch.rand_like(wide(scores)) >= dropout_prob) if dropout_mask is None else dropout_mask.clone()
    dropped = probabilities * unpacked(mask, scores.shape) / (1 - dropout_prob) if dropout_prob < 1 else probabilities * 0
    context = (dropped @ v).transpose(1, 2).reshape(query.shape[0], attn_head_num * attn_dim_per_head)
    return functional.linear(context, out_proj_weight, out_proj_bias), mask, q, k, v, scores, probabilities, context

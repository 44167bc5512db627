"""`scaled_dot_product_attention` on the npu: the fused cpu kernel where it applies, elsewhere products and softmax.

torch chooses by a table of the devices it was built with; this is its choice for the cpu (`sdp::select_sdp_backend_cpp`).
"""

from __future__ import annotations

from typing import Any

import torch

_products = torch.ops.aten._scaled_dot_product_attention_math.default
_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_enabled = torch._C._get_flash_sdp_enabled
_kept: list[Any] = []


def install() -> None:
    """Choose above autograd, so that the fused kernel has its own backward."""
    for key in ("AutogradPrivateUse1", "PrivateUse1"):
        library = torch.library.Library("aten", "IMPL", key)
        library.impl("scaled_dot_product_attention", attention)
        _kept.append(library)


def attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    *, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """aten::scaled_dot_product_attention: (..., L, E), (..., S, E), (..., S, V) to (..., L, V)."""
    if _fused_applies(query, key, value, attn_mask, dropout_p, enable_gqa):
        mask = _as_addend(attn_mask, query)
        return torch._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, is_causal, attn_mask=mask, scale=scale)[0]
    return _products(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)[0]


def _fused_applies(query: Any, key: Any, value: Any, mask: Any, dropout_p: float, enable_gqa: bool) -> bool:
    """At every call of attention, so it takes care not to take long."""
    dtype, of_keys = query.dtype, key.shape
    if dropout_p or enable_gqa or dtype not in _FLOATS or key.dtype != dtype or value.dtype != dtype or not _enabled():
        return False
    if len(of_keys) != 4 or query.dim() != 4 or value.shape != of_keys or 0 in of_keys:
        return False
    if query.stride(-1) != 1 or key.stride(-1) != 1 or value.stride(-1) != 1:
        return False
    batch, heads, rows, width = query.shape
    same = rows and (batch, heads, width) == (of_keys[0], of_keys[1], of_keys[3])
    return bool(same) and (mask is None or _mask_fits(mask, query, key))


def _mask_fits(mask: Any, query: Any, key: Any) -> bool:
    """Two axes, or four, that broadcast to (batch, heads, L, S); no gradient goes to the mask."""
    if mask.requires_grad or mask.dtype not in (torch.bool, query.dtype) or mask.dim() not in (2, 4):
        return False
    whole = (*query.shape[:2], query.shape[2], key.shape[2])
    return all(size in (1, full) for size, full in zip(mask.shape, whole[-mask.dim() :], strict=True))


def _as_addend(mask: Any, query: Any) -> Any:
    """A mask of booleans (True: attended) as what is added to the scores."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), float("-inf"))

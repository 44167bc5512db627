"""Rotary position embeddings."""

from __future__ import annotations

import torch

from anycann.adapters.torch.operators.fused import Fused, Tensors
from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import composed, refuse, refuse_given, require, sizes

_Pair = tuple[torch.Tensor, torch.Tensor]


@composed("npu_rotary_mul(Tensor self, Tensor r1, Tensor r2, str rotary_mode='half', Tensor? rotate=None) -> Tensor")
def rotary_mul(
    self: torch.Tensor, r1: torch.Tensor, r2: torch.Tensor, rotary_mode: str = "half", rotate: torch.Tensor | None = None
) -> torch.Tensor:
    """self r1 + rotated(self) r2: rotated by halves, by neighbours, or by the matrix `rotate` (D, D)."""
    if rotate is None:
        (result,) = _ROTARY_MUL((self, r1, r2), rotary_mode)
        return result
    x = wide(self)
    return (x * wide(r1) + (x @ wide(rotate)) * wide(r2)).to(self.dtype)


def _rotary_mul(x: torch.Tensor, r1: torch.Tensor, r2: torch.Tensor, rotary_mode: str) -> Tensors:
    turned = _turned("npu_rotary_mul", wide(x), rotary_mode)
    return ((wide(x) * wide(r1) + turned * wide(r2)).to(x.dtype),)


@composed("npu_rotary_mul_backward(Tensor grad, Tensor self, Tensor r1, Tensor r2, str rotary_mode='half') -> (Tensor, Tensor, Tensor)")
def rotary_mul_backward(
    grad: torch.Tensor, self: torch.Tensor, r1: torch.Tensor, r2: torch.Tensor, rotary_mode: str = "half"
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients by self, r1 and r2 of `npu_rotary_mul`."""
    above, x = wide(grad), wide(self)
    turned = _turned("npu_rotary_mul_backward", x, rotary_mode)
    # the transposed rotation is the negative one
    by_self = above * wide(r1) - _turned("npu_rotary_mul_backward", above * wide(r2), rotary_mode)
    by_r1, by_r2 = (above * x).sum_to_size(r1.shape), (above * turned).sum_to_size(r2.shape)
    return by_self.to(self.dtype), by_r1.to(r1.dtype), by_r2.to(r2.dtype)


_ROTARY_MUL = Fused(_rotary_mul, rotary_mul_backward)


@composed(
    "npu_apply_rotary_pos_emb(Tensor query, Tensor key, Tensor cos, Tensor sin, str layout='BSND', str rotary_mode='half')"
    " -> (Tensor, Tensor)"
)
def apply_rotary_pos_emb(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, layout: str = "BSND", rotary_mode: str = "half"
) -> _Pair:
    """(query, key), both turned. cos and sin broadcast, with the axes that `layout` names; shorter ones turn the front part."""
    operator = "npu_apply_rotary_pos_emb"
    require(layout in ("BSND", "SBND", "BNSD", "TND", "BSH"), operator, f"layout {layout!r}", "BSND, SBND, BNSD, TND")
    return _front_turned(operator, query, cos, sin, rotary_mode), _front_turned(operator, key, cos, sin, rotary_mode)


@composed("npu_interleave_rope(Tensor x, Tensor cos, Tensor sin) -> Tensor")
def interleave_rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """(B, N, S, D) whose neighbours are sorted into halves (even places first), then turned by halves."""
    sorted_halves = torch.cat((wide(x)[..., ::2], wide(x)[..., 1::2]), -1)
    turned = _turned("npu_interleave_rope", sorted_halves, "half")
    return (sorted_halves * wide(cos) + turned * wide(sin)).to(x.dtype)


@composed(
    "npu_mrope(Tensor positions, Tensor query, Tensor key, Tensor cos_sin_cache, int head_size, *, int[]? mrope_section=None, "
    "str? rotary_mode='half', str? cache_mode='default') -> (Tensor, Tensor)"
)
def mrope(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    head_size: int,
    *,
    mrope_section: list[int] | None = None,
    rotary_mode: str | None = "half",
    cache_mode: str | None = "default",
) -> _Pair:
    """(query, key) of (tokens, heads * head_size), turned by the rows of the cache (cos and sin side by side) at their positions.

    positions: (tokens,), or (sections, tokens), of which each takes its part of the angles by `mrope_section`.
    """
    operator = "npu_mrope"
    if cache_mode not in (None, "default"):
        refuse(operator, f"cache_mode={cache_mode!r}", "only 'default' (sections one behind another) is defined without doubt")
    cos, sin = cos_sin_cache[positions].chunk(2, -1)
    if positions.dim() == 2:
        section = [size for size in (mrope_section or []) if size]
        accepted = f"{positions.shape[0]} sizes with the sum {cos.shape[-1]}"
        whole = len(mrope_section or []) == positions.shape[0] and sum(section) == cos.shape[-1]
        require(whole, operator, f"mrope_section {mrope_section} for positions of {sizes(positions)}", accepted)
        cos, sin = _sections(cos, mrope_section or []), _sections(sin, mrope_section or [])
    mode = rotary_mode or "half"
    return _heads_turned(operator, query, cos, sin, head_size, mode), _heads_turned(operator, key, cos, sin, head_size, mode)


@composed(
    "atb::_npu_rotary_embedding(Tensor positions, Tensor(a!) query, Tensor(b!) key, int head_size, Tensor cos_sin_cache, "
    "bool is_neox_style) -> ()"
)
def rotary_embedding(
    positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor, head_size: int, cos_sin_cache: torch.Tensor, is_neox_style: bool
) -> None:
    """Turns query and key (tokens, heads * head_size) in place: by halves (neox style) or by neighbours."""
    cos, sin = cos_sin_cache[positions.flatten()].chunk(2, -1)
    mode = "half" if is_neox_style else "interleave"
    for tensor in (query, key):
        tensor.copy_(_heads_turned("_npu_rotary_embedding", tensor, cos, sin, head_size, mode))


def _turned(operator: str, x: torch.Tensor, mode: str) -> torch.Tensor:
    require(x.shape[-1] % 2 == 0, operator, f"the last axis of {sizes(x)}", "an even size")
    if mode == "half":
        front, back = x.chunk(2, -1)
        return torch.cat((-back, front), -1)
    if mode != "interleave":
        refuse(operator, f"rotary_mode={mode!r}", f"The rotary_mode of {operator} should be half or interleave, but got {mode}")
    return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)


def _front_turned(operator: str, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, mode: str) -> torch.Tensor:
    front, rest = wide(x)[..., : cos.shape[-1]], wide(x)[..., cos.shape[-1] :]
    turned = front * wide(cos) + _turned(operator, front, mode) * wide(sin)
    return torch.cat((turned, rest), -1).to(x.dtype)


def _sections(angles: torch.Tensor, section: list[int]) -> torch.Tensor:
    """(sections, tokens, n) -> (tokens, n): of each section its own part."""
    return torch.cat([part[number] for number, part in enumerate(angles.split(section, -1))], -1)


def _heads_turned(operator: str, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, head_size: int, mode: str) -> torch.Tensor:
    require(x.shape[-1] % head_size == 0, operator, f"head_size {head_size} for {sizes(x)}", "a divisor of the last axis")
    heads = x.reshape(cos.shape[0], -1, head_size)
    cos, sin = cos[:, None], sin[:, None]
    if mode == "half":
        cos, sin = torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)
    else:
        cos, sin = cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1)
    return _front_turned(operator, heads, cos, sin, mode).reshape(x.shape)


@composed(
    "npu_kv_rmsnorm_rope_cache(Tensor kv, Tensor gamma, Tensor cos, Tensor sin, Tensor index, Tensor(a!) k_cache, Tensor(b!) ckv_cache, *, "
    "Tensor? k_rope_scale=None, Tensor? c_kv_scale=None, Tensor? k_rope_offset=None, Tensor? c_kv_offset=None, Tensor? v=None, "
    "float epsilon=1e-5, str cache_mode='Norm', bool is_output_kv=False)"
    " -> (Tensor(a!), Tensor(b!), Tensor, Tensor)",
    missing="caches of int8, cache_mode other than Norm, PA and PA_BNSD",
)
def kv_rmsnorm_rope_cache(
    kv: torch.Tensor,
    gamma: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    index: torch.Tensor,
    k_cache: torch.Tensor,
    ckv_cache: torch.Tensor,
    *,
    k_rope_scale: torch.Tensor | None = None,
    c_kv_scale: torch.Tensor | None = None,
    k_rope_offset: torch.Tensor | None = None,
    c_kv_offset: torch.Tensor | None = None,
    v: torch.Tensor | None = None,
    epsilon: float = 1e-5,
    cache_mode: str = "Norm",
    is_output_kv: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(cache of keys, cache of compressed values, turned keys, normalised values), the caches as they are after writing.

    kv (B, 1, S, R + D): its first R columns are normalised by their root mean square, the rest turned as by `npu_interleave_rope`.
    index: places in each sequence's cache (B, S) of (B, 1, L, .) for Norm, or slots (B S,) of pages (P, tokens, 1, .) for PA. The caches
    themselves are written too.
    """
    operator = "npu_kv_rmsnorm_rope_cache"
    scales = {"k_rope_scale": k_rope_scale, "c_kv_scale": c_kv_scale, "k_rope_offset": k_rope_offset, "c_kv_offset": c_kv_offset}
    refuse_given(operator, "caches of int8 are not computed", v=v, **scales)
    width = gamma.shape[-1]
    rotary, latent = kv[..., width:], wide(kv[..., :width])
    values = (latent * torch.rsqrt(latent.square().mean(-1, keepdim=True) + epsilon) * wide(gamma)).to(kv.dtype)
    keys = interleave_rope(rotary, cos, sin)
    for cache, rows in ((k_cache, keys), (ckv_cache, values)):
        if cache_mode == "Norm":
            batch = torch.arange(kv.shape[0], device=kv.device)[:, None]
            cache.transpose(1, 2).index_put_((batch, index.long()), rows.transpose(1, 2).to(cache.dtype))
        elif cache_mode in ("PA", "PA_BNSD"):
            slots = index.reshape(-1).long()
            cache.index_put_((slots // cache.shape[1], slots % cache.shape[1]), rows.reshape(-1, 1, rows.shape[-1]).to(cache.dtype))
        else:
            refuse(operator, f"cache_mode={cache_mode!r}", "Norm, PA and PA_BNSD are computed")
    return k_cache, ckv_cache, keys, values

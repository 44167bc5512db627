"""Multi-head latent attention of the transformer library (arXiv:2405.04434): keys in pages, whose first part is the values too."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from anycann.adapters.torch.operators.attention import core
from anycann.adapters.torch.operators.attention.pages import read_pages
from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import bound, composed, refuse, refuse_given

_NAME = "npu_multi_head_latent_attention"
_ARGUMENTS = (
    "Tensor q_nope, Tensor q_rope, Tensor ctkv, Tensor k_rope, Tensor block_tables, SymInt[] context_lens, int q_headnum, float qk_scale, "
    "int kv_headnum"
)
_OPTIONS = (
    "Tensor? mask=None, SymInt[]? qseqlen=None, Tensor? qk_descale=None, Tensor? pv_descale=None, str? mask_type=None, "
    "str? calc_type=None, str? cache_mode=None"
)
_MISSING = "mask_type_free, caches of int8 and FRACTAL_NZ"
_MASKED = "mask_type_spec"  # without a type no mask is read


def _attended(a: SimpleNamespace) -> tuple[torch.Tensor, torch.Tensor]:
    """(T, heads, D) like q_nope, and the logarithms of the sums (T, heads, 1)."""
    refuse_given(_NAME, "caches of bytes are not computed", qk_descale=a.qk_descale, pv_descale=a.pv_descale)
    if a.cache_mode not in (None, "krope_ctkv") or a.mask_type not in (None, "undefined", _MASKED):
        refuse(_NAME, f"cache_mode={a.cache_mode!r}, mask_type={a.mask_type!r}", "'krope_ctkv' and 'mask_type_spec' are computed")
    query, begin, parts = torch.cat((wide(a.q_nope), wide(a.q_rope)), -1), 0, []
    for entry, length in enumerate(a.context_lens):
        rows = slice(begin, begin + (1 if a.qseqlen is None else a.qseqlen[entry]))
        begin = rows.stop
        latent, rotated = (
            wide(read_pages(cache.flatten(2), a.block_tables[entry], length, a.kv_headnum, 0)) for cache in (a.ctkv, a.k_rope)
        )
        bias = None if a.mask is None or a.mask_type != _MASKED else wide(a.mask)[rows, :length][None, None]
        q, keys = query[rows].transpose(0, 1)[None], torch.cat((latent, rotated), -1)[None]
        parts.append(core.attend(core.Problem(q, keys, latent[None], a.qk_scale, bias, bias_is_scaled=False)))
    out, logarithms = (
        torch.cat([getattr(part, name)[0].transpose(0, 1) for part in parts]) if parts else query.new_zeros(shape)
        for name, shape in (("out", a.q_nope.shape), ("logarithm", query.shape[:2]))
    )
    return out.to(a.q_nope.dtype), logarithms[..., None].to(a.q_rope.dtype)


@composed(f"atb::{_NAME}({_ARGUMENTS}, *, {_OPTIONS}) -> Tensor", missing=_MISSING, differentiable=False)
def latent_attention(*given: Any, **options: Any) -> torch.Tensor:
    """Queries (T, heads, D) and their rotated part (T, heads, R) on latent keys (pages, tokens, kv heads, D) and rotated keys (..., R).

    One query for each sequence, or qseqlen of them; with mask_type_spec the mask (T, keys) of floats is added to the scores.
    """
    return _attended(bound(_NAME, given, options))[0]


@composed(f"atb::{_NAME}.out({_ARGUMENTS}, *, {_OPTIONS}, Tensor(a!) output) -> Tensor(a!)", missing=_MISSING, differentiable=False)
def latent_attention_out(*given: Any, output: torch.Tensor, **options: Any) -> torch.Tensor:
    """`npu_multi_head_latent_attention`, written into `output`."""
    return output.copy_(_attended(bound(_NAME, given, options))[0])


@composed(
    f"atb::{_NAME}.lse({_ARGUMENTS}, bool return_lse, *, {_OPTIONS}, Tensor? workspace=None) -> (Tensor, Tensor)",
    missing=_MISSING,
    differentiable=False,
)
def latent_attention_lse(*given: Any, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """`npu_multi_head_latent_attention` and, with return_lse, the logarithms of the sums of exponents: (T, heads, 1)."""
    a = bound(f"{_NAME}.lse", given, options)
    out, logarithms = _attended(a)
    return out, logarithms if a.return_lse else logarithms.new_empty(0)


@composed(
    f"atb::{_NAME}.lse_out({_ARGUMENTS}, bool return_lse, *, {_OPTIONS}, Tensor? workspace=None, Tensor(a!) output, Tensor(b!) lse)"
    " -> (Tensor(a!), Tensor(b!))",
    missing=_MISSING,
    differentiable=False,
)
def latent_attention_lse_out(*given: Any, output: torch.Tensor, lse: torch.Tensor, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """`npu_multi_head_latent_attention` and its logarithms, written into `output` and `lse`."""
    a = bound(f"{_NAME}.lse", given, options)
    out, logarithms = _attended(a)
    output.copy_(out)
    if a.return_lse:
        lse.copy_(logarithms)
    return output, lse


@composed(
    f"atb::_{_NAME}_get_workspace.lse({_ARGUMENTS}, bool return_lse, *, {_OPTIONS}) -> Tensor", missing=_MISSING, differentiable=False
)
def latent_attention_workspace(*given: Any, **options: Any) -> torch.Tensor:
    """The memory that the operator wants beside its tensors: none."""
    query: torch.Tensor = given[0]
    return query.new_empty(0, dtype=torch.uint8)

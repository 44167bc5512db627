"""Attention of the transformer library over sequences of their own lengths, their keys in pages or one behind another."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch

from anycann.adapters.torch.operators.attention import core
from anycann.adapters.torch.operators.attention.pages import nothing, read_pages
from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import bound, composed, opaque, refuse, refuse_given, require, sizes

_HEADS = "int num_kv_heads, int num_heads, float scale_value"
_PAGED = f"Tensor query, Tensor key_cache, Tensor value_cache, {_HEADS}, Tensor block_table, Tensor context_lens, Tensor(a!) out"
_COMPRESSED = (128, 128)  # a mask of this size stands for the diagonal from the lower right corner


@opaque(f"atb::_npu_paged_attention({_PAGED}, *, Tensor? workspace=None) -> ()", shape=nothing)
def paged_attention(*given: Any, **options: Any) -> None:
    """One query (heads, D) for each sequence on its keys in pages (pages, tokens, kv heads, D); sequences of no keys give zeros."""
    a = bound("_npu_paged_attention", given, options)
    for entry, length in enumerate(a.context_lens.tolist()):
        _attend(a, slice(entry, entry + 1), *(_of_pages(a, cache, entry, length) for cache in (a.key_cache, a.value_cache)))


_V2 = (
    "Tensor query, Tensor key_cache, Tensor block_table, SymInt[] context_lens, *, Tensor? value_cache=None, Tensor? mask=None, "
    "int num_kv_heads=0, int num_heads=0, float scale_value=1.0, int mask_type=0, "
)


_V2_NAME, _V2_MISSING = "_npu_paged_attention_v2", "caches of keys alone, mask_type other than 0 and 2"
_UNMASKED, _BY_SEQUENCE, _ADDED = 0, 1, 2  # mask_type; _ADDED: of positions, for each head


@composed(f"atb::{_V2_NAME}({_V2}Tensor? workspace=None, Tensor(a!) out) -> Tensor(a!)", missing=_V2_MISSING, differentiable=False)
def paged_attention_v2(*given: Any, out: torch.Tensor, **options: Any) -> torch.Tensor:
    """As `_npu_paged_attention`, with the lengths in a list, and with mask_type 2 a mask (T, heads or 1, 1, keys) or (heads, 1, keys) of
    floats that are added to the scores."""
    a = bound(_V2_NAME, given, options)
    if a.value_cache is None:
        refuse(_V2_NAME, "a cache of keys alone", "keys and values are computed")
    if a.mask_type not in (_UNMASKED, _ADDED):
        refuse(_V2_NAME, f"mask_type={a.mask_type}", f"{_UNMASKED} (none) and {_ADDED} are computed")
    mask = None if a.mask is None or a.mask_type == _UNMASKED else wide(a.mask)
    a.num_heads = a.num_heads or a.query.shape[-2]
    a.num_kv_heads, a.out = a.num_kv_heads or a.num_heads, out
    fits = mask is None or mask.dim() == 4 or (mask.dim() == 3 and mask.shape[0] == a.num_heads)
    require(fits, _V2_NAME, f"a mask of {sizes(a.mask)}", "(T, heads, 1, keys) or (heads, 1, keys)")
    for entry, length in enumerate(a.context_lens):
        bias = None if mask is None else (mask[entry] if mask.dim() == 4 else mask)[..., :length]
        keys, values = (_of_pages(a, cache, entry, length) for cache in (a.key_cache, a.value_cache))
        _attend(a, slice(entry, entry + 1), keys, values, bias)
    return out


@composed(f"atb::{_V2_NAME}_get_workspace({_V2}Tensor(a!) out) -> Tensor", differentiable=False)
def paged_attention_v2_workspace(*given: Any, **options: Any) -> torch.Tensor:
    """The memory that the operator wants beside its tensors: none."""
    query: torch.Tensor = given[0]
    return query.new_empty(0, dtype=torch.uint8)


@composed(f"atb::_npu_paged_attention_get_workspace({_PAGED}) -> Tensor", differentiable=False)
def paged_attention_workspace(*given: Any, **options: Any) -> torch.Tensor:
    """The memory that the operator wants beside its tensors: none."""
    query: torch.Tensor = bound("_npu_paged_attention_get_workspace", given, options).query
    return query.new_empty(0, dtype=torch.uint8)


@opaque(
    f"atb::_npu_paged_attention_mla(Tensor query, Tensor key_cache, {_HEADS}, Tensor block_table, Tensor context_lens, "
    "int mla_vheadsize, Tensor(a!) out) -> ()",
    shape=nothing,
)
def paged_attention_mla(*given: Any, **options: Any) -> None:
    """As `_npu_paged_attention`, with the first mla_vheadsize places of the keys as values."""
    a = bound("_npu_paged_attention_mla", given, options)
    for entry, length in enumerate(a.context_lens.tolist()):
        keys = _of_pages(a, a.key_cache, entry, length)
        _attend(a, slice(entry, entry + 1), keys, keys[..., : a.mla_vheadsize])


def _register_prefixed(name: str, arguments: str) -> None:
    def body(*given: Any, **options: Any) -> None:
        """The last seq_len tokens of each sequence (T, heads, D) on its context_lens keys in pages. The mask: floats (T, keys) that are
        added to the scores, or (128, 128) for the diagonal."""
        a = bound(name, given, options)
        lengths = a.context_lens.tolist()
        for entry, rows in _rows(a.seq_len):
            count, length = rows.stop - rows.start, lengths[entry]
            keys, values = (_of_pages(a, cache, entry, length) for cache in (a.key_cache, a.value_cache))
            if tuple(a.mask.shape) == _COMPRESSED:
                later = torch.ones(count, length, dtype=torch.bool, device=keys.device).triu(1 + length - count)
                _attend(a, rows, keys, values, masked=later)
            else:
                _attend(a, rows, keys, values, wide(_mask(name, a.mask)[rows, :length]))

    opaque(f"atb::{name}({arguments}, {_HEADS}, Tensor(a!) out) -> ()", shape=nothing)(body)


_register_prefixed(
    "_npu_paged_attention_splitfuse",
    "Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_table, Tensor context_lens, Tensor mask, Tensor seq_len",
)
_register_prefixed(
    "_npu_flash_attention_qlens",
    "Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_table, Tensor mask, Tensor seq_len, Tensor context_lens",
)


_FLASH = "Tensor seq_len, float scale_value, int num_heads, int num_kv_heads"


def _register_unpadded(name: str, between: str = "", missing: str = "") -> None:
    def body(*given: Any, **options: Any) -> None:
        """Sequences one behind another, (T, heads * D) or (T, heads, D): every token attends all of its sequence."""
        _each_sequence(bound(name, given, options))

    opaque(f"atb::{name}(Tensor query, Tensor key, Tensor value, {_FLASH}, {between}Tensor(a!) out) -> ()", nothing, missing=missing)(body)


_register_unpadded("_npu_flash_attention_unpad")
_register_unpadded("_npu_flash_attention_unpad_v2", "*, int? kernel_type=0, ")


@opaque(
    f"atb::_npu_flash_attention(Tensor query, Tensor key, Tensor value, Tensor mask, {_FLASH}, Tensor(a!) out) -> ()",
    shape=nothing,
    missing="compressed masks of other than float scores",
)
def flash_attention(*given: Any, **options: Any) -> None:
    """As `_npu_flash_attention_unpad`, with a mask (S, S) of floats that are added to the scores."""
    a = bound("_npu_flash_attention", given, options)
    _each_sequence(a, wide(_mask("_npu_flash_attention", a.mask)))


_FLASH_V2 = "_npu_flash_attention_v2"


@composed(
    f"atb::{_FLASH_V2}.out(Tensor query, Tensor key, Tensor value, SymInt[] seq_len, *, Tensor? mask=None, Tensor? slopes=None, "
    "int kernel_type=0, int mask_type=2, float scale_value=1, int num_heads=0, int num_kv_heads=0, Tensor(a!) out) -> Tensor(a!)",
    missing="compressed masks (slopes, mask_type above 2)",
    differentiable=False,
)
def flash_attention_v2(*given: Any, out: torch.Tensor, **options: Any) -> torch.Tensor:
    """As `_npu_flash_attention_unpad`, with the lengths in a list and a mask of floats that are added to the scores: (S, S),
    (B, heads or 1, S, S), with mask_type 1 (B, S, S), with 2 (heads, S, S). Values may be shorter than keys."""
    a = bound(f"{_FLASH_V2}.out", given, options)
    refuse_given(_FLASH_V2, "how compressed masks continue is not documented", slopes=a.slopes)
    if a.mask_type not in (_UNMASKED, _BY_SEQUENCE, _ADDED):
        refuse(_FLASH_V2, f"mask_type={a.mask_type}", "0, 1 and 2 are computed")
    masks = None if a.mask is None or a.mask_type == _UNMASKED else wide(a.mask)
    each = masks is not None and masks.dim() + (a.mask_type == _BY_SEQUENCE) >= 4
    require(a.num_heads > 0, _FLASH_V2, f"num_heads={a.num_heads}", "the number of heads")
    a.num_kv_heads, a.out = a.num_kv_heads or a.num_heads, out
    for entry, rows in _rows(a.seq_len):
        count = rows.stop - rows.start
        mask = None if masks is None else (masks[entry] if each else masks)[..., :count, :count]
        keys, values = (x[rows].reshape(count, a.num_kv_heads, -1).transpose(0, 1) for x in (a.key, a.value))
        _attend(a, rows, keys, values, mask)
    return out


def _each_sequence(a: SimpleNamespace, mask: torch.Tensor | None = None) -> None:
    for _, rows in _rows(a.seq_len):
        count = rows.stop - rows.start
        keys, values = (x[rows].reshape(count, a.num_kv_heads, -1).transpose(0, 1) for x in (a.key, a.value))
        _attend(a, rows, keys, values, None if mask is None else mask[:count, :count])


def _rows(lengths: torch.Tensor | list[int]) -> Iterator[tuple[int, slice]]:
    """The number of each sequence that has tokens, and where they are."""
    begin = 0
    for entry, length in enumerate(lengths if isinstance(lengths, list) else lengths.tolist()):
        if length:
            yield entry, slice(begin, begin + length)
        begin += length


def _of_pages(a: SimpleNamespace, cache: torch.Tensor, entry: int, length: int) -> torch.Tensor:
    """(kv heads, length, D) of a sequence from a cache (pages, tokens, kv heads, D)."""
    return read_pages(cache.flatten(2), a.block_table[entry], length, a.num_kv_heads, 0)


def _mask(operator: str, mask: torch.Tensor) -> torch.Tensor:
    if not mask.is_floating_point() or mask.dim() != 2:
        refuse(operator, f"a mask of {sizes(mask)}", "floats of two axes that are added to the scores are computed")
    return mask


def _attend(
    a: SimpleNamespace,
    rows: slice,
    keys: torch.Tensor,
    values: torch.Tensor,
    bias: torch.Tensor | None = None,
    masked: torch.Tensor | None = None,
) -> None:
    """Writes what some rows of the queries attend, on keys and values (kv heads, length, D); bias and mask (heads or 1, rows, length)."""
    q = a.query[rows].reshape(rows.stop - rows.start, a.num_heads, -1).transpose(0, 1)
    bias, masked = (None if x is None else x[(None,) * (4 - x.dim())] for x in (bias, masked))
    problem = core.Problem(wide(q)[None], wide(keys)[None], wide(values)[None], a.scale_value, bias, bias_is_scaled=False, masked=masked)
    out = a.out[rows]
    out.copy_(core.attend(problem).out[0].transpose(0, 1).reshape(out.shape))

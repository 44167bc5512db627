"""Caches of keys and values in pages: how they are written and read."""

from __future__ import annotations

import torch

from anycann.adapters.torch.operators.registry import composed, opaque, refuse, refuse_given, require, sizes


def read_pages(cache: torch.Tensor, table: torch.Tensor, length: int, heads: int, block_size: int) -> torch.Tensor:
    """(heads, length, D): the first tokens of the pages that a row of the block table names.

    The cache: (pages, tokens, heads * D), (pages, heads, tokens, D), or (pages, heads, D / c, tokens, c) as FRACTAL_NZ lies in memory.
    """
    block_size = block_size or _tokens_of_page(cache)
    pages = cache[table[: -(-length // block_size)].long()]
    if cache.dim() == 3:
        tokens = pages.unflatten(2, (heads, -1)).permute(2, 0, 1, 3)
    elif cache.dim() == 4:
        tokens = pages.transpose(0, 1)
    else:
        tokens = pages.permute(1, 0, 3, 2, 4).flatten(3)
    return tokens.flatten(1, 2)[:, :length]


def _tokens_of_page(cache: torch.Tensor) -> int:
    return int(cache.shape[{3: 1, 4: 2, 5: 3}[cache.dim()]])


def write_tokens(operator: str, cache: torch.Tensor, tokens: torch.Tensor, slots: torch.Tensor) -> None:
    """Writes tokens (T, heads, D) to slots of a cache (pages, tokens of a page, heads, D); slots below zero are left out."""
    fits = cache.dim() == 4 and tokens.shape[1:] == cache.shape[2:]
    require(fits, operator, f"tokens and a cache of {sizes(tokens, cache)}", "(T, N, D) and (pages, tokens, N, D)")
    written = slots >= 0
    slots = slots.long()[written]
    cache.index_put_((slots // cache.shape[1], slots % cache.shape[1]), tokens[written].to(cache.dtype))


def write_tokens_nz(operator: str, cache: torch.Tensor, tokens: torch.Tensor, slots: torch.Tensor) -> None:
    """As `write_tokens`, to a cache (pages, heads * D / c, tokens of a page, c)."""
    flat = tokens.flatten(1)
    fits = cache.dim() == 4 and flat.shape[1] == cache.shape[1] * cache.shape[3]
    require(fits, operator, f"tokens and a cache of {sizes(tokens, cache)}", "(T, N, D) and (pages, N D / c, tokens, c)")
    written = slots >= 0
    slots, parts = slots.long()[written], flat[written].unflatten(1, (cache.shape[1], cache.shape[3]))
    cache.transpose(1, 2).index_put_((slots // cache.shape[2], slots % cache.shape[2]), parts.to(cache.dtype))


def nothing(*arguments: object, **options: object) -> None:
    """The shapes of operators that only write."""


@opaque(
    "npu_scatter_pa_kv_cache(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor slot_mapping, *, "
    "Tensor? compress_lens=None, Tensor? compress_seq_offsets=None, Tensor? seq_lens=None, str? cache_mode='PA_NZ') -> ()",
    shape=nothing,
    missing="compressed caches (compress_lens, compress_seq_offsets, seq_lens)",
)
def scatter_pa_kv_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    *,
    compress_lens: torch.Tensor | None = None,
    compress_seq_offsets: torch.Tensor | None = None,
    seq_lens: torch.Tensor | None = None,
    cache_mode: str | None = "PA_NZ",
) -> None:
    """Writes keys and values (T, N, D) to the slots of their caches: 'Norm' (pages, tokens, N, D), 'PA_NZ' (pages, N D / c, tokens, c)."""
    operator = "npu_scatter_pa_kv_cache"
    refuse_given(
        operator,
        "compressed caches are not there",
        compress_lens=compress_lens,
        compress_seq_offsets=compress_seq_offsets,
        seq_lens=seq_lens,
    )
    if cache_mode not in (None, "Norm", "PA_NZ"):
        refuse(operator, f"cache_mode={cache_mode!r}", "'Norm' and 'PA_NZ' are documented")
    write = write_tokens_nz if cache_mode == "PA_NZ" else write_tokens
    write(operator, key_cache, key, slot_mapping)
    write(operator, value_cache, value, slot_mapping)


@opaque(
    "npu_gather_pa_kv_cache(Tensor key_cache, Tensor value_cache, Tensor block_tables, Tensor seq_lens, Tensor(a!) key, Tensor(b!) value, "
    "*, Tensor? seq_offset=None, bool is_seq_lens_cumsum=False) -> ()",
    shape=nothing,
)
def gather_pa_kv_cache(
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    seq_offset: torch.Tensor | None = None,
    is_seq_lens_cumsum: bool = False,
) -> None:
    """Reads the tokens of all sequences, from the page of token seq_offset on, one sequence behind another into (T, N, D)."""
    lengths = (seq_lens.diff() if is_seq_lens_cumsum else seq_lens).tolist()
    offsets = [0] * len(lengths) if seq_offset is None else seq_offset.tolist()
    for cache, tokens in ((key_cache, key), (value_cache, value)):
        whole = cache.shape[2:] == tokens.shape[1:]
        pages = cache if whole else cache.unflatten(1, (tokens.shape[1], -1)).permute(0, 3, 1, 2, 4).flatten(3)
        begin = 0
        for entry, (length, offset) in enumerate(zip(lengths, offsets, strict=True)):
            length = min(length, tokens.shape[0] - begin)
            tokens[begin : begin + length] = _tokens_of(pages, block_tables[entry], offset // pages.shape[1], length)
            begin += length


def _tokens_of(pages: torch.Tensor, table: torch.Tensor, first: int, length: int) -> torch.Tensor:
    """(length, N, D) of a sequence from its page `first` on; zeros where the table names none."""
    places = torch.arange(length)
    number = first + places // pages.shape[1]
    page = torch.where(number < table.shape[0], table.long()[number.clamp(max=table.shape[0] - 1)], -1)
    there = (page >= 0) & (page < pages.shape[0])
    found = pages[torch.where(there, page, 0), places % pages.shape[1]]
    return torch.where(there[:, None, None], found, found.new_zeros(()))


_LOAD = "Tensor key_cache, Tensor value_cache, Tensor block_table, Tensor context_lens, *, Tensor? seq_starts=None, bool cumsum=False"


@composed(f"atb::npu_paged_cache_load.out({_LOAD}, Tensor(a!) key, Tensor(b!) value) -> (Tensor(a!), Tensor(b!))", differentiable=False)
def paged_cache_load_out(
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    context_lens: torch.Tensor,
    *,
    seq_starts: torch.Tensor | None = None,
    cumsum: bool = False,
    key: torch.Tensor,
    value: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`npu_paged_cache_load`, written into `key` and `value`."""
    torch.ops.npu.npu_gather_pa_kv_cache(
        key_cache, value_cache, block_table, context_lens, key, value, seq_offset=seq_starts, is_seq_lens_cumsum=cumsum
    )
    return key, value


@composed(f"atb::npu_paged_cache_load({_LOAD}) -> (Tensor, Tensor)", differentiable=False)
def paged_cache_load(
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    context_lens: torch.Tensor,
    *,
    seq_starts: torch.Tensor | None = None,
    cumsum: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values (T, N, D) of all sequences, from the page of token seq_starts on, of caches (pages, tokens, N, D).

    context_lens: how many tokens of each, or (cumsum) where they begin and the last one ends.
    """
    total = int(context_lens[-1] if cumsum else context_lens.sum())
    key, value = (cache.new_empty(total, *cache.shape[2:]) for cache in (key_cache, value_cache))
    return paged_cache_load_out(
        key_cache, value_cache, block_table, context_lens, seq_starts=seq_starts, cumsum=cumsum, key=key, value=value
    )


@opaque(
    "atb::_npu_reshape_and_cache(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor slot_indices) -> ()",
    shape=nothing,
)
def reshape_and_cache(
    key: torch.Tensor, value: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, slot_indices: torch.Tensor
) -> None:
    """Writes keys and values (T, N, D) to the slots of their caches (pages, tokens, N, D)."""
    for cache, tokens in ((key_cache, key), (value_cache, value)):
        write_tokens("_npu_reshape_and_cache", cache, tokens, slot_indices)


@opaque("atb::_npu_reshape_and_cache_siso(Tensor key, Tensor(a!) key_cache, Tensor slot_indices) -> ()", shape=nothing)
def reshape_and_cache_siso(key: torch.Tensor, key_cache: torch.Tensor, slot_indices: torch.Tensor) -> None:
    """Writes keys alone, as `_npu_reshape_and_cache` does."""
    write_tokens("_npu_reshape_and_cache_siso", key_cache, key, slot_indices)

"""Attention of inference: sequences of their own lengths, keys in pages, shared, padded on either side or quantised."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from anycann.adapters.torch.operators import packing
from anycann.adapters.torch.operators.attention import core, layouts, masks
from anycann.adapters.torch.operators.attention.key_scales import Quantisation, floats
from anycann.adapters.torch.operators.attention.pages import read_pages
from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import refuse, require, sizes
from anycann.support.records import dataclass

LAYOUTS = (
    "BSH",
    "BSND",
    "BNSD",
    "TND",
    "NTD",
    "BNSD_BSND",
    "BSH_BNSD",
    "BSND_BNSD",
    "NTD_TND",
    "BSH_NBSD",
    "BSND_NBSD",
    "BNSD_NBSD",
    "TND_NTD",
)
_PACKED = ("TND", "NTD")


@dataclass(frozen=True)
class Call:
    """One call, in the names of the first version of the interface."""

    operator: str
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    heads: int
    key_heads: int
    scale: float
    layout: str
    sparsity: masks.Sparsity
    mask: torch.Tensor | None = None
    pse: torch.Tensor | None = None
    query_lengths: Sequence[int] | None = None
    key_lengths: Sequence[int] | None = None
    block_table: torch.Tensor | None = None
    block_size: int = 0
    query_padding_size: torch.Tensor | None = None
    key_padding_size: torch.Tensor | None = None
    prefix: tuple[torch.Tensor, torch.Tensor] | None = None
    prefix_length: int | None = None
    query_rope: torch.Tensor | None = None
    key_rope: torch.Tensor | None = None
    key_quantisation: Quantisation | None = None
    value_quantisation: Quantisation | None = None
    result_scale: torch.Tensor | None = None
    result_offset: torch.Tensor | None = None
    sink: torch.Tensor | None = None

    @property
    def query_padding(self) -> int | None:
        """How many places behind the queries of each sequence are empty; None: as many as they are short."""
        return None if self.query_padding_size is None else int(self.query_padding_size)

    @property
    def key_padding(self) -> int | None:
        """The same for keys."""
        return None if self.key_padding_size is None else int(self.key_padding_size)

    @property
    def layouts(self) -> tuple[str, str]:
        """The layout of the queries, and that of the result."""
        first, _, second = self.layout.partition("_")
        return first, second or first


def attend(call: Call) -> tuple[torch.Tensor, torch.Tensor]:
    """(result, log of the sums of exponentials: (B, N, S, 1) or (T, N, 1) float32)."""
    _check(call)
    queries = _queries(call)
    keys = _keys(call, len(queries))
    results = [_one(call, entry, len(queries), q, k, v) for entry, (q, (k, v)) in enumerate(zip(queries, keys, strict=True))]
    return _quantised(call, _gathered(call, [result.out for result in results])), _logarithms(call, results)


def shapes(call: Call) -> tuple[torch.Tensor, torch.Tensor]:
    """Empty tensors like the results."""
    given, wanted = call.layouts
    width = _width_of_values(call)
    if given in _PACKED:
        tokens = call.query.shape[0 if given == "TND" else 1]
        out = (tokens, call.heads, width) if wanted == "TND" else (call.heads, tokens, width)
        rows: tuple[int, ...] = (tokens, call.heads, 1)
    else:
        batch, length = call.query.shape[0], call.query.shape[2 if given == "BNSD" else 1]
        places = {"B": batch, "S": length, "N": call.heads, "D": width, "H": call.heads * width}
        out = tuple(places[axis] for axis in wanted)
        rows = (batch, call.heads, length, 1)
    dtype = torch.int8 if call.result_scale is not None else call.query.dtype
    return call.query.new_empty(out, dtype=dtype), call.query.new_empty(rows, dtype=torch.float32)


def _width_of_values(call: Call) -> int:
    packed = 8 if call.value.dtype == torch.int32 else 1
    if call.value.dim() == 5:
        return int(call.value.shape[2] * call.value.shape[4])
    flat = call.value.dim() == 3 and (call.block_table is not None or call.layouts[0] == "BSH")
    return int(call.value.shape[-1] * packed // (call.key_heads if flat else 1))


def _check(call: Call) -> None:
    require(call.layout in LAYOUTS, call.operator, f"input_layout {call.layout!r}", ", ".join(LAYOUTS))
    layouts.check(call.operator, call.layouts[0], ("BSH", "BSND", "BNSD", "TND", "NTD"), call.query)
    accepted = "a positive number, a multiple of num_key_value_heads"
    require(call.heads > 0 and call.heads % call.key_heads == 0, call.operator, f"{call.heads} heads on {call.key_heads}", accepted)
    if call.query.dtype == torch.int8:
        refuse(call.operator, "a query of int8", "how probabilities are rounded inside is not documented")
    if call.sparsity.mode > 4:
        refuse(call.operator, f"sparse_mode={call.sparsity.mode}", "0 to 4 are documented")


def _queries(call: Call) -> list[torch.Tensor]:
    """(1, N, S, D) of each sequence, in the precision of the computation."""
    query = call.query if call.query_rope is None else _joined(call, call.query, call.query_rope, call.heads)
    layout = call.layouts[0]
    if layout in _PACKED:
        x = query.transpose(0, 1) if layout == "TND" else query
        lengths = layouts.lengths_of(call.operator, "actual_seq_lengths", call.query_lengths, x.shape[1])
        return [part[None] for part in wide(x)[:, : sum(lengths)].split(lengths, 1)]
    x = wide(layouts.to_bnsd(query, layout, call.heads))
    lengths = _each(call.query_lengths if x.shape[2] > 1 else None, x.shape[0], x.shape[2])
    begins = [0 if call.query_padding is None else x.shape[2] - call.query_padding - length for length in lengths]
    return [x[i : i + 1, :, begin : begin + length] for i, (begin, length) in enumerate(zip(begins, lengths, strict=True))]


def _joined(call: Call, x: torch.Tensor, rope: torch.Tensor, heads: int) -> torch.Tensor:
    if x.dim() == 3 and call.layouts[0] == "BSH":
        return torch.cat((x.unflatten(2, (heads, -1)), rope.unflatten(2, (heads, -1))), -1).flatten(2)
    return torch.cat((x, rope), -1)


def _keys(call: Call, entries: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """(1, Nk, S, D) keys and values of each sequence."""
    key, value, rope = (None if x is None else _per_entry(call, x, entries) for x in (call.key, call.value, call.key_rope))
    pairs = []
    for entry in range(entries):
        begin, length = _part(call, entry, key or [])
        k = _floats(call, (key or [])[entry], call.key_quantisation, entry)[:, :, begin : begin + length]
        v = _floats(call, (value or [])[entry], call.value_quantisation, entry)[:, :, begin : begin + length]
        if rope is not None:
            k = torch.cat((k, wide(rope[entry])[:, :, begin : begin + length]), -1)
        pairs.append(_with_prefix(call, k, v))
    return pairs


def _per_entry(call: Call, x: torch.Tensor, entries: int) -> list[torch.Tensor]:
    """(1, Nk, S, D) of each sequence, as long as memory has it."""
    if call.block_table is not None:
        lengths = _lengths_in_pages(call, entries)
        return [read_pages(x, call.block_table[entry], lengths[entry], call.key_heads, call.block_size)[None] for entry in range(entries)]
    layout = call.layouts[0]
    if layout in _PACKED:
        packed = x.transpose(0, 1) if layout == "TND" else x
        lengths = layouts.lengths_of(call.operator, "actual_seq_lengths_kv", call.key_lengths, packed.shape[1])
        return [part[None] for part in packed[:, : sum(lengths)].split(lengths, 1)]
    axis = {"BNSD": 1, "BSND": 2}.get(layout)
    fits = x.shape[axis] == call.key_heads if axis else x.shape[2] % call.key_heads == 0
    require(fits, call.operator, f"keys or values of {sizes(x)} in {layout}", f"{call.key_heads} heads, as num_key_value_heads says")
    dense = layouts.to_bnsd(x, layout, call.key_heads)
    require(dense.shape[0] == entries, call.operator, f"queries and keys of {sizes(call.query, x)}", "equal batches")
    return list(dense.split(1))


def _lengths_in_pages(call: Call, entries: int) -> list[int]:
    require(call.key_lengths is not None, call.operator, "block_table without lengths of keys", "the number of keys of each sequence")
    lengths = list(call.key_lengths or [])
    return lengths * entries if len(lengths) == 1 else lengths[:entries]


def _part(call: Call, entry: int, keys: list[torch.Tensor]) -> tuple[int, int]:
    """Where the valid keys of a sequence begin in memory, and how many there are."""
    stored = keys[entry].shape[2]
    if call.block_table is not None or call.layouts[0] in _PACKED:
        return 0, stored
    length = _each(call.key_lengths, len(keys), stored)[entry]
    if call.key_padding is None:
        return 0, length
    begin = stored - max(call.key_padding, 0) - length
    return (begin, length) if begin >= 0 else (0, 0)


def _each(lengths: Sequence[int] | None, entries: int, longest: int) -> list[int]:
    if lengths is None:
        return [longest] * entries
    return list(lengths) * entries if len(lengths) == 1 else list(lengths)[:entries]


def _floats(call: Call, x: torch.Tensor, quantisation: Quantisation | None, entry: int) -> torch.Tensor:
    """Keys or values (1, Nk, S, D) as floats."""
    return floats(call.operator, x, quantisation, entry, call.block_table, call.block_size)


def _with_prefix(call: Call, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if call.prefix is None:
        return k, v
    first = [
        _floats(call, layouts.to_bnsd(x, call.layouts[0], call.key_heads), q, 0)
        for x, q in zip(call.prefix, (call.key_quantisation, call.value_quantisation), strict=True)
    ]
    first = [x if call.prefix_length is None else x[:, :, : call.prefix_length] for x in first]
    return torch.cat((first[0], k), 2), torch.cat((first[1], v), 2)


def _one(call: Call, entry: int, entries: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> core.Result:
    rows, columns = q.shape[2], k.shape[2]
    causal = call.mask is not None and call.sparsity.mode in (2, 3)
    if call.pse is None and call.sink is None and (call.mask is None or causal):
        kept = call.query.dtype if call.query.dtype == call.key.dtype == call.value.dtype else q.dtype  # they were widened without loss
        result = core.attend_plainly(q.to(kept), k.to(kept), v.to(kept), call.scale, causal)
        if result is not None:
            return result
    mask = call.mask if entry is None or call.mask is None else _mask_of(call.mask, entry, entries, rows)
    masked = masks.masked(call.sparsity, mask, rows, columns)
    pse = None if call.pse is None else wide(call.pse[entry : entry + 1] if call.pse.shape[0] > 1 else call.pse)[..., :rows, :columns]
    sink = None if call.sink is None else wide(call.sink).to(q.dtype)
    return core.attend(core.Problem(q, k, v, call.scale, pse, False, masked, sink=sink))


def _mask_of(mask: torch.Tensor, entry: int, entries: int, rows: int) -> torch.Tensor:
    if mask.dim() == 2 and rows == 1 and mask.shape[0] == entries:
        return mask[entry : entry + 1]  # (B, keys) of one query each
    if mask.dim() >= 3 and mask.shape[0] == entries and entries > 1:
        return mask[entry : entry + 1]
    return mask


def _gathered(call: Call, parts: list[torch.Tensor]) -> torch.Tensor:
    given, wanted = call.layouts
    if given in _PACKED:
        tokens = call.query.shape[0 if given == "TND" else 1]
        whole = torch.cat(parts, 2)[0]
        whole = torch.cat((whole, whole.new_zeros(whole.shape[0], tokens - whole.shape[1], whole.shape[2])), 1)
        return (whole.transpose(0, 1) if wanted == "TND" else whole).contiguous()
    length = call.query.shape[2 if given == "BNSD" else 1]
    whole = parts[0].new_zeros(len(parts), call.heads, length, parts[0].shape[-1])
    for entry, part in enumerate(parts):
        begin = 0 if call.query_padding is None else length - call.query_padding - part.shape[2]
        whole[entry, :, begin : begin + part.shape[2]] = part[0]
    return layouts.from_bnsd(whole, wanted)


def _logarithms(call: Call, results: list[core.Result]) -> torch.Tensor:
    parts = [result.logarithm.float() for result in results]
    given = call.layouts[0]
    if given in _PACKED:
        tokens = call.query.shape[0 if given == "TND" else 1]
        whole = torch.cat(parts, 2)[0].T[..., None]
        return torch.cat((whole, whole.new_zeros(tokens - whole.shape[0], *whole.shape[1:]))).contiguous()
    length = call.query.shape[2 if given == "BNSD" else 1]
    return torch.cat([torch.nn.functional.pad(part, (0, length - part.shape[2])) for part in parts])[..., None]


def _quantised(call: Call, out: torch.Tensor) -> torch.Tensor:
    if call.result_scale is None:
        return out.to(call.query.dtype)
    scale = _result_scale(call, call.result_scale, out)
    y = out * scale if call.result_offset is None else out * scale + _result_scale(call, call.result_offset, out)
    return packing.rounded(y, torch.int8)


def _result_scale(call: Call, scale: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """One number, or one for each head and channel, for a result in its layout."""
    wanted, scale = call.layouts[1], scale.float()
    if scale.numel() == 1:
        return scale.reshape(())
    width = out.shape[-1] // (call.heads if wanted == "BSH" else 1)
    require(scale.numel() == call.heads * width, call.operator, f"scales of {sizes(scale)} for a result of {sizes(out)}", "one, or N D")
    shape = {"BSH": (-1,), "BSND": (call.heads, width), "BNSD": (call.heads, 1, width), "NBSD": (call.heads, 1, 1, width)}
    return scale.reshape(shape.get(wanted, (call.heads, width)))

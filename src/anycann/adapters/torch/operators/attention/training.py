"""The operators `npu_fusion_attention`, its versions 2 and 3, and their gradients."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from anycann.adapters.torch.device.generators import default_generator
from anycann.adapters.torch.operators.attention import fusion, layouts, masks
from anycann.adapters.torch.operators.registry import bound, composed, opaque, refuse, refuse_given

_SHARED = (
    "Tensor? pse, Tensor? mask, Tensor? sink, Tensor? dropout, Tensor? seed, int heads, str layout, float scale, float keep_probability, "
    "int before, int after, int sparse_mode, int[]? prefix, int[]? query_sums, int[]? key_sums, int pse_type, str softmax_layout"
)
_TENSORS = 8  # query, key, value, and the optional ones
_Six = tuple[torch.Tensor | None, ...]


def _call_and_tensors(operator: str, given: tuple[Any, ...]) -> tuple[fusion.Call, fusion.Tensors]:
    query, key, value, pse, mask, sink, dropout, seed = given[:_TENSORS]
    heads, layout, scale, keep, before, after, mode, prefix, query_sums, key_sums, pse_type, softmax_layout = given[_TENSORS:]
    numbers = (0, 0) if seed is None else seed.tolist()
    sparsity = masks.Sparsity(operator, mode, before, after, prefix)
    call = fusion.Call(operator, heads, layout, scale, keep, sparsity, query_sums, key_sums, pse_type, softmax_layout, *numbers)
    return call, fusion.Tensors(query, key, value, pse, mask, sink, dropout)


def _shapes(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    heads, layout = rest[_TENSORS - 3], rest[_TENSORS - 2]
    statistics = torch.float64 if query.dtype == torch.float64 else torch.float32
    if layout in ("BSH", "SBH"):
        groups = key.shape[2] * heads // query.shape[2]
        shape = (*query.shape[:2], heads * value.shape[2] // groups)
        rows = (query.shape[0], heads, query.shape[1]) if layout == "BSH" else (query.shape[1], heads, query.shape[0])
    else:
        shape = (*query.shape[:-1], value.shape[-1])
        rows = {"BSND": (query.shape[0], heads, query.shape[1]), "TND": (query.shape[0], heads)}.get(layout, query.shape[:3])
    return query.new_empty(shape), *(query.new_empty((*rows, 8), dtype=statistics) for _ in range(2))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:_TENSORS], *output)
    ctx.mark_non_differentiable(*output[1:])
    ctx.numbers = inputs[_TENSORS:]


def _differentiate(ctx: Any, above: torch.Tensor, *statistics: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    saved = ctx.saved_tensors
    by = torch.ops.npu._fusion_attention_backward(above.contiguous(), *saved[_TENSORS:], *saved[:_TENSORS], *ctx.numbers)
    by_pse = by[3] if saved[3] is not None else None
    by_sink = by[4] if saved[5] is not None else None
    return (*by[:3], by_pse, None, by_sink, None, None, *(None for _ in ctx.numbers))


@opaque(
    f"_fusion_attention(Tensor query, Tensor key, Tensor value, {_SHARED}) -> (Tensor, Tensor, Tensor)",
    shape=_shapes,
    gradient=(_save, _differentiate),
)
def fusion_attention_kernel(*given: Any, **options: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What all versions compute: (result, largest scores, sums of exponentials). `seed`: two integers."""
    answer = fusion.forward(*_call_and_tensors("npu_fusion_attention", given))
    return answer.out, answer.largest, answer.total


def _gradient_shapes(above: torch.Tensor, out: torch.Tensor, largest: torch.Tensor, total: torch.Tensor, *given: Any) -> _Six:
    optional = [given[0].new_empty(0) if x is None else torch.empty_like(x) for x in (given[3], given[5])]
    return (*(torch.empty_like(x, memory_format=torch.contiguous_format) for x in given[:3]), *optional)


@opaque(
    "_fusion_attention_backward(Tensor above, Tensor out, Tensor largest, Tensor total, Tensor query, Tensor key, Tensor value, "
    f"{_SHARED}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    shape=_gradient_shapes,
)
def fusion_attention_backward_kernel(
    above: torch.Tensor, out: torch.Tensor, largest: torch.Tensor, total: torch.Tensor, *given: Any, **options: Any
) -> tuple[torch.Tensor, ...]:
    """(gradients by query, key, value, pse, sink); empty for what was not given."""
    call, tensors = _call_and_tensors("npu_fusion_attention_grad", given)
    by = fusion.backward(call, tensors, above, fusion.Answer(out, largest, total, 0))
    return by.q, by.k, by.v, *(tensors.query.new_empty(0) if x is None else x for x in (by.bias, by.sink))


def _kernel_arguments(a: SimpleNamespace, seed: torch.Tensor | None) -> tuple[Any, ...]:
    """Arguments of the kernel behind query, key and value, from those of any version."""
    before = getattr(a, "pre_tockens", None) if hasattr(a, "pre_tockens") else a.pre_tokens
    after = a.next_tockens if hasattr(a, "next_tockens") else a.next_tokens
    scale = a.scale if hasattr(a, "scale") else a.scale_value
    sums = [x.tolist() if isinstance(x, torch.Tensor) else x for x in (a.actual_seq_qlen, a.actual_seq_kvlen)]
    tensors = (a.pse, a.atten_mask, a.sink, getattr(a, "dropout_mask", None), seed)
    numbers = (a.head_num, a.input_layout, scale, a.keep_prob, before, after, a.sparse_mode, a.prefix)
    return (*tensors, *numbers, *sums, getattr(a, "pse_type", 1), a.softmax_layout)


def _with_rope(a: SimpleNamespace) -> SimpleNamespace:
    """The call with the rotary part of queries and keys, if there is one, beside the rest of each head."""
    if getattr(a, "query_rope", None) is None:
        return a
    for name, rope in (("query", a.query_rope), ("key", a.key_rope)):
        if a.input_layout in ("BSH", "SBH"):
            refuse("npu_fusion_attention_v2", f"{name}_rope in layout {a.input_layout}", "layouts with an axis of heads are computed")
        setattr(a, name, torch.cat((getattr(a, name), rope), -1))
    return a


def _forward(operator: str, a: SimpleNamespace) -> tuple[Any, ...]:
    refuse_given(operator, "the interface does not take it yet", padding_mask=a.padding_mask)
    refuse_given(
        operator, "biases that the operator makes itself are not there", **{n: getattr(a, n, None) for n in ("q_start_idx", "kv_start_idx")}
    )
    seed, offset = (a.seed, a.offset) if a.keep_prob < 1 else (0, 0)
    if a.keep_prob < 1 and a.dropout_mask is None and seed == 0:
        if torch.compiler.is_compiling():
            refuse(operator, "keep_prob < 1 in a compiled graph", "its seed is a number; npu_fusion_attention_v3 keeps it in a tensor")
        own = default_generator(a.query.device.index) if a.query.is_npu else None  # drawn on the host: a graph that captures asks no npu
        seed = int(torch.randint(1, 2**31, (1,), generator=own))
    numbers = torch.tensor([seed, offset]) if a.keep_prob < 1 else None
    out, largest, total = torch.ops.npu._fusion_attention(a.query, a.key, a.value, *_kernel_arguments(a, _beside(a.query, numbers)))
    return out, largest, total, out.new_empty(0), seed, offset, _scores(a)


def _beside(query: torch.Tensor, numbers: torch.Tensor | None) -> torch.Tensor | None:
    return None if numbers is None else numbers.to(query.device)


def _scores(a: SimpleNamespace) -> int:
    """How many scores there are: the length of a dropout mask."""
    if a.input_layout == "TND":
        lengths = [layouts.lengths_of("npu_fusion_attention", "lengths", sums, 2**62) for sums in (a.actual_seq_qlen, a.actual_seq_kvlen)]
        return int(a.head_num * sum(rows * columns for rows, columns in zip(*lengths, strict=False)))
    axes = {"BSH": (0, 1), "SBH": (1, 0), "BSND": (0, 1), "BNSD": (0, 2)}[a.input_layout]
    return int(a.query.shape[axes[0]] * a.head_num * a.query.shape[axes[1]] * a.key.shape[axes[1]])


_V1 = (
    "Tensor query, Tensor key, Tensor value, int head_num, str input_layout, Tensor? pse=None, Tensor? padding_mask=None, "
    "Tensor? atten_mask=None, float scale=1., float keep_prob=1., int pre_tockens=2147483647, int next_tockens=2147483647, "
    "int inner_precise=0, "
)
_REST = 'int sparse_mode=0, bool gen_mask_parallel=True, bool sync=False, str softmax_layout="", Tensor? sink=None'


@composed(
    f"npu_fusion_attention({_V1}int[]? prefix=None, int[]? actual_seq_qlen=None, int[]? actual_seq_kvlen=None, {_REST}, "
    "Tensor? dropout_mask=None, int seed=0, int offset=0) -> (Tensor, Tensor, Tensor, Tensor, int, int, int)",
    missing="the bits of a dropout mask of Ascend for the same seed (ours are other ones)",
)
def fusion_attention(*given: Any, **options: Any) -> tuple[Any, ...]:
    """(result, largest scores, sums, nothing, seed, offset, length of the dropout mask): dropout(softmax(scale (q k + pse))) v."""
    return _forward("npu_fusion_attention", bound("npu_fusion_attention", given, options))


@composed(
    "npu_fusion_attention_v2(Tensor query, Tensor key, Tensor value, int head_num, str input_layout, *, Tensor? pse=None, "
    "Tensor? padding_mask=None, Tensor? atten_mask=None, Tensor? query_rope=None, Tensor? key_rope=None, float scale=1., "
    "float keep_prob=1., int pre_tokens=2147483647, int next_tokens=2147483647, int inner_precise=0, int[]? prefix=None, "
    "int[]? actual_seq_qlen=None, int[]? actual_seq_kvlen=None, int sparse_mode=0, bool gen_mask_parallel=True, bool sync=False, "
    'int pse_type=1, int[]? q_start_idx=None, int[]? kv_start_idx=None, str softmax_layout="", Tensor? sink=None, '
    "Tensor? dropout_mask=None, int seed=0, int offset=0) -> (Tensor, Tensor, Tensor, Tensor, int, int, int)",
    missing="pse_type 2 and 3 with q_start_idx and kv_start_idx, rotary parts in BSH and SBH",
)
def fusion_attention_v2(*given: Any, **options: Any) -> tuple[Any, ...]:
    """As `npu_fusion_attention`, with pse_type (0: pse is added behind the scale) and rotary parts of queries and keys."""
    return _forward("npu_fusion_attention_v2", _with_rope(bound("npu_fusion_attention_v2", given, options)))


@composed(
    f"npu_fusion_attention_v3({_V1}SymInt[]? prefix=None, Tensor? actual_seq_qlen=None, Tensor? actual_seq_kvlen=None, {_REST})"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    missing="layout TND in a compiled graph",
)
def fusion_attention_v3(*given: Any, **options: Any) -> tuple[torch.Tensor, ...]:
    """As `npu_fusion_attention`, with seed and offset in tensors, so that graphs can hold it."""
    a = bound("npu_fusion_attention_v3", given, options)
    refuse_given("npu_fusion_attention_v3", "the interface does not take it yet", padding_mask=a.padding_mask)
    numbers = (
        torch.randint(1, 2**31, (2,), device=a.query.device)
        if a.keep_prob < 1
        else torch.zeros(2, dtype=torch.int64, device=a.query.device)
    )
    out, largest, total = torch.ops.npu._fusion_attention(a.query, a.key, a.value, *_kernel_arguments(a, numbers))
    return out, largest, total, out.new_empty(0), numbers[:1].clone(), numbers[1:].clone()


def _gradient(a: SimpleNamespace, seed: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    results = (a.attention_in, a.softmax_max, a.softmax_sum)
    if any(x is None for x in results):
        refuse("npu_fusion_attention_grad", "a call without attention_in, softmax_max and softmax_sum", "gradients are computed from them")
    by: tuple[torch.Tensor, ...] = torch.ops.npu._fusion_attention_backward(
        a.dy, *results, a.query, a.key, a.value, *_kernel_arguments(a, seed)
    )
    return by


_GRADIENT = (
    "Tensor query, Tensor key, Tensor value, Tensor dy, int head_num, str input_layout, *, Tensor? pse=None, Tensor? padding_mask=None, "
)
_GRADIENT += (
    "Tensor? atten_mask=None, Tensor? softmax_max=None, Tensor? softmax_sum=None, Tensor? softmax_in=None, Tensor? attention_in=None, "
)
_NUMBERS = "int seed=0, int offset=0, int numels=0, int[]? prefix=None, int[]? actual_seq_qlen=None, int[]? actual_seq_kvlen=None, "


@composed(
    f"npu_fusion_attention_grad({_GRADIENT}float scale_value=1., float keep_prob=1., int pre_tockens=2147483647, "
    f"int next_tockens=2147483647, int inner_precise=0, {_NUMBERS}{_REST}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def fusion_attention_grad(*given: Any, **options: Any) -> tuple[torch.Tensor, ...]:
    """(gradients by query, key, value, pse, sink) from the results of the forward call, or of parts merged, as ring attention does."""
    a = bound("npu_fusion_attention_grad", given, options)
    return _gradient(a, _beside(a.query, torch.tensor([a.seed, a.offset]) if a.keep_prob < 1 else None))


@composed(
    f"npu_fusion_attention_grad_v2({_GRADIENT}Tensor? query_rope=None, Tensor? key_rope=None, float scale_value=1., float keep_prob=1., "
    f"int pre_tokens=2147483647, int next_tokens=2147483647, int inner_precise=0, {_NUMBERS}int sparse_mode=0, "
    "bool gen_mask_parallel=True, bool sync=False, int pse_type=1, int[]? q_start_idx=None, int[]? kv_start_idx=None, "
    'str softmax_layout="", Tensor? sink=None) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)'
)
def fusion_attention_grad_v2(*given: Any, **options: Any) -> tuple[torch.Tensor, ...]:
    """(gradients by query, key, value, pse, the rotary parts, sink)."""
    a = bound("npu_fusion_attention_grad_v2", given, options)
    widths = a.query.shape[-1], a.key.shape[-1]
    with_rope = a.query_rope is not None
    by_q, by_k, by_v, by_pse, by_sink = _gradient(
        _with_rope(a), _beside(a.query, torch.tensor([a.seed, a.offset]) if a.keep_prob < 1 else None)
    )
    if not with_rope:
        return by_q, by_k, by_v, by_pse, by_q.new_empty(0), by_q.new_empty(0), by_sink
    q, q_rope = by_q.tensor_split((widths[0],), -1)
    k, k_rope = by_k.tensor_split((widths[1],), -1)
    return q.contiguous(), k.contiguous(), by_v, by_pse, q_rope.contiguous(), k_rope.contiguous(), by_sink


@composed(
    f"npu_fusion_attention_grad_v3({_GRADIENT}float scale_value=1., float keep_prob=1., int pre_tockens=2147483647, "
    "int next_tockens=2147483647, int inner_precise=0, Tensor? seed=None, Tensor? offset=None, SymInt[]? prefix=None, "
    f"Tensor? actual_seq_qlen=None, Tensor? actual_seq_kvlen=None, {_REST}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def fusion_attention_grad_v3(*given: Any, **options: Any) -> tuple[torch.Tensor, ...]:
    """As `npu_fusion_attention_grad`, with seed and offset in tensors."""
    a = bound("npu_fusion_attention_grad_v3", given, options)
    if a.seed is None or a.keep_prob == 1:
        return _gradient(a, None)
    numbers = [_beside(a.query, x.reshape(())) for x in (a.seed, a.offset)]
    return _gradient(a, torch.stack([x for x in numbers if x is not None]))

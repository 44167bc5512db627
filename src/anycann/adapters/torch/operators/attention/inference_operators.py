"""The operators of attention in inference, which differ in the names and number of their arguments."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from anycann.adapters.torch.operators.attention import inference
from anycann.adapters.torch.operators.attention.inference import Call
from anycann.adapters.torch.operators.attention.key_scales import Quantisation
from anycann.adapters.torch.operators.attention.masks import Sparsity
from anycann.adapters.torch.operators.registry import bound, composed, opaque, refuse_given

_Pair = tuple[torch.Tensor, torch.Tensor]
_QKV = "Tensor query, Tensor key, Tensor value, *, "

FIRST = (
    "Tensor? pse_shift=None, Tensor? atten_mask=None, SymInt[]? actual_seq_lengths=None, SymInt[]? actual_seq_lengths_kv=None, "
    "Tensor? dequant_scale1=None, Tensor? quant_scale1=None, Tensor? dequant_scale2=None, Tensor? quant_scale2=None, "
    "Tensor? quant_offset2=None, Tensor? antiquant_scale=None, Tensor? antiquant_offset=None, Tensor? key_antiquant_scale=None, "
    "Tensor? key_antiquant_offset=None, Tensor? value_antiquant_scale=None, Tensor? value_antiquant_offset=None, "
    "Tensor? block_table=None, Tensor? query_padding_size=None, Tensor? kv_padding_size=None, Tensor? key_shared_prefix=None, "
    "Tensor? value_shared_prefix=None, SymInt[]? actual_shared_prefix_len=None, Tensor? query_rope=None, Tensor? key_rope=None, "
    "Tensor? key_rope_antiquant_scale=None, int num_heads=1, float scale=1.0, int pre_tokens=2147483647, int next_tokens=2147483647, "
    'str input_layout="BSH", int num_key_value_heads=0, int sparse_mode=0, int inner_precise=0, int block_size=0, '
    "int antiquant_mode=0, int key_antiquant_mode=0, int value_antiquant_mode=0, bool softmax_lse_flag=False"
)
SECOND = (
    "Tensor? query_rope=None, Tensor? key_rope=None, Tensor? pse_shift=None, Tensor? atten_mask=None, SymInt[]? actual_seq_qlen=None, "
    "SymInt[]? actual_seq_kvlen=None, Tensor? block_table=None, Tensor? dequant_scale_query=None, Tensor? dequant_scale_key=None, "
    "Tensor? dequant_offset_key=None, Tensor? dequant_scale_value=None, Tensor? dequant_offset_value=None, "
    "Tensor? dequant_scale_key_rope=None, Tensor? quant_scale_out=None, Tensor? quant_offset_out=None, Tensor? quant_scale_p=None, "
    "Tensor? learnable_sink=None, int num_query_heads=1, int num_key_value_heads=0, float softmax_scale=1.0, "
    'int pre_tokens=2147483647, int next_tokens=2147483647, str input_layout="BSH", int sparse_mode=0, int block_size=0, '
    "int query_quant_mode=0, int key_quant_mode=0, int value_quant_mode=0, int inner_precise=0, bool return_softmax_lse=False, "
    "int? query_dtype=None, int? key_dtype=None, int? value_dtype=None, int? query_rope_dtype=None, int? key_rope_dtype=None, "
    "int? key_shared_prefix_dtype=None, int? value_shared_prefix_dtype=None, int? dequant_scale_query_dtype=None, "
    "int? dequant_scale_key_dtype=None, int? dequant_scale_value_dtype=None, int? dequant_scale_key_rope_dtype=None, "
    "int? out_dtype=None"
)
_MISSING = "queries of int8 and scales inside the softmax"


def _separate(a: SimpleNamespace, name: str, place: int) -> Quantisation | None:
    """Scales of keys (place 0) or values (1): their own, or their half of those for both."""
    scale, offset = getattr(a, f"{name}_antiquant_scale"), getattr(a, f"{name}_antiquant_offset")
    if scale is not None:
        return Quantisation(getattr(a, f"{name}_antiquant_mode"), scale, offset)
    if a.antiquant_scale is None:
        return None
    return Quantisation(a.antiquant_mode, a.antiquant_scale[place], None if a.antiquant_offset is None else a.antiquant_offset[place])


def _call(operator: str, a: SimpleNamespace, *, heads: int, **others: Any) -> Call:
    """What both versions name alike, and the `others`."""
    return Call(
        operator=operator,
        query=a.query,
        key=a.key,
        value=a.value,
        heads=heads,
        key_heads=a.num_key_value_heads or heads,
        layout=a.input_layout,
        sparsity=Sparsity(operator, a.sparse_mode, a.pre_tokens, a.next_tokens),
        mask=a.atten_mask,
        pse=a.pse_shift,
        block_table=a.block_table,
        block_size=a.block_size,
        query_rope=a.query_rope,
        key_rope=a.key_rope,
        **others,
    )


def _first(operator: str, a: SimpleNamespace) -> Call:
    inside = {name: getattr(a, name) for name in ("dequant_scale1", "quant_scale1", "dequant_scale2")}
    refuse_given(operator, "how probabilities are rounded inside is not documented", **inside)
    refuse_given(operator, "it is reserved", key_rope_antiquant_scale=a.key_rope_antiquant_scale)
    return _call(
        operator,
        a,
        heads=a.num_heads,
        scale=a.scale,
        query_lengths=a.actual_seq_lengths,
        key_lengths=a.actual_seq_lengths_kv,
        query_padding_size=a.query_padding_size,
        key_padding_size=a.kv_padding_size,
        prefix=None if a.key_shared_prefix is None else (a.key_shared_prefix, a.value_shared_prefix),
        prefix_length=a.actual_shared_prefix_len[0] if a.actual_shared_prefix_len else None,
        key_quantisation=_separate(a, "key", 0),
        value_quantisation=_separate(a, "value", 1),
        result_scale=a.quant_scale2,
        result_offset=a.quant_offset2,
    )


def _second(operator: str, a: SimpleNamespace) -> Call:
    numbers = {name: value for name, value in vars(a).items() if name.endswith("_dtype")}
    refuse_given(operator, "it is reserved", quant_scale_p=a.quant_scale_p, dequant_scale_key_rope=a.dequant_scale_key_rope, **numbers)
    refuse_given(operator, "queries of int8 are not computed", dequant_scale_query=a.dequant_scale_query)
    key = None if a.dequant_scale_key is None else Quantisation(a.key_quant_mode, a.dequant_scale_key, a.dequant_offset_key)
    value = None if a.dequant_scale_value is None else Quantisation(a.value_quant_mode, a.dequant_scale_value, a.dequant_offset_value)
    return _call(
        operator,
        a,
        heads=a.num_query_heads,
        scale=a.softmax_scale,
        query_lengths=a.actual_seq_qlen,
        key_lengths=a.actual_seq_kvlen,
        key_quantisation=key,
        value_quantisation=value,
        result_scale=a.quant_scale_out,
        result_offset=a.quant_offset_out,
        sink=a.learnable_sink,
    )


_VERSIONS = {
    "npu_fused_infer_attention_score": (FIRST, _first, "softmax_lse_flag"),
    "npu_fused_infer_attention_score_v2": (SECOND, _second, "return_softmax_lse"),
}


def _register(name: str) -> None:
    arguments, translate, flag = _VERSIONS[name]

    def shapes(*given: Any, **options: Any) -> _Pair:
        a = bound(name, given, options)
        out, logarithms = inference.shapes(translate(name, a))
        return out, logarithms if getattr(a, flag) else logarithms.new_empty(1)

    def body(*given: Any, **options: Any) -> _Pair:
        """(result, log of the sums of exponentials, or one zero) of queries on keys, in pages or not."""
        a = bound(name, given, options)
        out, logarithms = inference.attend(translate(name, a))
        return out, logarithms if getattr(a, flag) else logarithms.new_zeros(1)

    def into(*given: Any, workspace: Any = None, attention_out: torch.Tensor, softmax_lse: torch.Tensor, **options: Any) -> _Pair:
        """The same into tensors that are given."""
        out, logarithms = getattr(torch.ops.npu, name)(*given, **options)
        for wanted, result in ((attention_out, out), (softmax_lse, logarithms)):
            if wanted.shape != result.shape:
                wanted.resize_(result.shape)
            wanted.copy_(result)
        return attention_out, softmax_lse

    def workspace(*given: Any, **options: Any) -> torch.Tensor:
        """The memory that the operator wants beside its tensors: none."""
        return bound(name, given, options).query.new_empty(0, dtype=torch.uint8)

    opaque(f"{name}({_QKV}{arguments}) -> (Tensor, Tensor)", shape=shapes, missing=_MISSING)(body)
    out = "Tensor? workspace=None, Tensor(a!) attention_out, Tensor(b!) softmax_lse) -> (Tensor(a!), Tensor(b!))"
    composed(f"{name}.out({_QKV}{arguments}, {out}", missing=_MISSING, differentiable=False)(into)
    composed(f"_{name}_get_max_workspace({_QKV}{arguments}) -> Tensor", differentiable=False)(workspace)


for _name in _VERSIONS:
    _register(_name)


_INCREMENTAL = "npu_incre_flash_attention"
_PROMPT = "npu_prompt_flash_attention"


def _renamed(a: SimpleNamespace, **names: str) -> SimpleNamespace:
    """The arguments under the names of the first version, its other arguments at their defaults."""
    values = {names.get(name, name): value for name, value in vars(a).items()}
    return bound("npu_fused_infer_attention_score", (), values)


def _incremental(given: tuple[Any, ...], options: dict[str, Any]) -> Call:
    a = bound(_INCREMENTAL, given, options)
    refuse_given(_INCREMENTAL, "the interface does not take it yet", padding_mask=a.padding_mask)
    return _first(_INCREMENTAL, _renamed(a, scale_value="scale", actual_seq_lengths="actual_seq_lengths_kv"))


def _prompt(given: tuple[Any, ...], options: dict[str, Any]) -> Call:
    a = bound(_PROMPT, given, options)
    refuse_given(_PROMPT, "the interface does not take it yet", padding_mask=a.padding_mask)
    return _first(_PROMPT, _renamed(a, scale_value="scale", deq_scale1="dequant_scale1", deq_scale2="dequant_scale2"))


@opaque(
    f"{_INCREMENTAL}({_QKV}Tensor? padding_mask=None, Tensor? atten_mask=None, Tensor? pse_shift=None, "
    "SymInt[]? actual_seq_lengths=None, Tensor? antiquant_scale=None, Tensor? antiquant_offset=None, Tensor? block_table=None, "
    "Tensor? dequant_scale1=None, Tensor? quant_scale1=None, Tensor? dequant_scale2=None, Tensor? quant_scale2=None, "
    'Tensor? quant_offset2=None, Tensor? kv_padding_size=None, int num_heads=1, float scale_value=1.0, str input_layout="BSH", '
    "int num_key_value_heads=0, int block_size=0, int inner_precise=1) -> Tensor",
    shape=lambda *given, **options: inference.shapes(_incremental(given, options))[0],
    missing=_MISSING,
)
def incre_flash_attention(*given: Any, **options: Any) -> torch.Tensor:
    """One query for each sequence on all of its keys."""
    return inference.attend(_incremental(given, options))[0]


@opaque(
    f"{_PROMPT}({_QKV}Tensor? padding_mask=None, Tensor? atten_mask=None, Tensor? pse_shift=None, int[]? actual_seq_lengths=None, "
    "Tensor? deq_scale1=None, Tensor? quant_scale1=None, Tensor? deq_scale2=None, Tensor? quant_scale2=None, "
    "Tensor? quant_offset2=None, int num_heads=1, float scale_value=1.0, int pre_tokens=2147483647, int next_tokens=0, "
    'str input_layout="BSH", int num_key_value_heads=0, int[]? actual_seq_lengths_kv=None, int sparse_mode=0) -> Tensor',
    shape=lambda *given, **options: inference.shapes(_prompt(given, options))[0],
    missing=_MISSING,
)
def prompt_flash_attention(*given: Any, **options: Any) -> torch.Tensor:
    """Whole sequences on their keys."""
    return inference.attend(_prompt(given, options))[0]

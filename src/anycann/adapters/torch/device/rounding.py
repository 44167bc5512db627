"""16-bit floats computed in float32 and rounded once, where torch's cpu kernels round between their steps or take none.

Ascend's kernels compute in float32 inside. Which of torch's do not was found by running each operator of torch's database in both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

Condition: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], bool]

_NARROW = (torch.float16, torch.bfloat16)
_ALWAYS = frozenset((
    "grid_sampler_2d", "grid_sampler_2d_backward", "grid_sampler_3d", "grid_sampler_3d_backward", "soft_margin_loss",
    "soft_margin_loss_backward", "nll_loss_forward", "nll_loss_backward", "mish_backward", "_foreach_addcmul", "_foreach_addcmul_",
    "_foreach_addcdiv", "_foreach_addcdiv_", "prod", "slow_conv_transpose2d", "embedding_dense_backward",
    "upsample_linear1d", "upsample_linear1d_backward", "upsample_trilinear3d", "upsample_trilinear3d_backward",
    "upsample_bicubic2d", "upsample_bicubic2d_backward", "avg_pool2d_backward", "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward",
    "_adaptive_avg_pool3d", "_adaptive_avg_pool3d_backward", "unfold_backward", "col2im", "im2col_backward", "reflection_pad1d_backward",
    "reflection_pad2d_backward", "reflection_pad3d_backward", "replication_pad1d_backward", "replication_pad2d_backward",
    "replication_pad3d_backward", "_trilinear", "addbmm", "addbmm_", "addr", "addr_", "linalg_cross", "logit", "logit_backward",
    "index_reduce", "index_reduce_", "_embedding_bag_backward", "_embedding_bag_dense_backward", "binary_cross_entropy_with_logits",
    "native_batch_norm", "native_batch_norm_backward", "native_layer_norm", "native_layer_norm_backward", "native_group_norm",
    "native_group_norm_backward", "_unsafe_masked_index_put_accumulate", "polygamma", "polygamma_", "linalg_matrix_exp",
    "glu_backward", "index_add", "index_add_",
))  # fmt: skip
_ACCUMULATE = 3  # position of that argument
_STATISTICS = ("native_batch_norm", "native_layer_norm", "native_group_norm")  # are float32 on accelerators, whatever x is
_WRITTEN_UNSAID = {"native_batch_norm": (3, 4)}  # the running statistics, which the schema calls read


def _accumulates(args: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    return bool(args[_ACCUMULATE] if len(args) > _ACCUMULATE else keywords.get("accumulate"))


def _scales(args: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    return bool(keywords.get("alpha", 1) != 1)  # the second, before it is added


def _keeps_dtype(args: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    return not args[2]  # the softmax is asked for in the dtype of x


def _strided_and_dilated(args: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    """Of which oneDNN's kernel for matrix tiles of float16 takes wrong columns."""
    return max(args[3]) > 1 and max(args[5]) > 1


_SOMETIMES: dict[str, Condition] = {
    **dict.fromkeys(("index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"), _accumulates),
    **dict.fromkeys(("_foreach_add", "_foreach_add_", "_foreach_sub", "_foreach_sub_"), _scales),
    "_log_softmax": _keeps_dtype,
    "convolution": _strided_and_dilated,
}


def rounds_between(op: Any) -> Condition | None:
    """Whether a call of the operator on these arguments shall be computed in float32; None if none ever."""
    name = name_of(op)
    if name not in _ALWAYS and name not in _SOMETIMES:
        return None
    condition = _SOMETIMES.get(name)
    narrow = (torch.bfloat16,) if name.startswith("_foreach") else _NARROW  # those of float16 round between steps on Ascend too

    def rounds(args: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
        return _has(narrow, args) and (condition is None or condition(args, keywords))

    return rounds


def _has(dtypes: tuple[torch.dtype, ...], values: Any) -> bool:
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.dtype in dtypes:
                return True
        elif isinstance(value, (list, tuple)) and _has(dtypes, value):
            return True
    return False


def name_of(op: Any) -> str:
    """As `mm`, without library and overload."""
    return str(op._schema.name.partition("::")[2])


def in_float32(op: Any) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    """What computes the cpu operator with float32 for all 16-bit floats of its arguments, positional and by name.

    Its results, and the arguments that it writes, are rounded to the dtypes they should have.
    """
    call, written = op._op, _written(op)
    dtypes: dict[Any, list[torch.dtype | None] | None] = {}  # of the results, by kinds of arguments

    def compute(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        pairs: list[tuple[Any, Any]] = []
        result = call(*[_widened(value, pairs) for value in args], **{name: _widened(value, pairs) for name, value in keywords.items()})
        if written:
            _write_back(pairs, [args[at] if at < len(args) else keywords.get(name) for at, name in written])
        kinds = (*map(_kind, args), *keywords, *map(_kind, keywords.values()))
        if kinds not in dtypes:
            dtypes[kinds] = _dtypes_of_results(op, args, keywords)
        return _rounded(result, dtypes[kinds], pairs[0][0].dtype if pairs else torch.float32)

    return compute


def _written(op: Any) -> list[tuple[int, str]]:
    """Positions and names of the arguments that the operator writes."""
    unsaid = _WRITTEN_UNSAID.get(name_of(op), ())
    arguments = enumerate(op._schema.arguments)
    return [(at, a.name) for at, a in arguments if at in unsaid or (a.alias_info is not None and a.alias_info.is_write)]


def _widened(value: Any, pairs: list[tuple[Any, Any]]) -> Any:
    """float32 for a 16-bit tensor (kept in `pairs`) or dtype, also in a list."""
    if isinstance(value, torch.Tensor):
        if value.dtype not in _NARROW:
            return value
        pairs.append((value, value.float()))
        return pairs[-1][1]
    if isinstance(value, (list, tuple)):
        return [_widened(item, pairs) for item in value]
    return torch.float32 if isinstance(value, torch.dtype) and value in _NARROW else value


def _write_back(pairs: list[tuple[Any, Any]], written: list[Any]) -> None:
    """Round what was written into the tensors that it was meant for."""
    identities = {id(tensor) for value in written for tensor in tree_leaves(value)}
    for narrow, wide in pairs:
        if id(narrow) in identities:
            narrow.resize_(wide.shape).copy_(wide)


def _rounded(result: Any, dtypes: list[torch.dtype | None] | None, narrow: torch.dtype) -> Any:
    """The results in `dtypes`; where those are unknown, `narrow` for float32."""
    if isinstance(result, torch.Tensor):
        dtype = narrow if dtypes is None else dtypes[0]
        return result if dtype is None or (dtypes is None and result.dtype != torch.float32) else result.to(dtype)
    leaves, structure = tree_flatten(result)
    dtypes = dtypes or [narrow if leaf is not None and leaf.dtype == torch.float32 else None for leaf in leaves]
    rounded = [leaf if leaf is None or dtype is None else leaf.to(dtype) for leaf, dtype in zip(leaves, dtypes, strict=True)]
    return tree_unflatten(rounded, structure)


def _kind(value: Any) -> Any:
    """What of an argument decides the dtypes of results."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.dim() == 0
    if isinstance(value, (list, tuple)):
        return tuple(map(_kind, value))
    return value if isinstance(value, (bool, torch.dtype)) else type(value)


def _dtypes_of_results(op: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> list[torch.dtype | None] | None:
    """By the operator's shape function; None for a result that is not there or keeps its dtype. None if there is no such function."""
    given = tree_map(_shape_of, (args, keywords))
    try:
        shapes = tree_leaves(op(*given[0], **given[1]))
    except RuntimeError:
        return None
    dtypes = [None if shape is None else shape.dtype for shape in shapes]
    return [dtypes[0]] + [None] * (len(dtypes) - 1) if name_of(op) in _STATISTICS else dtypes


def _shape_of(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to("meta")
    return torch.device("meta") if isinstance(value, torch.device) else value

"""A call of torch's cpu operator that makes up for what its kernel does not take and Ascend's does.

That is 16-bit floats, numbers for tensors, and floats of several dtypes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
import re
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from anycann.adapters.torch.device import report

_NARROW = (torch.float16, torch.bfloat16)
_NO_NARROW_KERNEL = re.compile(r"not implemented for '(Half|BFloat16)'|Unsupported datatype for add_")
_NO_WIDENING = re.compile(r"half to float conversion|expected scalar type Float but found Half")
_WIDENING = {"_softmax": 2, "_log_softmax": 2, "_softmax_backward_data": 3, "_log_softmax_backward_data": 3}  # position of how they do
_TWO_DTYPES = re.compile(r"same dtype|expected scalar type")
# These have 16-bit cpu kernels that round between steps; Ascend's round the result.
ROUNDED_BETWEEN = frozenset((
    "grid_sampler_2d", "grid_sampler_2d_backward", "grid_sampler_3d", "grid_sampler_3d_backward", "soft_margin_loss",
    "soft_margin_loss_backward", "nll_loss_forward", "nll_loss_backward", "mish_backward", "_foreach_addcmul", "_foreach_addcmul_",
    "_foreach_addcdiv", "_foreach_addcdiv_", "prod", "slow_conv_transpose2d", "embedding_dense_backward",
    "upsample_linear1d", "upsample_linear1d_backward", "upsample_trilinear3d", "upsample_trilinear3d_backward",
))  # fmt: skip
_ROUNDED_BEFORE_ADDING = frozenset(("_foreach_add", "_foreach_add_", "_foreach_sub", "_foreach_sub_"))  # alpha times the second
_PROMOTING = frozenset(("mm", "bmm", "mv", "dot", "addmm", "addbmm", "baddbmm", "addmv", "addr"))  # of floats of several dtypes


def host_call(op: Any, tensors: tuple[int, ...]) -> Callable[..., Any]:
    """The cpu operator of the `torch._ops.OpOverload`; `tensors` are the positions of its arguments that are tensors.

    A number that stands for a tensor becomes one where the operator does not take it so. What torch computes well in float32 only is
    computed in float32, and the results are rounded to the dtypes that they should have. Products promote their operands.
    """
    call, name = op._op, _name(op)
    between, before_adding = name in ROUNDED_BETWEEN, name in _ROUNDED_BEFORE_ADDING
    rounded = (torch.bfloat16,) if name.startswith("_foreach") else _NARROW  # those of float16 round between steps on Ascend too

    def run(*args: Any, **keywords: Any) -> Any:
        rounds = between or (before_adding and keywords.get("alpha", 1) != 1)
        if not rounds or not _has(rounded, args):
            try:
                return call(*args, **keywords)
            except RuntimeError as error:
                numbers = [at for at in tensors if at < len(args) and isinstance(args[at], (int, float, complex))]
                if _takes_no_number(error) and numbers:
                    return run(*_with_tensors(args, numbers), **keywords)
                if _takes_no_mixture(op, error) and len({value.dtype for value in args if isinstance(value, torch.Tensor)}) > 1:
                    return call(*_promoted(args), **keywords)
                if _takes_no_widening(op, error):
                    return _widening(op, args)
                if not _takes_no_narrow_floats(error):
                    raise
        report.computed_wide.add(op._schema.name)
        return _in_float32(op, args, keywords)

    return run


def _name(op: Any) -> str:
    """As `mm`, without library and overload."""
    return str(op._schema.name.partition("::")[2])


def did_nothing(op: Any, error: Exception) -> bool:
    """Whether a cpu operator refused the kind of its arguments, before it did anything, and `host_call` has another way."""
    kinds = _takes_no_number(error) or _takes_no_narrow_floats(error) or _takes_no_mixture(op, error)
    return isinstance(error, RuntimeError) and (kinds or _takes_no_widening(op, error))


def _takes_no_number(error: Exception) -> bool:
    return "Expected a value of type 'Tensor'" in str(error)


def _takes_no_narrow_floats(error: Exception) -> bool:
    return _NO_NARROW_KERNEL.search(str(error)) is not None


def _takes_no_mixture(op: Any, error: Exception) -> bool:
    return _name(op) in _PROMOTING and _TWO_DTYPES.search(str(error)) is not None


def _takes_no_widening(op: Any, error: Exception) -> bool:
    return _name(op) in _WIDENING and _NO_WIDENING.search(str(error)) is not None


def _widening(op: Any, args: tuple[Any, ...]) -> Any:
    """A softmax of 16 bits with a result of 32, or its gradient by the 16 bits: accelerators have a kernel for both."""
    how = args[_WIDENING[_name(op)]]
    if isinstance(how, torch.dtype):
        return op._op(*args[:3], torch.float32).to(how)
    return op._op(args[0].float(), args[1], False)


def _has(dtypes: tuple[torch.dtype, ...], values: Any) -> bool:
    return any(isinstance(value, torch.Tensor) and value.dtype in dtypes for value in tree_leaves(values))


def _promoted(args: tuple[Any, ...]) -> list[Any]:
    """The arguments, all tensors in the widest of their dtypes."""
    dtype = reduce(torch.promote_types, (value.dtype for value in args if isinstance(value, torch.Tensor)))
    return [value.to(dtype) if isinstance(value, torch.Tensor) else value for value in args]


def _with_tensors(args: tuple[Any, ...], numbers: list[int]) -> list[Any]:
    """The arguments, tensors for those at `numbers`."""
    first, given = next(value for value in args if isinstance(value, torch.Tensor)), list(args)
    for at in numbers:
        given[at] = torch.tensor(given[at], dtype=torch.result_type(first, given[at]), device="cpu")
    return given


def _in_float32(op: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    pairs: list[tuple[Any, Any]] = []
    given = tree_map(lambda value: _widened(value, pairs), (args, keywords))
    result = op._op(*given[0], **given[1])
    written = {id(tensor) for value in _written(op, args, keywords) for tensor in tree_leaves(value)}
    for narrow, wide in pairs:
        if id(narrow) in written:
            narrow.resize_(wide.shape).copy_(wide)
    return _rounded(result, op, args, keywords, pairs)


def _widened(value: Any, pairs: list[tuple[Any, Any]]) -> Any:
    """float32 for a 16-bit tensor (kept in `pairs`) or dtype."""
    if isinstance(value, torch.Tensor) and value.dtype in _NARROW:
        pairs.append((value, value.float()))
        return pairs[-1][1]
    return torch.float32 if isinstance(value, torch.dtype) and value in _NARROW else value


def _written(op: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> list[Any]:
    """The arguments that the operator writes."""
    arguments = op._schema.arguments
    given = {argument.name: value for argument, value in zip(arguments, args, strict=False)} | keywords
    return [given[a.name] for a in arguments if a.alias_info is not None and a.alias_info.is_write and a.name in given]


def _rounded(result: Any, op: Any, args: tuple[Any, ...], keywords: dict[str, Any], pairs: list[tuple[Any, Any]]) -> Any:
    """The results in the dtypes that the operator's shape function gives; without one in the 16-bit dtype of the arguments."""
    leaves, structure = tree_flatten(result)
    try:
        given = tree_map(_shape_of, (args, keywords))
        dtypes = [None if shape is None else shape.dtype for shape in tree_leaves(op(*given[0], **given[1]))]
    except RuntimeError:
        dtypes = [pairs[0][0].dtype if leaf is not None and leaf.dtype == torch.float32 else None for leaf in leaves]
    rounded = [leaf if leaf is None or dtype is None else leaf.to(dtype) for leaf, dtype in zip(leaves, dtypes, strict=True)]
    return tree_unflatten(rounded, structure)


def _shape_of(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to("meta")
    return torch.device("meta") if isinstance(value, torch.device) else value

"""A call of torch's cpu operator that makes up for what its kernel does not take and Ascend's does.

That is 16-bit floats (`rounding.py`), numbers for tensors, and floats of several dtypes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
import re
from typing import Any

import torch

from anycann.adapters.torch.device import report
from anycann.adapters.torch.device.rounding import in_float32, name_of, rounds_between

_NO_NARROW_KERNEL = re.compile(r"not implemented for '(Half|BFloat16)'|Unsupported datatype for add_")
_NO_WIDENING = re.compile(r"half to float conversion|expected scalar type Float but found Half")
_WIDENING = {"_softmax": 2, "_log_softmax": 2, "_softmax_backward_data": 3, "_log_softmax_backward_data": 3}  # position of how they do
_TWO_DTYPES = re.compile(r"same dtype|expected scalar type")
_PROMOTING = frozenset(("mm", "bmm", "mv", "dot", "addmm", "addbmm", "baddbmm", "addmv", "addr"))  # of floats of several dtypes


def host_call(op: Any, tensors: tuple[int, ...], call: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """The cpu operator of the `torch._ops.OpOverload`; `tensors` are the positions of its arguments that are tensors.

    `call` runs the operator, by default the operator's own function. A number that stands for a tensor becomes one where the operator does
    not take it so. What torch computes well in float32 only is computed in float32, and the results are rounded to the dtypes that they
    should have. Products promote their operands.
    """
    call, name = call or op._op, op._schema.name
    wants_float32, compute = rounds_between(op), in_float32(op)

    def run(*args: Any, **keywords: Any) -> Any:
        if wants_float32 is None or not wants_float32(args, keywords):
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
        report.computed_wide.add(name)
        return compute(args, keywords)

    return run


def did_nothing(op: Any, error: Exception) -> bool:
    """Whether a cpu operator refused the kind of its arguments, before it did anything, and `host_call` has another way."""
    kinds = _takes_no_number(error) or _takes_no_narrow_floats(error) or _takes_no_mixture(op, error)
    return isinstance(error, RuntimeError) and (kinds or _takes_no_widening(op, error))


def _takes_no_number(error: Exception) -> bool:
    return "Expected a value of type 'Tensor'" in str(error)


def _takes_no_narrow_floats(error: Exception) -> bool:
    return _NO_NARROW_KERNEL.search(str(error)) is not None


def _takes_no_mixture(op: Any, error: Exception) -> bool:
    return name_of(op) in _PROMOTING and _TWO_DTYPES.search(str(error)) is not None


def _takes_no_widening(op: Any, error: Exception) -> bool:
    return name_of(op) in _WIDENING and _NO_WIDENING.search(str(error)) is not None


def _widening(op: Any, args: tuple[Any, ...]) -> Any:
    """A softmax of 16 bits with a result of 32, or its gradient by the 16 bits: accelerators have a kernel for both."""
    how = args[_WIDENING[name_of(op)]]
    if isinstance(how, torch.dtype):
        return op._op(*args[:3], torch.float32).to(how)
    return op._op(args[0].float(), args[1], False)


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

"""Formats as a property that tensors carry. Their memory is the same for all of them: only Ascend's engine would lay it out otherwise."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from anycann.adapters.torch.operators.precision import dtype_of
from anycann.adapters.torch.operators.registry import composed, refuse, refuse_given
from anycann.support.records import dataclass


class Format(IntEnum):
    """Ascend's formats."""

    UNDEFINED = -1
    NCHW = 0
    NHWC = 1
    ND = 2
    NC1HWC0 = 3
    FRACTAL_Z = 4
    NC1HWC0_C04 = 12
    HWCN = 16
    NDHWC = 27
    FRACTAL_NZ = 29
    NCDHW = 30
    NDC1HWC0 = 32
    FRACTAL_Z_3D = 33
    NC = 35


@dataclass(frozen=True)
class _Kept:
    """A format, and the last one of a tensor that is not Ascend's own."""

    format: Format
    base: Format


_formats: Any = WeakTensorKeyDictionary()
_BY_RANK = {4: Format.NCHW, 5: Format.NCDHW}
_INTERNAL = {Format.NC1HWC0, Format.FRACTAL_Z, Format.NC1HWC0_C04, Format.FRACTAL_NZ, Format.NDC1HWC0, Format.FRACTAL_Z_3D}


def get_npu_format(self: torch.Tensor) -> int:
    """The format that a tensor was given, or the one that belongs to its rank."""
    return int(_kept(self).format)


def npu_format_cast(self: torch.Tensor, acl_format: int | torch.Tensor, customize_dtype: int | None = None) -> torch.Tensor:
    """A tensor of the same values and another format, by number or that of a tensor; ND for one of Ascend's own means the one before it.

    NotImplementedError for a customize_dtype, RuntimeError for unknown formats.
    """
    refuse_given("npu_format_cast", "its layouts are not documented", customize_dtype=customize_dtype)
    kept = _cast(self, acl_format)
    result = torch.ops.npu._npu_format_cast(self, int(kept.format))
    _formats[result] = kept
    return result


def npu_format_cast_(self: torch.Tensor, src: torch.Tensor | int) -> torch.Tensor:
    """Gives a tensor the format of another, or one by number."""
    _formats[self] = _cast(self, src)
    return self


def _kept(tensor: torch.Tensor) -> _Kept:
    of_rank = _BY_RANK.get(tensor.dim(), Format.ND)
    return _formats.get(tensor, _Kept(of_rank, of_rank))


def _cast(tensor: torch.Tensor, wanted: int | torch.Tensor) -> _Kept:
    new, old = _known(get_npu_format(wanted) if isinstance(wanted, torch.Tensor) else wanted), _kept(tensor)
    if new in _INTERNAL:
        return _Kept(new, old.base)
    if old.format in _INTERNAL and new == Format.ND:
        new = old.base
    return _Kept(new, new)


def empty_with_format(
    size: Any, dtype: Any = None, layout: Any = None, device: Any = "npu", pin_memory: Any = None, acl_format: int = 2
) -> torch.Tensor:
    """An uninitialised tensor of a format."""
    return npu_format_cast_(torch.empty(size, dtype=dtype, device=device), acl_format)


def _known(number: int) -> Format:
    try:
        return Format(int(number))
    except ValueError:
        accepted = ", ".join(f"{f.name} ({f.value})" for f in Format)
        raise RuntimeError(f"npu_format_cast: format {number}; accepted: {accepted}") from None


@composed("_npu_format_cast(Tensor self, int acl_format) -> Tensor")
def format_cast(self: torch.Tensor, acl_format: int) -> torch.Tensor:
    """A copy, differentiable."""
    return self.clone()


@composed("npu_format_cast(Tensor self, int acl_format, int? customize_dtype=None) -> Tensor", missing="customize_dtype")
def format_cast_as_operator(self: torch.Tensor, acl_format: int, customize_dtype: int | None = None) -> torch.Tensor:
    """`torch_npu.npu_format_cast` with a number: a copy that carries the format."""
    return npu_format_cast(self, acl_format, customize_dtype)


@composed("npu_dtype_cast(Tensor self, int dtype, int? input_dtype=None) -> Tensor", missing="input_dtype")
def dtype_cast(self: torch.Tensor, dtype: int, input_dtype: int | None = None) -> torch.Tensor:
    """The values in another dtype."""
    if input_dtype is not None:
        refuse("npu_dtype_cast", "input_dtype", "it reads memory of dtypes that torch does not have")
    return self.to(dtype_of(dtype, "npu_dtype_cast", "dtype", self.dtype), copy=True)


@composed("_npu_dtype_cast(Tensor self, ScalarType dtype) -> Tensor")
def dtype_cast_by_type(self: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The values in another dtype."""
    return self.to(dtype, copy=True)


def npu_dtype_cast_(self: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    """Gives a tensor's data the dtype of another."""
    self.data = self.data.to(src.dtype)
    return self


class WithOut:
    """An operator of several results that takes the tensors to write them to as `out`, in one list, as all of `torch_npu`'s do.

    `torch.ops.npu` has it as it is: there `out` is an overload with a name for each result. Other attributes are the operator's.
    """

    def __init__(self, name: str, *results: str):
        self.__name__, self._results = name, results
        self.__doc__ = f"`torch.ops.npu.{name}`, with out=({', '.join(results)})."

    def __call__(self, *arguments: Any, out: Any = None, **options: Any) -> Any:
        """New tensors, or those of `out`."""
        packet = getattr(torch.ops.npu, self.__name__)
        return packet(*arguments, **options) if out is None else self.out(*arguments, out=out, **options)

    def out(self, *arguments: Any, out: Any = None, **options: Any) -> Any:
        """The tensors of `out`, or those given by their names, written."""
        named = {} if out is None else dict(zip(self._results, out, strict=True))
        return getattr(torch.ops.npu, self.__name__).out(*arguments, **options, **named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what copying and pickling look for, before there is a name
            raise AttributeError(name)
        return getattr(getattr(torch.ops.npu, self.__name__), name)


_ATTENTION = ("npu_fused_infer_attention_score", "npu_fused_infer_attention_score_v2")
_ADAM = ("npu_apply_adam", "npu_apply_adam_w", "npu_bert_apply_adam")

# what `torch_npu` has as functions of Python, not as operators
FUNCTIONS: dict[str, Any] = {
    "Format": Format,
    "get_npu_format": get_npu_format,
    "npu_format_cast": npu_format_cast,
    "npu_format_cast_": npu_format_cast_,
    "npu_dtype_cast_": npu_dtype_cast_,
    "empty_with_format": empty_with_format,
    **{name: WithOut(name, "var", "m", "v") for name in _ADAM},
    **{name: WithOut(name, "attention_out", "softmax_lse") for name in _ATTENTION},
}

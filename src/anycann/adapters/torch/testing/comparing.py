"""How tests written for torch_npu compare: relative or absolute difference below a precision, for nearly all elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Array = npt.NDArray[Any]


def rtol_difference(x: Any, y: Any, prec: float, prec16: float, cast: bool = False) -> str:
    """Why `assertRtolEqual` fails; "" if it does not. Sequences are compared one by one, float16 and bfloat16 by `prec16`."""
    if isinstance(x, list | tuple) and isinstance(y, list | tuple):
        return next(filter(None, (rtol_difference(a, b, prec, prec16, cast) for a, b in zip(x, y, strict=False))), "")
    left, right = _alike(x, y, cast)
    if left.shape != right.shape:
        return f"shape error: {left.shape} and {right.shape}"
    if left.dtype != right.dtype:
        return f"dtype error: {left.dtype} and {right.dtype}"
    if _equal(left, right):  # as results of the same kernel are; the rest of this passes over the values a dozen times
        return ""
    a, b = _array(left), _array(right)
    if a.dtype.kind == "b":
        return "" if np.array_equal(a, b) else f"result error: {np.sum(a != b)} of {a.size} differ"
    low = a.dtype == np.float16 or _is_bfloat16(left)
    return _far_apart(a.astype(np.float64), b.astype(np.float64), prec16 if low else prec)


def _equal(left: Any, right: Any) -> bool:
    """Whether two tensors or two arrays of one shape and dtype have the same values, none of them NaN."""
    if isinstance(left, torch.Tensor):
        return torch.equal(left.detach().cpu(), right.detach().cpu())
    return np.array_equal(left, right)


def _alike(x: Any, y: Any, cast: bool) -> tuple[Any, Any]:
    """Both as tensors, or both as arrays."""
    if isinstance(x, torch.Tensor) and not isinstance(y, torch.Tensor | np.ndarray):
        y = torch.as_tensor(y, dtype=x.dtype)
    if isinstance(y, torch.Tensor) and not isinstance(x, torch.Tensor | np.ndarray):
        x = torch.as_tensor(x, dtype=y.dtype)
    if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
        return (x.to(y.dtype) if cast else x), y
    return _plain(x), _plain(y)


def _plain(value: Any) -> Array:
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


def _is_bfloat16(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16


def _array(value: Any) -> Array:
    if not isinstance(value, torch.Tensor):
        return np.asarray(value)
    kept = value.detach().cpu()
    return (kept.float() if _is_bfloat16(value) else kept).numpy()


def _far_apart(a: Array, b: Array, precision: float) -> str:
    if not np.array_equal(np.isnan(a), np.isnan(b)):
        return "result error: not a number in different places"
    with np.errstate(invalid="ignore"):
        difference = np.where((a == b) | np.isnan(a), 0.0, np.abs(b - a))
    absolute = int(np.sum(difference > precision))
    scale = np.maximum(np.abs(np.nan_to_num(a)), np.abs(np.nan_to_num(b))) + 1e-9
    relative = int(np.sum(difference / scale > precision))
    if min(absolute, relative) <= a.size * precision:
        return ""
    return f"result error: {min(absolute, relative)} of {a.size} differ by more than {precision:g}, the most by {difference.max():g}"

"""`torch.npu.utils`: whether numbers overflowed. This machine gives infinities and NaNs, as the 910B and later do."""

from __future__ import annotations

import math
from typing import Any

import torch

from anycann.adapters.torch.device.properties import is_support_inf_nan

__all__ = ["clear_npu_overflow_flag", "get_npu_overflow_flag", "is_support_inf_nan", "npu_check_overflow"]


def npu_check_overflow(grad: Any) -> bool:
    """Whether a number or the sum of a tensor is no finite number. Raises RuntimeError for other things."""
    if not isinstance(grad, (float, torch.Tensor)):
        raise RuntimeError(f"npu_check_overflow: {type(grad).__name__}; accepted: float, torch.Tensor")
    return not math.isfinite(grad if isinstance(grad, float) else float(grad.float().sum()))


def get_npu_overflow_flag() -> bool:
    """Refused, as on every chip that has infinities."""
    raise RuntimeError("Unsupported api when soc_version >= Ascend910B1, please use npu_check_overflow")


def clear_npu_overflow_flag() -> None:
    """Refused, as on every chip that has infinities."""
    raise RuntimeError("Unsupported api when soc_version >= Ascend910B1, npu_check_overflow does not need it")

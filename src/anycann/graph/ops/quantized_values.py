"""Quantised operands as real numbers, and results quantised again: what the operators of ONNX Runtime's domain do around their work."""

from __future__ import annotations

import numpy as np

from anycann.graph.ops.common import integer
from anycann.graph.ops.quantize import known_scalar, saturated
from anycann.graph.registry import Lowering, NotLowered
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.dtypes import DType
from anycann.te.expression import Expr
from anycann.te.tensor import Tensor

DOMAIN = "com.microsoft"


def scalar(tensor: Tensor) -> Expr:
    """The element of a tensor of one. Raises NotLowered for more."""
    if tensor.size != 1:
        raise NotLowered(f"a quantisation parameter of the shape {list(tensor.shape)}")
    return tensor[(integer(0),) * tensor.rank]


def real(context: Lowering, value: int, scale: int, zero: int) -> Tensor:
    """Operand `value` as float32, by its scale and its zero point (operand numbers)."""
    source = context.operand(value)
    factor = known_scalar(context, scale) or scalar(context.operand(scale))
    shift = _zero_point(context, zero)

    def element(*index: Expr) -> Expr:
        whole = x.cast(source[index], dtypes.int32)
        if isinstance(shift, x.Const):
            whole = whole - x.const(shift.value, dtypes.int32)
        elif shift is not None:
            whole = whole - x.cast(shift, dtypes.int32)
        return x.cast(whole, dtypes.float32) * factor

    return te.compute(source.shape, element)


def requantised(context: Lowering, source: Tensor, scale: int, zero: int, dtype: DType) -> Tensor:
    """A float32 tensor as integers, by the scale and zero point at these operand numbers."""
    factor = known_scalar(context, scale) or scalar(context.operand(scale))
    shift = _zero_point(context, zero)
    return te.compute(source.shape, lambda *index: saturated(source[index] / factor, shift, dtype))


def _zero_point(context: Lowering, number: int) -> Expr | None:
    if not context.has(number):
        return None
    return known_scalar(context, number) or scalar(context.operand(number))


def parameters(scale: float, zero: int, dtype: str = "uint8") -> tuple[np.ndarray, np.ndarray]:
    """Operands of a sample: one scale and one zero point."""
    return np.array(scale, np.float32), np.array(zero, dtype)

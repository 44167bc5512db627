"""Quantised operators of com.microsoft that are met less often, or find their scales at run time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from anycann.graph.reference.base import MicrosoftOp
from anycann.graph.reference.pooling import average_pool, windows
from anycann.graph.reference.quantization import dequantize, fake_quantize, quantize

Maybe = np.ndarray | None


class DynamicQuantizeMatMul(MicrosoftOp):
    """DynamicQuantizeMatMul(A, B, b_scale, b_zero_point, bias): A is float and quantised by its own range, B is 8-bit."""

    def _run(self, a: np.ndarray, b: np.ndarray, scale: np.ndarray, zero: Maybe = None, bias: Maybe = None) -> tuple[np.ndarray]:
        product = fake_quantize(a) @ dequantize(b, scale, zero)
        return (product if bias is None else product + bias,)


class QGemm(MicrosoftOp):
    """QGemm(A, a_scale, a_zero, B, b_scale, b_zero, C, y_scale, y_zero): alpha A' B' + C.

    C is int32, in units of a_scale * b_scale * alpha. Without y_scale the result is float.
    """

    def _run(
        self,
        a: np.ndarray,
        a_scale: np.ndarray,
        a_zero: np.ndarray,
        b: np.ndarray,
        b_scale: np.ndarray,
        b_zero: np.ndarray,
        c: Maybe = None,
        y_scale: Maybe = None,
        y_zero: Maybe = None,
        alpha: float = 1.0,
        transA: int = 0,
        transB: int = 0,
    ) -> tuple[np.ndarray]:
        left = a.astype(np.int32) - a_zero
        right = b.astype(np.int32).T - b_zero.reshape(-1) if transB else b.astype(np.int32) - b_zero.reshape(-1)
        total = (left.T if transA else left) @ right + (0 if c is None else c)
        real = (total * (np.float32(alpha) * a_scale * b_scale.reshape(-1))).astype(np.float32)
        return (real if y_scale is None else quantize(real, y_scale, np.zeros((), a.dtype) if y_zero is None else y_zero),)


class QLinearAveragePool(MicrosoftOp):
    """QLinearAveragePool(X, x_scale, x_zero, y_scale, y_zero): the mean of each window of X [N, C, *spatial], or [N, *spatial, C]."""

    def _run(
        self,
        x: np.ndarray,
        x_scale: np.ndarray,
        x_zero: Maybe,
        y_scale: np.ndarray,
        y_zero: Maybe = None,
        kernel_shape: tuple[int, ...] = (),
        channels_last: int = 0,
        count_include_pad: int = 0,
        **window: Any,
    ) -> tuple[np.ndarray]:
        real = dequantize(x, x_scale, x_zero)
        real = np.moveaxis(real, -1, 1) if channels_last else real
        divisor = math.prod(kernel_shape) if count_include_pad else None
        y = average_pool(real, windows(real.shape[2:], kernel_shape, **window), divisor)
        y = np.moveaxis(y, 1, -1) if channels_last else y
        return (quantize(y, y_scale, np.zeros((), x.dtype) if y_zero is None else y_zero),)


class QLinearWhere(MicrosoftOp):
    """QLinearWhere(condition, X, x_scale, x_zero, Y, y_scale, y_zero, z_scale, z_zero)."""

    def _run(
        self, condition: np.ndarray, x: np.ndarray, sx: np.ndarray, zx: np.ndarray, y: np.ndarray, *rest: np.ndarray
    ) -> tuple[np.ndarray]:
        sy, zy, sz, zz = rest
        return (quantize(np.where(condition, dequantize(x, sx, zx), dequantize(y, sy, zy)), sz, zz),)


class QLinearReduceMean(MicrosoftOp):
    """QLinearReduceMean(data, scale, zero, y_scale, y_zero) over `axes`."""

    def _run(
        self, x: np.ndarray, sx: np.ndarray, zx: Maybe, sy: np.ndarray, zy: Maybe = None, axes: list[int] | None = None, keepdims: int = 1
    ) -> tuple[np.ndarray]:
        mean = dequantize(x, sx, zx).mean(axis=None if axes is None else tuple(axes), keepdims=bool(keepdims))
        return (quantize(np.asarray(mean), sy, np.zeros((), x.dtype) if zy is None else zy),)

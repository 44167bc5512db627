"""Quantised operators of com.microsoft: dequantise, compute, quantise."""

from __future__ import annotations

import numpy as np

from anycann.graph.reference.base import MicrosoftOp, sigmoid, softmax
from anycann.graph.reference.quantization import dequantize, quantize

Array = np.ndarray
Arrays = tuple[np.ndarray]
Maybe = np.ndarray | None


def _along(x: np.ndarray, parameter: Maybe, axis: int) -> Maybe:
    """A parameter of one axis, ready to broadcast with `x`."""
    if parameter is None or parameter.size == 1:
        return None if parameter is None else parameter.reshape(())
    return parameter.reshape([-1 if n == axis % x.ndim else 1 for n in range(x.ndim)])


class QuantizeLinear(MicrosoftOp):
    """QuantizeLinear(x, scale, zero point?) per tensor or per axis."""

    def _run(self, x: np.ndarray, scale: np.ndarray, zero: Maybe = None, axis: int = 1) -> Arrays:
        zero = np.zeros((), np.uint8) if zero is None else zero
        return (quantize(x, _along(x, scale, axis), _along(x, zero, axis)),)  # type: ignore[arg-type]


class DequantizeLinear(MicrosoftOp):
    """DequantizeLinear(x, scale, zero point?) per tensor or per axis."""

    def _run(self, x: np.ndarray, scale: np.ndarray, zero: Maybe = None, axis: int = 1) -> Arrays:
        return (dequantize(x, _along(x, scale, axis), _along(x, zero, axis)),)  # type: ignore[arg-type]


class QLinearAdd(MicrosoftOp):
    """QLinearAdd(A, B): each operand and the result with a scale and a zero point."""

    def _run(self, a: Array, sa: Array, za: Maybe, b: Array, sb: Array, zb: Maybe, sc: Array, zc: Maybe = None) -> Arrays:
        return (quantize(dequantize(a, sa, za) + dequantize(b, sb, zb), sc, np.zeros((), a.dtype) if zc is None else zc),)


class QLinearMul(MicrosoftOp):
    """QLinearMul(A, B), as QLinearAdd."""

    def _run(self, a: Array, sa: Array, za: Maybe, b: Array, sb: Array, zb: Maybe, sc: Array, zc: Maybe = None) -> Arrays:
        return (quantize(dequantize(a, sa, za) * dequantize(b, sb, zb), sc, np.zeros((), a.dtype) if zc is None else zc),)


class _Single(MicrosoftOp):
    """One quantised operand, one quantised result."""

    def _compute(self, x: np.ndarray, **attributes: float) -> np.ndarray:
        raise NotImplementedError

    def _run(self, x: np.ndarray, sx: np.ndarray, zx: Maybe, sy: np.ndarray, zy: Maybe = None, **attributes: float) -> Arrays:
        result = self._compute(dequantize(x, sx, zx), **attributes)
        return (quantize(result, sy, np.zeros((), x.dtype) if zy is None else zy),)


class QLinearSigmoid(_Single):
    """1 / (1 + exp(-x))."""

    def _compute(self, x: np.ndarray, **_: float) -> np.ndarray:
        return sigmoid(x)


class QLinearLeakyRelu(_Single):
    """x, or alpha x where it is negative."""

    def _compute(self, x: np.ndarray, alpha: float = 0.01, **_: float) -> np.ndarray:
        return np.asarray(np.where(x < 0, x * np.float32(alpha), x))


class QLinearSoftmax(_Single):
    """Softmax along one axis, before opset 13 over all axes from there."""

    def _compute(self, x: np.ndarray, **attributes: float) -> np.ndarray:
        axis = int(attributes.get("axis", -1)) % x.ndim
        if not x.size:
            return x
        if attributes.get("opset", 13) < 13:
            return softmax(x.reshape(*x.shape[:axis], -1)).reshape(x.shape)
        return np.asarray(np.moveaxis(softmax(np.moveaxis(x, axis, -1)), -1, axis))


class QLinearGlobalAveragePool(_Single):
    """The mean over all of space."""

    def _compute(self, x: np.ndarray, **attributes: float) -> np.ndarray:
        channels_last = attributes.get("channels_last", 0)
        return np.asarray(x.mean(axis=tuple(range(1, x.ndim - 1) if channels_last else range(2, x.ndim)), keepdims=True))


class QLinearConcat(MicrosoftOp):
    """QLinearConcat(scale, zero point, parts...): each part with its own scale and zero point."""

    def _run(self, scale: np.ndarray, zero: np.ndarray, *parts: np.ndarray, axis: int = 1) -> Arrays:
        real = [dequantize(*parts[n : n + 3]) for n in range(0, len(parts), 3)]
        return (quantize(np.concatenate(real, axis=axis), scale, zero),)


class MatMulIntegerToFloat(MicrosoftOp):
    """MatMulIntegerToFloat(A, B, scales, zero points?, bias?)."""

    def _run(self, a: Array, b: Array, sa: Array, sb: Array, za: Maybe = None, zb: Maybe = None, bias: Maybe = None) -> Arrays:
        left = a.astype(np.int32) - (0 if za is None else za.astype(np.int32))
        right = b.astype(np.int32) - (0 if zb is None else zb.astype(np.int32))
        y = np.matmul(left, right) * (sa * sb)
        return ((y if bias is None else y + bias).astype(sa.dtype),)


class MatMulNBits(MicrosoftOp):
    """MatMulNBits(A, B, scales, zero points?, g_idx?, bias?): B holds columns of 4 or 8-bit integers, the low half of a byte first."""

    def _run(
        self, a: np.ndarray, b: np.ndarray, scales: np.ndarray, points: Maybe = None, order: Maybe = None, bias: Maybe = None,
        K: int = 0, N: int = 0, bits: int = 4, block_size: int = 32, **_: int,
    ) -> Arrays:  # fmt: skip
        if bits not in (4, 8) or order is not None:
            raise NotImplementedError(f"weights of {bits} bits, or reordered")
        blocks = -(-K // block_size)
        weights = self._integers(b.reshape(N, -1), bits)[:, :K].astype(np.float32)
        zero = np.full((N, blocks), float(1 << bits - 1), np.float32)
        if points is not None:
            packed = points.dtype == np.uint8
            zero = (self._integers(points.reshape(N, -1), bits)[:, :blocks] if packed else points.reshape(N, blocks)).astype(np.float32)
        spread = [np.repeat(v.reshape(N, blocks), block_size, axis=1)[:, :K] for v in (zero, scales.astype(np.float32))]
        y = a.astype(np.float32) @ ((weights - spread[0]) * spread[1]).T
        return ((y if bias is None else y + bias).astype(a.dtype),)

    @staticmethod
    def _integers(rows: np.ndarray, bits: int) -> np.ndarray:
        return rows if bits == 8 else np.stack([rows & 15, rows >> 4], axis=-1).reshape(rows.shape[0], -1)

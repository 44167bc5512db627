"""Affine quantisation as ONNX Runtime does it at run time."""

from __future__ import annotations

import numpy as np


def dynamic_parameters(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scale and zero point that map the range of `x`, zero included, onto 0..255."""
    low, high = (min(float(x.min()), 0.0), max(float(x.max()), 0.0)) if x.size else (0.0, 0.0)
    scale = np.float32((high - low) / 255) if high > low else np.float32(1)
    return np.asarray(scale), np.asarray(np.clip(np.rint(-np.float32(low) / scale), 0, 255), np.uint8)


def quantize(x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    """round(x / scale) + zero_point, half to even, saturated to the dtype of `zero_point`."""
    limits = np.iinfo(zero_point.dtype)
    return np.asarray(np.clip(np.rint(x / scale) + zero_point.astype(np.float32), limits.min, limits.max), zero_point.dtype)


def dequantize(x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray | None) -> np.ndarray:
    """(x - zero_point) * scale in the dtype of `scale`."""
    offset = np.int32(0) if zero_point is None else zero_point.astype(np.int32)
    return np.asarray((x.astype(np.int32) - offset) * scale, scale.dtype)


def fake_quantize(x: np.ndarray) -> np.ndarray:
    """`x` after a round trip through 8 bits with parameters of its own range."""
    scale, zero_point = dynamic_parameters(x)
    return dequantize(quantize(x, scale, zero_point), scale, zero_point)

"""Cases of floats that share a power of two: the types of eight bits as lists of all their values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from tests.torch_operators.walk import case, randn

Array = np.ndarray


def _values(mantissa: int, bias: int, end: float) -> Array:
    """All finite numbers of a type with that many bits of mantissa, by their definition."""
    steps = range(1 << mantissa)
    small = [step * 2.0 ** (1 - bias - mantissa) for step in steps]
    exponents = range(1 - bias, math.frexp(end)[1])
    return np.array([x for x in small + [(1 + step / (1 << mantissa)) * 2.0**e for e in exponents for step in steps] if x <= end])


_TYPES = {torch.float8_e4m3fn: (_values(3, 7, 448), 8, 448.0), torch.float8_e5m2: (_values(2, 15, 57344), 15, 57344.0)}


def _nearest(x: float, values: Array) -> float:
    distances = np.abs(values - abs(x))
    best = np.flatnonzero(distances == distances.min())
    # of two equally near the one with the even code, and codes count the values
    return math.copysign(values[best[0] if best[0] % 2 == 0 or len(best) == 1 else best[1]], x)


def _quantised(x: Array, *, axis: int = -1, dst_type: Any = None, block_size: int = 32) -> tuple[Array, Array]:
    values, top, end = _TYPES[dst_type]
    lines = np.moveaxis(x, axis, -1)
    pairs = math.ceil(math.ceil(lines.shape[-1] / block_size) / 2)
    y, scales = np.zeros(lines.shape), np.full((*lines.shape[:-1], pairs, 2), 2.0**-127)
    for place in np.ndindex(*lines.shape[:-1]):
        for begin in range(0, lines.shape[-1], block_size):
            group = lines[place][begin : begin + block_size]
            exponent = math.floor(math.log2(np.abs(group).max())) - top if group.any() else -127
            scales[place][begin // block_size // 2, begin // block_size % 2] = 2.0**exponent
            for i, value in enumerate(group):
                y[place][begin + i] = _nearest(max(min(value / 2.0**exponent, end), -end), values)
    return np.moveaxis(y, -1, axis), np.moveaxis(scales, -2, axis if axis >= 0 else axis - 1)


for _dtype in _TYPES:
    case("npu_dynamic_mx_quant", randn(3, 70), options={"dst_type": _dtype}, reference=_quantised)
    case("npu_dynamic_mx_quant", randn(2, 3, 128).to(torch.bfloat16), options={"dst_type": _dtype, "block_size": 64}, reference=_quantised)
    case("npu_dynamic_mx_quant", randn(96, 5).half() * 1e-3, options={"dst_type": _dtype, "axis": 0}, reference=_quantised)
    case("npu_dynamic_mx_quant", randn(2, 40, 3) * 1e3, options={"dst_type": _dtype, "axis": -2}, reference=_quantised)
    case("npu_dynamic_mx_quant", torch.zeros(2, 32), options={"dst_type": _dtype}, reference=_quantised)

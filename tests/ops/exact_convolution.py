"""QLinearConv as it is specified, summed exactly: ONNX Runtime adds pairs of products in 16 bits, which saturate, on x86 without VNNI."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from anycann.graph.evaluate import evaluate_node
from anycann.graph.registry import OPSET


def exact_convolution(node: ir.Node, operands: Sequence[np.ndarray | None]) -> np.ndarray:
    """Sums of products of integers in float64, rounded once as float32; `operands` as QLinearConv has them, weights' zero points given."""
    data, data_scale, data_zero, weights, weights_scale, weights_zero, scale, zero, *bias = (a for a in operands if a is not None)
    convolution = ir.to_proto(node)
    convolution.op_type = "Conv"
    del convolution.input[2:]
    per_filter = (-1, *[1] * (weights.ndim - 2))
    wide = [data.astype(np.float64) - data_zero, weights.astype(np.float64) - weights_zero.reshape(*per_filter, 1)]
    sums = np.asarray(evaluate_node(convolution, OPSET, wide)[0])
    if bias:
        sums = sums + bias[0].reshape(per_filter)
    factor = (data_scale * weights_scale / scale).astype(np.float32).reshape(per_filter)
    limits = np.iinfo(zero.dtype)
    rounded = np.rint(sums.astype(np.float32) * factor) + zero.astype(np.float64)
    return np.asarray(np.clip(rounded, limits.min, limits.max), zero.dtype)

"""QuantizeLinear and DequantizeLinear of ONNX Runtime's domain, which mean what ONNX's mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from anycann.graph.ops.common import floats, integers
from anycann.graph.ops.quantize import dequantize_linear, quantize_linear
from anycann.graph.ops.quantized_values import DOMAIN, parameters
from anycann.graph.registry import Sample, TensorType, operator
from anycann.te import dtypes


def _infer_quantize(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    source, zero = inputs[0], inputs[2] if len(inputs) > 2 else None
    assert source is not None
    return [TensorType(dtypes.uint8 if zero is None else zero.dtype, source.shape)]


def _infer_dequantize(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    source, scale = inputs[0], inputs[1]
    assert source is not None
    assert scale is not None
    return [TensorType(scale.dtype, source.shape)]


def _quantize_samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield Sample((floats(rng, 3, 17, low=-20, high=20), *parameters(0.13, 120)))
    yield Sample((floats(rng, 3, 17, low=-20, high=20), floats(rng, 17, low=0.1), integers(rng, 17, dtype="int8")), {"axis": 1})


def _dequantize_samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield Sample((integers(rng, 3, 17, low=0, high=255, dtype="uint8"), *parameters(0.13, 120)))
    yield Sample((integers(rng, 3, 17, dtype="int8"), floats(rng, 17, low=0.1), integers(rng, 17, dtype="int8")), {"axis": 1})


operator("QuantizeLinear", domain=DOMAIN, samples=_quantize_samples, infer=_infer_quantize)(quantize_linear)
operator("DequantizeLinear", domain=DOMAIN, samples=_dequantize_samples, infer=_infer_dequantize)(dequantize_linear)

"""Transposed convolutions of bytes with int32 sums."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from anycann.graph.evaluate import evaluate_node
from anycann.graph.ops.common import infer_as, integers
from anycann.graph.ops.device import DOMAIN
from anycann.graph.ops.windows import window
from anycann.graph.registry import OPSET, Lowering, NotLowered, Sample, TensorType, operator
from anycann.te import dtypes
from anycann.te import tensor as te
from anycann.te.contractions import Convolution
from anycann.te.tensor import Tensor

TRANSPOSED_INTEGERS = "ConvTransposeInteger"


def _infer(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    floats = [None if each is None else TensorType(dtypes.float32, each.shape) for each in inputs[:2]]
    return [TensorType(dtypes.int32, infer_as("ConvTranspose", node, floats)[0].shape)]


def _reference(source: np.ndarray, weights: np.ndarray, zero: np.ndarray | None = None, **attributes: Any) -> np.ndarray:
    node = onnx.helper.make_node("ConvTranspose", ["x", "w"], ["y"], **attributes)
    centred = source.astype(np.float64) - (0 if zero is None else float(zero.reshape(())))
    return np.asarray(evaluate_node(node, OPSET, [centred, weights.astype(np.float64)])[0]).astype(np.int32)


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    for data, kernel, attributes in (
        ((2, 5, 3, 4), (4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}), ((1, 20, 5, 3), (2, 2), {"strides": [2, 2]}),
        ((1, 3, 4, 5), (3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
        ((1, 4, 5, 6), (3, 3), {"pads": [1, 1, 1, 1]}), ((2, 7, 9), (16,), {"strides": [8], "pads": [4, 4]}),
        ((1, 4, 3, 4, 2), (2, 2, 2), {"strides": [2, 2, 2]}),
    ):  # fmt: skip
        weights = integers(rng, data[1], 32, *kernel, low=-128, high=127, dtype="int8")
        given: dict[str, object] = {"kernel_shape": list(kernel), **attributes}
        for dtype, low, high, zero in (("uint8", 0, 255, 120), ("int8", -128, 127, -7)):
            operands = (integers(rng, *data, low=low, high=high, dtype=dtype), weights, np.array(zero, dtype))
            yield Sample(operands, given, constant=(1, 2))


@operator(TRANSPOSED_INTEGERS, domain=DOMAIN, samples=_samples, infer=_infer, reference=_reference)
def transposed_integers(context: Lowering) -> Tensor:
    """ConvTranspose of (x - zero) with known signed weights; padding counts as the zero point."""
    source, weights, shape = context.operand(0), context.operand(1), context.outputs[0].shape
    zero = context.operand(2) if context.has(2) else None
    if context.constant(1) is None or weights.dtype is not dtypes.int8:
        raise NotLowered("weights that are computed, or no signed bytes")
    if context.text("auto_pad", "NOTSET") != "NOTSET" or context.integers("output_shape"):
        raise NotLowered("padding that follows from sizes")
    slide = window(context, source.shape[2:], weights.shape[2:], source.shape[2:])
    group = context.integer("group", 1)
    work = Convolution(source, weights, slide.strides, slide.begins, slide.dilations, group, shape[2:], transposed=True, zero_point=zero)
    return te.contraction(work, shape, dtypes.int32)

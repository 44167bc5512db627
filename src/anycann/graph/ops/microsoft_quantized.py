"""Quantised operators of ONNX Runtime's domain, elementwise, along rows, and joining: dequantise, compute in float32, quantise again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
import math

import numpy as np
import onnx_ir as ir

from anycann.graph.ops.common import broadcast_index, integers, like_first, normal_axis, replaced
from anycann.graph.ops.quantized_values import DOMAIN, parameters, real, requantised
from anycann.graph.ops.reduction import reduce_axes, row_of
from anycann.graph.ops.softmax import softmax_of
from anycann.graph.registry import Lowering, Sample, Samples, TensorType, operator
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.expression import Expr
from anycann.te.tensor import Tensor


# ---- elementwise
def _infer_broadcast(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    a, b = inputs[0], inputs[3]
    assert a is not None
    assert b is not None
    return [TensorType(a.dtype, np.broadcast_shapes(a.shape, b.shape))]


def _pair_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for a, b, dtype in (((3, 17), (3, 17), "uint8"), ((2, 20, 3, 4), (20, 1, 1), "uint8"), ((37,), (), "int8")):
        low, high = (0, 255) if dtype == "uint8" else (-128, 127)
        first = (integers(rng, *a, low=low, high=high, dtype=dtype), *parameters(0.031, 7, dtype))
        second = (integers(rng, *b, low=low, high=high, dtype=dtype), *parameters(0.017, 3, dtype))
        yield Sample((*first, *second, *parameters(0.0537, 90, dtype)))


def _pairwise(op_type: str, function: Callable[[Expr, Expr], Expr]) -> None:
    @operator(op_type, domain=DOMAIN, samples=_pair_samples, infer=_infer_broadcast)
    def lower(context: Lowering) -> Tensor:
        type_, a, b = context.outputs[0], real(context, 0, 1, 2), real(context, 3, 4, 5)
        total = te.compute(type_.shape, lambda *i: function(a[broadcast_index(a, i)], b[broadcast_index(b, i)]))
        return requantised(context, total, 6, 7, type_.dtype)


_pairwise("QLinearAdd", lambda a, b: a + b)
_pairwise("QLinearMul", lambda a, b: a * b)


def _single_samples(*attributes: dict[str, object], shapes: Sequence[tuple[int, ...]] = ((3, 17), (2, 20, 3, 4))) -> Samples:
    def draw(rng: np.random.Generator) -> Iterable[Sample]:
        for shape in shapes:
            for given in attributes:
                source = integers(rng, *shape, low=0, high=255, dtype="uint8")
                yield Sample((source, *parameters(0.031, 120), *parameters(0.0137, 90)), given)

    return draw


def _single(op_type: str, function: Callable[[Lowering, Expr], Expr], **attributes: object) -> None:
    @operator(op_type, domain=DOMAIN, samples=_single_samples(attributes), infer=like_first)
    def lower(context: Lowering) -> Tensor:
        source = real(context, 0, 1, 2)
        result = te.compute(source.shape, lambda *index: function(context, source[index]))
        return requantised(context, result, 3, 4, context.outputs[0].dtype)


def _leaky(context: Lowering, a: Expr) -> Expr:
    return x.select(a < 0, a * context.number("alpha", 0.01), a)


_single("QLinearSigmoid", lambda context, a: x.unary("sigmoid", a))
_single("QLinearLeakyRelu", _leaky, alpha=0.1)


# ---- rows
_SOFTMAXES = _single_samples({"axis": -1, "opset": 13}, {"axis": 1, "opset": 13}, {"axis": 1, "opset": 12})


@operator("QLinearSoftmax", domain=DOMAIN, samples=_SOFTMAXES, infer=like_first)
def qlinear_softmax(context: Lowering) -> Tensor:
    """Softmax along one axis, before opset 13 over all axes from there."""
    source = real(context, 0, 1, 2)
    axis = normal_axis(context.integer("axis", -1), source.rank)
    axes = range(axis, source.rank if context.integer("opset", 13) < 13 else axis + 1)
    return requantised(context, softmax_of(source, axes), 3, 4, context.outputs[0].dtype)


def _infer_pooled(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    source = inputs[0]
    assert source is not None
    last = node.attributes.get_int("channels_last", 0)
    spatial = range(1, len(source.shape) - 1) if last else range(2, len(source.shape))
    return [TensorType(source.dtype, tuple(1 if axis in spatial else extent for axis, extent in enumerate(source.shape)))]


@operator("QLinearGlobalAveragePool", domain=DOMAIN, samples=_single_samples({}, shapes=((2, 20, 3, 4),)), infer=_infer_pooled)
def qlinear_global_average_pool(context: Lowering) -> Tensor:
    """The mean over all of space."""
    source, type_ = real(context, 0, 1, 2), context.outputs[0]
    axes = range(1, source.rank - 1) if context.integer("channels_last") else range(2, source.rank)
    count = math.prod(source.shape[axis] for axis in axes)
    total = reduce_axes("sum", source.shape, axes, lambda index: source[index])
    mean = te.compute(type_.shape, lambda *index: total[row_of(index, axes)] / count)
    return requantised(context, mean, 3, 4, type_.dtype)


# ---- joining
def _infer_concat(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    parts = [t for t in inputs[2::3] if t is not None]
    axis = node.attributes.get_int("axis", 1) % len(parts[0].shape)
    total = sum(t.shape[axis] for t in parts)
    return [TensorType(parts[0].dtype, tuple(total if n == axis else extent for n, extent in enumerate(parts[0].shape)))]


def _concat_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shapes, axis in ((((3, 5), (3, 17)), 1), (((2, 3, 2, 2), (2, 20, 2, 2), (2, 1, 2, 2)), 1)):
        parts = [(integers(rng, *s, low=0, high=255, dtype="uint8"), *parameters(0.02 + 0.013 * n, 100 + n)) for n, s in enumerate(shapes)]
        yield Sample((*parameters(0.0371, 110), *(operand for part in parts for operand in part)), {"axis": axis})


@operator("QLinearConcat", domain=DOMAIN, samples=_concat_samples, infer=_infer_concat)
def qlinear_concat(context: Lowering) -> Tensor:
    """Operands, each with its own scale and zero point, joined along an axis."""
    parts = [real(context, n, n + 1, n + 2) for n in range(2, len(context.inputs), 3)]
    type_ = context.outputs[0]
    axis = normal_axis(context.integer("axis", 1), len(type_.shape))

    def element(*index: Expr) -> Expr:
        start = type_.shape[axis]
        result: Expr | None = None
        for part in reversed(parts):
            start -= part.shape[axis]
            value: Expr = part[replaced(index, axis, index[axis] - start)]
            result = value if result is None else x.select(index[axis] < start + part.shape[axis], value, result)
        assert result is not None
        return result

    return requantised(context, te.compute(type_.shape, element), 0, 1, type_.dtype)

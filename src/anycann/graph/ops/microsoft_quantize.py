"""Quantised operators of ONNX Runtime's domain: dequantise, compute in float32, quantise again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
import math

import numpy as np
import onnx_ir as ir

from anycann.graph.ops.common import broadcast_index, floats, infer_as, integer, integers, like_first, normal_axis, replaced
from anycann.graph.ops.quantize import dequantize_linear, parameter, quantize_linear, saturated
from anycann.graph.ops.quantized_products import integer_product
from anycann.graph.ops.reduction import reduce_axes, row_of
from anycann.graph.ops.softmax import softmax_of
from anycann.graph.registry import Lowering, NotLowered, Sample, Samples, TensorType, operator
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
    factor = scalar(context.operand(scale))
    shift = scalar(context.operand(zero)) if context.has(zero) else None

    def element(*index: Expr) -> Expr:
        whole = x.cast(source[index], dtypes.int32)
        return x.cast(whole if shift is None else whole - x.cast(shift, dtypes.int32), dtypes.float32) * factor

    return te.compute(source.shape, element)


def requantised(context: Lowering, source: Tensor, scale: int, zero: int, dtype: DType) -> Tensor:
    """A float32 tensor as integers, by the scale and zero point at these operand numbers."""
    factor = scalar(context.operand(scale))
    shift = scalar(context.operand(zero)) if context.has(zero) else None
    return te.compute(source.shape, lambda *index: saturated(source[index] / factor, shift, dtype))


def _parameters(scale: float, zero: int, dtype: str = "uint8") -> tuple[np.ndarray, np.ndarray]:
    return np.array(scale, np.float32), np.array(zero, dtype)


# ---- QuantizeLinear and DequantizeLinear as ONNX has them
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
    yield Sample((floats(rng, 3, 17, low=-20, high=20), *_parameters(0.13, 120)))
    yield Sample((floats(rng, 3, 17, low=-20, high=20), floats(rng, 17, low=0.1), integers(rng, 17, dtype="int8")), {"axis": 1})


def _dequantize_samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield Sample((integers(rng, 3, 17, low=0, high=255, dtype="uint8"), *_parameters(0.13, 120)))
    yield Sample((integers(rng, 3, 17, dtype="int8"), floats(rng, 17, low=0.1), integers(rng, 17, dtype="int8")), {"axis": 1})


operator("QuantizeLinear", domain=DOMAIN, samples=_quantize_samples, infer=_infer_quantize)(quantize_linear)
operator("DequantizeLinear", domain=DOMAIN, samples=_dequantize_samples, infer=_infer_dequantize)(dequantize_linear)


# ---- elementwise
def _infer_broadcast(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    a, b = inputs[0], inputs[3]
    assert a is not None
    assert b is not None
    return [TensorType(a.dtype, np.broadcast_shapes(a.shape, b.shape))]


def _pair_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for a, b, dtype in (((3, 17), (3, 17), "uint8"), ((2, 20, 3, 4), (20, 1, 1), "uint8"), ((37,), (), "int8")):
        low, high = (0, 255) if dtype == "uint8" else (-128, 127)
        first = (integers(rng, *a, low=low, high=high, dtype=dtype), *_parameters(0.031, 7, dtype))
        second = (integers(rng, *b, low=low, high=high, dtype=dtype), *_parameters(0.017, 3, dtype))
        yield Sample((*first, *second, *_parameters(0.0537, 90, dtype)))


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
                yield Sample((source, *_parameters(0.031, 120), *_parameters(0.0137, 90)), given)

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
@operator("QLinearSoftmax", domain=DOMAIN, samples=_single_samples({"axis": -1, "opset": 13}, {"axis": 1, "opset": 13}), infer=like_first)
def qlinear_softmax(context: Lowering) -> Tensor:
    """Softmax along one axis; before opset 13 it ran over all axes from there, which only the last axis has in common."""
    source = real(context, 0, 1, 2)
    axis = normal_axis(context.integer("axis", -1), source.rank)
    if context.integer("opset", 13) < 13 and axis != source.rank - 1:
        raise NotLowered("a quantised softmax over several axes")
    return requantised(context, softmax_of(source, axis), 3, 4, context.outputs[0].dtype)


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
        parts = [(integers(rng, *s, low=0, high=255, dtype="uint8"), *_parameters(0.02 + 0.013 * n, 100 + n)) for n, s in enumerate(shapes)]
        yield Sample((*_parameters(0.0371, 110), *(operand for part in parts for operand in part)), {"axis": axis})


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


# ---- products
def _infer_product(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    scale = inputs[2]
    assert scale is not None
    return [TensorType(scale.dtype, infer_as("MatMulInteger", node, inputs[:2])[0].shape)]


def _product_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, columns in (((5, 7), ()), ((2, 5, 7), (20,))):
        a, b = integers(rng, *shape, low=0, high=255, dtype="uint8"), integers(rng, 7, 20, low=-128, high=127, dtype="int8")
        scales = np.array(0.02, np.float32), floats(rng, *columns, low=0.01, high=0.1)
        zeros = np.array(120, np.uint8), np.zeros(columns, np.int8)
        yield Sample((a, b, *scales, *zeros, floats(rng, 20)), constant=(1, 5))
        yield Sample((a, b, *scales))


@operator("MatMulIntegerToFloat", domain=DOMAIN, samples=_product_samples, infer=_infer_product)
def matmul_integer_to_float(context: Lowering) -> Tensor:
    """The integer product times both scales, plus a bias."""
    type_ = context.outputs[0]
    sums = integer_product(context, (0, 1, 4, 5), type_.shape)
    scale_a, scale_b = context.operand(2), context.operand(3)
    bias = context.operand(6) if context.has(6) else None

    def element(*index: Expr) -> Expr:
        factor = parameter(scale_a, index, len(index) - 2, 0) * parameter(scale_b, index, len(index) - 1, 0)
        value = x.cast(sums[index], type_.dtype) * factor
        return value if bias is None else value + bias[broadcast_index(bias, index)]

    return te.compute(type_.shape, element)


def _infer_blocks(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    assert inputs[0] is not None
    return [TensorType(inputs[0].dtype, (*inputs[0].shape[:-1], node.attributes["N"].as_int()))]


def _blocks_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for bits, zeros in ((4, False), (4, True), (8, True), (8, False)):
        rows, depth, columns, block = 5, 40, 20, 16
        blocks = -(-depth // block)
        packed = integers(rng, columns, blocks, block * bits // 8, low=0, high=255, dtype="uint8")
        operands = (floats(rng, rows, depth), packed, floats(rng, columns * blocks, low=0.01, high=0.1))
        points = integers(rng, columns * -(-blocks * bits // 8), low=0, high=255, dtype="uint8")
        sizes: dict[str, object] = {"K": depth, "N": columns, "bits": bits, "block_size": block}
        yield Sample((*operands, points) if zeros else operands, sizes, constant=(1, 2, 3))


def unpacked(values: np.ndarray, bits: int, count: int) -> np.ndarray:
    """`count` integers of 4 or 8 bits from each row of bytes, the low half first."""
    rows = values.reshape(values.shape[0], -1)
    halves = rows if bits == 8 else np.stack([rows & 15, rows >> 4], axis=-1).reshape(rows.shape[0], -1)
    return np.asarray(halves[:, :count].astype(np.int16))


@operator("MatMulNBits", domain=DOMAIN, samples=_blocks_samples, infer=_infer_blocks)
def matmul_of_few_bits(context: Lowering) -> Tensor:
    """A times constant weights of 4 or 8 bits, whose columns have a scale and a zero point for each block of rows."""
    source, type_ = context.operand(0), context.outputs[0]
    depth, columns = context.integer("K"), context.integer("N")
    bits, block = context.integer("bits", 4), context.integer("block_size", 32)
    packed, scales, points = (context.constant(n) for n in (1, 2, 3))
    if bits not in (4, 8) or context.has(4) or (points is not None and points.dtype != np.uint8):
        raise NotLowered(f"weights of {bits} bits, reordered, or with zero points that are no packed integers")
    assert packed is not None
    assert scales is not None
    blocks = -(-depth // block)
    zero = np.full((columns, blocks), 1 << bits - 1, np.int16)
    if points is not None:
        zero = unpacked(points.reshape(columns, -1), bits, blocks)
    shifted = unpacked(packed.reshape(columns, -1), bits, depth) - np.repeat(zero, block, axis=1)[:, :depth]
    weights = te.table(np.ascontiguousarray(shifted.T.astype(np.int8 if bits == 4 else np.int16)))
    factors = te.table(np.ascontiguousarray(scales.reshape(columns, blocks).T))
    bias = context.operand(5) if context.has(5) else None

    def element(*index: Expr) -> Expr:
        *row, column, k = index
        weight = x.cast(weights[k, column], dtypes.float32) * x.cast(factors[k // block, column], dtypes.float32)
        return x.cast(source[(*row, k)], dtypes.float32) * weight

    sums = te.reduce("sum", type_.shape, [depth], element)

    def finished(*index: Expr) -> Expr:
        value: Expr = sums[index]
        return x.cast(value if bias is None else value + x.cast(bias[index[-1]], dtypes.float32), type_.dtype)

    return te.compute(type_.shape, finished)

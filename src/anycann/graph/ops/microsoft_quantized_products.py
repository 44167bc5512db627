"""Products of ONNX Runtime's domain whose operands are integers with scales: MatMulIntegerToFloat and MatMulNBits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from anycann.graph.ops.common import broadcast_index, floats, infer_as, integers
from anycann.graph.ops.quantize import parameter
from anycann.graph.ops.quantized_products import integer_product
from anycann.graph.ops.quantized_values import DOMAIN
from anycann.graph.ops.scaled_products import scaled_product
from anycann.graph.registry import Lowering, NotLowered, Sample, TensorType, operator
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.expression import Expr
from anycann.te.tensor import Tensor


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


def _without_zero_points(weights: np.ndarray, points: np.ndarray | None, bits: int, block: int) -> np.ndarray:
    """Weights [columns, depth] less the zero point of their block, which is the middle of the range where none is given."""
    columns, depth = weights.shape
    blocks = -(-depth // block)
    zero = np.full((columns, blocks), 1 << bits - 1, np.int16) if points is None else unpacked(points.reshape(columns, -1), bits, blocks)
    return np.asarray(weights - np.repeat(zero, block, axis=1)[:, :depth])


_BYTES = 4  # the accuracy_level of a product whose first operand may be rounded to 8 bits, with a scale a block


@operator("MatMulNBits", domain=DOMAIN, samples=_blocks_samples, infer=_infer_blocks)
def matmul_of_few_bits(context: Lowering) -> Tensor:
    """A times constant weights of 4 or 8 bits, whose columns have a scale and a zero point for each block of rows.

    With an accuracy_level of 4 A may be rounded to bytes, as ONNX Runtime does.
    """
    source, type_ = context.operand(0), context.outputs[0]
    depth, columns = context.integer("K"), context.integer("N")
    bits, block = context.integer("bits", 4), context.integer("block_size", 32)
    packed, scales, points = (context.constant(n) for n in (1, 2, 3))
    if bits not in (4, 8) or context.has(4) or (points is not None and points.dtype != np.uint8):
        raise NotLowered(f"weights of {bits} bits, reordered, or with zero points that are no packed integers")
    assert packed is not None
    assert scales is not None
    shifted = _without_zero_points(unpacked(packed.reshape(columns, -1), bits, depth), points, bits, block)
    fits = not shifted.size or (shifted.min() >= -128 and shifted.max() <= 127)
    weights = te.table(np.ascontiguousarray(shifted.T.astype(np.int8 if fits else np.int16)))
    factors = te.table(np.ascontiguousarray(scales.reshape(columns, -(-depth // block)).T.astype(np.float32)))
    bias = context.operand(5) if context.has(5) else None

    sums = scaled_product(source, weights, factors, block, context.integer("accuracy_level") == _BYTES)

    def finished(*index: Expr) -> Expr:
        value: Expr = sums[index]
        return x.cast(value if bias is None else value + x.cast(bias[index[-1]], dtypes.float32), type_.dtype)

    return te.compute(type_.shape, finished)

"""Quantisation: real numbers to small integers and back, for a tensor, an axis, or blocks of an axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from anycann.graph.ops.common import floats, integer, integers, normal_axis
from anycann.graph.ops.reduction import reduce_axes
from anycann.graph.registry import Lowering, NotLowered, Sample, operator
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.dtypes import DType
from anycann.te.expression import Expr
from anycann.te.tensor import Tensor


def limits(dtype: DType) -> tuple[int, int]:
    """The least and the greatest integer of a type."""
    bits = 8 * dtype.nbytes
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype.kind == "int" else (0, (1 << bits) - 1)


def saturated(value: Expr, zero_point: Expr | None, dtype: DType) -> Expr:
    """round(value) + zero_point, held within an integer type; halves round to the even integer. NaN gives the least."""
    if value.dtype is dtypes.float32 and dtype.nbytes <= 2:
        return _saturated_soon(value, zero_point, dtype)
    value = x.unary("round", value)
    value = value if zero_point is None else value + x.cast(zero_point, value.dtype)
    return x.cast(x.clamp(value, *limits(dtype)), dtype)


def _saturated_soon(value: Expr, zero_point: Expr | None, dtype: DType) -> Expr:
    """The same by fewer instructions: the range holds before rounding as well, and what is in it converts to int32 and rounds at once."""
    low, high = limits(dtype)
    if isinstance(zero_point, x.Const):
        least: Expr = x.const(low - float(zero_point.value), dtypes.float32)
        most: Expr = x.const(high - float(zero_point.value), dtypes.float32)
    else:
        shift = x.const(0, dtypes.float32) if zero_point is None else x.cast(zero_point, dtypes.float32)
        least, most = low - shift, high - shift
    value = x.select(value > least, value, least)
    value = x.unary("nearest", x.select(value < most, value, most), dtypes.int32)
    if zero_point is not None and not (isinstance(zero_point, x.Const) and zero_point.value == 0):
        known = isinstance(zero_point, x.Const)
        value = value + (x.const(int(zero_point.value), dtypes.int32) if known else x.cast(zero_point, dtypes.int32))  # type: ignore[attr-defined]
    return x.cast(value, dtype)


def known_scalar(context: Lowering, number: int) -> Expr | None:
    """Operand `number` as a literal, if it is one number that is known while compiling."""
    try:
        value = context.constant(number)
    except NotLowered:
        return None
    return None if value is None or value.size != 1 else x.const(value.reshape(()).item(), context.operand(number).dtype)


def parameter(tensor: Tensor, index: Sequence[Expr], axis: int, block: int) -> Expr:
    """The scale or zero point of an element: one for all, one a position of `axis`, or one a block along it."""
    if tensor.size == 1:
        return tensor[(integer(0),) * tensor.rank]
    if tensor.rank == 1:
        return tensor[index[axis]]
    place = index[axis] // block if block else index[axis]
    return tensor[(*index[:axis], place, *index[axis + 1 :])]


def _rounded(value: Expr) -> Expr:
    """A 16-bit float as it would be stored."""
    return x.cast(x.cast(value, dtypes.float32), value.dtype) if value.dtype.nbytes == 2 else value


def _quantize_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for dtype in ("uint8", "int8", "uint16", "int16"):
        yield Sample((floats(rng, 3, 17, low=-200, high=200), np.array(0.7, np.float32), np.array(3, dtype)))
    yield Sample((floats(rng, 2, 20, 3, 4, low=-20, high=20), floats(rng, 20, low=0.1), integers(rng, 20, dtype="int8")), {"axis": 1})
    yield Sample((floats(rng, 3, 10, low=-20, high=20), floats(rng, 3, 4, low=0.1), integers(rng, 3, 4, dtype="int8")), {"block_size": 3})
    yield Sample((floats(rng, 37), np.array(0.05, np.float32)))
    yield Sample((floats(rng, 5), np.array(0.05, np.float32)), {"output_dtype": 3})
    yield Sample((floats(rng, 3, 20, dtype="float16"), np.array(0.05, np.float16), np.array(1, np.uint8)))
    yield Sample((integers(rng, 3, 20, low=-300, high=300, dtype="int32"), np.array(2, np.float32), np.array(1, np.int8)))


@operator("QuantizeLinear", samples=_quantize_samples)
def quantize_linear(context: Lowering) -> Tensor:
    """saturate(round(x / scale) + zero point)."""
    source, scale, dtype = context.operand(0), context.operand(1), context.outputs[0].dtype
    zero = context.operand(2) if context.has(2) else None
    axis = normal_axis(context.integer("axis", 1), source.rank) if scale.size > 1 else 0
    block = context.integer("block_size")
    known_scale, known_zero = known_scalar(context, 1), known_scalar(context, 2)

    def element(*index: Expr) -> Expr:
        factor = known_scale or parameter(scale, index, axis, block)
        value = x.cast(source[index], factor.dtype)
        ratio = value if isinstance(factor, x.Const) and factor.value == 1 else _rounded(value / factor)
        wide = x.cast(ratio, dtypes.float32) if ratio.dtype.nbytes == 2 else ratio
        return saturated(wide, None if zero is None else known_zero or parameter(zero, index, axis, block), dtype)

    return te.compute(source.shape, element)


def _dequantize_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for dtype in ("uint8", "int8", "uint16", "int16", "int32"):
        yield Sample((integers(rng, 3, 17, low=0, high=120, dtype=dtype), np.array(0.7, np.float32), np.array(3, dtype)))
    yield Sample((integers(rng, 2, 20, 3, 4, dtype="int8"), floats(rng, 20, low=0.1), integers(rng, 20, dtype="int8")), {"axis": 1})
    yield Sample((integers(rng, 3, 10, dtype="int8"), floats(rng, 3, 4, low=0.1), integers(rng, 3, 4, dtype="int8")), {"block_size": 3})
    yield Sample((integers(rng, 37, dtype="int8"), np.array(0.05, np.float32)))
    yield Sample((integers(rng, 3, 20, dtype="int8"), np.array(0.05, np.float16)))


@operator("DequantizeLinear", samples=_dequantize_samples)
def dequantize_linear(context: Lowering) -> Tensor:
    """(x - zero point) * scale."""
    source, scale, dtype = context.operand(0), context.operand(1), context.outputs[0].dtype
    zero = context.operand(2) if context.has(2) else None
    axis = normal_axis(context.integer("axis", 1), source.rank) if scale.size > 1 else 0
    block = context.integer("block_size")
    known_scale, known_zero = known_scalar(context, 1), known_scalar(context, 2)

    def element(*index: Expr) -> Expr:
        value = x.cast(source[index], dtypes.int32)
        if isinstance(known_zero, x.Const):
            value = value if known_zero.value == 0 else value - x.const(known_zero.value, dtypes.int32)
        elif zero is not None:
            value = value - x.cast(parameter(zero, index, axis, block), dtypes.int32)
        factor = x.cast(known_scale or parameter(scale, index, axis, block), dtypes.float32)
        return x.cast(x.cast(value, dtypes.float32) * factor, dtype)

    return te.compute(source.shape, element)


def _dynamic_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for array in (floats(rng, 3, 17), floats(rng, 37, low=1), floats(rng, 4, high=-1), np.zeros(5, np.float32), floats(rng, 2, 5, 3, 4)):
        yield Sample((array,), outputs=3)


def dynamic_range(source: Tensor) -> tuple[Expr, Expr]:
    """(scale, zero point as a float) that map the range of all elements, with zero in it, onto 0..255."""
    axes = range(source.rank)
    high = reduce_axes("max", source.shape, axes, lambda index: source[index])
    low = reduce_axes("min", source.shape, axes, lambda index: source[index])
    most, least = x.maximum(high[()], 0.0), x.minimum(low[()], 0.0)
    spread = most - least
    scale = x.select(x.equal(spread, 0), x.const(1, source.dtype), spread) / 255.0
    return scale, x.unary("round", x.clamp(-least / scale, 0.0, 255.0))


@operator("DynamicQuantizeLinear", samples=_dynamic_samples)
def dynamic_quantize_linear(context: Lowering) -> Sequence[Tensor]:
    """Quantise to uint8 by the range of the tensor itself; also the scale and the zero point."""
    source = context.operand(0)
    scale, zero = dynamic_range(source)
    return [
        te.compute(source.shape, lambda *index: saturated(source[index] / scale, zero, dtypes.uint8)),
        te.compute((), lambda: scale),
        te.compute((), lambda: x.cast(zero, dtypes.uint8)),
    ]

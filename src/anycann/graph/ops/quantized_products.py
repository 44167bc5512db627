"""Matrix products and convolutions of small integers, with int32 sums."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from anycann.graph.ops.common import all_inside, guarded, integer, integers
from anycann.graph.ops.quantize import known_scalar, saturated
from anycann.graph.ops.windows import window
from anycann.graph.registry import Lowering, NotLowered, Sample, operator
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.contractions import Convolution, MatMul
from anycann.te.expression import Expr
from anycann.te.tensor import Placeholder, Reduction, Tensor

Element = Callable[[tuple[Expr, ...]], Expr]


def _value_or_none(context: Lowering, number: int) -> np.ndarray | None:
    """A constant operand; None if it is absent or computed at run time."""
    try:
        return context.constant(number)
    except NotLowered:
        return None


def _zero_at(tensor: Tensor | None, index: tuple[Expr, ...], axis: int) -> Expr | None:
    """The zero point of an element of a matrix: one for all, one a row or column (`axis`), or one of each with extents of 1."""
    if tensor is None:
        return None
    if tensor.size == 1:
        place: tuple[Expr, ...] = (integer(0),) * tensor.rank
    elif tensor.rank == 1:
        place = (index[axis],)
    else:
        own = index[len(index) - tensor.rank :]
        place = tuple(integer(0) if extent == 1 else i for extent, i in zip(tensor.shape, own, strict=True))
    return x.cast(tensor[place], dtypes.int32)


def _shifted(tensor: Tensor, index: tuple[Expr, ...], zero: Expr | None) -> Expr:
    value = x.cast(tensor[index], dtypes.int32)
    return value if zero is None else value - zero


# ---- matrix products
def integer_product(context: Lowering, numbers: tuple[int, int, int, int], shape: tuple[int, ...]) -> Tensor:
    """(A - zero of A) @ (B - zero of B) in int32; `numbers`: which operands A, B and their zero points are."""
    a, b = context.operand(numbers[0]), context.operand(numbers[1])
    zero_a, zero_b = (context.operand(n) if context.has(n) else None for n in numbers[2:])
    known_b, known_zero = _value_or_none(context, numbers[1]), _value_or_none(context, numbers[3])
    if known_b is not None and known_zero is not None and known_zero.any() and known_zero.ndim <= 1 and b.rank > 1:
        moved = known_b.astype(np.int32) - known_zero.astype(np.int32)
        fits = moved.min(initial=0) >= -128 and moved.max(initial=0) <= 127  # most weights use less than the whole range
        b, known_b, zero_b = te.table(moved.astype(np.int8 if fits else np.int16)), moved, None
    plain = zero_b is None or (known_zero is not None and not known_zero.any())
    matrices = isinstance(a, Placeholder) and isinstance(b, Placeholder) and a.rank > 1 and b.rank > 1
    if matrices and known_b is None and all(zero is None or zero.size == 1 for zero in (zero_a, zero_b)):
        return te.contraction(MatMul(a, b, zero_a=zero_a, zero_b=zero_b), shape, dtypes.int32)
    if matrices and plain:
        sums = te.contraction(MatMul(a, b, around=_known_zero(context, numbers[2])), shape, dtypes.int32)
        if zero_a is None:
            return sums
        if known_b is not None and zero_a.size == 1:
            columns = te.table(known_b.astype(np.int32).sum(axis=-2, keepdims=True, dtype=np.int32))
            zero = x.cast(zero_a[(integer(0),) * zero_a.rank], dtypes.int32)
            return te.compute(shape, lambda *index: sums[index] - _column(columns, index) * zero)
    return _plain_product(a, b, zero_a, zero_b, shape)


def _known_zero(context: Lowering, number: int) -> int | None:
    """The one zero point of an operand; 0 if it has none, None if it has several or they are computed."""
    if not context.has(number):
        return 0
    value = _value_or_none(context, number)
    return int(value.reshape(-1)[0]) if value is not None and value.size == 1 else None


def _column(columns: Tensor, index: tuple[Expr, ...]) -> Expr:
    """The element that belongs to a result, from extents of 1 the only one."""
    own = index[len(index) - columns.rank :]
    return columns[tuple(integer(0) if extent == 1 else i for extent, i in zip(columns.shape, own, strict=True))]


def _plain_product(a: Tensor, b: Tensor, zero_a: Tensor | None, zero_b: Tensor | None, shape: tuple[int, ...]) -> Reduction:
    def element(*index: Expr) -> Expr:
        *rest, k = index
        column = rest.pop() if b.rank > 1 else None
        row = rest.pop() if a.rank > 1 else None
        left, right = _matrix_place(a, rest, row, k), _matrix_place(b, rest, k, column)
        return _shifted(a, left, _zero_at(zero_a, left, a.rank - 2)) * _shifted(b, right, _zero_at(zero_b, right, b.rank - 1))

    return te.reduce("sum", shape, (a.shape[-1],), element)


def _matrix_place(tensor: Tensor, batch: list[Expr], row: Expr | None, column: Expr | None) -> tuple[Expr, ...]:
    ends = [i for i in (row, column) if i is not None]
    outer = batch[len(batch) - (tensor.rank - len(ends)) :]
    return (*(integer(0) if extent == 1 else i for extent, i in zip(tensor.shape, outer, strict=False)), *ends)


def _matmul_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for a, b, zero_a, zero_b in (
        ((5, 7), (7, 20), None, None), ((5, 7), (7, 20), (), None), ((5, 7), (7, 20), (), ()), ((5, 7), (7, 20), (), (20,)),
        ((2, 5, 7), (7, 3), (), ()), ((2, 3, 5, 7), (2, 3, 7, 4), (), None), ((7,), (7, 20), (), ()),
    ):  # fmt: skip
        operands = [integers(rng, *a, low=0, high=255, dtype="uint8"), integers(rng, *b, low=-128, high=127, dtype="int8")]
        operands += [] if zero_a is None else [integers(rng, *zero_a, low=0, high=255, dtype="uint8")]
        operands += [] if zero_b is None else [integers(rng, *zero_b, dtype="int8")]
        for constant in ((), (1, 3)):
            yield Sample(tuple(operands), constant=constant)


@operator("MatMulInteger", samples=_matmul_samples)
def matmul_integer(context: Lowering) -> Tensor:
    """A kernel generator's product where B has no zero point; a zero point of A then costs one multiplication an element."""
    return integer_product(context, (0, 1, 2, 3), context.outputs[0].shape)


def _qlinear_matmul_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for a, b, columns in (((5, 7), (7, 20), ()), ((2, 5, 7), (2, 7, 3), ()), ((5, 7), (7, 20), (20,))):
        operands = (
            integers(rng, *a, low=0, high=255, dtype="uint8"), np.array(0.02, np.float32), np.array(120, np.uint8),
            integers(rng, *b, low=-9, high=9, dtype="int8"), rng.uniform(0.01, 0.1, columns).astype(np.float32),
            integers(rng, *columns, dtype="int8"), np.array(0.4, np.float32), np.array(130, np.uint8),
        )  # fmt: skip
        yield Sample(operands)


@operator("QLinearMatMul", samples=_qlinear_matmul_samples)
def qlinear_matmul(context: Lowering) -> Tensor:
    """The integer product, requantised."""
    type_ = context.outputs[0]
    sums = integer_product(context, (0, 3, 2, 5), type_.shape)
    rank = len(type_.shape)
    factor, zero_y = _requantising(context, (1, 4, 6), (rank - 2, rank - 1)), _zero_of_result(context, 7)

    def element(*index: Expr) -> Expr:
        return saturated(x.cast(sums[index], dtypes.float32) * factor(index), zero_y, type_.dtype)

    return te.compute(type_.shape, element)


def _requantising(context: Lowering, numbers: tuple[int, int, int], axes: tuple[int, int]) -> Element:
    """What sums are multiplied with: the scales of both operands, which run along `axes`, by that of the result; computed now if known."""
    known = [_value_or_none(context, number) for number in numbers]
    if all(each is not None and each.dtype == np.float32 for each in known) and known[0].size == known[2].size == 1:  # type: ignore[union-attr]
        first, second, result = (np.asarray(each) for each in known)
        factors = first.reshape(()) * second / result.reshape(())
        if factors.size == 1:
            return lambda index: x.const(float(factors.reshape(())), dtypes.float32)
        if factors.ndim == 1:
            table = te.table(factors)
            return lambda index: table[index[axes[1]]]
    a, b, y = (context.operand(number) for number in numbers)
    return lambda index: _scale_at(a, index, axes[0]) * _scale_at(b, index, axes[1]) / _scale_at(y, index, 0)


def _zero_of_result(context: Lowering, number: int) -> Expr:
    zero = context.operand(number)
    return known_scalar(context, number) or zero[(integer(0),) * zero.rank]


def _scale_at(tensor: Tensor, index: tuple[Expr, ...], axis: int) -> Expr:
    if tensor.size == 1:
        return x.cast(tensor[(integer(0),) * tensor.rank], dtypes.float32)
    if tensor.rank > len(index):
        raise NotLowered(f"a scale of the shape {list(tensor.shape)}")
    return x.cast(tensor[index[axis]] if tensor.rank == 1 else _column(tensor, index), dtypes.float32)


# ---- convolutions
def integer_convolution(context: Lowering, numbers: tuple[int, int, int, int], shape: tuple[int, ...]) -> Tensor:
    """Convolution of (X - zero of X) with (W - zero of W) in int32; padding counts as the zero point, that is as nothing.

    A kernel generator's convolution where the weights are known and X has one zero point, else a plain reduction.
    """
    source, weights = context.operand(numbers[0]), context.operand(numbers[1])
    zero_x, zero_w = (context.operand(n) if context.has(n) else None for n in numbers[2:])
    view = window(context, source.shape[2:], weights.shape[2:], shape[2:])
    known = _value_or_none(context, numbers[1]) is not None and (zero_w is None or _value_or_none(context, numbers[3]) is not None)
    if known and (zero_x is None or zero_x.size == 1) and isinstance(source, Placeholder) and isinstance(weights, Placeholder):
        group = context.integer("group", 1)
        weights, zero_w = _centred(weights, zero_w, _value_or_none(context, numbers[1]), _value_or_none(context, numbers[3]))
        convolution = Convolution(source, weights, view.strides, view.begins, view.dilations, group, shape[2:], False, zero_x, zero_w)
        return te.contraction(convolution, shape, dtypes.int32)
    per_group = weights.shape[0] // context.integer("group", 1)
    weight = _weight_reader(context, numbers[1], numbers[3])
    rank = len(view.size)

    def element(*index: Expr) -> Expr:
        n, o, *rest = index
        out, (i, *taps) = rest[:rank], rest[rank:]
        steps = zip(out, view.strides, view.begins, taps, view.dilations, strict=True)
        places = tuple(p * s - b + t * d for p, s, b, t, d in steps)
        channel = o // per_group * weights.shape[1] + i
        zero = _zero_at(zero_x, (n, channel, *places), 1)
        return guarded(all_inside(places, view.size), _shifted(source, (n, channel, *places), zero) * weight((o, i, *taps)), 0)

    return te.reduce("sum", shape, weights.shape[1:], element)


def _centred(weights: Tensor, zero: Tensor | None, known: np.ndarray | None, known_zero: np.ndarray | None) -> tuple[Tensor, Tensor | None]:
    """Known weights without their zero point, as signed bytes if they all fit: those are multiplied as they are."""
    if known is None or known.dtype.itemsize > 1 or (zero is None and known.dtype == np.int8):
        return weights, zero
    if known_zero is None or not known_zero.any():
        if known.dtype == np.int8:
            return weights, None
        known_zero = np.zeros((), known.dtype)
    moved = known.astype(np.int16) - known_zero.astype(np.int16).reshape(-1, *[1] * (known.ndim - 1))
    if moved.min(initial=0) < -128 or moved.max(initial=0) > 127:
        return weights, zero
    return te.table(moved.astype(np.int8)), None


def _weight_reader(context: Lowering, number: int, zero_number: int) -> Element:
    """Weights less their zero point; known ones become a table with the output channel last, so that it is read by vectors."""
    weights = context.operand(number)
    zero = context.operand(zero_number) if context.has(zero_number) else None
    known, known_zero = _value_or_none(context, number), _value_or_none(context, zero_number)
    if known is None or (zero is not None and known_zero is None):
        return lambda index: _shifted(weights, index, _zero_at(zero, index, 0))
    shift = 0 if known_zero is None else known_zero.astype(np.int32).reshape(-1, *[1] * (known.ndim - 1))
    table = te.table(np.moveaxis(known.astype(np.int32) - shift, 0, -1))
    return lambda index: table[(*index[1:], index[0])]


_CONVOLUTIONS = (
    ((1, 3, 6, 7), (20, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 4, 5, 6), (6, 2, 3, 2), {"group": 2, "strides": [2, 1], "dilations": [1, 2]}),
    ((1, 17, 4, 4), (17, 1, 3, 3), {"group": 17, "pads": [1, 0, 1, 2]}),
)


def _conv_integer_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for data, weights, attributes in _CONVOLUTIONS:
        operands = [integers(rng, *data, low=0, high=255, dtype="uint8"), integers(rng, *weights, low=0, high=255, dtype="uint8")]
        zeros = [np.array(120, np.uint8), np.array(130, np.uint8)]
        attributes = {"kernel_shape": list(weights[2:]), **attributes}
        yield Sample(tuple(operands), attributes, constant=(1,))
        yield Sample((*operands, *zeros), attributes, constant=(1, 3))
        yield Sample((*operands, *zeros), attributes)


@operator("ConvInteger", samples=_conv_integer_samples)
def convolution_integer(context: Lowering) -> Tensor:
    """Convolution with int32 sums."""
    return integer_convolution(context, (0, 1, 2, 3), context.outputs[0].shape)


def _qlinear_conv_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for data, weights, attributes in _CONVOLUTIONS:
        channels = weights[0]
        operands = (
            integers(rng, *data, low=0, high=255, dtype="uint8"), np.array(0.02, np.float32), np.array(120, np.uint8),
            integers(rng, *weights, low=-128, high=127, dtype="int8"), rng.uniform(0.01, 0.1, channels).astype(np.float32),
            np.zeros(channels, np.int8), np.array(0.9, np.float32), np.array(130, np.uint8),
        )  # fmt: skip
        attributes = {"kernel_shape": list(weights[2:]), **attributes}
        yield Sample(operands, attributes, constant=(3, 5))
        bias = integers(rng, channels, low=-900, high=900, dtype="int32")
        yield Sample((*operands, bias), attributes, constant=(3, 5, 8))


@operator("QLinearConv", samples=_qlinear_conv_samples)
def qlinear_convolution(context: Lowering) -> Tensor:
    """The integer convolution and its int32 bias, requantised."""
    type_ = context.outputs[0]
    sums = integer_convolution(context, (0, 3, 2, 5), type_.shape)
    factor, zero_y = _requantising(context, (1, 4, 6), (0, 1)), _zero_of_result(context, 7)
    bias = context.operand(8) if context.has(8) else None

    def element(*index: Expr) -> Expr:
        total = sums[index] if bias is None else sums[index] + bias[index[1]]
        return saturated(x.cast(total, dtypes.float32) * factor(index), zero_y, type_.dtype)

    return te.compute(type_.shape, element)

"""Operators that reduce or run along axes: sums, extremes, statistics, softmax, cumulative sums, sorting."""

from __future__ import annotations

from collections.abc import Sequence
import math

import onnx_ir as ir
import torch

from anycann.frontends.torch_fx.builder import Builder, axes_of, axis_of, meta, shape_of
from anycann.frontends.torch_fx.table import Call, NotTranslated, Translation, translation


def reduced(b: Builder, op_type: str, value: ir.Value, axes: Sequence[int], keepdim: bool = False) -> ir.Value:
    """A reduction over axes; over none it is the value itself."""
    if not axes:
        return b.op("Identity", value)
    return b.op(op_type, value, b.integers(*axes), keepdims=int(keepdim))


def _over_dims(op_type: str) -> Translation:
    """An operator with `dim` (a number, some, none) and `keepdim`, or without both: over everything."""

    def translate(b: Builder, call: Call) -> ir.Value:
        axes = axes_of(getattr(call, "dim", None), len(shape_of(call.self)))
        return reduced(b, op_type, b.value(call.self, call.result.dtype), axes, getattr(call, "keepdim", False))

    return translate


translation("sum.dim_IntList", "sum.default")(_over_dims("ReduceSum"))
translation("mean.dim", "mean.default")(_over_dims("ReduceMean"))
translation("amax.default", "max.default")(_over_dims("ReduceMax"))
translation("amin.default", "min.default")(_over_dims("ReduceMin"))
translation("prod.dim_int", "prod.default")(_over_dims("ReduceProd"))
translation("logsumexp.default")(_over_dims("ReduceLogSumExp"))


def _condition(op_type: str) -> Translation:
    """Whether any or all elements are not zero."""

    def translate(b: Builder, call: Call) -> ir.Value:
        axes = axes_of(getattr(call, "dim", None), len(shape_of(call.self)))
        numbers = b.cast(b.value(call.self, torch.bool), torch.uint8)
        return b.op("Cast", reduced(b, op_type, numbers, axes, getattr(call, "keepdim", False)), to=int(ir.DataType.BOOL))

    return translate


translation("any.default", "any.dim", "any.dims")(_condition("ReduceMax"))
translation("all.default", "all.dim", "all.dims")(_condition("ReduceMin"))


def _extreme_with_place(op_type: str, place: str) -> Translation:
    def translate(b: Builder, call: Call) -> Sequence[ir.Value]:
        value, axis = b.value(call.self), axis_of(call.dim, len(shape_of(call.self)))
        if not shape_of(call.self):
            raise NotTranslated("a tensor without dimensions")
        keep = int(call.keepdim)
        return [reduced(b, op_type, value, [axis], call.keepdim), b.op(place, value, axis=axis, keepdims=keep)]

    return translate


translation("max.dim")(_extreme_with_place("ReduceMax", "ArgMax"))
translation("min.dim")(_extreme_with_place("ReduceMin", "ArgMin"))


def _place(op_type: str) -> Translation:
    def translate(b: Builder, call: Call) -> ir.Value:
        shape = shape_of(call.self)
        if not shape:
            raise NotTranslated("a tensor without dimensions")
        if call.dim is None:
            flat = b.reshape(b.value(call.self), (math.prod(shape),))
            return b.reshape(b.op(op_type, flat, axis=0, keepdims=0), call.result.shape)
        return b.op(op_type, b.value(call.self), axis=axis_of(call.dim, len(shape)), keepdims=int(call.keepdim))

    return translate


translation("argmax.default")(_place("ArgMax"))
translation("argmin.default")(_place("ArgMin"))


# ---- statistics
def _deviations(b: Builder, call: Call, dtype: torch.dtype) -> tuple[ir.Value, ir.Value]:
    """The variance, and the mean with its axes kept."""
    shape = shape_of(call.self)
    axes = axes_of(call.dim, len(shape))
    count = math.prod(shape[axis] for axis in axes)
    correction = 1 if call.correction is None else call.correction
    if count <= correction:
        raise NotTranslated(f"a variance of {count} elements")
    value = b.value(call.self, dtype)
    mean = reduced(b, "ReduceMean", value, axes, True)
    away = b.op("Sub", value, mean)
    total = reduced(b, "ReduceSum", b.op("Mul", away, away), axes, call.keepdim)
    return b.op("Mul", total, b.scalar(1.0 / (count - correction), dtype)), mean


@translation("var.correction")
def _var(b: Builder, call: Call) -> ir.Value:
    return _deviations(b, call, call.result.dtype)[0]


@translation("std.correction")
def _std(b: Builder, call: Call) -> ir.Value:
    return b.op("Sqrt", _deviations(b, call, call.result.dtype)[0])


@translation("var_mean.correction")
def _var_mean(b: Builder, call: Call) -> Sequence[ir.Value]:
    variance, mean = _deviations(b, call, call.result[0].dtype)
    return [variance, b.reshape(mean, call.result[1].shape)]


@translation("linalg_vector_norm.default")
def _vector_norm(b: Builder, call: Call) -> ir.Value:
    kinds = {1: "ReduceL1", 2: "ReduceL2"}
    if call.ord not in kinds:
        raise NotTranslated(f"a norm of order {call.ord}")
    axes = axes_of(call.dim, len(shape_of(call.self)))
    return reduced(b, kinds[call.ord], b.value(call.self, call.result.dtype), axes, call.keepdim)


# ---- along an axis
def _softmax(op_type: str) -> Translation:
    def translate(b: Builder, call: Call) -> ir.Value:
        rank = len(shape_of(call.self))
        if not rank:
            raise NotTranslated("a tensor without dimensions")
        return b.op(op_type, b.value(call.self, call.result.dtype), axis=axis_of(call.dim, rank))

    return translate


translation("_softmax.default", "softmax.int")(_softmax("Softmax"))
translation("_log_softmax.default", "log_softmax.int")(_softmax("LogSoftmax"))


@translation("_safe_softmax.default")
def _safe_softmax(b: Builder, call: Call) -> ir.Value:
    dtype = call.result.dtype
    axis = axis_of(call.dim, len(shape_of(call.self)))
    value = b.value(call.self, dtype)
    nothing = b.op("Equal", reduced(b, "ReduceMax", value, [axis], True), b.scalar(-math.inf, dtype))
    return b.op("Where", nothing, b.scalar(0, dtype), b.op("Softmax", value, axis=axis))


def _cumulative(op_type: str) -> Translation:
    def translate(b: Builder, call: Call) -> ir.Value:
        rank = len(shape_of(call.self))
        if not rank:
            raise NotTranslated("a tensor without dimensions")
        return b.op(op_type, b.value(call.self, call.result.dtype), b.scalar(axis_of(call.dim, rank), torch.int64))

    return translate


translation("cumsum.default")(_cumulative("CumSum"))
translation("cumprod.default")(_cumulative("CumProd"))


@translation("topk.default")
def _topk(b: Builder, call: Call) -> Sequence[ir.Value]:
    if not shape_of(call.self) or meta(call.self).dtype == torch.bool:
        raise NotTranslated("topk of these")
    axis = axis_of(call.dim, len(shape_of(call.self)))
    return b.ops("TopK", b.value(call.self), b.integers(call.k), count=2, axis=axis, largest=int(call.largest), sorted=1)

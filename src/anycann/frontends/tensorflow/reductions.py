"""Sums, means, extremes along axes; their places; softmax; sorting."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from anycann.frontends.tensorflow.definition import OPERATORS, Call, Convert, Result, operator
from anycann.frontends.tensorflow.layout import Tensor, first_axis


def _reduce(op_type: str) -> Convert:
    def convert(call: Call) -> Result:
        return _reduced(call, op_type, call.tensor(0))

    return convert


for _name in ("Sum", "Mean", "Max", "Min", "Prod"):
    OPERATORS[_name] = _reduce(f"Reduce{_name}")


@operator("All Any")
def _reduce_bool(call: Call) -> Result:
    """The least and the greatest of 0 and 1."""
    numbers = Tensor(last=call.cast(call.value(0), np.int32))
    reduced = _reduced(call, "ReduceMin" if call.node.op == "All" else "ReduceMax", numbers)
    assert reduced.last is not None
    return call.cast(reduced.last, bool)


def _reduced(call: Call, op_type: str, tensor: Tensor) -> Tensor:
    """Over the spatial axes of a picture its channels stay where they are; the result is then a plain row for each picture."""
    keep = bool(call.attribute("keep_dims", False))
    if tensor.last is None and tensor.shape is not None:
        rank, known = len(tensor.shape), call.known_or_none(1)
        if known is not None:
            axes = [first_axis(int(axis), rank) for axis in known.reshape(-1)]
            made = call.op(op_type, tensor.first, call.constant(axes, np.int64), keepdims=int(keep), noop_with_empty_axes=1)
            if keep or not axes:
                return Tensor(first=made)
            if set(axes) >= set(range(2, rank)) or 1 in axes:  # what is left is in TensorFlow's order
                return Tensor(last=made)
    value = tensor.last if tensor.last is not None else call.value(0)
    return Tensor(last=call.op(op_type, value, _row(call, call.integers(1)), keepdims=int(keep), noop_with_empty_axes=1))


def _row(call: Call, axes: ir.Value) -> ir.Value:
    """One axis may be given as a number."""
    return axes if axes.shape is not None and len(axes.shape) == 1 else call.reshaped(axes, [-1])


@operator("ArgMax ArgMin")
def _place(call: Call) -> Result:
    axis = int(call.known(1, "dimension").reshape(-1)[0])
    found = call.op(call.node.op, call.value(0), axis=axis, keepdims=0)
    return call.cast(found, call.dtype_of("output_type", np.int64))


@operator("Softmax LogSoftmax")
def _softmax(call: Call) -> Result:
    tensor = call.tensor(0)
    if tensor.last is None:
        return Tensor(first=call.op(call.node.op, tensor.first, axis=1))
    return call.op(call.node.op, call.value(0), axis=-1)


@operator("L2Loss")
def _half_square_sum(call: Call) -> Result:
    x = call.value(0)
    return call.op("Mul", call.op("ReduceSum", call.op("Mul", x, x), keepdims=0), call.like(0.5, x))


@operator("TopK TopKV2")
def _top(call: Call) -> Result:
    count = call.constant([int(call.attribute("k", 1))], np.int64) if call.node.op == "TopK" else _row(call, call.integers(1))
    values, places = call.ops("TopK", call.value(0), count, outputs=2, axis=-1, largest=1, sorted=1)
    return [values, call.cast(places, call.dtype_of("index_type", np.int32))]


@operator("Cumsum Cumprod")
def _cumulative(call: Call) -> Result:
    op_type = {"Cumsum": "CumSum", "Cumprod": "CumProd"}[call.node.op]
    flags = {name: int(call.attribute(name, False)) for name in ("exclusive", "reverse")}
    return call.op(op_type, call.value(0), call.integers(1), **flags)

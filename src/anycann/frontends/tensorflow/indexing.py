"""Picking elements by their places, and putting them there."""

from __future__ import annotations

import numpy as np

from anycann.frontends.tensorflow.definition import Call, Result, operator


@operator("Gather GatherV2")
def _gather(call: Call) -> Result:
    axis = call.axis(2, 0) if len(call.tensors) > 2 else 0
    batch = int(call.attribute("batch_dims", 0))
    places = call.value(1) if call.dtype(1) in (np.int32, np.int64) else call.integers(1)
    if not batch:
        return call.op("Gather", call.value(0), places, axis=axis)
    if axis != batch:
        raise call.fail(f"batch_dims is {batch} and axis {axis}; they must be equal")
    index = call.op("Unsqueeze", call.integers(1), call.constant([-1], np.int64))
    return call.op("GatherND", call.value(0), index, batch_dims=batch)


@operator("GatherNd")
def _gather_nd(call: Call) -> Result:
    return call.op("GatherND", call.value(0), call.integers(1))


@operator("ScatterNd")
def _scatter_nd(call: Call) -> Result:
    """Updates of one place are added up."""
    zeros = call.op("Expand", call.constant(0, call.dtype(1)), call.integers(2))
    return call.op("ScatterND", zeros, call.integers(0), call.value(1), reduction="add")


@operator("TensorScatterUpdate TensorScatterAdd TensorScatterMax TensorScatterMin")
def _tensor_scatter(call: Call) -> Result:
    reduction = {"Update": "none", "Add": "add", "Max": "max", "Min": "min"}[call.node.op.removeprefix("TensorScatter")]
    return call.op("ScatterND", call.value(0), call.integers(1), call.value(2), reduction=reduction)


@operator("OneHot")
def _one_hot(call: Call) -> Result:
    row = call.constant([1], np.int64)
    pair = call.op("Concat", call.op("Reshape", call.value(3), row), call.op("Reshape", call.value(2), row), axis=0)
    depth = call.op("Reshape", call.integers(1), row)
    return call.op("OneHot", call.integers(0), depth, pair, axis=int(call.attribute("axis", -1)))


@operator("Where")
def _where(call: Call) -> Result:
    """The places of all that is not zero, a row each."""
    return call.op("Transpose", call.op("NonZero", call.value(0)), perm=[1, 0])


@operator("MatrixBandPart")
def _band(call: Call) -> Result:
    """num_lower and num_upper diagonals are kept; -1: all of them."""
    lower, upper = (int(call.known(number, name)) for number, name in ((1, "num_lower"), (2, "num_upper")))
    value = call.value(0)
    if upper >= 0:
        value = call.op("Trilu", value, call.constant(upper, np.int64), upper=0)
    return call.op("Trilu", value, call.constant(-lower, np.int64), upper=1) if lower >= 0 else value

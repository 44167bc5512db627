"""Pooling, normalisation of pictures, and what else looks at a picture with its channels first."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from anycann.frontends.tensorflow.builder import sizes_of
from anycann.frontends.tensorflow.definition import Call, Result, operator
from anycann.frontends.tensorflow.layout import Tensor
from anycann.frontends.tensorflow.windows import padding, spatial, spatial_of


@operator("MaxPool AvgPool MaxPool3D AvgPool3D MaxPoolV2")
def _pool(call: Call) -> Result:
    picture, rank = call.picture(0), call.rank(0)
    if call.node.op == "MaxPoolV2":
        kernel, steps = (spatial_of(call, name, [int(n) for n in call.known(at, name)]) for at, name in ((1, "ksize"), (2, "strides")))
    else:
        kernel, steps = spatial(call, "ksize", rank), spatial(call, "strides", rank)
    attributes = {"kernel_shape": kernel, "strides": steps, **padding(call, picture, kernel, steps, [1] * len(kernel))}
    op_type = "MaxPool" if call.node.op.startswith("Max") else "AveragePool"
    return call.as_picture(call.op(op_type, picture, **attributes))


@operator("FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3")
def _batch_norm(call: Call) -> Result:
    """Results: the picture, mean and variance (and the same once more for training)."""
    picture = call.picture(0)
    scale, offset, mean, variance = (call.value(number) for number in range(1, 5))
    if call.attribute("is_training", True):
        mean, variance = _moments(call, picture)
    epsilon = float(call.attribute("epsilon", 1e-4))
    made = call.op("BatchNormalization", picture, scale, offset, mean, variance, epsilon=epsilon)
    return [call.as_picture(made), *(Tensor(last=value) for value in (mean, variance, mean, variance, mean))]


def _moments(call: Call, picture: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Mean and variance of each channel over this very batch."""
    axes = call.constant([0, *range(2, len(sizes_of(picture) or ()))], np.int64)
    mean = call.op("ReduceMean", picture, axes, keepdims=1)
    rest = call.op("Sub", picture, mean)
    variance = call.op("ReduceMean", call.op("Mul", rest, rest), axes, keepdims=0)
    return call.reshaped(mean, [-1]), variance


@operator("LRN")
def _local_response(call: Call) -> Result:
    """(bias + alpha * sum of squares) ** beta; ONNX divides alpha by the number of channels."""
    count = 2 * int(call.attribute("depth_radius", 5)) + 1
    numbers = {name: float(call.attribute(name, default)) for name, default in (("bias", 1.0), ("alpha", 1.0), ("beta", 0.5))}
    numbers["alpha"] *= count
    return call.as_picture(call.op("LRN", call.picture(0), size=count, **numbers))


@operator("DepthToSpace SpaceToDepth")
def _depth_and_space(call: Call) -> Result:
    return call.as_picture(call.op(call.node.op, call.picture(0), blocksize=int(call.attribute("block_size", 2))))

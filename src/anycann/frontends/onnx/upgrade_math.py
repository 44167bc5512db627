"""Upgrade rules of operators that compute. Each docstring is `before -> after`."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from anycann.frontends.onnx.edit import Edit
from anycann.frontends.onnx.upgrade_shape import constant_of
from anycann.graph.sources import describe
from anycann.support.errors import UnsupportedError

LARGEST_FLOAT = float(np.finfo(np.float32).max)


def clip_to_inputs(edit: Edit) -> None:
    """Clip(x) min=a max=b -> Clip(x, a, b); the ends of the float range are no limits."""
    low, high = (float(edit.take(name, default)) for name, default in (("min", -LARGEST_FLOAT), ("max", LARGEST_FLOAT)))  # type: ignore[arg-type]
    limits = [None if abs(limit) >= LARGEST_FLOAT and np.isfinite(limit) else edit.scalar_like(limit, 0) for limit in (low, high)]
    edit.set_inputs(edit.input(0), *limits)


def flatten_softmax(edit: Edit) -> None:
    """Softmax(x) axis=k over all axes from k on -> Reshape(Softmax(Flatten(x) axis=k) axis=-1, Shape(x)); so for LogSoftmax and Hardmax.

    When only one of those axes is longer than 1 the operator stays as it is, on that axis.
    """
    axis = int(edit.take("axis", 1))  # type: ignore[call-overload]
    x = edit.required(0)
    single = _single_axis(x.shape, axis)
    edit.set("axis", -1 if single is None else single)
    if single is None:
        shape = edit.before("Shape", [x])
        edit.set_inputs(edit.before("Flatten", [x], {"axis": axis}))
        edit.after("Reshape", lambda y: [y, shape])


def _single_axis(shape: ir.Shape | None, axis: int) -> int | None:
    """The one axis from `axis` on that is not of size 1, or None if there are several or the shape is not known."""
    if axis == -1:
        return -1
    if shape is None:
        return None
    rank = len(shape)
    first = axis + rank if axis < 0 else axis
    long = [number for number in range(first, rank) if shape[number] != 1]
    if first < 0 or first >= rank or len(long) > 1:
        return None
    return long[0] if long else first


def dropout_to_identity(edit: Edit) -> None:
    """Dropout(x) -> Identity(x); its mask is all true. With training_mode set, or only known at run time, it stays."""
    training = edit.input(2)
    if training is not None:
        known = constant_of(training)
        if known is None or known.any():
            return
    if len(edit.node.outputs) > 1 and (edit.node.outputs[1].uses() or edit.node.outputs[1].is_graph_output()):
        shape = edit.before("Shape", [edit.input(0)])
        mask = edit.before("ConstantOfShape", [shape], {"value": ir.Tensor(np.array([True]))})
        if edit.node.outputs[1].dtype not in (None, ir.DataType.BOOL):  # before opset 10 the mask had the type of the data
            mask = edit.before("CastLike", [mask, edit.input(0)])
        edit.replace_output(1, mask)
    edit.node.attributes.clear()
    edit.set_inputs(edit.input(0))
    edit.node.resize_outputs(1)
    edit.node.op_type = "Identity"


def batch_normalization_spatial(edit: Edit) -> None:
    """BatchNormalization(x, s, b, m, v) spatial=0 -> (x - m) / Sqrt(v + epsilon) * s + b, statistics for each element of a sample."""
    if edit.take("spatial", 1) != 0:
        return
    if len([output for output in edit.node.outputs if output.uses()]) > 1:
        raise UnsupportedError(f"{describe(edit.node)}: spatial=0 in training is not implemented")
    x, scale, bias, mean, variance = (edit.required(index) for index in range(5))
    epsilon = edit.scalar_like(float(edit.take("epsilon", 1e-5)), 0)  # type: ignore[arg-type]
    deviation = edit.before("Sqrt", [edit.before("Add", [variance, epsilon])])
    normal = edit.before("Div", [edit.before("Sub", [x, mean]), deviation])
    edit.node.attributes.clear()
    edit.node.resize_outputs(1)
    edit.set_inputs(edit.before("Mul", [normal, scale]), bias)
    edit.node.op_type = "Add"


def batch_normalization_outputs(edit: Edit) -> None:
    """BatchNormalization with five outputs -> the first one: the others are statistics of training."""
    if edit.node.op_type != "BatchNormalization":
        return
    if any(output.uses() or output.is_graph_output() for output in edit.node.outputs[1:]):
        raise UnsupportedError(f"{describe(edit.node)}: its statistics of training are used; at opset 14 and later they can be")
    edit.node.resize_outputs(1)


def group_normalization_channels(edit: Edit) -> None:
    """GroupNormalization(x, s, b), one scale a group -> GroupNormalization(x, s', b'), one a channel.

    s' = Reshape(Expand(Unsqueeze(s, [1]), [groups, channels / groups]), [-1]).
    """
    groups = edit.constant([edit.get("num_groups", 1)])
    channels = edit.before("Shape", [edit.input(0)], {"start": 1, "end": 2})
    shape = edit.before("Concat", [groups, edit.before("Div", [channels, groups])], {"axis": 0})
    for index in (1, 2):
        column = edit.before("Unsqueeze", [edit.input(index), edit.constant([1])])
        spread = edit.before("Reshape", [edit.before("Expand", [column, shape]), edit.constant([-1])])
        edit.node.replace_input_with(index, spread)


def roi_align_half_pixel(edit: Edit) -> None:
    """RoiAlign(...) -> RoiAlign(...) coordinate_transformation_mode=output_half_pixel, which was the only way."""
    edit.set("coordinate_transformation_mode", "output_half_pixel")


def grid_sample_modes(edit: Edit) -> None:
    """GridSample mode=bilinear, bicubic -> mode=linear, cubic."""
    names = {"bilinear": "linear", "bicubic": "cubic"}
    mode = str(edit.get("mode", "bilinear"))
    edit.set("mode", names.get(mode, mode))


def dft_axis_to_input(edit: Edit) -> None:
    """DFT(x, n) axis=k -> DFT(x, n, k)."""
    edit.set_inputs(edit.input(0), edit.input(1), edit.constant(edit.take("axis", 1)))


def constant_to_value(edit: Edit) -> None:
    """Constant value_float=1.0 (value_int, value_ints, value_floats, value_string, value_strings) -> Constant value=tensor."""
    dtypes = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    for name in list(edit.node.attributes):
        value = edit.get(name)
        if name in dtypes:
            edit.take(name)
            edit.set("value", ir.Tensor(np.asarray(value, dtypes[name])))
        elif name in ("value_string", "value_strings"):
            edit.take(name)
            texts: list[str | bytes] = [value] if name == "value_string" else list(value)  # type: ignore[call-overload, list-item]
            encoded = [text.encode() if isinstance(text, str) else text for text in texts]
            edit.set("value", ir.StringTensor(encoded, shape=ir.Shape([] if name == "value_string" else [len(encoded)])))

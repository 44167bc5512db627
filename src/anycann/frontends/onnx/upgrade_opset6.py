"""Upgrade rules from opset 6 to 7, where broadcasting became numpy's. Each docstring is `before -> after`."""

from __future__ import annotations

import onnx_ir as ir

from anycann.frontends.onnx.edit import Edit
from anycann.graph.sources import describe
from anycann.support.errors import UnsupportedError


def broadcast_as_numpy(edit: Edit) -> None:
    """Add(a, b) broadcast=1 axis=k -> Add(a, Unsqueeze(b, the axes behind)): b's first axis lies at axis k of a."""
    axis, asked = edit.take("axis"), edit.take("broadcast", 0)
    if not asked or axis is None:
        return
    left, right = edit.rank(0), edit.rank(1)
    if left is None or right is None:
        raise UnsupportedError(
            f"{describe(edit.node)}: broadcast along axis {axis} of opset 6 with operands of unknown rank; convert the model"
        )
    behind = left - (int(axis) % max(left, 1)) - right  # type: ignore[call-overload]
    _append_axes(edit, right, behind)


def prelu_channel_slope(edit: Edit) -> None:
    """PRelu(x, slope[C]) -> PRelu(x, Unsqueeze(slope, the axes behind the channel)); a slope of one element stays."""
    slope = edit.required(1)
    if slope.shape is not None and all(size == 1 for size in slope.shape):
        return
    rank = edit.rank(0)
    if rank is None or edit.rank(1) != 1:
        raise UnsupportedError(
            f"{describe(edit.node)}: a slope for each channel of opset 6 with operands of unknown rank; convert the model"
        )
    _append_axes(edit, 1, rank - 2)


def gemm_broadcast(edit: Edit) -> None:
    """Gemm broadcast=1 -> Gemm, whose C always broadcasts."""
    edit.take("broadcast")


def batch_normalization_test(edit: Edit) -> None:
    """BatchNormalization is_test=1 -> BatchNormalization with one output, which does not train."""
    if not edit.take("is_test", 0):
        raise UnsupportedError(f"{describe(edit.node)} trains (is_test is 0); is_test = 1 is accepted")
    edit.node.attributes.pop("consumed_inputs", None)


def dropout_test(edit: Edit) -> None:
    """Dropout is_test=1 -> Dropout, which does nothing at inference."""
    edit.take("is_test")


def recurrent_outputs(edit: Edit) -> None:
    """LSTM output_sequence=1 -> LSTM: an output is wanted when it has a name. So for GRU and RNN."""
    edit.take("output_sequence")


def upsample_scales(edit: Edit) -> None:
    """Upsample height_scale=h width_scale=w -> Upsample scales=[1, 1, h, w]."""
    height, width = edit.take("height_scale", 1.0), edit.take("width_scale", 1.0)
    edit.set("scales", [1.0, 1.0, float(height), float(width)])  # type: ignore[arg-type]


def _append_axes(edit: Edit, rank: int, count: int) -> None:
    """Give input 1, of `rank` axes, `count` more of size 1 at the end."""
    if count > 0:
        axes: ir.Value = edit.constant(list(range(rank, rank + count)))
        edit.node.replace_input_with(1, edit.before("Unsqueeze", [edit.input(1), axes]))

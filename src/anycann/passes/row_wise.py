"""Nodes that compute each row of a moving axis by itself, so that kernels for a block of rows compute any number of them.

hidden[1, n, 256] -> LayerNormalization -> MatMul(w) -> Gelu -> MatMul(w) -> Add(hidden)      whatever n is, 32 rows at a time
softmax(q @ k^T)[1, 8, n, n]                                                                 not: both axes move, with every row all columns

It follows from the operators alone; sizes that were seen only say which axis of a value moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import onnx_ir as ir

from anycann.support.records import dataclass

_UNARY = "Abs Cast Ceil Cos Erf Exp Floor Gelu Identity IsInf IsNaN Log Neg Not Reciprocal Relu Round Sigmoid Sign Sin Sqrt Tanh"
_SPREAD = "Add And Clip Div Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mod Mul Or Pow Sub Sum Where Xor"
_REDUCTIONS = "ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum"


@dataclass(frozen=True)
class Extent:
    """The sizes of a value in one of two calls, and the only axis whose size was another one in the second; None if all stay."""

    shape: tuple[int, ...]
    axis: int | None = None


Extents: TypeAlias = Sequence[Extent | None]


def moving_axis(one: Sequence[int], other: Sequence[int]) -> int | None:
    """The only axis in which two shapes of the same rank differ; None where there is no such, or more."""
    axes = [axis for axis, (a, b) in enumerate(zip(one, other, strict=True)) if a != b] if len(one) == len(other) else []
    return axes[0] if len(axes) == 1 else None


def is_row_wise(node: ir.Node, inputs: Extents, outputs: Sequence[Extent]) -> bool:
    """Whether any rows of what moves in `inputs` (None: absent) give the same rows of every output."""
    along = None if node.domain else _ALONG.get(node.op_type)
    if along is None or not any(each is not None and each.axis is not None for each in inputs):
        return False
    return all(output.axis is not None and along(node, inputs, output) for output in outputs)


def has_weights(node: ir.Node, least: int) -> bool:
    """Whether a node multiplies by a constant matrix of so many numbers."""
    weights = node.inputs[1].const_value if node.op_type in ("MatMul", "Gemm") and node.inputs[1] is not None else None
    return weights is not None and weights.size >= least


# ---- by operator: the output's axis is where the rows go
def _aligned(_: ir.Node, inputs: Extents, output: Extent) -> bool:
    """Operands are stretched to the output: those that move along its axis, others with one number there or none."""
    assert output.axis is not None
    from_end = output.axis - len(output.shape)
    for each in inputs:
        if each is None:
            continue
        if each.axis is not None and each.axis - len(each.shape) != from_end:
            return False
        if each.axis is None and len(each.shape) >= -from_end and each.shape[from_end] != 1:
            return False
    return True


def _product(_: ir.Node, inputs: Extents, output: Extent) -> bool:
    a, b = inputs
    return a is not None and b is not None and a.axis == output.axis != len(a.shape) - 1 and b.axis is None and len(b.shape) == 2


def _affine(node: ir.Node, inputs: Extents, output: Extent) -> bool:
    a, b, *added = inputs
    if a is None or b is None or a.axis != 0 or b.axis is not None or node.attributes.get_int("transA", False):
        return False
    return output.axis == 0 and _aligned(node, added, output)


def _normalized(node: ir.Node, inputs: Extents, output: Extent) -> bool:
    x, *others = inputs
    if x is None or x.axis is None or any(each is not None and each.axis is not None for each in others):
        return False
    return output.axis == x.axis < _axis(node, -1, len(x.shape)) and len(node.outputs) == 1


def _within(node: ir.Node, inputs: Extents, output: Extent) -> bool:
    """Along an axis that stays: Softmax and Split, whose sizes are constants."""
    (x, *_), constants = inputs, node.inputs[1:]
    default = 0 if node.op_type == "Split" else -1
    known = all(value is None or value.const_value is not None for value in constants)
    return x is not None and x.axis == output.axis != _axis(node, default, len(x.shape)) and known


def _joined(node: ir.Node, inputs: Extents, output: Extent) -> bool:
    return all(x is not None and x.axis == output.axis for x in inputs) and output.axis != _axis(node, 0, len(output.shape))


def _sliced(node: ir.Node, inputs: Extents, output: Extent) -> bool:
    x = inputs[0]
    constants = [None if value is None or value.const_value is None else value.const_value.numpy() for value in node.inputs[1:]]
    if x is None or x.axis != output.axis or len(constants) < 3 or any(constant is None for constant in constants):
        return False
    return constants[2] is not None and x.axis not in (constants[2] % len(x.shape)).tolist()


def _reduced(node: ir.Node, inputs: Extents, output: Extent) -> bool:
    x, axes = inputs[0], node.inputs[1].const_value if len(node.inputs) > 1 and node.inputs[1] is not None else None
    if x is None or x.axis is None or axes is None or axes.size == 0:
        return False
    summed = (axes.numpy().reshape(-1) % len(x.shape)).tolist()
    gone = 0 if node.attributes.get_int("keepdims", 1) else sum(axis < x.axis for axis in summed)
    return x.axis not in summed and output.axis == x.axis - gone


def _gathered(node: ir.Node, inputs: Extents, output: Extent) -> bool:
    """Rows of indices, or of data along another axis."""
    data, places = inputs
    if data is None or places is None:
        return False
    axis = _axis(node, 0, len(data.shape))
    if data.axis is None:
        return places.axis is not None and output.axis == axis + places.axis
    moved = data.axis + (len(places.shape) - 1 if data.axis > axis else 0)
    return places.axis is None and data.axis != axis and output.axis == moved


def _axis(node: ir.Node, default: int, rank: int) -> int:
    return node.attributes.get_int("axis", default) % rank


_ALONG: dict[str, Callable[[ir.Node, Extents, Extent], bool]] = {
    **dict.fromkeys((_UNARY + " " + _SPREAD).split(), _aligned),
    **dict.fromkeys(_REDUCTIONS.split(), _reduced),
    "Concat": _joined,
    "Gather": _gathered,
    "Gemm": _affine,
    "LayerNormalization": _normalized,
    "LogSoftmax": _within,
    "MatMul": _product,
    "Slice": _sliced,
    "Softmax": _within,
    "Split": _within,
}

"""A node on the host that refuses what is better compiled: more numbers than numpy computes soon, and types that it mixes or is slow at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
import math
from typing import TypeAlias

import numpy as np
import onnx
from onnx.helper import get_attribute_value

from anycann.graph.host_operators import HOST_TYPES
from anycann.graph.prepared import PreparedNode
from anycann.support.errors import UnsupportedError

MOST_NUMBERS = 1 << 22  # a few milliseconds
_PRODUCTS = 16  # added up in the time in which numpy computes one number by a function
_TYPES = frozenset(map(np.dtype, HOST_TYPES))
_STRETCHING = "Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mod Mul Or Pow Sub Sum Where Xor"
_SPREAD = frozenset(_STRETCHING.split())
_ALIKE = _SPREAD - {"Pow", "Where"} | {"Clip", "Concat", "Gemm", "MatMul"}
# along an axis, which numpy finds in a single number too
_ALONG = frozenset({"ArgMax", "ArgMin", "CumSum", "LayerNormalization", "LogSoftmax", "Softmax", "TopK"})
_VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Shape", "Size", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"})

Arrays: TypeAlias = Sequence[np.ndarray]


class BoundedNode:
    """A quick `PreparedNode`. Raises UnsupportedError for more than `MOST_NUMBERS`, and for operands of other types than `HOST_TYPES`."""

    def __init__(self, node: onnx.NodeProto, opset: int):
        self._what, self._alike = f"{node.op_type} {node.name!r}", node.op_type in _ALIKE
        self._evaluate = PreparedNode(node, opset, quick=True)
        self._along = node.op_type in _ALONG
        self._count = _COUNTS.get(node.op_type, _read)
        if node.op_type in _AXES:
            attributes = {item.name: get_attribute_value(item) for item in node.attribute}
            self._count = partial(self._count, axis=attributes.get("axis", _AXES[node.op_type]))

    def __call__(self, inputs: Sequence[object], captures: Mapping[str, object] | None = None) -> Sequence[object]:
        """One value for each output."""
        arrays = [value for value in inputs if isinstance(value, np.ndarray)]
        types = {array.dtype for array in arrays}
        if not types <= _TYPES or (self._alike and len(types) > 1) or any(isinstance(value, list) for value in inputs):
            raise UnsupportedError(f"{self._what} reads values of {', '.join(map(str, types))}, or lists")
        if self._along and not (arrays and arrays[0].ndim):
            raise UnsupportedError(f"{self._what} reads a single number")
        try:
            numbers = self._count(arrays)
        except (ValueError, IndexError) as error:
            raise UnsupportedError(f"{self._what}: {error}") from error
        if numbers > MOST_NUMBERS:
            raise UnsupportedError(f"{self._what} computes {numbers} numbers")
        return self._evaluate(inputs, captures)


# ---- how many numbers a node computes, or reads where it computes fewer
def _read(arrays: Arrays) -> int:
    return sum(array.size for array in arrays)


def _views(_: Arrays) -> int:
    return 0


def _spread(arrays: Arrays) -> int:
    """Of operands that are stretched to the same shape; most often they have it."""
    shapes = {array.shape for array in arrays}
    return math.prod(shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes))


def _products(arrays: Arrays) -> int:
    """Of a product of matrices, whose turns along batches either operand may have."""
    a, b = (array.shape if array.ndim > 1 else (1, array.size, 1)[side : side + 2] for side, array in enumerate(arrays))
    batch = math.prod(np.broadcast_shapes(a[:-2], b[:-2]))
    return int(batch * math.prod(a[-2:]) * b[-1] // _PRODUCTS + batch * a[-2] * b[-1])


def _affine(arrays: Arrays) -> int:
    """Of Gemm, either operand turned or not."""
    many, most = max(map(int, arrays[0].shape)), max(map(int, arrays[1].shape))
    return arrays[0].size * most // _PRODUCTS + many * most


def _gathered(arrays: Arrays, axis: int) -> int:
    data, places = arrays
    return int(data.size // max(data.shape[axis], 1) * places.size)


def _sorted(arrays: Arrays, axis: int) -> int:
    """Of TopK, which cannot choose more than there are."""
    data, count = arrays
    if int(count.item()) > data.shape[axis]:
        raise ValueError(f"{count} of {data.shape[axis]} elements")
    return data.size


def _chosen(arrays: Arrays) -> int:
    return arrays[1].size


def _points(arrays: Arrays) -> int:
    """Of GatherND, whose last axis of indices is a place each."""
    data, places = arrays
    return math.prod(places.shape[:-1]) * math.prod(data.shape[places.shape[-1] :])


def _expanded(arrays: Arrays) -> int:
    return math.prod(np.broadcast_shapes(arrays[0].shape, arrays[1].tolist()))


def _filled(arrays: Arrays) -> int:
    return math.prod(map(int, arrays[0]))


def _tiled(arrays: Arrays) -> int:
    return math.prod(map(int, arrays[1]), start=arrays[0].size)


def _averaged(arrays: Arrays) -> int:
    """Of ReduceMean, which numpy warns of where there is nothing to divide."""
    if arrays[0].size == 0:
        raise ValueError("a mean of nothing")
    return arrays[0].size


def _counted(arrays: Arrays) -> int:
    start, end, step = (array.item() for array in arrays)
    return int(abs((end - start) / step)) if step else 0


_AXES = {"Gather": 0, "TopK": -1}  # whose counts depend on the axis, and which they have by themselves
_COUNTS: dict[str, Callable[..., int]] = {
    **dict.fromkeys(_SPREAD, _spread),
    **dict.fromkeys(_VIEWS, _views),
    "ConstantOfShape": _filled,
    "Expand": _expanded,
    "Gather": _gathered,
    "GatherElements": _chosen,
    "GatherND": _points,
    "Gemm": _affine,
    "MatMul": _products,
    "Range": _counted,
    "ReduceMean": _averaged,
    "Tile": _tiled,
    "TopK": _sorted,
}

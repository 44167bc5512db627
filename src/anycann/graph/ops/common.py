"""What several families need: broadcasting, element maps and sample operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir

from anycann.graph.registry import Lowering, NotLowered, Sample, Samples, TensorType, schema
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.dtypes import DType
from anycann.te.expression import Const, Expr
from anycann.te.simplify import range_of
from anycann.te.tensor import Tensor


def broadcast_index(tensor: Tensor, indices: Sequence[Expr]) -> tuple[Expr, ...]:
    """Where a broadcast operand is read for the output index `indices` (numpy rules)."""
    own = indices[len(indices) - tensor.rank :] if tensor.rank else ()
    return tuple(Const(0, dtypes.int64) if extent == 1 else index for extent, index in zip(tensor.shape, own, strict=True))


def elementwise(context: Lowering, function: Callable[..., Expr], *operands: Tensor) -> Tensor:
    """`function` of the operands' elements, broadcast to the first output's shape."""
    shape = context.outputs[0].shape
    return te.compute(shape, lambda *index: function(*(operand[broadcast_index(operand, index)] for operand in operands)))


def floats(rng: np.random.Generator, *shape: int, low: float = -3.0, high: float = 3.0, dtype: str = "float32") -> np.ndarray:
    """Random operand of that shape."""
    return rng.uniform(low, high, shape).astype(dtype)


SHAPES: tuple[tuple[int, ...], ...] = ((), (1,), (37,), (3, 17), (2, 3, 5, 7), (1, 16, 4, 4), (0, 3))


def unary_samples(
    low: float = -3.0, high: float = 3.0, attributes: dict[str, object] | None = None, types: Sequence[str] = ("float64", "float16")
) -> Samples:
    """One float operand of assorted shapes, and of other element types."""

    def draw(rng: np.random.Generator) -> Iterable[Sample]:
        for shape in SHAPES:
            yield Sample((floats(rng, *shape, low=low, high=high),), attributes or {})
        yield from retyped(Sample((floats(rng, 3, 20, low=low, high=high),), attributes or {}), types)

    return draw


def binary_samples(low: float = -3.0, high: float = 3.0, dtype: str = "float32") -> Callable[[np.random.Generator], Iterable[Sample]]:
    """Two operands, equal and broadcast shapes."""
    pairs = (((37,), (37,)), ((2, 3, 5), (5,)), ((2, 1, 5), (3, 1)), ((), (4,)), ((1, 20, 3, 3), (20, 1, 1)), ((0, 3), (3,)))

    def draw(rng: np.random.Generator) -> Iterable[Sample]:
        return [
            Sample((floats(rng, *a, low=low, high=high, dtype=dtype), floats(rng, *b, low=low, high=high, dtype=dtype))) for a, b in pairs
        ]

    return draw


# ---- axes and indices
def normal_axis(axis: int, rank: int) -> int:
    """The axis counted from the front. Raises NotLowered if there is no such axis."""
    if not -max(rank, 1) <= axis < max(rank, 1):
        raise NotLowered(f"axis {axis} of a rank-{rank} tensor")
    return axis % max(rank, 1)


def normal_axes(axes: Sequence[int] | np.ndarray | None, rank: int) -> tuple[int, ...]:
    """All axes counted from the front, in the order given; every axis for None."""
    return tuple(range(rank)) if axes is None else tuple(normal_axis(int(axis), rank) for axis in axes)


def replaced(indices: Sequence[Expr], axis: int, index: Expr) -> tuple[Expr, ...]:
    """The index with another position along one axis."""
    return (*indices[:axis], index, *indices[axis + 1 :])


def empty(shape: Sequence[int], dtype: DType) -> Tensor:
    """A tensor without elements, or of zeros."""
    return te.compute(shape, lambda *_: x.const(0, dtype))


def integer(value: int) -> Expr:
    """An index literal."""
    return x.const(value, dtypes.int64)


def wrapped(index: Expr, extent: int) -> Expr:
    """A run-time index as ONNX counts it, -extent..extent-1, made safe: what is out of range is moved inside."""
    index = x.cast(index, dtypes.int64)
    return x.clamp(x.select(index < 0, index + extent, index), 0, extent - 1)


def inside(index: Expr, extent: int) -> Expr | None:
    """The condition that 0 <= index < extent; None where it always holds."""
    bounds = range_of(index)
    conditions = [] if bounds.low >= 0 else [index >= 0]
    return x.all_of(conditions if bounds.high < extent else [*conditions, index < extent])


def all_inside(indices: Sequence[Expr], shape: Sequence[int]) -> Expr | None:
    """The condition that an index is one of a tensor of that shape; None where it always is."""
    conditions = [inside(index, extent) for index, extent in zip(indices, shape, strict=True)]
    return x.all_of([c for c in conditions if c is not None])


def guarded(condition: Expr | None, value: Expr, other: x.Operand) -> Expr:
    """`value` where the condition holds (None: everywhere)."""
    return value if condition is None else x.select(condition, value, other)


def index_map(places: np.ndarray, index: Expr) -> Expr:
    """places[index]: as arithmetic where it is linear or a division, else read from a table."""
    count = np.arange(len(places))
    if len(places) == 1 or (places == places[0]).all():
        return integer(int(places[0]))
    step = int(places[1] - places[0])
    if (places == places[0] + count * step).all():
        return index * step + int(places[0])
    repeat = int(np.argmax(places != places[0]))
    if (places == places[0] + count // repeat).all():
        return index // repeat + int(places[0])
    return te.table(places.astype(np.int64))[index]


def like_first(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    """Inference for operators whose one output has the type of their first operand."""
    assert inputs[0] is not None
    return [inputs[0]]


def infer_as(op_type: str, node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    """Inference for an operator that ONNX does not know, by the rule of one that it knows with the same operands and attributes."""
    found = schema("", op_type)
    assert found is not None
    names = [f"x{n}" if t is not None else "" for n, t in enumerate(inputs)]
    attributes = [ir.to_proto(a) for name, a in node.attributes.items() if name in found.attributes]
    proto = onnx.helper.make_node(op_type, names, ["y"])
    proto.attribute.extend(attributes)
    types = {
        name: onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(t.dtype.numpy), t.shape)
        for name, t in zip(names, inputs, strict=True)
        if t is not None
    }
    result = onnx.shape_inference.infer_node_outputs(found, proto, types)["y"].tensor_type
    dtype = dtypes.of(onnx.helper.tensor_dtype_to_np_dtype(result.elem_type))
    return [TensorType(dtype, tuple(d.dim_value for d in result.shape.dim))]


# ---- samples
def integers(rng: np.random.Generator, *shape: int, low: int = -9, high: int = 9, dtype: str = "int64") -> np.ndarray:
    """Random integers low..high of that shape."""
    return rng.integers(low, high, shape, endpoint=True).astype(dtype)


OTHER_FLOATS = ("float64", "float16", "bfloat16")
INTEGERS = ("int8", "uint8", "int32", "int64")
EVERY_DTYPE = (*OTHER_FLOATS, *INTEGERS, "int16", "uint16", "uint32", "uint64", "bool")


def retyped(sample: Sample, names: Sequence[str], *operands: int) -> list[Sample]:
    """The sample with the operands of those numbers (all float32 ones if none are given) in each of these element types."""
    numbers = operands or tuple(n for n, a in enumerate(sample.operands) if a is not None and a.dtype == np.float32)
    return [
        replace(sample, operands=tuple(_retype(a, name) if n in numbers else a for n, a in enumerate(sample.operands))) for name in names
    ]


def _retype(array: np.ndarray | None, name: str) -> np.ndarray | None:
    if array is None:
        return None
    dtype = dtypes.of(name)
    return (np.abs(array) if dtype.kind in ("uint", "bool") else array).astype(dtype.numpy)

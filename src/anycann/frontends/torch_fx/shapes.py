"""Operators that move elements: views, transpositions, parts, joins."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch

from anycann.frontends.torch_fx.builder import Builder, axes_of, axis_of, shape_of
from anycann.frontends.torch_fx.table import Call, NotTranslated, translation


# ---- the same elements in the same order
@translation(
    "view.default", "_unsafe_view.default", "reshape.default", "unsqueeze.default", "squeeze.default", "squeeze.dim", "squeeze.dims",
    "flatten.using_ints", "_reshape_copy.default", "view_copy.default",
)  # fmt: skip
def _reshape(b: Builder, call: Call) -> ir.Value:
    return b.reshape(b.value(call.self), call.result.shape)


@translation("expand.default", "expand_copy.default", "broadcast_to.default")
def _expand(b: Builder, call: Call) -> ir.Value:
    if shape_of(call.self) == tuple(call.result.shape):
        return b.op("Identity", b.value(call.self))
    return b.op("Expand", b.value(call.self), b.integers(*call.result.shape))


@translation("as_strided.default", "as_strided_scatter.default")
def _as_strided(b: Builder, call: Call) -> ir.Value:
    if not _shows_the_same(call.self.meta["val"], call):
        raise NotTranslated("it reads memory as it lies")
    return b.op("Identity", b.value(call.src if call.name == "as_strided_scatter" else call.self))


def _shows_the_same(fake: torch.Tensor, call: Call) -> bool:
    """Whether as_strided shows all of a tensor as it is, but for strides that nothing moves along: torch says so of pooled images."""
    if tuple(call.size) != tuple(fake.shape) or call.storage_offset not in (None, fake.storage_offset()):
        return False
    return all(size == 1 or one == other for size, one, other in zip(fake.shape, fake.stride(), call.stride, strict=True))


# ---- another order
@translation("permute.default")
def _permute(b: Builder, call: Call) -> ir.Value:
    rank = len(shape_of(call.self))
    return b.op("Transpose", b.value(call.self), perm=[axis_of(dim, rank) for dim in call.dims])


@translation("t.default")
def _t(b: Builder, call: Call) -> ir.Value:
    return b.op("Transpose", b.value(call.self), perm=[1, 0]) if len(shape_of(call.self)) == 2 else b.op("Identity", b.value(call.self))


@translation("transpose.int")
def _transpose(b: Builder, call: Call) -> ir.Value:
    rank = len(shape_of(call.self))
    order = list(range(rank))
    if rank:
        first, second = axis_of(call.dim0, rank), axis_of(call.dim1, rank)
        order[first], order[second] = order[second], order[first]
    return b.op("Transpose", b.value(call.self), perm=order)


@translation("flip.default")
def _flip(b: Builder, call: Call) -> ir.Value:
    axes = axes_of(call.dims, len(shape_of(call.self))) if call.dims else ()
    if not axes:
        return b.op("Identity", b.value(call.self))
    count = len(axes)
    starts, ends = b.integers(*[-1] * count), b.integers(*[-(1 << 62)] * count)
    return b.op("Slice", b.value(call.self), starts, ends, b.integers(*axes), b.integers(*[-1] * count))


@translation("roll.default")
def _roll(b: Builder, call: Call) -> ir.Value:
    shape = shape_of(call.self)
    value, dims, shifts = b.value(call.self), call.dims, call.shifts
    if not dims:
        raise NotTranslated("roll of the flattened tensor")
    for dim, shift in zip(dims, shifts, strict=True):
        axis = axis_of(dim, len(shape))
        shift = shift % shape[axis] if shape[axis] else 0
        if shift:
            at = shape[axis] - shift
            value = b.op("Concat", part(b, value, axis, at, shape[axis]), part(b, value, axis, 0, at), axis=axis)
    return b.op("Identity", value)


# ---- parts
def part(b: Builder, value: ir.Value, axis: int, start: int, end: int, step: int = 1) -> ir.Value:
    """Elements start, start + step ... before `end` along an axis."""
    return b.op("Slice", value, b.integers(start), b.integers(end), b.integers(axis), b.integers(step))


def bounds(start: int | None, end: int | None, size: int) -> tuple[int, int]:
    """Where a slice begins and ends, counted from the front and inside the tensor."""
    low, high, _ = slice(start, end).indices(size)
    return low, max(low, high)


@translation("slice.Tensor", "slice_copy.Tensor")
def _slice(b: Builder, call: Call) -> ir.Value:
    shape = shape_of(call.self)
    axis = axis_of(call.dim, len(shape))
    return part(b, b.value(call.self), axis, *bounds(call.start, call.end, shape[axis]), call.step)


@translation("select.int", "select_copy.int")
def _select(b: Builder, call: Call) -> ir.Value:
    shape = shape_of(call.self)
    axis = axis_of(call.dim, len(shape))
    index = call.index % shape[axis]
    return b.reshape(part(b, b.value(call.self), axis, index, index + 1), call.result.shape)


@translation("unbind.int")
def _unbind(b: Builder, call: Call) -> Sequence[ir.Value]:
    axis = axis_of(call.dim, len(shape_of(call.self)))
    value = b.value(call.self)
    return [b.reshape(part(b, value, axis, n, n + 1), result.shape) for n, result in enumerate(call.result)]


@translation("split.Tensor", "split_with_sizes.default", "chunk.default", "split_with_sizes_copy.default")
def _split(b: Builder, call: Call) -> Sequence[ir.Value]:
    axis = axis_of(call.dim, len(shape_of(call.self)))
    sizes = [int(result.shape[axis]) for result in call.result]
    value, start, parts = b.value(call.self), 0, []
    for size in sizes:
        parts.append(part(b, value, axis, start, start + size))
        start += size
    return parts


# ---- joins
@translation("cat.default")
def _cat(b: Builder, call: Call) -> ir.Value:
    rank = len(call.result.shape)
    kept = [t for t in call.tensors if len(shape_of(t)) == rank]  # an empty tensor of one dimension may be among others
    return b.op("Concat", *(b.value(t, call.result.dtype) for t in kept), axis=axis_of(call.dim, rank))


@translation("stack.default")
def _stack(b: Builder, call: Call) -> ir.Value:
    axis = axis_of(call.dim, len(call.result.shape))
    rows = [b.op("Unsqueeze", b.value(t, call.result.dtype), b.integers(axis)) for t in call.tensors]
    return b.op("Concat", *rows, axis=axis)


@translation("repeat.default")
def _repeat(b: Builder, call: Call) -> ir.Value:
    shape = shape_of(call.self)
    added = len(call.repeats) - len(shape)
    return b.op("Tile", b.reshape(b.value(call.self), (*[1] * added, *shape)), b.integers(*call.repeats))


@translation("constant_pad_nd.default")
def _pad(b: Builder, call: Call) -> ir.Value:
    rank, pairs = len(shape_of(call.self)), list(zip(call.pad[::2], call.pad[1::2], strict=True))
    pairs = [(0, 0)] * (rank - len(pairs)) + pairs[::-1]
    pads = b.integers(*(low for low, _ in pairs), *(high for _, high in pairs))
    return b.op("Pad", b.value(call.self), pads, b.scalar(call.value, call.result.dtype))


@translation("slice_scatter.default")
def _slice_scatter(b: Builder, call: Call) -> ir.Value:
    shape = shape_of(call.self)
    axis = axis_of(call.dim, len(shape))
    if call.step != 1:
        raise NotTranslated("slice_scatter with steps")
    return _replaced(b, call, axis, *bounds(call.start, call.end, shape[axis]), b.value(call.src, call.result.dtype))


@translation("select_scatter.default")
def _select_scatter(b: Builder, call: Call) -> ir.Value:
    shape = shape_of(call.self)
    axis = axis_of(call.dim, len(shape))
    index = call.index % shape[axis]
    return _replaced(b, call, axis, index, index + 1, b.op("Unsqueeze", b.value(call.src, call.result.dtype), b.integers(axis)))


def _replaced(b: Builder, call: Call, axis: int, start: int, end: int, middle: ir.Value) -> ir.Value:
    """`self` with the elements from start to end along an axis replaced."""
    value, size = b.value(call.self), shape_of(call.self)[axis]
    before = [part(b, value, axis, 0, start)] if start else []
    after = [part(b, value, axis, end, size)] if end < size else []
    return b.op("Concat", *before, middle, *after, axis=axis)


@translation("tril.default")
def _tril(b: Builder, call: Call) -> ir.Value:
    return b.op("Trilu", b.value(call.self), b.scalar(call.diagonal, torch.int64), upper=0)


@translation("triu.default")
def _triu(b: Builder, call: Call) -> ir.Value:
    return b.op("Trilu", b.value(call.self), b.scalar(call.diagonal, torch.int64), upper=1)


@translation("pixel_shuffle.default")
def _pixel_shuffle(b: Builder, call: Call) -> ir.Value:
    if len(call.result.shape) != 4:
        raise NotTranslated("pixel_shuffle of other than four dimensions")
    return b.op("DepthToSpace", b.value(call.self), blocksize=call.upscale_factor, mode="CRD")

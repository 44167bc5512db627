"""Shapes: reading them, changing them, joining and taking apart along an axis, filling."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from anycann.frontends.tensorflow.definition import Call, Result, operator
from anycann.frontends.tensorflow.layout import Padded, Tensor, first_axis


@operator("Const")
def _constant(call: Call) -> Result:
    value = call.node.attributes["value"]
    assert isinstance(value, np.ndarray), "value is no tensor"
    return call.constant(value)


@operator("Shape ShapeN Size Rank")
def _shape(call: Call) -> Result:
    dtype = call.dtype_of("out_type")
    if call.node.op == "Rank":
        return call.constant(call.rank(0), np.int32)
    if call.node.op == "Size":
        return call.cast(call.op("Size", call.value(0)), dtype)
    return [call.cast(_sizes(call, number), dtype) for number in range(len(call.tensors))]


def _sizes(call: Call, number: int) -> ir.Value:
    """Sizes in TensorFlow's order, without moving the value itself."""
    tensor = call.tensor(number)
    if tensor.last is not None or tensor.shape is None:
        return call.sizes(call.value(number))
    if None not in tensor.shape:
        return call.constant(list(tensor.shape), np.int64)
    rank = len(tensor.shape)
    return call.op("Gather", call.sizes(tensor.any), call.constant([0, *range(2, rank), 1], np.int64), axis=0)


@operator("Reshape")
def _reshape(call: Call) -> Result:
    return call.op("Reshape", call.value(0), call.integers(1), allowzero=1)


@operator("ExpandDims")
def _expand_dims(call: Call) -> Result:
    return call.op("Unsqueeze", call.value(0), call.constant(call.known(1, "axis").reshape(-1), np.int64))


@operator("Squeeze")
def _squeeze(call: Call) -> Result:
    axes = call.integers_of("squeeze_dims") or call.integers_of("axis")
    tensor = call.tensor(0)
    if not axes:
        axes = [axis for axis, size in enumerate(tensor.shape or ()) if size == 1]
        call.rank(0)
    if tensor.last is None and tensor.shape is not None:
        rank = len(tensor.shape)
        turned = [first_axis(axis, rank) for axis in axes]
        if set(turned) >= set(range(2, rank)):  # what is left is in TensorFlow's order
            return call.op("Squeeze", tensor.first, call.constant(turned, np.int64))
    return call.op("Squeeze", call.value(0), call.constant(axes, np.int64)) if axes else call.value(0)


@operator("Transpose")
def _transpose(call: Call) -> Result:
    """A permutation that is computed is looked at when it is known; the whole is one change of order with that of the picture."""
    order = [int(axis) for axis in call.known(1, "perm")]
    tensor = call.tensor(0)
    if tensor.last is not None or not order:
        return call.op("Transpose", call.value(0), perm=order)
    turned = [first_axis(axis, len(order)) for axis in order]
    return tensor.any if turned == sorted(turned) else call.op("Transpose", tensor.any, perm=turned)


@operator("Concat ConcatV2")
def _concat(call: Call) -> Result:
    """Concat has its axis in front, ConcatV2 behind."""
    last = len(call.tensors) - 1
    at, parts = (0, range(1, last + 1)) if call.node.op == "Concat" else (last, range(last))
    axis = int(call.known(at, "axis").reshape(-1)[0])
    tensors = [call.tensor(number) for number in parts]
    if all(tensor.first is not None for tensor in tensors):
        return Tensor(first=call.op("Concat", *(tensor.first for tensor in tensors), axis=first_axis(axis, call.rank(parts[0]))))
    return call.op("Concat", *(call.value(number) for number in parts), axis=axis)


@operator("Split SplitV")
def _split(call: Call) -> Result:
    """Split has its axis in front and equal parts; SplitV the sizes of its parts and the axis behind."""
    of, at = (1, 0) if call.node.op == "Split" else (0, 2)
    count, axis = int(call.attribute("num_split", 1)), int(call.known(at, "axis").reshape(-1)[0])
    sizes = None if call.node.op == "Split" else _part_sizes(call, of, axis)
    tensor = call.tensor(of)
    attributes = {"num_outputs": count} if sizes is None else {}
    if tensor.last is None and tensor.shape is not None:
        turned = first_axis(axis, len(tensor.shape))
        return [Tensor(first=part) for part in call.ops("Split", tensor.first, sizes, outputs=count, axis=turned, **attributes)]
    return call.ops("Split", call.value(of), sizes, outputs=count, axis=axis, **attributes)


def _part_sizes(call: Call, of: int, axis: int) -> ir.Value:
    """One of the sizes may be -1: what the others leave."""
    sizes = call.known(1, "size_splits").astype(np.int64)
    if (sizes < 0).any():
        whole = (call.shape(of) or [None] * 8)[axis]
        if whole is None:
            raise call.fail(f"the parts are {list(sizes)} of an open size")
        sizes = np.where(sizes < 0, whole - sizes[sizes >= 0].sum(), sizes)
    return call.constant(sizes)


@operator("Pack")
def _pack(call: Call) -> Result:
    axis = call.constant([int(call.attribute("axis", 0))], np.int64)
    parts = [call.op("Unsqueeze", call.value(number), axis) for number in range(len(call.tensors))]
    return call.op("Concat", *parts, axis=int(call.attribute("axis", 0)))


@operator("Unpack")
def _unpack(call: Call) -> Result:
    axis, count = int(call.attribute("axis", 0)), int(call.attribute("num", 1))
    parts = call.ops("Split", call.value(0), outputs=count, axis=axis, num_outputs=count)
    return [call.op("Squeeze", part, call.constant([axis], np.int64)) for part in parts]


@operator("Pad PadV2 MirrorPad")
def _pad(call: Call) -> Result:
    """Paddings are (before, after) for every axis."""
    tensor, known = call.tensor(0), call.known_or_none(1)
    mode = {"REFLECT": "reflect", "SYMMETRIC": "symmetric"}.get(call.text("mode", ""), "constant")
    if mode == "symmetric":
        raise call.fail("mode SYMMETRIC is not there yet; REFLECT is")
    fill = call.value(2) if call.node.op == "PadV2" else None
    if known is None:
        return call.op("Pad", call.value(0), call.reshaped(call.op("Transpose", call.integers(1), perm=[1, 0]), [-1]), fill, mode=mode)
    if tensor.last is None:
        order = [0, len(known) - 1, *range(1, len(known) - 1)]
        made = Tensor(first=call.op("Pad", tensor.first, call.constant(known[order].T.reshape(-1), np.int64), fill, mode=mode))
    else:
        made = Tensor(last=call.op("Pad", call.value(0), call.constant(known.T.reshape(-1), np.int64), fill, mode=mode))
    if mode == "constant" and fill is None:
        made.padded = Padded(tensor, tuple((int(before), int(after)) for before, after in known))
    return made


@operator("Tile")
def _tile(call: Call) -> Result:
    return call.op("Tile", call.value(0), call.integers(1))


@operator("Fill")
def _fill(call: Call) -> Result:
    return call.op("Expand", call.value(1), call.integers(0))


@operator("BroadcastTo")
def _broadcast_to(call: Call) -> Result:
    return call.op("Expand", call.value(0), call.integers(1))


@operator("Range")
def _range(call: Call) -> Result:
    return call.op("Range", call.value(0), call.value(1), call.value(2))


@operator("LinSpace")
def _linspace(call: Call) -> Result:
    start, stop, count = (call.known(number, name) for number, name in enumerate(("start", "stop", "num")))
    return call.constant(np.linspace(start, stop, int(count), dtype=start.dtype))


@operator("InvertPermutation")
def _invert(call: Call) -> Result:
    order = call.known(0, "permutation")
    return call.constant(np.argsort(order).astype(order.dtype))


@operator("BroadcastArgs")
def _broadcast_sizes(call: Call) -> Result:
    """The sizes that two shapes broadcast to."""
    pair = [call.known(number, "shape") for number in (0, 1)]
    return call.constant(np.broadcast_shapes(*(tuple(int(size) for size in shape) for shape in pair)), call.dtype(0))

"""Operators that move, cut, join, repeat and pick elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from anycann.frontends.ascend_ops.builder import Builder
from anycann.frontends.ascend_ops.definition import Build, Required, operator
from anycann.frontends.ascend_ops.elementwise import dtype_of
from anycann.frontends.ascend_ops.reductions import as_list

_FAR = 1 << 62


def _ints(b: Builder, name: str) -> str:
    """Integers that are an input of the operator, or an attribute of its form with D."""
    return b.integers(name) if b.has(name) else b.constant(as_list(b[name]))


def _one(b: Builder, name: str) -> int:
    """An integer that must be known: an attribute, or a constant input."""
    return int(b.known(name).reshape(-1)[0]) if b.has(name) else int(b[name])


operator("Identity", "x:any", lambda b: b.node("Identity", b.input("x")))
operator("Reshape", "x:any shape:index", lambda b: b.node("Reshape", b.input("x"), b.integers("shape")), axis=0, num_axes=-1)
operator("ExpandDims", "x:any axis:index", lambda b: b.node("Unsqueeze", b.input("x"), b.integers("axis")))
operator("Unsqueeze", "x:any", lambda b: b.node("Unsqueeze", b.input("x"), b.constant(as_list(b["axes"]))), axes=Required("ints"))
operator(
    "Squeeze",
    "x:any",
    lambda b: b.node("Squeeze", b.input("x"), *([b.constant(as_list(b["axis"]))] if as_list(b["axis"]) else [])),
    axis=(),
)
operator("Flatten", "x:any", lambda b: b.node("Flatten", b.input("x"), axis=int(b["axis"])), axis=1)
operator("Shape", "x:any", lambda b: b.cast(b.node("Shape", b.input("x")), dtype_of(b, "dtype")), dtype=3)
operator("BroadcastTo", "x:any shape:index", lambda b: b.node("Expand", b.input("x"), b.integers("shape")))
operator("BroadcastToD", "x:any", lambda b: b.node("Expand", b.input("x"), b.constant(as_list(b["shape"]))), shape=Required("ints"))
operator("Tile", "x:any multiples:index", lambda b: b.node("Tile", b.input("x"), b.integers("multiples")))
operator("TileD", "x:any", lambda b: b.node("Tile", b.input("x"), b.constant(as_list(b["multiples"]))), multiples=Required("ints"))


def _transpose(b: Builder) -> str:
    return _permuted(b, b.known("perm").reshape(-1).tolist() if b.has("perm") else as_list(b["perm"]))


def _permuted(b: Builder, perm: list[int]) -> str:
    if sorted(perm) != list(range(b.rank("x"))):
        b.fail("attribute", f"perm is {perm}; accepted: the numbers 0 to {b.rank('x') - 1} in any order")
    return b.node("Transpose", b.input("x"), perm=perm)


operator("Transpose", "x:any perm:index", _transpose)
operator("TransposeD", "x:any", _transpose, perm=Required("ints"))
operator("Permute", "x:any", lambda b: _permuted(b, as_list(b["order"])), order=Required("ints"))


# ---- joining and splitting
def _concat(axis: str) -> Build:
    return lambda b: b.node("Concat", *b.rest, axis=_one(b, axis))


def _concat_tensors(names: str, inputs: str, axis: str, **attributes: Any) -> None:
    operator(names, inputs, _concat(axis), group="any", N=0, **attributes)


_concat_tensors("ConcatD ConcatV2D", "x*:T", "concat_dim", concat_dim=Required("int"))
_concat_tensors("ConcatV2", "x*:T concat_dim:index", "concat_dim")
_concat_tensors("Concat", "concat_dim:index x*:T", "concat_dim")


def _pack(b: Builder) -> str:
    axis = int(b["axis"])
    return b.node("Concat", *(b.node("Unsqueeze", value, b.constant([axis])) for value in b.rest), axis=axis)


def _unpack(b: Builder) -> list[str]:
    axis, count = int(b["axis"]), int(b["num"])
    parts = b.nodes_of("Split", b.input("x"), count=count, axis=axis, num_outputs=count)
    return [b.node("Squeeze", part, b.constant([axis])) for part in parts]


def _split(b: Builder) -> list[str]:
    count, axis = int(b["num_split"]), _one(b, "split_dim")
    if "size_splits" in b.attributes or b.has("size_splits"):
        return b.nodes_of("Split", b.input("x"), _ints(b, "size_splits"), count=count, axis=axis)
    size = b.shape("x")[b.axis(axis, b.rank("x"))]
    if size >= 0 and size % count:
        b.fail("attribute", f"num_split is {count}, which does not divide axis {axis} of {size}")
    return b.nodes_of("Split", b.input("x"), count=count, axis=axis, num_outputs=count)


operator("Pack", "x*:T", _pack, group="any", axis=0, N=0)
operator("Unpack", "x:any", _unpack, num=Required("int"), axis=0)
operator("SplitD", "x:any", _split, split_dim=Required("int"), num_split=Required("int"))
operator("Split", "split_dim:index x:any", _split, num_split=Required("int"))
operator("SplitVD", "x:any", _split, size_splits=Required("ints"), split_dim=Required("int"), num_split=Required("int"))
operator("SplitV", "x:any size_splits:index split_dim:index", _split, num_split=Required("int"))


# ---- cutting
def _slice(b: Builder) -> str:
    starts, sizes = _ints(b, "offsets"), _ints(b, "size")
    ends = b.node("Where", b.node("Less", sizes, b.constant(0)), b.constant(_FAR), b.node("Add", starts, sizes))
    return b.node("Slice", b.input("x"), starts, ends)


operator("Slice", "x:any offsets:index size:index", _slice)
operator("SliceD", "x:any", _slice, offsets=Required("ints"), size=Required("ints"))
_MASKS: dict[str, Any] = {"begin_mask": 0, "end_mask": 0, "ellipsis_mask": 0, "new_axis_mask": 0, "shrink_axis_mask": 0}


def _masked(b: Builder, values: str, mask: int, count: int, replacement: np.ndarray) -> str:
    """`values`, with those whose bit is set in `mask` replaced."""
    bits = [bool(mask >> n & 1) for n in range(count)]
    return b.node("Where", b.constant(bits, "bool"), b.constant(replacement), values) if any(bits) else values


def _strided_slice(b: Builder) -> str:
    for name in ("ellipsis_mask", "new_axis_mask"):
        if b[name]:
            b.fail("attribute", f"{name} is {b[name]}; accepted: 0")
    steps = (b.known("strides").reshape(-1) if b.has("strides") else np.array(as_list(b["strides"]))).astype(np.int64)
    count, shrink = len(steps), int(b["shrink_axis_mask"])
    begin = _masked(b, _ints(b, "begin"), int(b["begin_mask"]), count, np.where(steps > 0, 0, _FAR))
    end = _masked(b, _ints(b, "end"), int(b["end_mask"]), count, np.where(steps > 0, _FAR, -_FAR))
    picked = [n for n in range(count) if shrink >> n & 1]
    if picked:  # one element: from begin to the next, or to the end behind the last one
        one = np.array([n in picked for n in range(count)])
        following = b.node("Add", begin, b.constant(1))
        following = b.node("Where", b.node("Equal", following, b.constant(0)), b.constant(_FAR), following)
        end = b.node("Where", b.constant(one, "bool"), following, end)
    cut = b.node("Slice", b.input("x"), begin, end, b.constant(list(range(count))), b.constant(steps))
    return b.node("Squeeze", cut, b.constant(picked)) if picked else cut


operator("StridedSlice", "x:any begin:index end:index strides:index", _strided_slice, **_MASKS)
operator("StridedSliceD", "x:any", _strided_slice, begin=Required("ints"), end=Required("ints"), strides=Required("ints"), **_MASKS)


# ---- padding and filling
def _paddings(b: Builder) -> str:
    """ONNX's order, all fronts and then all ends, of pairs for each axis."""
    if not b.has("paddings"):
        return b.constant(np.array(b["paddings"], np.int64).reshape(-1, 2).T.reshape(-1))
    pairs = b.node("Reshape", b.integers("paddings"), b.constant([-1, 2]))
    return b.node("Reshape", b.node("Transpose", pairs, perm=[1, 0]), b.constant([-1]))


def _pad(b: Builder) -> str:
    mode = str(b.attributes.get("mode", "constant")).lower()
    if mode not in ("constant", "reflect", "edge"):
        b.fail("attribute", f"mode is {b['mode']}; accepted: constant, reflect, edge")
    value = [b.node("Reshape", b.input("constant_values"), b.constant([], "int64"))] if b.has("constant_values") else []
    return b.node("Pad", b.input("x"), _paddings(b), *value, mode=mode)


operator("Pad", "x:T paddings:index", _pad)
operator("PadD", "x:T", _pad, paddings=Required("lists"))
operator("PadV2", "x:T paddings:index constant_values:T", _pad)
operator("PadV3", "x:T paddings:index constant_values?:T", _pad, mode="constant", paddings_contiguous=True)
operator("MirrorPad", "x:T paddings:index", _pad, mode=Required("string"))
operator("Fill", "dims:index value:any", lambda b: b.node("Expand", b.input("value"), b.integers("dims")))
operator("FillD", "value:any", lambda b: b.node("Expand", b.input("value"), b.constant(as_list(b["dims"]))), dims=Required("ints"))


# ---- picking
def _gather(b: Builder) -> str:
    if int(b.attributes.get("batch_dims", 0)):
        b.fail("attribute", f"batch_dims is {b['batch_dims']}; accepted: 0")
    axis = _one(b, "axis") if b.has("axis") or "axis" in b.attributes else 0
    return b.node("Gather", b.input("x"), b.input("indices"), axis=axis)


operator("Gather", "x:any indices:index", _gather, validate_indices=True, batch_dims=0)
operator("GatherV2", "x:any indices:index axis:index", _gather, batch_dims=0)
operator("GatherV2D", "x:any indices:index", _gather, axis=Required("int"))
operator(
    "GatherElements", "x:any index:index", lambda b: b.node("GatherElements", b.input("x"), b.input("index"), axis=int(b["dim"])), dim=0
)
operator("GatherNd", "x:any indices:index", lambda b: b.node("GatherND", b.input("x"), b.cast(b.input("indices"), "int64")))


def _one_hot(b: Builder) -> str:
    depth = b.integers("depth") if b.has("depth") else b.constant([int(b["depth"])])
    values = b.node("Concat", *(b.node("Reshape", b.input(name), b.constant([1])) for name in ("off_value", "on_value")), axis=0)
    return b.node("OneHot", b.input("x"), depth, values, axis=int(b["axis"]))


operator("OneHot", "x:index depth:index on_value:T off_value:T", _one_hot, group="any", axis=-1)
operator("OneHotD", "x:index on_value:T off_value:T", _one_hot, group="any", depth=Required("int"), axis=-1)


def _reverse(b: Builder) -> str:
    axes = b.known("axis").reshape(-1).tolist() if b.has("axis") else as_list(b["axis"])
    minus = b.constant([-1] * len(axes))
    return b.node("Slice", b.input("x"), minus, b.constant([-_FAR] * len(axes)), b.constant(axes), minus)


operator("ReverseV2", "x:any axis:index", _reverse)
operator("ReverseV2D", "x:any", _reverse, axis=Required("ints"))
operator(
    "Range",
    "start:T limit:T delta:T",
    lambda b: b.node("Range", *(b.node("Reshape", b.input(n), b.constant([], "int64")) for n in ("start", "limit", "delta"))),
)


def _triangle(upper: int) -> Build:
    return lambda b: b.node("Trilu", b.input("x"), b.constant(int(b["diagonal"])), upper=upper)


operator("Tril", "x:any", _triangle(0), diagonal=0)
operator("Triu", "x:any", _triangle(1), diagonal=0)
operator("Where", "x:any", lambda b: b.node("Transpose", b.node("NonZero", b.input("x")), perm=[1, 0]))


def _blocks(op_type: str) -> Build:
    def build(b: Builder) -> str:
        format_ = b.image_format("x")
        attributes: dict[str, Any] = {"blocksize": int(b["block_size"])}
        if op_type == "DepthToSpace":
            attributes["mode"] = str(b["mode"])
        return b.back(b.node(op_type, b.nchw(b.input("x"), format_), **attributes), format_)

    return build


operator("DepthToSpace", "x:number", _blocks("DepthToSpace"), block_size=Required("int"), mode="DCR", data_format="NHWC")
operator("SpaceToDepth", "x:number", _blocks("SpaceToDepth"), block_size=Required("int"), data_format="NHWC")

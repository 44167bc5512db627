"""Matrix products and convolutions."""

from __future__ import annotations

from typing import Any

from anycann.frontends.ascend_ops.builder import Builder
from anycann.frontends.ascend_ops.definition import Build, Required, operator

_BYTES = ("int8", "uint8")


def _transposed(b: Builder, name: str, transpose: object) -> str:
    """An operand of a product, its last two axes exchanged if asked for."""
    if not transpose:
        return b.input(name)
    rank = b.rank(name)
    if rank < 2:
        b.fail("input", f"input {name} has {rank} sizes; accepted: at least 2")
    return b.node("Transpose", b.input(name), perm=[*range(rank - 2), rank - 1, rank - 2])


def _product(b: Builder, left: str, right: str, dtype: str) -> str:
    """left @ right, summed up in int32 for bytes and in the declared dtype where that is wider."""
    out = b.spec.outputs[0].dtype
    if dtype in _BYTES:
        return b.node("MatMulInteger", left, right)
    if dtype in ("float16", "bfloat16") and out == "float32":
        left, right = b.cast(left, out), b.cast(right, out)
    return b.node("MatMul", left, right)


def _plus(b: Builder, product: str, name: str) -> str:
    """A bias, in the dtype of the sum."""
    if not b.has(name):
        return product
    dtype, out = b.operand(name).dtype, b.spec.outputs[0].dtype
    return b.node("Add", product, b.input(name) if dtype == out else b.cast(b.input(name), out))


def _matmul(first: str, second: str) -> Build:
    def build(b: Builder) -> str:
        if b.has("offset_w"):
            b.fail("input", "input offset_w is not there yet; leave it out")
        for attribute in ("offset_x", "offset_a"):
            if b.attributes.get(attribute):
                b.fail("attribute", f"{attribute} is {b[attribute]}; accepted: 0")
        product = _product(b, _transposed(b, "x1", b[first]), _transposed(b, "x2", b[second]), b.operand("x1").dtype)
        return _plus(b, product, "bias")

    return build


_OPERANDS = "x1:T x2:T bias?:number offset_w?:int8"
operator("MatMul", "x1:T x2:T bias?:number", _matmul("transpose_x1", "transpose_x2"), casts=True, transpose_x1=False, transpose_x2=False)
operator("MatMulV2", _OPERANDS, _matmul("transpose_x1", "transpose_x2"), casts=True, transpose_x1=False, transpose_x2=False, offset_x=0)
operator("BatchMatMul", "x1:T x2:T", _matmul("adj_x1", "adj_x2"), casts=True, adj_x1=False, adj_x2=False)
operator("BatchMatMulV2", _OPERANDS, _matmul("adj_x1", "adj_x2"), casts=True, adj_x1=False, adj_x2=False, offset_x=0)


_BLOCKED = "FRACTAL_NZ"  # [columns / n, rows / 16, 16, n], padded


def _factors(b: Builder) -> tuple[str, str]:
    """a and b as matrices of rows and columns."""
    blocked = [name for name in ("a", "b") if b.operand(name).format == _BLOCKED]
    if not blocked:
        return _transposed(b, "a", b["transpose_a"]), _transposed(b, "b", b["transpose_b"])
    for name in ("a", "b", "c"):
        rank = 4 if name in blocked else 2
        if b.rank(name) != rank or min(b.shape(name)) < 0:
            b.fail("input", f"input {name} is {b.operand(name)}; accepted: {rank} known sizes, where a or b is in {_BLOCKED}")
        if name in blocked and b[f"transpose_{name}"]:
            b.fail("attribute", f"transpose_{name} of an input in {_BLOCKED}; accepted: False")
    rows, columns = b.shape("c")
    depth = min(_depth(b, "a", -1), _depth(b, "b", -2))  # that of an operand that is not padded, or is less
    return _matrix(b, "a", rows, depth), _matrix(b, "b", depth, columns)


def _depth(b: Builder, name: str, axis: int) -> int:
    """What the product sums over, by the sizes of an operand that has it as `axis` where it is not transposed."""
    sizes = b.shape(name)
    if b.operand(name).format == _BLOCKED:
        return sizes[0] * sizes[3] if axis == -1 else sizes[1] * sizes[2]
    return sizes[-3 - axis if b[f"transpose_{name}"] else axis]


def _matrix(b: Builder, name: str, rows: int, columns: int) -> str:
    """An operand without what it is padded with."""
    if b.operand(name).format != _BLOCKED:
        return _transposed(b, name, b[f"transpose_{name}"])
    outer, blocks, high, wide = b.shape(name)
    whole = b.node("Reshape", b.node("Transpose", b.input(name), perm=[1, 2, 0, 3]), b.constant([blocks * high, outer * wide]))
    return b.node("Slice", whole, b.constant([0, 0]), b.constant([rows, columns]))


def _gemm(b: Builder) -> str:
    """alpha * (a @ b) + beta * c, computed in the dtype of the result."""
    out = b.spec.outputs[0].dtype
    dtype = b.operand("a").dtype
    product = _product(b, *_factors(b), dtype)
    if dtype in _BYTES and out != "int32":
        product = b.cast(product, out)
    alpha, beta, c = (b.input(n) if b.operand(n).dtype == out else b.cast(b.input(n), out) for n in ("alpha", "beta", "c"))
    return b.node("Add", b.node("Mul", product, alpha), b.node("Mul", c, beta))


operator(
    "GEMM", "a:T b:T c:number alpha:number beta:number", _gemm, casts=True, formats={"a": (_BLOCKED,), "b": (_BLOCKED,)},
    transpose_a=False, transpose_b=False,
)  # fmt: skip


def _fully_connection(b: Builder) -> str:
    rows = b.node("Flatten", b.input("x"), axis=b.axis(int(b["axis"]), b.rank("x")))
    weights = b.node("Flatten", b.input("w"), axis=1)
    product = _product(b, rows, weights if b["transpose"] else b.node("Transpose", weights, perm=[1, 0]), b.operand("x").dtype)
    summed = _plus(b, product, "b")
    return b.node("Reshape", summed, b.constant([-1, int(b["num_output"]), 1, 1])) if len(b.spec.outputs[0].shape) == 4 else summed


operator("FullyConnection", "x:T w:T b?:number offset_w?:int8", _fully_connection, casts=True, num_output=Required("int"), transpose=False,
         axis=1, offset_x=0)  # fmt: skip


# ---- convolutions: sizes of attributes follow the format of the image
def spatial(b: Builder, name: str, format_: str) -> list[int]:
    """Height and width of an attribute that has a number for each axis. Raises OperatorError for one along batch or channels."""
    values = [int(value) for value in b[name]]
    if len(values) != 4:
        b.fail("attribute", f"{name} is {values}; accepted: four numbers")
    at = (2, 3) if format_ == "NCHW" else (1, 2)
    if any(value != 1 for n, value in enumerate(values) if n not in at):
        b.fail("attribute", f"{name} is {values}; accepted: 1 for batch and channels of {format_}")
    return [values[n] for n in at]


def _weights(b: Builder, depthwise: bool) -> str:
    """Weights as ONNX has them: output channels, input channels of a group, height, width."""
    format_ = b.operand("filter").format
    name = b.input("filter")
    if depthwise and format_ == "HWCN":  # height, width, channels, multiplier
        _, _, channels, multiplier = b.shape("filter")
        moved = b.node("Transpose", name, perm=[2, 3, 0, 1])
        height, width, *_ = b.shape("filter")
        return b.node("Reshape", moved, b.constant([channels * multiplier, 1, height, width]))
    perms = {"NCHW": None, "ND": None, "HWCN": [3, 2, 0, 1], "NHWC": [0, 3, 1, 2]}
    if format_ not in perms:
        b.fail("input", f"input filter is {b.operand('filter')}; accepted: NCHW, NHWC, HWCN")
    perm = perms[format_]
    return name if perm is None else b.node("Transpose", name, perm=perm)


def _convolution(b: Builder) -> str:
    depthwise = b.spec.op.startswith("Depthwise")
    format_ = b.image_format("x")
    image, weights = b.nchw(b.input("x"), format_), _weights(b, depthwise)
    channels = b.shape("x")[1 if format_ == "NCHW" else 3]
    pads = [int(value) for value in b["pads"]]  # top, bottom, left, right
    if len(pads) != 4:
        b.fail("attribute", f"pads is {pads}; accepted: four numbers: top, bottom, left, right")
    attributes: dict[str, Any] = {
        "strides": spatial(b, "strides", format_),
        "dilations": spatial(b, "dilations", format_),
        "pads": [pads[0], pads[2], pads[1], pads[3]],
        "group": channels if depthwise else int(b["groups"]),
    }
    if b.operand("x").dtype in _BYTES:
        return b.back(_shifted(b, b.node("ConvInteger", image, weights, **attributes)), format_)
    bias = [b.input("bias")] if b.has("bias") else []
    return b.back(b.node("Conv", image, weights, *bias, **attributes), format_)


def _shifted(b: Builder, sums: str) -> str:
    return b.node("Add", sums, b.node("Reshape", b.input("bias"), b.constant([-1, 1, 1]))) if b.has("bias") else sums


operator("Conv2D", "x:T filter:T bias?:number offset_w?:int8", _convolution, casts=True, strides=Required("ints"), pads=Required("ints"),
         dilations=(1, 1, 1, 1), groups=1, data_format="NHWC", offset_x=0)  # fmt: skip
operator("DepthwiseConv2D", "x:T filter:T bias?:number offset_w?:int8", _convolution, casts=True, strides=Required("ints"),
         pads=Required("ints"), dilations=(1, 1, 1, 1), data_format="NHWC", offset_x=0)  # fmt: skip

"""Can the sizes and counts of a node be? ONNX's shape inference lets some pass, or dies of them, and native code has no bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import onnx_ir as ir

from anycann.support.errors import ModelError

Sizes = tuple[int, ...]
LARGEST_VALUE = 1 << 46  # elements: no machine holds them, and products of sizes stay in 64 bits

# Attributes that count something: ONNX's shape inference divides by them, and a division by zero ends the process.
_COUNTS = frozenset({"strides", "dilations", "kernel_shape", "group", "blocksize", "num_groups", "num_heads", "num_outputs"})
_COUNTS_OF = {"LRN": "size", "MatMulNBits": "block_size"}
_COUNTS_ITSELF = "RotaryEmbedding"  # its num_heads of 0 are as many as the width of its tables says


def check_counts(node: ir.Node) -> None:
    """Raise ModelError where an attribute that counts something is less than 1; called before anything divides by it."""
    if node.op_type == _COUNTS_ITSELF:
        return
    for attribute in node.attributes.values():
        if attribute.name in _COUNTS or attribute.name == _COUNTS_OF.get(node.op_type):
            stated = attribute.value
            if any(isinstance(number, int) and number < 1 for number in (stated if isinstance(stated, Sequence) else [stated])):
                where = f"node {node.name!r} ({node.op_type}): attribute {attribute.name!r}"
                raise ModelError(f"{where} is {list(stated) if isinstance(stated, Sequence) else stated}; 1 or more is accepted")


def check_sizes(node: ir.Node, inputs: Sequence[Sizes | None], outputs: Sequence[Sizes | None]) -> None:
    """Raise ModelError where sizes of a node cannot be. `inputs`, `outputs`: where all are known, else None."""
    where = f"node {node.name!r} ({node.op_type})"
    for value, sizes in zip(node.outputs, outputs, strict=True):
        if sizes is not None and prod(sizes) > LARGEST_VALUE:
            raise ModelError(f"{where}: its result {value.name!r} would have the shape {list(sizes)}, more than memory holds")
    check = _CHECKS.get(node.op_type) if node.domain in _DOMAINS else None
    why = None if check is None else check(node, inputs, outputs)
    if why is not None:
        raise ModelError(f"{where}: {why}")


def _convolution(node: ir.Node, inputs: Sequence[Sizes | None], outputs: Sequence[Sizes | None]) -> str | None:
    image, weights, bias = inputs[0], inputs[1], inputs[2] if len(inputs) > 2 else None
    if image is not None and outputs[0] is not None and len(outputs[0]) != len(image):
        stated = list(node.attributes.get_ints("output_shape", ()))
        return f"output_shape is {stated}; {len(image) - 2} sizes of 1 or more are accepted"
    if weights is None or len(weights) < 3:
        return None
    kernel = tuple(node.attributes.get_ints("kernel_shape", weights[2:]))
    if kernel != weights[2:]:
        return f"kernel_shape is {list(kernel)}; its weights have {list(weights[2:])}"
    channels = weights[1] * node.attributes.get_int("group", 1) if node.op_type == "ConvTranspose" else weights[0]
    return None if bias is None or bias == (channels,) else f"the bias has the shape {list(bias)}; [{channels}] is accepted"


def _gemm(node: ir.Node, inputs: Sequence[Sizes | None], outputs: Sequence[Sizes | None]) -> str | None:
    a, b = inputs[:2]
    if a is None or b is None or len(a) != 2 or len(b) != 2:
        return None
    depths = a[0 if node.attributes.get_int("transA", 0) else 1], b[1 if node.attributes.get_int("transB", 0) else 0]
    return None if depths[0] == depths[1] else f"{list(a)} by {list(b)}: {depths[0]} elements are to be multiplied with {depths[1]}"


def _reshape(node: ir.Node, inputs: Sequence[Sizes | None], outputs: Sequence[Sizes | None]) -> str | None:
    source, result = inputs[0], outputs[0]
    if source is None or result is None or prod(source) == prod(result):
        return None
    return f"{list(source)} has {prod(source)} elements and {list(result)} has {prod(result)}"


def _scales(node: ir.Node, inputs: Sequence[Sizes | None], outputs: Sequence[Sizes | None]) -> str | None:
    x, scale = inputs[:2]
    axis = node.attributes.get_int("axis", 1)
    if x is None or scale is None or len(scale) != 1 or scale == (1,) or node.attributes.get_int("block_size", 0) > 0:
        return None
    if not -len(x) <= axis < len(x):
        return f"axis is {axis}; its operand has the shape {list(x)}"
    return None if x[axis] == scale[0] else f"{scale[0]} scales for {x[axis]} elements along axis {axis} of {list(x)}"


def _heads(node: ir.Node, inputs: Sequence[Sizes | None], outputs: Sequence[Sizes | None]) -> str | None:
    query = inputs[0]
    heads = node.attributes.get_int("num_heads", 1)
    if query is None or len(query) != 3 or query[2] % heads == 0:
        return None
    return f"{query[2]} columns are no {heads} heads"


_DOMAINS = frozenset({"", "com.microsoft"})
_CHECKS: dict[str, Callable[[ir.Node, Sequence[Sizes | None], Sequence[Sizes | None]], str | None]] = {
    "Conv": _convolution,
    "ConvTranspose": _convolution,
    "DequantizeLinear": _scales,
    "Gemm": _gemm,
    "QuantizeLinear": _scales,
    "Reshape": _reshape,
    "MultiHeadAttention": _heads,
}

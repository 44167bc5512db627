"""Weights that are dequantised and multiplied by numbers stay the integers they are stored as: a quarter of the bytes of floats, or less.

Of many rows the multiplications take longer than the weights, and floats, or bfloat16 by matrix tiles, are as fast or faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import onnx_ir as ir

from anycann.graph.ops.device import DOMAIN
from anycann.graph.ops.scaled_products import SCALED_MATMUL, floats_of
from anycann.passes.rules.rule import Rule, constant_of, new_constant, new_node
from anycann.support.records import dataclass

MOST_ROWS = 64


@dataclass(frozen=True)
class _Weights:
    """Weights [K, N] less their zero point, int8 or int16, and their scales [blocks of `rows` rows, N]."""

    integers: np.ndarray
    scale: np.ndarray
    rows: int


class ScaledWeights(Rule):
    """MatMul or Gemm(x, DequantizeLinear(w), b) -> ScaledMatMul(x, w, scales) + b, with constant w of 4 or 8 bits; rows share scales."""

    anchors = frozenset({("", "MatMul"), ("", "Gemm")})
    early = True

    def check(self, node: ir.Node) -> str | None:
        dequantise = _dequantise(node)
        if dequantise is None:
            return ""
        if node.attributes.get_int("transA", 0) or any(node.attributes.get_float(name, 1.0) != 1 for name in ("alpha", "beta")):
            return "its first operand is transposed, or it has factors"
        return _problem(node, dequantise)

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        dequantise = _dequantise(node)
        assert dequantise is not None
        weights = _weights(node, dequantise)
        name, bias = node.name or node.op_type, node.inputs[2] if len(node.inputs) > 2 else None
        operands = [node.inputs[0], _stored(graph, name, dequantise, weights), new_constant(graph, f"{name}/scale", weights.scale)]
        product = ir.Node(DOMAIN, SCALED_MATMUL, operands, [ir.AttrInt64("rows", weights.rows)], name=name)
        if bias is None:
            return [product]
        product.outputs[0].type, product.outputs[0].name = node.outputs[0].type, f"{name}/product"
        return [product, new_node("Add", [product.outputs[0], bias], f"{name}/biased", node.outputs[0])]


def _stored(graph: ir.Graph, name: str, dequantise: ir.Node, weights: _Weights) -> ir.Value:
    """The integers as the model has them, which an offline model then holds once, or as a new constant."""
    source = dequantise.inputs[0]
    given = constant_of(source)
    if source is not None and given is not None and given.dtype == np.int8 and np.array_equal(given, weights.integers):
        return source
    return new_constant(graph, f"{name}/integers", weights.integers)


def _dequantise(node: ir.Node) -> ir.Node | None:
    """The DequantizeLinear that makes the second operand."""
    found = None if node.inputs[1] is None else node.inputs[1].producer()
    return found if found is not None and found.domain in ("", "com.microsoft") and found.op_type == "DequantizeLinear" else None


def _problem(node: ir.Node, dequantise: ir.Node) -> str | None:
    """Why the second operand is not taken as integers and scales, or None."""
    (known, scale, zero), source = _constants(dequantise), dequantise.inputs[0]
    given = len(dequantise.inputs) > 2 and dequantise.inputs[2] is not None
    if known is None or scale is None or (given and zero is None) or known.ndim != 2 or not known.size or scale.dtype != np.float32:
        return _UNKNOWN
    if source is None or source.dtype not in _NARROW:
        return _UNKNOWN
    rows = _rows(node, dequantise, known.shape, scale.size)
    return "no rows share their scales, which would be as many floats as there are weights" if rows == 1 else None


_UNKNOWN = "its weights are no known matrix of bytes with float32 scales"
_NARROW = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT4, ir.DataType.UINT4)


def _weights(node: ir.Node, dequantise: ir.Node) -> _Weights:
    """The second operand as integers and scales."""
    known, scale, zero = _constants(dequantise)
    assert known is not None
    assert scale is not None
    axis, block = _axis_and_block(dequantise)
    integers, spread, rows = known.astype(np.int16), _spread(scale, axis, block), _rows(node, dequantise, known.shape, scale.size)
    if zero is not None:
        points = _spread(zero.astype(np.int16), axis, block)
        integers = integers - (np.repeat(points, block, axis=axis)[: known.shape[0], : known.shape[1]] if block else points)
    if node.attributes.get_int("transB", 0):
        integers, spread = integers.T, spread.T
    depth, columns = integers.shape
    spread = np.broadcast_to(spread, (-(-depth // rows), columns))
    fits = integers.min() >= -128 and integers.max() <= 127
    return _Weights(np.ascontiguousarray(integers.astype(np.int8) if fits else integers), np.ascontiguousarray(spread), rows)


def _rows(node: ir.Node, dequantise: ir.Node, extents: tuple[int, ...], scales: int) -> int:
    """Rows of the operand, [K, N], that share the scales of their columns; `extents`: those of the weights as they are stored."""
    along_k = 1 if node.attributes.get_int("transB", 0) else 0
    axis, block = _axis_and_block(dequantise)
    if scales == 1 or (axis != along_k and not block):
        return extents[along_k]
    return block if block and axis == along_k else 1


def _constants(dequantise: ir.Node) -> tuple[np.ndarray | None, ...]:
    """What is known of the integers, the scale and the zero point."""
    return tuple(constant_of(dequantise.inputs[n]) if n < len(dequantise.inputs) else None for n in range(3))


def _axis_and_block(dequantise: ir.Node) -> tuple[int, int]:
    """The axis of a matrix along which its scales run, and the positions that share one; 0: no blocks."""
    return dequantise.attributes.get_int("axis", 1) % 2, dequantise.attributes.get_int("block_size", 0)


def _spread(values: np.ndarray, axis: int, block: int) -> np.ndarray:
    """Parameters as a matrix beside the weights: one for all, one a position of `axis`, or blocks of them."""
    if block or values.ndim == 2:
        return values
    return values.reshape((-1, 1) if axis == 0 else (1, -1))


class FloatWeights(Rule):
    """ScaledMatMul(x, w, scales) -> MatMul(x, w * scales), in the type of x, where x has many rows."""

    anchors = frozenset({(DOMAIN, SCALED_MATMUL)})

    def check(self, node: ir.Node) -> str | None:
        shape = None if node.inputs[0] is None else node.inputs[0].shape
        if shape is None or not shape.is_static():
            return "its rows are not known"
        return None if prod(shape.numpy()[:-1]) > MOST_ROWS or len(shape) < 2 else "few rows wait for their weights"

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        (source, *_), (weights, scale) = node.inputs, (constant_of(node.inputs[n]) for n in (1, 2))
        assert source is not None
        assert source.dtype is not None
        assert weights is not None
        assert scale is not None
        floats = floats_of(weights, scale, node.attributes.get_int("rows")).astype(source.dtype.numpy(), copy=False)
        known = new_constant(graph, f"{node.name}/floats", floats)
        return [new_node("MatMul", [source, known], node.name or SCALED_MATMUL, node.outputs[0])]

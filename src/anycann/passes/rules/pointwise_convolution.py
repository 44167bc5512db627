"""A convolution of single pixels with weights that are computed is a matrix product of them as they lie: nothing has to be put in order."""

from __future__ import annotations

from collections.abc import Sequence
import math

import numpy as np
import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.rules.rule import Rule, new_constant, new_node, typed_node
from anycann.te import dtypes

# Pixels of an image that make whole vectors, or so many that it does not matter. Batches of 4 to 64 of ResNet-50's layers: at 56 x 56 and
# 28 x 28 products took 0.47 to 0.8 of the time, at 8 x 8 0.8, at 14 x 14 0.7 to 1.3, at 7 x 7 1.2 to 2.4.
_LEAST_PIXELS, _VECTOR, _MANY_PIXELS = 64, 16, 400


class PointwiseConvolution(Rule):
    """Conv(x, w, b?) -> Reshape(MatMul(Reshape(w), Reshape(x)) + b); ConvInputGrad(dy, w) alike, with w transposed.

    w is computed, and has one pixel.
    """

    anchors = frozenset({("", "Conv"), ("anycann", "ConvInputGrad")})

    def check(self, node: ir.Node) -> str | None:
        data, weights, result = (static_type(value) for value in (node.inputs[0], node.inputs[1], node.outputs[0]))
        known = node.inputs[1] is not None and node.inputs[1].const_value is not None
        if weights is None or known or any(extent != 1 for extent in weights.shape[2:]):
            return ""
        if data is None or result is None or data.dtype is not dtypes.float32:
            return "it is no convolution of known sizes and float32"
        if node.attributes.get_int("group", 1) != 1 or data.shape[2:] != result.shape[2:] or any(node.attributes.get_ints("pads", ())):
            return "it has groups, strides or padding"
        pixels = math.prod(data.shape[2:])
        if pixels < _LEAST_PIXELS or (pixels < _MANY_PIXELS and pixels % _VECTOR):
            return f"{pixels} pixels make no whole vectors"
        return None

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        data, weights, result = (static_type(value) for value in (node.inputs[0], node.inputs[1], node.outputs[0]))
        assert data is not None
        assert weights is not None
        assert result is not None
        pixels, name = math.prod(data.shape[2:]), node.name or node.op_type
        rows = _reshaped(graph, node.inputs[0], f"{name}/pixels", (*data.shape[:2], pixels))
        matrix = _reshaped(graph, node.inputs[1], f"{name}/matrix", weights.shape[:2])
        shape = (*result.shape[:2], pixels)
        product = typed_node("MatMul", [matrix.outputs[0], rows.outputs[0]], f"{name}/product", node.outputs[0], shape)
        if node.op_type == "ConvInputGrad":
            product = _transposed_product(product, node.outputs[0], shape)
        nodes = [rows, matrix, product]
        if len(node.inputs) > 2 and node.inputs[2] is not None:
            bias = _reshaped(graph, node.inputs[2], f"{name}/bias", (result.shape[1], 1))
            added = typed_node("Add", [product.outputs[0], bias.outputs[0]], f"{name}/added", node.outputs[0], shape)
            nodes += [bias, added]
        last = nodes[-1].outputs[0]
        target = new_constant(graph, f"{name}/shape", np.array(result.shape, np.int64))
        return [*nodes, new_node("Reshape", [last, target], name, node.outputs[0])]


def _reshaped(graph: ir.Graph, value: ir.Value | None, name: str, shape: Sequence[int]) -> ir.Node:
    """The elements of a value in another shape: a view."""
    assert value is not None
    target = new_constant(graph, f"{name}/shape", np.array(shape, np.int64))
    return typed_node("Reshape", [value, target], name, value, shape)


def _transposed_product(product: ir.Node, like: ir.Value, shape: Sequence[int]) -> ir.Node:
    """The product with its first operand transposed."""
    turned = ir.Node("com.microsoft", "FusedMatMul", list(product.inputs), [ir.AttrInt64("transA", 1)], name=product.name)
    turned.outputs[0].type, turned.outputs[0].shape, turned.outputs[0].name = like.type, ir.Shape(shape), f"{product.name}:0"
    return turned

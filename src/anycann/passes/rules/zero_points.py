"""The zero point of a weight matrix leaves the product, so that bytes are multiplied as they are.

sum over k of (a - za) (b - zb)  =  sum of (a - za) b  -  zb * sum of (a - za): a product without zero point of b, and a sum along the row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from anycann.passes.rules.rule import Rule, constant_of, new_constant, new_node


class SplitZeroPoint(Rule):
    """MatMulInteger(a, b, za, zb) -> MatMulInteger(a, b, za) - zb * ReduceSum(Cast(a) - Cast(za))."""

    anchors = frozenset({("", "MatMulInteger")})

    def check(self, node: ir.Node) -> str | None:
        a, zero_a, zero_b = (node.inputs[n] if n < len(node.inputs) else None for n in (0, 2, 3))
        known = constant_of(zero_b)
        if known is None or not known.any():
            return "the second operand has no known zero point"
        if known.size != 1:
            return "the second operand has a zero point a column"
        if a is None or a.shape is None or len(a.shape) < 2 or (zero_a is not None and (zero_a.shape is None or len(zero_a.shape))):
            return "the first operand is a vector, or has several zero points"
        weights = constant_of(node.inputs[1])
        if weights is None:
            return "the second operand is computed at run time"
        zero = int(known.reshape(-1)[0])
        fits = not weights.size or (int(weights.min()) - zero >= -128 and int(weights.max()) - zero <= 127)
        return "the second operand without its zero point fits into bytes" if fits else None

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        a, b, zero_a = (node.inputs[n] for n in range(3))
        assert a is not None
        assert a.shape is not None
        name, result = node.name or "MatMulInteger", node.outputs[0]
        product = new_node("MatMulInteger", [a, b, *([] if zero_a is None else [zero_a])], f"{name}/product", result)
        wide = _cast(a, f"{name}/wide")
        nodes = [product, wide]
        if zero_a is not None:
            zero = _cast(zero_a, f"{name}/zero")
            nodes += [zero, new_node("Sub", [wide.outputs[0], zero.outputs[0]], f"{name}/centred", wide.outputs[0])]
        axes = new_constant(graph, f"{name}/axes", np.array([-1], np.int64))
        total = new_node("ReduceSum", [nodes[-1].outputs[0], axes], f"{name}/rows", result, {"keepdims": 1})
        total.outputs[0].shape = ir.Shape([*a.shape[:-1], 1])
        known = constant_of(node.inputs[3])
        assert known is not None
        factor = new_constant(graph, f"{name}/zero_b", known.astype(np.int32).reshape(()))
        correction = new_node("Mul", [total.outputs[0], factor], f"{name}/correction", total.outputs[0])
        return [*nodes, total, correction, new_node("Sub", [product.outputs[0], correction.outputs[0]], name, result)]


def _cast(value: ir.Value, name: str) -> ir.Node:
    node = new_node("Cast", [value], name, value, {"to": int(ir.DataType.INT32)})
    node.outputs[0].type = ir.TensorType(ir.DataType.INT32)
    return node

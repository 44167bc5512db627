"""ONNX Runtime's QGemm is an integer product, a bias, and a scale: written so, it is one kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from anycann.passes.rules.quantised import BYTES
from anycann.passes.rules.rule import Rule, constant_of, new_constant, new_node

A, A_SCALE, A_ZERO, B, B_SCALE, B_ZERO, C, Y_SCALE, Y_ZERO = range(9)


class IntegerQGemm(Rule):
    """QGemm(a, .., b, .., c, sy, zy) -> QuantizeLinear(Cast(MatMulInteger(a, b) + c) * scales, 1, zy), with a constant b."""

    anchors = frozenset({("com.microsoft", "QGemm")})
    early = True

    def check(self, node: ir.Node) -> str | None:
        if node.attributes.get_int("transA", 0) != 0:
            return "its first operand is transposed"
        numbers = [A_SCALE, B, B_SCALE, B_ZERO, *(n for n in (C, Y_SCALE) if _operand(node, n) is not None)]
        if any(constant_of(_operand(node, number)) is None for number in numbers):
            return "its weights, its bias or its scales are computed at run time"
        weights, scale, result = (constant_of(_operand(node, n)) for n in (B, A_SCALE, Y_SCALE))
        assert weights is not None
        assert scale is not None
        if weights.dtype not in BYTES or scale.size != 1 or (result is not None and result.size != 1):
            return "its weights are no bytes, or an operand or the result has several scales"
        return None

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        name, like = node.name or "QGemm", node.outputs[0]
        weights = _operand(node, B)
        if node.attributes.get_int("transB", 0) != 0:
            weights = new_constant(graph, f"{name}/transposed", _known(node, B).T)
        zero_b = _operand(node, B_ZERO) if _known(node, B_ZERO).any() else None
        operands = [_operand(node, A), weights, _operand(node, A_ZERO), *([zero_b] if zero_b is not None else [])]
        nodes = [new_node("MatMulInteger", operands, f"{name}/integers", like)]
        if _operand(node, C) is not None:
            nodes.append(new_node("Add", [nodes[-1].outputs[0], _operand(node, C)], f"{name}/biased", like))
        nodes.append(new_node("Cast", [nodes[-1].outputs[0]], f"{name}/sums", like, {"to": int(ir.DataType.FLOAT)}))
        factor = _known(node, A_SCALE).reshape(()) * _known(node, B_SCALE) * np.float32(node.attributes.get_float("alpha", 1.0))
        result = constant_of(_operand(node, Y_SCALE))
        if result is not None:
            factor = factor / result.reshape(())
        scale = new_constant(graph, f"{name}/factor", np.asarray(factor, np.float32))
        nodes.append(new_node("Mul", [nodes[-1].outputs[0], scale], f"{name}/scaled", like))
        for value in (each.outputs[0] for each in nodes):
            value.type = None
        if result is not None:
            one = new_constant(graph, f"{name}/one", np.ones((), np.float32))
            nodes.append(new_node("QuantizeLinear", [nodes[-1].outputs[0], one, _operand(node, Y_ZERO)], name, like))
        return nodes


def _operand(node: ir.Node, number: int) -> ir.Value | None:
    return node.inputs[number] if number < len(node.inputs) else None


def _known(node: ir.Node, number: int) -> np.ndarray:
    found = constant_of(_operand(node, number))
    assert found is not None
    return found

"""A QuantizeLinear behind integer products multiplies by the inverse of its scale, and what was multiplied before takes that over.

A division costs as much as all else at the end of an 8-bit kernel together. Where a quotient lies half-way between two integers, a product
may round to the other one: a quantisation step, as every runtime that computes with integers has it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from anycann.passes.rules.quantised import dequantised
from anycann.passes.rules.rule import Rule, constant_of, new_constant, new_node

_PASSING = frozenset({"Add", "Mul", "Relu", "Clip"})


class QuantizeByProduct(Rule):
    """QuantizeLinear(x, scale) -> QuantizeLinear(x / scale, 1), the division moved into the constants of what makes x."""

    anchors = frozenset({("", "QuantizeLinear")})
    early = True

    def check(self, node: ir.Node) -> str | None:
        scale = constant_of(node.inputs[1])
        if scale is None or scale.size != 1 or scale.dtype != np.float32 or scale.reshape(()) == 1:
            return ""
        if not _from_integers(node.inputs[0]):
            return "what it quantises is not made of integers by Add, Mul, Relu and Clip alone"
        inverse = np.float32(1) / scale.reshape(())
        return None if np.isfinite(inverse) and inverse > 0 else f"its scale is {scale}"

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        scale = constant_of(node.inputs[1])
        assert scale is not None
        assert node.inputs[0] is not None
        new: list[ir.Node] = []
        source = _scaled(graph, new, node.inputs[0], 1.0 / float(scale.reshape(())))
        one = new_constant(graph, f"{node.name}/one", np.ones((), np.float32))
        operands = [source, one, *node.inputs[2:]]
        quantised = new_node("QuantizeLinear", operands, node.name or "QuantizeLinear", node.outputs[0])
        for attribute in node.attributes.values():
            quantised.attributes.add(attribute)
        return [*new, quantised]


class QuantizeActivations(QuantizeByProduct):
    """QuantizeLinear(i, s) -> QuantizeLinear(i * (1 / s), 1), for what `IntegerActivations` made integers, late."""

    early = False


def _from_integers(value: ir.Value | None) -> bool:
    """True if nothing but dequantised values, integer sums and constants goes into a value."""
    node = None if value is None else value.producer()
    if value is None or value.const_value is not None:
        return value is not None
    if node is None or node.domain != "":
        return False
    if node.op_type == "Cast":
        source = node.inputs[0].producer() if node.inputs[0] is not None else None
        return source is not None and source.op_type in ("ConvInteger", "MatMulInteger")
    if node.op_type == "DequantizeLinear":
        return dequantised(value) is not None
    return node.op_type in _PASSING and all(_from_integers(operand) for operand in node.inputs if operand is not None)


def _scaled(graph: ir.Graph, new: list[ir.Node], value: ir.Value, factor: float) -> ir.Value:
    """value * factor, by changing what makes it where nothing else reads it, else by a Mul; nodes go to `new`."""
    known, node = constant_of(value), value.producer()
    if known is not None:
        return new_constant(graph, f"{value.name}/rescaled", (known.astype(np.float64) * factor).astype(np.float32))
    alone = len(value.uses()) == 1 and not value.is_graph_output()
    if node is not None and alone and node.op_type in ("Add", "Relu", "Clip"):
        operands = [None if operand is None else _scaled(graph, new, operand, factor) for operand in node.inputs]
        return _again(new, node, operands)
    if node is not None and alone and node.op_type == "Mul":
        constant = next((n for n, operand in enumerate(node.inputs) if constant_of(operand) is not None), None)
        if constant is not None:
            operands = list(node.inputs)
            operands[constant] = _scaled(graph, new, operands[constant], factor)  # type: ignore[arg-type]
            return _again(new, node, operands)
    if node is not None and alone and node.op_type == "DequantizeLinear":
        scale = node.inputs[1]
        assert scale is not None
        return _again(new, node, [node.inputs[0], _scaled(graph, new, scale, factor), *node.inputs[2:]])
    inverse = new_constant(graph, f"{value.name}/factor", np.array(factor, np.float32))
    new.append(new_node("Mul", [value, inverse], f"{inverse.name}/product", value))  # the constant's name is unique, `value` may be shared
    return new[-1].outputs[0]


def _again(new: list[ir.Node], node: ir.Node, operands: Sequence[ir.Value | None]) -> ir.Value:
    """The same operation on other operands."""
    copy = new_node(node.op_type, operands, f"{node.name}/rescaled", node.outputs[0])
    for attribute in node.attributes.values():
        copy.attributes.add(attribute)
    new.append(copy)
    return copy.outputs[0]

"""Attention becomes one node that reads its operands where they were computed.

softmax(q k' * scale + mask) v, as exporters write it with the transposes, reshapes and factors around it, is anycann.Attention of the
values that the projections made.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from anycann.passes.rules.attention_pattern import Mask, NotAttention, Plan, plan_attention, softmax_before
from anycann.passes.rules.rule import Rule, new_constant, new_node


class FuseAttention(Rule):
    """MatMul(Softmax(scale * MatMul(q, k') + mask), v) -> anycann.Attention(origin of q, origin of k, origin of v, mask)."""

    anchors = frozenset({("", "MatMul")})

    def check(self, node: ir.Node) -> str | None:
        if softmax_before(node) is None:
            return ""
        try:
            plan_attention(node)
        except NotAttention as why:
            return str(why)
        return None

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        return attention_nodes(graph, plan_attention(node), node.name or "Attention", node.outputs[0])


def attention_nodes(graph: ir.Graph, plan: Plan, name: str, like: ir.Value) -> list[ir.Node]:
    """anycann.Attention, behind nodes that make numbers of the conditions of its masks."""
    made: list[ir.Node] = []
    masks: list[ir.Value] = []
    for number, (mask, _) in enumerate(plan.masks):
        if mask.replaces or mask.value.dtype != ir.DataType.FLOAT:
            made.append(_numbers(graph, mask, f"{name}/mask{number}"))
            masks.append(made[-1].outputs[0])
        else:
            masks.append(mask.value)
    attributes: dict[str, object] = {
        **{key: str(value.view) for key, value in (("query", plan.query), ("key", plan.key), ("value", plan.value))},
        "scale": plan.scale,
        "softcap": plan.softcap,
        "order": list(range(len(plan.query.view.axes))),
        "empty_is_zero": int(plan.empty_is_zero),
    }
    if masks:
        attributes["masks"] = [str(view) for _, view in plan.masks]
        attributes["replaces"] = [int(mask.replaces) for mask, _ in plan.masks]
    if plan.reach is not None:
        attributes["reach"] = plan.reach
    node = new_node("Attention", [plan.query.source, plan.key.source, plan.value.source, *masks], name, like, attributes)
    node.domain = "anycann"
    return [*made, node]


def _numbers(graph: ir.Graph, mask: Mask, name: str) -> ir.Node:
    """Where(condition, 0, filling): zero where the score stays; what is added, in float32."""
    if not mask.replaces:
        return _in_float32(new_node("Cast", [mask.value], name, mask.value, {"to": int(ir.DataType.FLOAT)}))
    zero = new_constant(graph, f"{name}/zero", np.array(0, np.float32))
    filling = new_constant(graph, f"{name}/filling", np.array(mask.filling, np.float32))
    choice = (filling, zero) if mask.inverted else (zero, filling)
    return _in_float32(new_node("Where", [mask.value, *choice], name, mask.value))


def _in_float32(node: ir.Node) -> ir.Node:
    node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    return node

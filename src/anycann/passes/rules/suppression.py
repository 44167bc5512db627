"""How many boxes a suppression chooses is only known when it has run; the numbers of at most so many of each class have a shape before."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.rules.rule import Rule, constant_of
from anycann.te import dtypes

DOMAIN = "anycann"
BOXES, SCORES, COUNT, OVERLAP, LEAST = range(5)


class BoundSuppression(Rule):
    """NonMaxSuppression(boxes, scores, count, overlap, least) -> ListChosen(Suppression(boxes, scores))."""

    anchors = frozenset({("", "NonMaxSuppression")})

    def check(self, node: ir.Node) -> str | None:
        boxes, scores = static_type(node.inputs[BOXES]), static_type(node.inputs[SCORES])
        if boxes is None or scores is None or 0 in boxes.shape or 0 in scores.shape:
            return "the number of boxes is not known, or none"
        if boxes.dtype is not dtypes.float32 or scores.dtype is not dtypes.float32:
            return f"boxes of {boxes.dtype} with scores of {scores.dtype}"
        if any(value is not None and value.const_value is None for value in node.inputs[COUNT:]):
            return "a limit is computed at run time"
        return None if _limit(node, COUNT, 0) > 0 else "no box is asked for"

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        scores = static_type(node.inputs[SCORES])
        assert scores is not None
        count = min(int(_limit(node, COUNT, 0)), scores.shape[2])
        attributes = [ir.AttrInt64("count", count), ir.AttrFloat32("overlap", _limit(node, OVERLAP, 0.0))]
        attributes.append(ir.AttrInt64("center_point_box", node.attributes.get_int("center_point_box", 0)))
        if len(node.inputs) > LEAST and node.inputs[LEAST] is not None:
            attributes.append(ir.AttrFloat32("least", _limit(node, LEAST, 0.0)))
        chosen = ir.Node(DOMAIN, "Suppression", node.inputs[:COUNT], attributes, name=f"{node.name}/chosen")
        chosen.outputs[0].name = f"{node.name}/chosen"
        chosen.outputs[0].type, chosen.outputs[0].shape = ir.TensorType(ir.DataType.INT64), ir.Shape([*scores.shape[:2], count])
        return [chosen, ir.Node(DOMAIN, "ListChosen", [chosen.outputs[0]], name=node.name)]


def _limit(node: ir.Node, number: int, default: float) -> float:
    """A limit that is known, or its default where it is left out."""
    array = constant_of(node.inputs[number]) if number < len(node.inputs) else None
    return default if array is None or not array.size else float(array.reshape(-1)[0])

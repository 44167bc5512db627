"""Which engine the operators of a graph can go to, before any shape is known."""

from __future__ import annotations

from collections import Counter
from typing import Literal, TypeAlias

import onnx_ir as ir

from anycann.graph.evaluate import has_reference
from anycann.graph.registry import OPSET, library

Engine: TypeAlias = Literal["AiCore", "AiCpu"]
_FOLDED = ("Constant", "Identity", "Shape", "Size")  # known, or nothing at all, once shapes are
_CONTROL_FLOW = ("If", "Loop", "Scan")


def possible_engine(node: ir.Node) -> Engine | None:
    """AiCore if the operator has a lowering or moves nothing, AiCpu if it has a meaning in numpy or steers others, None if it has none."""
    operator = library().of(node)
    if operator is not None and (operator.lower is not None or operator.view):
        return "AiCore"
    return "AiCpu" if node.op_type in _CONTROL_FLOW or has_reference(node.domain, node.op_type, OPSET) else None


def count_operators(model: ir.Model) -> dict[Engine, dict[str, int]]:
    """Operators by engine and type, those in bodies of control flow included; unknown ones and what is folded away are left out."""
    counts: dict[Engine, Counter[str]] = {"AiCore": Counter(), "AiCpu": Counter()}
    for node in model.graph.all_nodes():
        engine = possible_engine(node)
        if engine is not None and node.op_type not in _FOLDED:
            counts[engine][node.op_type] += 1
    return {engine: dict(types) for engine, types in counts.items()}

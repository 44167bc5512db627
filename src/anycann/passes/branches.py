"""What is known of an If whose condition only running can tell: the types both branches give."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from anycann.graph.registry import TensorType, static_type
from anycann.support.errors import AnyCANNError

BRANCHES = ("then_branch", "else_branch")


def branch_types(node: ir.Node, specialise: Callable[[ir.Graph], None]) -> list[TensorType | None]:
    """The type of each output of an If that is the same whichever branch is taken, else None.

    `specialise` types a graph in place; it works on copies of the branches, for what it folds holds of a branch that is taken.
    """
    unknown: list[TensorType | None] = [None] * len(node.outputs)
    if not any(value.uses() for value in node.outputs):
        return unknown
    first, second = (_types(node.attributes[name].as_graph(), specialise) for name in BRANCHES)
    return [a if a == b else None for a, b in zip(first, second, strict=True)] if first and second else unknown


def _types(branch: ir.Graph, specialise: Callable[[ir.Graph], None]) -> list[TensorType | None]:
    """The types of a branch's outputs; none if it cannot be typed, as where it is meant for other shapes than the model's."""
    made = {value for node in branch for value in node.outputs} | set(branch.initializers.values())
    if any(value not in made for value in branch.outputs):
        return []
    copy = branch.clone(allow_outer_scope_values=True)
    try:
        specialise(copy)
        return [static_type(value) for value in copy.outputs]
    except AnyCANNError:
        return []
    finally:
        _let_go(copy)


def _let_go(graph: ir.Graph) -> None:
    """Outer values are not used by a graph that is thrown away."""
    for node in graph.all_nodes():
        for number in range(len(node.inputs)):
            node.replace_input_with(number, None)

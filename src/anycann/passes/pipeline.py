"""The passes over a graph, in order. Each is a function that changes the graph in place; the list is the documentation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.passes import common

from anycann.graph.registry import TensorType
from anycann.graph.verify import verify
from anycann.passes.loop_invariants import move_invariants
from anycann.passes.loop_values import drop_carried_values
from anycann.passes.rules import RULES, apply_rules
from anycann.passes.specialise import specialise
from anycann.support import options as settings


@dataclass(frozen=True)
class Report:
    """What one pass did, for `--explain`."""

    name: str
    lines: tuple[str, ...]


Pass = Callable[[ir.Model], list[str]]


def passes(input_types: Mapping[str, TensorType | None], switched_off: frozenset[str] = frozenset()) -> list[tuple[str, Pass]]:
    """Every pass by name, in order; those in `switched_off` (passes and rules) left out."""
    rules = [rule for rule in RULES if rule.name not in switched_off]
    every: list[tuple[str, Pass]] = [
        ("early rules", lambda model: apply_rules(model.graph, [rule for rule in rules if rule.early])),
        ("unread", _common(common.RemoveUnusedNodesPass)),
        ("carried values", lambda model: drop_carried_values(model.graph)),
        ("loop invariants", lambda model: move_invariants(model.graph)),
        ("specialise", lambda model: _specialise(model, input_types)),
        ("unused", _common(common.RemoveUnusedNodesPass)),
        ("identity", _remove_identities),
        ("common_subexpressions", _common(lambda: common.CommonSubexpressionEliminationPass(size_limit=64))),
        ("rules", lambda model: apply_rules(model.graph, [rule for rule in rules if not rule.early])),
        ("leftovers", _common(common.RemoveUnusedNodesPass)),
    ]
    return [(name, run) for name, run in every if name not in switched_off or name == "specialise"]


def switches() -> tuple[str, ...]:
    """Names of the passes that may be switched off."""
    return tuple(name for name, _ in passes({}) if name != "specialise")


def run_passes(model: ir.Model, input_types: Mapping[str, TensorType | None], switched_off: frozenset[str] = frozenset()) -> list[Report]:
    """Specialise `model` for the input types and simplify it, in place; says what each pass did."""
    reports: list[Report] = []
    for name, run in passes(input_types, switched_off):
        reports.append(Report(name, tuple(run(model))))
        if settings.VERIFY.get():
            verify(model.graph, after=name, typed=any(report.name == "specialise" for report in reports))
    return reports


def _specialise(model: ir.Model, input_types: Mapping[str, TensorType | None]) -> list[str]:
    before = model.graph.num_nodes()
    specialise(model.graph, input_types)
    return [f"{before} nodes -> {model.graph.num_nodes()} with concrete shapes and known values folded"]


def _common(make: Callable[[], object]) -> Pass:
    """A pass of onnx_ir."""

    def run(model: ir.Model) -> list[str]:
        before = model.graph.num_nodes()
        make()(model)  # type: ignore[operator]
        return [f"{before} nodes -> {model.graph.num_nodes()}"]

    return run


def _remove_identities(model: ir.Model) -> list[str]:
    """Identity(x) -> x, as a Cast of x to its own type, also where it is an output of the graph and a node makes x.

    onnx_ir's pass fails on values of an outer graph.
    """
    removed = 0
    for node in list(model.graph):
        if node.domain == "" and (node.op_type == "Identity" or _casts_nothing(node)) and _hand_on(node, model.graph):
            model.graph.remove(node, safe=True)
            removed += 1
    return [f"{removed} nodes removed"]


def _casts_nothing(node: ir.Node) -> bool:
    source = node.inputs[0] if node.op_type == "Cast" else None
    return source is not None and source.dtype is not None and source.dtype == node.attributes["to"].as_int()


def _hand_on(node: ir.Node, graph: ir.Graph) -> bool:
    """Let the operand of an Identity take its place; False where the graph would return an input, a constant, or one value twice."""
    source, result = node.inputs[0], node.outputs[0]
    assert source is not None
    if result.is_graph_output():
        producer = source.producer()
        if producer is None or producer.graph is not graph or source.is_graph_output() or list(graph.outputs).count(result) > 1:
            return False
        graph.outputs[list(graph.outputs).index(result)] = source
        source.type, source.shape = source.type or result.type, source.shape or result.shape
        result.name, source.name = None, result.name
    result.replace_all_uses_with(source)
    return True

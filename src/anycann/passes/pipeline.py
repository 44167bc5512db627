"""The passes over a graph, in order. Each is a function that changes the graph in place; the list is the documentation."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir
from onnx_ir.passes import common

from anycann.graph.registry import TensorType
from anycann.graph.verify import Agreed, verify
from anycann.passes.identities import remove_identities
from anycann.passes.loop_counters import count_turns
from anycann.passes.loop_invariants import move_invariants
from anycann.passes.loop_sequences import stack_appended_values
from anycann.passes.loop_values import drop_carried_values
from anycann.passes.rules import RULES, apply_rules
from anycann.passes.specialise import specialise
from anycann.passes.widen import HALVES, widen_halves
from anycann.support import options as settings
from anycann.support.records import dataclass


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
        ("counted turns", lambda model: count_turns(model.graph)),
        ("appended values", lambda model: stack_appended_values(model.graph)),
        ("carried values", lambda model: drop_carried_values(model.graph)),
        ("loop invariants", lambda model: move_invariants(model.graph)),
        ("specialise", lambda model: _specialise(model, input_types)),
        ("unused", _common(common.RemoveUnusedNodesPass)),
        (HALVES, lambda model: widen_halves(model.graph)),
        ("identity", lambda model: remove_identities(model.graph)),
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
    agreed: Agreed = {}
    for name, run in passes(input_types, switched_off):
        reports.append(Report(name, tuple(run(model))))
        if settings.VERIFY.get():
            verify(model.graph, after=name, typed=any(report.name == "specialise" for report in reports), agreed=agreed)
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

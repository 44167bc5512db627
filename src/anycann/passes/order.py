"""The order in which kernels and host steps run: producers first, native work gathered into as few runs as the graph allows."""

from __future__ import annotations

from collections.abc import Mapping
import heapq

import onnx_ir as ir

from anycann.passes.grouping import Group
from anycann.passes.partition import AICORE, AICPU, CONTROL, DEFERRED, Engine, captured_values
from anycann.support.records import dataclass


@dataclass(frozen=True, eq=False)
class Unit:
    """One thing to do: a group of AiCore nodes, or a single node of another engine."""

    kind: str
    nodes: tuple[ir.Node, ...]
    group: Group | None = None

    @property
    def inputs(self) -> list[ir.Value]:
        """Values it needs, captured ones included."""
        own = {v for node in self.nodes for v in node.outputs}
        used = {v: None for n in self.nodes for v in (*(i for i in n.inputs if i is not None), *captured_values(n)) if v not in own}
        return list(used)


def order_units(graph: ir.Graph, engines: Mapping[ir.Node, Engine], groups: Mapping[ir.Node, Group]) -> list[Unit]:
    """Every unit but the deferred nodes, in an order that runs."""
    units, unit_of = _units(graph, engines, groups)
    followers: dict[Unit, list[Unit]] = {unit: [] for unit in units}
    waiting: dict[Unit, int] = {}
    for unit in units:
        producers = {unit_of[p] for v in unit.inputs if (p := v.producer()) is not None and p in unit_of and unit_of[p] is not unit}
        waiting[unit] = len(producers)
        for producer in producers:
            followers[producer].append(unit)
    number = {unit: n for n, unit in enumerate(units)}
    ready = [(_rank(unit), number[unit]) for unit in units if not waiting[unit]]
    heapq.heapify(ready)
    order = []
    while ready:
        unit = units[heapq.heappop(ready)[1]]
        order.append(unit)
        for follower in followers[unit]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(ready, (_rank(follower), number[follower]))
    assert len(order) == len(units), "fusion made a cycle"
    return order


def _rank(unit: Unit) -> int:
    """Native work and views before anything on the host."""
    return 1 if unit.kind in (AICPU, CONTROL) else 0


def _units(graph: ir.Graph, engines: Mapping[ir.Node, Engine], groups: Mapping[ir.Node, Group]) -> tuple[list[Unit], dict[ir.Node, Unit]]:
    units: list[Unit] = []
    unit_of: dict[ir.Node, Unit] = {}
    of_group: dict[Group, Unit] = {}
    for node in graph:
        kind = engines[node].kind
        if kind == DEFERRED:
            continue
        group = groups.get(node) if kind == AICORE else None
        unit = of_group.get(group) if group is not None else None
        if unit is None:
            unit = Unit(kind, tuple(group.nodes) if group is not None else (node,), group)
            units.append(unit)
            if group is not None:
                of_group[group] = unit
        unit_of[node] = unit
    return units, unit_of

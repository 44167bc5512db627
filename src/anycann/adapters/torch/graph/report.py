"""What became of each graph: how many operators the engine computes, and which PyTorch does, and why."""

from __future__ import annotations

from collections import Counter
from functools import cached_property

import torch
from torch.fx import Node

from anycann.adapters.torch.graph.graph_program import GraphProgram
from anycann.support.logging import get_logger
from anycann.support.records import dataclass

KEPT = 256
_reports: list[GraphReport] = []


@dataclass(frozen=True)
class GraphReport:
    """One compiled graph. kind: inference, forward or backward. weights: inputs that are built in."""

    kind: str
    program: GraphProgram
    weights: int

    @cached_property
    def in_pytorch(self) -> Counter[tuple[str, str]]:
        """How often PyTorch computes an operator, by its name and the reason."""
        return Counter((name_of(node), reason) for node, reason in self.program.in_pytorch.items())

    def lines(self) -> list[str]:
        """For people: one line for the graph, one for each operator that PyTorch computes."""
        engine_parts = sum(part.engine for part in self.program.parts)
        outside = sum(self.in_pytorch.values())
        head = f"{self.kind} graph: {self.program.in_engine} operators in the engine ({engine_parts} parts), {outside} in PyTorch"
        return [head, *(f"  {name} x {count}: {reason}" for (name, reason), count in self.in_pytorch.most_common())]


def name_of(node: Node) -> str:
    """The operator that a node calls."""
    return str(node.target) if isinstance(node.target, torch._ops.OpOverload) else str(getattr(node.target, "__name__", node.target))


def note(report: GraphReport) -> None:
    """Keep a report, and log it."""
    _reports.append(report)
    del _reports[:-KEPT]
    for line in report.lines():
        get_logger("torch").info("%s", line)


def reports() -> tuple[GraphReport, ...]:
    """Of the graphs compiled in this process, the last ones."""
    return tuple(_reports)

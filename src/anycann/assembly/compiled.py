"""What compiling a graph gives."""

from __future__ import annotations

from dataclasses import field

import onnx_ir as ir

from anycann.om.plan import Program
from anycann.om.weights import Stored
from anycann.passes.memory import Interval
from anycann.passes.pipeline import Report
from anycann.support.records import dataclass


@dataclass(frozen=True)
class NodeReport:
    """Which engine a node of the source went to, and why not AiCore."""

    name: str
    op_type: str
    engine: str
    reason: str = ""


@dataclass(frozen=True)
class Apart:
    """A node that did not join the kernel of a producer, and why."""

    node: str
    producer: str
    reason: str

    def __str__(self) -> str:
        return f"{self.node} stays apart from {self.producer}: {self.reason}"


@dataclass
class Compiled:
    """A program and what belongs to it."""

    program: Program
    kernels: dict[str, str]  # symbol -> IR
    regions: dict[str, ir.Model]
    nodes: list[NodeReport]
    reports: list[Report] = field(default_factory=list)
    apart: list[Apart] = field(default_factory=list)
    intervals: list[Interval] = field(default_factory=list)  # the memory planner's question
    stored: dict[str, Stored] = field(default_factory=dict)  # weights of the model that lie, packed without loss, among the constants

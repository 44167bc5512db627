"""The choices for a whole graph: fusion, layout and rules, each on or off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import hashlib
from typing import ClassVar

import onnx_ir as ir

from anycann.codegen.space import Parameter, Point, Space
from anycann.om.plan import TensorSpec
from anycann.passes.rules import RULES
from anycann.support.records import dataclass
from anycann.target.target import Target

# several nodes in one kernel; channels in blocks between convolutions; convolutions one after the other over bands of rows
FUSION, LAYOUT, BANDS = "fusion", "layout", "bands"
ASSEMBLY_SWITCHES = (FUSION, LAYOUT, BANDS)
GRAPH_SWITCHES = (*ASSEMBLY_SWITCHES, *(rule.name for rule in RULES if not rule.early))


@dataclass(frozen=True)
class GraphProblem:
    """A graph by what its nodes, shapes and attributes say; the values of weights do not matter."""

    digest: str


@dataclass(frozen=True)
class GraphSwitches:
    """What is switched off."""

    off: frozenset[str] = frozenset()


@dataclass(frozen=True)
class GraphSpace(Space[GraphSwitches]):
    """A point says 1 or 0 for every switch."""

    family: ClassVar[str] = "Graph"
    version: ClassVar[int] = 1
    tile_type: ClassVar[type[GraphSwitches]] = GraphSwitches
    is_algorithm: ClassVar[bool] = True

    problem: GraphProblem
    target: Target

    def parameters(self) -> tuple[Parameter, ...]:
        return tuple(Parameter(name, (1, 0)) for name in GRAPH_SWITCHES)

    def refusal(self, tile: GraphSwitches) -> str | None:
        unknown = tile.off - set(GRAPH_SWITCHES)
        return f"there is no switch {sorted(unknown)[0]}" if unknown else None

    def default(self) -> GraphSwitches:
        return GraphSwitches()

    def tile(self, point: Point) -> GraphSwitches:
        if set(point) != set(GRAPH_SWITCHES) or not set(point.values()) <= {0, 1}:
            raise KeyError(f"switches {sorted(point)}")
        return GraphSwitches(frozenset(name for name, on in point.items() if not on))

    def point(self, tile: GraphSwitches) -> Mapping[str, int]:
        return {name: int(name not in tile.off) for name in GRAPH_SWITCHES}


def graph_space(graph: ir.Graph, inputs: Sequence[TensorSpec], target: Target) -> GraphSpace:
    """The space of a graph and the types of its inputs, before any pass has changed it."""
    numbers: dict[ir.Value | None, str] = {None: "-"}
    lines = []
    for value, spec in zip(graph.inputs, inputs, strict=True):
        numbers[value] = f"i{len(numbers)}"
        lines.append(f"{spec.dtype}{tuple(spec.shape)}")
    for node in graph:
        operands = [numbers.get(value) or _weight(value) for value in node.inputs]
        attributes = sorted(f"{name}={_attribute(attribute)}" for name, attribute in node.attributes.items())
        for output in node.outputs:
            numbers[output] = f"v{len(numbers)}"
        lines.append(f"{node.domain}:{node.op_type}({','.join(operands)}){attributes}{len(node.outputs)}")
    lines.append(",".join(numbers.get(value) or _weight(value) for value in graph.outputs))
    return GraphSpace(GraphProblem(hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]), target)


def _weight(value: ir.Value | None) -> str:
    """A constant by its type; one from an outer graph by its name."""
    if value is None or value.const_value is None:
        return f"outer {value.name if value is not None else ''}"
    return f"{value.const_value.dtype}{tuple(value.const_value.shape)}"


def _attribute(attribute: ir.Attr) -> str:
    """Numbers and words as they are; of tensors and graphs what they are."""
    value = attribute.value
    if attribute.type == ir.AttributeType.GRAPH:
        return f"graph of {len(value)}"
    return f"{value.dtype}{tuple(value.shape)}" if attribute.type == ir.AttributeType.TENSOR else repr(value)

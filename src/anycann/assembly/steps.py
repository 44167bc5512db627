"""The steps of a program: launches gathered into native steps, host nodes, control flow, and what has to wait for a shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
import onnx_ir as ir

from anycann.assembly.kernels import KernelMaker, Launch
from anycann.assembly.placement import Placement
from anycann.graph.registry import OPSET, static_type
from anycann.om.plan import HostStep, NativeStep, RegionStep, Step, Task
from anycann.passes.order import Unit
from anycann.passes.partition import AICORE, AICPU, CONTROL, captured_values
from anycann.passes.regions import Extracted, extract_body, extract_nodes


class StepWriter:
    """Writes the steps of one graph; `regions` are the graphs they name, under names that begin with `prefix`."""

    def __init__(self, graph: ir.Graph, placement: Placement, kernels: KernelMaker, prefix: str):
        self._graph, self._placement, self._kernels, self._prefix = graph, placement, kernels, prefix
        self.regions: dict[str, ir.Model] = {}

    def write(self, units: Sequence[Unit], launches: Mapping[Unit, list[Launch]], deferred: Sequence[ir.Node]) -> list[Step]:
        """The steps in order."""
        steps: list[Step] = []
        tasks: list[Task] = []
        for unit in units:
            if unit.kind == AICORE:
                tasks += [self._task(unit, launch) for launch in launches.get(unit, ())]
            elif unit.kind in (AICPU, CONTROL):
                if tasks:
                    steps.append(NativeStep(tuple(tasks)))
                    tasks = []
                steps += self._host_step(unit.nodes[0]) if unit.kind == AICPU else self._control_step(unit.nodes[0])
        if tasks:
            steps.append(NativeStep(tuple(tasks)))
        if deferred:
            steps += self._deferred_step(deferred)
        return steps + self._host_constants(self._graph.outputs)

    def _task(self, unit: Unit, launch: Launch) -> Task:
        kernel = launch.kernel
        by_name = {v.name: v for v in (*unit.inputs, *(v for n in unit.nodes for v in n.outputs))}
        packed = self._kernels.buffers
        buffers = tuple(packed[name] if name in packed else self._placement.buffer(by_name[name]) for name in kernel.arguments)
        nodes, types = tuple(n.name or "" for n in unit.nodes), tuple(n.op_type for n in unit.nodes)
        begins = kernel.resumes, kernel.begin_bytes
        return Task(kernel.symbol, buffers, kernel.tasks, kernel.scratch_bytes, nodes, types, launch.outputs, kernel.flops, *begins)

    def _host_step(self, node: ir.Node) -> list[Step]:
        proto = ir.to_proto(node)
        assert isinstance(proto, onnx.NodeProto)
        captured = captured_values(node)
        steps = self._host_constants([*(v for v in node.inputs if v is not None), *captured])
        names = tuple("" if v is None else v.name or "" for v in node.inputs)
        outputs = tuple(v.name or "" if v.uses() or v.is_graph_output() else "" for v in node.outputs)
        host = HostStep(
            proto.SerializeToString(), OPSET, node.name or "", node.op_type, names, outputs, tuple(v.name or "" for v in captured)
        )
        return [*steps, host]

    def _host_constants(self, values: Sequence[ir.Value]) -> list[Step]:
        """Make constants readable by host steps: numbers have a location; text and the like come from a Constant step."""
        steps: list[Step] = []
        for value in values:
            if value.const_value is None or value.name in self._placement.values:
                continue
            if static_type(value) is not None:
                self._placement.locate(value, self._placement.buffer(value))
                continue
            node = onnx.helper.make_node(
                "Constant", [], [value.name or ""], name=f"{value.name}/constant", value=ir.to_proto(value.const_value)
            )
            steps.append(HostStep(node.SerializeToString(), OPSET, node.name, "Constant", (), (value.name or "",)))
        return steps

    def _control_step(self, node: ir.Node) -> list[Step]:
        kinds = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",)}
        bodies = [extract_body(node.attributes[key].as_graph()) for key in kinds[node.op_type]]
        names = [self._add_region(f"{self._prefix}{node.name}/{key}", body) for key, body in zip(kinds[node.op_type], bodies, strict=True)]
        steps = self._host_constants([v for v in node.inputs if v is not None])
        attributes = {a.name: a.value for a in node.attributes.values() if a.type in (ir.AttributeType.INT, ir.AttributeType.INTS)}
        captures = tuple(tuple(v.name or "" for v in body.captures) for body in bodies)
        inputs = tuple("" if v is None else v.name or "" for v in node.inputs)
        outputs = tuple(v.name or "" for v in node.outputs)
        kind = node.op_type.lower()
        assert kind in ("if", "loop", "scan")
        return [*steps, RegionStep(kind, node.name or "", tuple(names), inputs, captures, outputs, attributes)]  # type: ignore[arg-type]

    def _deferred_step(self, nodes: Sequence[ir.Node]) -> list[Step]:
        extracted = extract_nodes(self._graph, nodes, "deferred")
        name = self._add_region(f"{self._prefix}{nodes[0].name}/deferred", extracted)
        captures = tuple(v.name or "" for v in extracted.captures)
        outputs = tuple(v.name or "" for v in extracted.outputs)
        return [RegionStep("deferred", nodes[0].name or "", (name,), (), (captures,), outputs)]

    def _add_region(self, name: str, extracted: Extracted) -> str:
        unique = name
        while unique in self.regions:
            unique += "_"
        self.regions[unique] = extracted.model
        return unique

"""A graph and the shapes of its inputs in, a program and its kernels out: every stage between the front end and the file, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
import math
import mmap
from typing import Any, Protocol

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir.passes import common

from anycann.codegen.contract import generate_contraction, refuse, wanted_layout
from anycann.codegen.contract_recurrent import generate_recurrent
from anycann.codegen.kernel import Kernel
from anycann.codegen.loops import Output, generate
from anycann.codegen.tail import Constants, Generated
from anycann.graph.registry import OPSET, NotLowered, Registry, TensorType, dtype_of, library, static_type
from anycann.om.plan import Buffer, HostStep, Location, NativeStep, Program, RegionStep, Step, Task, TensorSpec
from anycann.passes.aliases import Aliases, find_aliases, part_offset
from anycann.passes.grouping import Group, group_nodes, group_tensors
from anycann.passes.in_place import read_where_written, write_in_place
from anycann.passes.layout import assign_layouts, insert_transfers
from anycann.passes.memory import Interval, plan_memory
from anycann.passes.order import Unit, order_units
from anycann.passes.partition import AICORE, AICPU, CONTROL, DEFERRED, EMPTY, VIEW, Engine, assign_engines, captured_values, lower_node
from anycann.passes.pipeline import Report, run_passes
from anycann.passes.precision import round_inputs
from anycann.passes.regions import Extracted, extract_body, extract_nodes
from anycann.support.errors import context
from anycann.support.mapped import forget_pages
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te import tensor as te
from anycann.te.contractions import Recurrent
from anycann.te.dtypes import DType
from anycann.te.expression import Load, cast, walk
from anycann.te.layout import ND, Place, element_count
from anycann.te.nest import CannotFuse, contractions
from anycann.te.tensor import Compute, Constant, Reduction, Tensor


class ConstantSink(Protocol):
    """Where weights go: om.constants.ConstantPool or om.growing.GrowingConstants."""

    def add(self, array: np.ndarray[Any, Any]) -> Buffer: ...


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


@dataclass(frozen=True)
class GraphCompiler:
    """Compiles graphs for one target; weights go into `constants`, of which every program gets the same copy."""

    target: Target
    constants: ConstantSink
    storage: DType | None = None  # float16, bfloat16: what float32 results are rounded to when a kernel stores them
    switched_off: frozenset[str] = frozenset()
    fuse: bool = True

    def compile(self, model: ir.Model, inputs: Sequence[TensorSpec], prefix: str = "") -> Compiled:
        """The program of `model` (which is not changed) for inputs of these specs, in the order of the graph's inputs.

        dtype "object" stands for an input that is no numeric tensor. `prefix` makes the names of regions unique.
        """
        clone = model.clone()
        inputs = [replace(spec, name=v.name or "") for v, spec in zip(clone.graph.inputs, inputs, strict=True)]
        types = {v.name or "": _type_of(spec) for v, spec in zip(clone.graph.inputs, inputs, strict=True)}
        if self.storage is not None:
            round_inputs(clone.graph, self.storage)
        reports = run_passes(clone, types, self.switched_off)
        _materialise_outputs(clone.graph)
        common.NameFixPass()(clone)
        return _Assembly(self, clone.graph, inputs, prefix, reports).run()


def _type_of(spec: TensorSpec) -> TensorType | None:
    if spec.dtype == "object" or any(not isinstance(size, int) for size in spec.shape):
        return None
    dtype = dtype_of(ir.DataType.from_numpy(np.dtype(_numpy(spec.dtype))))
    return None if dtype is None else TensorType(dtype, tuple(int(s) for s in spec.shape if s is not None))


def _numpy(name: str) -> Any:
    return getattr(ml_dtypes, name, None) or name


def _materialise_outputs(graph: ir.Graph) -> None:
    """A graph output that is an input, a constant, a view or a repeated output becomes a copy of it, so that each has its own buffer."""
    registry = library()
    seen: set[ir.Value] = set()
    for number, value in enumerate(list(graph.outputs)):
        producer = value.producer()
        operator = registry.of(producer) if producer is not None else None
        plain = producer is not None and producer.graph is graph and value not in seen and not (operator is not None and operator.view)
        seen.add(value)
        if plain or static_type(value) is None:
            continue
        copy = ir.Node("anycann", "TransData", [value], name=f"{value.name}/output")
        copy.outputs[0].type, copy.outputs[0].shape, copy.outputs[0].name = value.type, value.shape, f"{value.name}/output{number}"
        graph.append(copy)
        graph.outputs[number] = copy.outputs[0]


class _Assembly:
    """The stages after the passes, for one graph."""

    def __init__(self, compiler: GraphCompiler, graph: ir.Graph, inputs: Sequence[TensorSpec], prefix: str, reports: list[Report]):
        self.compiler, self.graph, self.inputs, self.prefix, self.reports = compiler, graph, inputs, prefix, reports
        self.registry: Registry = library()
        self.lanes = compiler.target.lanes
        self.winograd = "winograd" not in compiler.switched_off  # op_select_implmode=high_precision
        self.kernels: dict[str, str] = {}
        self.regions: dict[str, ir.Model] = {}
        self.values: dict[str, Location] = {}
        self.layouts: dict[ir.Value, str] = {}
        self.aliases = Aliases({}, frozenset())
        self.reads: dict[Unit, frozenset[str]] = {}  # what a unit's only result reads at its own index
        self.workspaces: dict[Group, tuple[str, int]] = {}  # memory a group's kernels hand something over in: name, bytes
        self.buffers: dict[str, Buffer] = {}
        self.intervals: list[Interval] = []

    def run(self) -> Compiled:
        engines = assign_engines(self.graph, self.registry, self._native_problem)
        groups = group_nodes(self.graph, engines, self.registry, self.compiler.fuse)
        self.layouts = assign_layouts(self.graph, engines, groups, self.lanes)
        insert_transfers(self.graph, engines, groups, self.layouts, self._wanted)
        units = order_units(self.graph, engines, groups)
        deferred = [node for node in self.graph if engines[node].kind == DEFERRED]
        self.aliases = find_aliases(units, self.layouts, self.graph, self.lanes)
        launches = {unit: self._launch(unit) for unit in units if unit.kind == AICORE and unit not in self.aliases.slices}
        self._write_in_place(units, deferred)
        arena_bytes = self._place(units, deferred)
        steps = self._steps(units, launches, deferred)
        program = Program(
            tuple(self.inputs), tuple(self._output_spec(v) for v in self.graph.outputs), arena_bytes, tuple(steps), self.values
        )
        apart = [Apart(name, g.nodes[0].name or "", why) for g in dict.fromkeys(groups.values()) for name, why in g.skipped]
        return Compiled(program, self.kernels, self.regions, _node_reports(engines), self.reports, apart, self.intervals)

    # ---- questions of the passes
    def _native_problem(self, node: ir.Node, tensors: list[Tensor]) -> str | None:
        for contraction in contractions(tensors):
            reason = refuse(contraction, lambda name: self._constant(node, name) is not None)
            if reason is not None:
                return reason
        return None

    def _constant(self, node: ir.Node, name: str) -> np.ndarray[Any, Any] | None:
        for value in node.inputs:
            if value is not None and value.name == name and value.const_value is not None:
                return value.const_value.numpy()
        return None

    def _wanted(self, node: ir.Node, number: int, stored: str) -> str:
        value = node.inputs[number]
        assert value is not None
        try:
            found = contractions(lower_node(node, self.registry, {}))
        except NotLowered:
            return stored
        return wanted_layout(found[0], value.name or "", stored, self.compiler.target, self.winograd) if found else stored

    # ---- values and buffers
    def _nbytes(self, value: ir.Value) -> int:
        type_ = static_type(value)
        assert type_ is not None
        return element_count(self.layouts.get(value, ND), type_.shape, self.lanes) * type_.dtype.nbytes

    def _place(self, units: Sequence[Unit], deferred: Sequence[ir.Node]) -> int:
        """Give every static value its buffer; answers the size of the arena."""
        outputs = {value: n for n, value in reversed(list(enumerate(self.graph.outputs)))}
        for number, value in enumerate(self.graph.inputs):
            if static_type(value) is not None:
                self._locate(value, Buffer("input", 0, self._nbytes(value), number))
        intervals = self._intervals(units, deferred, outputs)
        work = [
            Interval(name, nbytes, n, n)
            for n, unit in enumerate(units)
            if unit.group in self.workspaces
            for name, nbytes in [self.workspaces[unit.group]]
        ]
        self.intervals = [*intervals.values(), *work]
        plan = plan_memory(self.intervals)
        self.buffers |= {each.name: Buffer("arena", plan.offsets[each.name], each.nbytes) for each in work}
        for unit in units:
            for value in (v for node in unit.nodes for v in node.outputs):
                if value in outputs and static_type(value) is not None:
                    self._locate(value, Buffer("output", 0, self._nbytes(value), outputs[value]))
                elif value in intervals:
                    self._locate(value, Buffer("arena", plan.offsets[intervals[value].name], self._nbytes(value)))
        for value in self.aliases.of:
            if static_type(value) is not None:
                self._locate(value, self._buffer(value))
        return plan.arena_bytes

    def _write_in_place(self, units: Sequence[Unit], deferred: Sequence[ir.Node]) -> None:
        """Let results lie where an operand that dies did."""
        made = {v for unit in units if unit.kind == AICORE for node in unit.nodes for v in node.outputs} - set(self.graph.outputs)

        def same_storage(a: ir.Value, b: ir.Value) -> bool:
            return a.dtype == b.dtype and self._nbytes(a) == self._nbytes(b) and self.layouts.get(a) == self.layouts.get(b)

        last = self._last_uses(units, deferred)
        self.aliases = write_in_place(units, self.aliases, self.reads, last, same_storage, made.__contains__)

    def _last_uses(self, units: Sequence[Unit], deferred: Sequence[ir.Node]) -> dict[ir.Value, int]:
        """Number of the last unit that reads each buffer."""
        last = {self.aliases.find(used).root: number for number, unit in enumerate(units) for used in unit.inputs}
        late = (value for node in deferred for value in (*node.inputs, *captured_values(node)) if value is not None)
        return last | {self.aliases.find(value).root: len(units) for value in late}

    def _intervals(self, units: Sequence[Unit], deferred: Sequence[ir.Node], outputs: Mapping[ir.Value, int]) -> dict[ir.Value, Interval]:
        first: dict[ir.Value, int] = {}
        last = self._last_uses(units, deferred)
        for number, unit in enumerate(units):
            made = unit.group.outputs if unit.group is not None else [] if unit.kind == VIEW else list(unit.nodes[0].outputs)
            for value in made if unit not in self.aliases.slices else ():
                root = self.aliases.find(value).root
                if static_type(root) is not None and root not in outputs:
                    first.setdefault(root, number)
        return {v: Interval(v.name or "", self._nbytes(v), start, max(start, last.get(v, start))) for v, start in first.items()}

    def _locate(self, value: ir.Value, buffer: Buffer) -> None:
        type_ = static_type(value)
        assert type_ is not None
        spec = TensorSpec(value.name or "", type_.dtype.name, type_.shape)
        self.values[spec.name] = Location(spec, buffer, self.layouts.get(value, ND))

    def _buffer(self, value: ir.Value) -> Buffer:
        if value.const_value is not None:
            buffer = self.compiler.constants.add(self._rounded(value.const_value.numpy()))
            forget_pages(value.const_value.numpy())
            return buffer
        alias = self.aliases.of.get(value)
        if alias is None:
            return self.values[value.name or ""].buffer
        whole = self._buffer(alias.root)
        return replace(whole, offset_bytes=whole.offset_bytes + alias.offset_bytes, nbytes=self._nbytes(value))

    # ---- kernels
    def _launch(self, unit: Unit) -> list[tuple[Kernel, tuple[str, ...]]]:
        """The kernels of a group and the values each writes."""
        assert unit.group is not None
        with context(f"while compiling {', '.join(n.name or n.op_type for n in unit.nodes)}"):
            if unit.nodes[0].op_type == "Concat" and unit.nodes[0].domain == "":
                return self._concatenation(unit.nodes[0])
            tensors = group_tensors(unit.group, self.registry)
            if any(isinstance(c.operator, Recurrent) for c in contractions([tensors[v] for v in unit.group.outputs])):
                return self._recurrent(unit.group, tensors)
            used = [v for v in unit.group.outputs if math.prod(tensors[v].shape)]
            outputs = [Output(v.name or "", self._stored(tensors[v]), self.layouts.get(v, ND)) for v in used]
            self._note_tables([o.tensor for o in outputs])
            kernels = self._kernels(unit.group, outputs)
            if len(outputs) == len(kernels) == 1:
                self.reads[unit] = read_where_written(outputs[0].tensor)
        for value in unit.group.inputs:
            if value.const_value is not None and value.const_value.nbytes > mmap.PAGESIZE:
                forget_pages(value.const_value.numpy())
        return kernels

    def _kernels(self, group: Group, outputs: Sequence[Output]) -> list[tuple[Kernel, tuple[str, ...]]]:
        """One kernel for all outputs; a node whose outputs fit into no common nest gets one for each."""
        try:
            return [(self._keep(self._generate(group, outputs)), tuple(o.name for o in outputs))]
        except CannotFuse:
            if len(group.nodes) > 1:
                raise
        return [(self._keep(self._generate(group, [output])), (output.name,)) for output in outputs]

    def _keep(self, generated: Generated) -> Kernel:
        """Take over a kernel and its packed weights; the weights they were made of are not needed again."""
        for packed in generated.packed:  # at once, so that the array can go
            self.buffers[packed.name] = self.compiler.constants.add(packed.array)
        self.kernels[generated.kernel.symbol] = generated.kernel.ir
        return generated.kernel

    def _recurrent(self, group: Group, tensors: Mapping[ir.Value, Tensor]) -> list[tuple[Kernel, tuple[str, ...]]]:
        """The input projection of all steps as a matrix product into a workspace, then the loop over time."""
        names = [v.name or "" for v in group.outputs]
        layers = {name: contractions([tensors[v]])[0].operator for name, v in zip(names, group.outputs, strict=True)}
        gates = f"{group.nodes[0].name}/gates"
        projection, loop, nbytes = generate_recurrent(layers, gates, self.compiler.target, self._constants(group))  # type: ignore[arg-type]
        self.workspaces[group] = (gates, nbytes)
        return [(self._keep(projection), ()), (self._keep(loop), tuple(names))]

    def _stored(self, tensor: Tensor) -> Tensor:
        """The tensor as it is kept in memory: rounded to the storage type, if the precision mode names one."""
        storage = self.compiler.storage
        if storage is None or tensor.dtype is not dtypes.float32:
            return tensor
        return te.compute(tensor.shape, lambda *index: cast(cast(tensor[index], storage), dtypes.float32))

    def _rounded(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """A weight as the storage type keeps it."""
        storage = self.compiler.storage
        if storage is None or array.dtype != np.float32:
            return array
        with np.errstate(over="ignore"):
            return array.astype(storage.numpy).astype(np.float32)

    def _generate(self, group: Group, outputs: Sequence[Output]) -> Generated:
        inputs = {v.name or "": v for v in group.inputs}
        layouts = {name: self.layouts[v] for name, v in inputs.items() if v in self.layouts}
        if not contractions([o.tensor for o in outputs]):
            return Generated(generate(outputs, layouts, self.compiler.target, _family(group)))
        return generate_contraction(outputs, layouts, self.compiler.target, self._constants(group), self.winograd)

    def _constants(self, group: Group) -> Constants:
        """The values of a group's constant operands by name."""
        inputs = {v.name or "": v for v in group.inputs}

        def constant(name: str) -> np.ndarray[Any, Any] | None:
            value = inputs.get(name)
            return None if value is None or value.const_value is None else self._rounded(value.const_value.numpy())

        return constant

    def _concatenation(self, node: ir.Node) -> list[tuple[Kernel, tuple[str, ...]]]:
        """One copy for each operand, into its part of the result."""
        result = node.outputs[0]
        type_ = static_type(result)
        assert type_ is not None
        axis = node.attributes["axis"].as_int() % len(type_.shape)
        kernels: list[tuple[Kernel, tuple[str, ...]]] = []
        start = 0
        for value in node.inputs:
            part = None if value is None else static_type(value)
            assert value is not None
            assert part is not None
            there = part_offset(self.layouts.get(result, ND), type_, axis, start, self.lanes)
            if math.prod(part.shape) and not self.aliases.lies_at(value, result, there):
                source = te.placeholder(value.name or "", part.shape, part.dtype)
                piece = te.compute(part.shape, lambda *index, source=source: source[index])
                offset = tuple(start if d == axis else 0 for d in range(len(part.shape)))
                place = Place(type_.shape, self.layouts.get(result, ND), offset)
                layouts = {value.name or "": self.layouts[value]} if value in self.layouts else {}
                kernel = generate([Output(result.name or "", piece, within=place)], layouts, self.compiler.target, "concat")
                self.kernels[kernel.symbol] = kernel.ir
                kernels.append((kernel, (result.name or "",)))
            start += part.shape[axis]
        return kernels

    def _note_tables(self, tensors: Sequence[Tensor]) -> None:
        """Remember tables made by lowerings, which kernels name among their arguments."""
        seen: set[int] = set()
        stack = list(tensors)
        while stack:
            tensor = stack.pop()
            if id(tensor) in seen:
                continue
            seen.add(id(tensor))
            if isinstance(tensor, Constant):
                self.buffers[tensor.name] = self.compiler.constants.add(tensor.value)
            elif isinstance(tensor, Compute | Reduction):
                stack += [e.tensor for e in walk(tensor.body) if isinstance(e, Load)]

    # ---- steps
    def _steps(
        self, units: Sequence[Unit], launches: Mapping[Unit, list[tuple[Kernel, tuple[str, ...]]]], deferred: Sequence[ir.Node]
    ) -> list[Step]:
        steps: list[Step] = []
        tasks: list[Task] = []
        for unit in units:
            if unit.kind == AICORE:
                tasks += [self._task(unit, kernel, names) for kernel, names in launches.get(unit, ())]
            elif unit.kind in (AICPU, CONTROL):
                if tasks:
                    steps.append(NativeStep(tuple(tasks)))
                    tasks = []
                steps += self._host_step(unit.nodes[0]) if unit.kind == AICPU else self._control_step(unit.nodes[0])
        if tasks:
            steps.append(NativeStep(tuple(tasks)))
        if deferred:
            steps += self._deferred_step(deferred)
        return steps + self._host_constants(self.graph.outputs)

    def _task(self, unit: Unit, kernel: Kernel, outputs: tuple[str, ...]) -> Task:
        by_name = {v.name: v for v in (*unit.inputs, *(v for n in unit.nodes for v in n.outputs))}
        buffers = []
        for name in kernel.arguments:
            if name in self.buffers:
                buffers.append(self.buffers[name])
            else:
                buffers.append(self._buffer(by_name[name]))
        nodes, types = tuple(n.name or "" for n in unit.nodes), tuple(n.op_type for n in unit.nodes)
        return Task(kernel.symbol, tuple(buffers), kernel.tasks, kernel.scratch_bytes, nodes, types, outputs, kernel.flops)

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
            if value.const_value is None or value.name in self.values:
                continue
            if static_type(value) is not None:
                self._locate(value, self._buffer(value))
                continue
            node = onnx.helper.make_node(
                "Constant", [], [value.name or ""], name=f"{value.name}/constant", value=ir.to_proto(value.const_value)
            )
            steps.append(HostStep(node.SerializeToString(), OPSET, node.name, "Constant", (), (value.name or "",)))
        return steps

    def _control_step(self, node: ir.Node) -> list[Step]:
        kinds = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",)}
        bodies = [extract_body(node.attributes[key].as_graph()) for key in kinds[node.op_type]]
        names = [self._add_region(f"{self.prefix}{node.name}/{key}", body) for key, body in zip(kinds[node.op_type], bodies, strict=True)]
        steps = self._host_constants([v for v in node.inputs if v is not None])
        attributes = {a.name: a.value for a in node.attributes.values() if a.type in (ir.AttributeType.INT, ir.AttributeType.INTS)}
        captures = tuple(tuple(v.name or "" for v in body.captures) for body in bodies)
        inputs = tuple("" if v is None else v.name or "" for v in node.inputs)
        outputs = tuple(v.name or "" for v in node.outputs)
        kind = node.op_type.lower()
        assert kind in ("if", "loop", "scan")
        return [*steps, RegionStep(kind, node.name or "", tuple(names), inputs, captures, outputs, attributes)]  # type: ignore[arg-type]

    def _deferred_step(self, nodes: Sequence[ir.Node]) -> list[Step]:
        extracted = extract_nodes(self.graph, nodes, "deferred")
        name = self._add_region(f"{self.prefix}{nodes[0].name}/deferred", extracted)
        captures = tuple(v.name or "" for v in extracted.captures)
        outputs = tuple(v.name or "" for v in extracted.outputs)
        return [RegionStep("deferred", nodes[0].name or "", (name,), (), (captures,), outputs)]

    def _add_region(self, name: str, extracted: Extracted) -> str:
        unique = name
        while unique in self.regions:
            unique += "_"
        self.regions[unique] = extracted.model
        return unique

    def _output_spec(self, value: ir.Value) -> TensorSpec:
        type_ = static_type(value)
        if type_ is not None:
            return TensorSpec(value.name or "", type_.dtype.name, type_.shape)
        return TensorSpec(value.name or "", "object", ())


def _family(group: Group) -> str:
    """A readable prefix for the kernel's symbol."""
    kinds = list(dict.fromkeys(node.op_type.lower() for node in group.nodes))
    return "_".join(kinds[:3])


def _node_reports(engines: Mapping[ir.Node, Engine]) -> list[NodeReport]:
    kinds = {VIEW: AICORE, EMPTY: AICORE, CONTROL: AICPU}
    return [
        NodeReport(node.name or "", node.op_type, kinds.get(engine.kind, engine.kind), engine.reason)
        for node, engine in engines.items()
        if node.op_type != "TransData"
    ]

"""One graph and the shapes of its inputs to a program: the stages in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from anycann.assembly.bands import join_in_bands
from anycann.assembly.compiled import Apart, Compiled, NodeReport
from anycann.assembly.graph_space import BANDS, FUSION, LAYOUT, graph_space
from anycann.assembly.kernels import Generators, KernelMaker, Launch, Watch
from anycann.assembly.placement import Placement, stored_bytes
from anycann.assembly.steps import StepWriter
from anycann.assembly.weights import ConstantSink, Weights
from anycann.assembly.windows import find_windows, join_windows
from anycann.codegen.kernels.arithmetic_rate import multiplies_bfloat
from anycann.codegen.kernels.dot_products import DotProducts
from anycann.codegen.kernels.dot_space import gains_by_words
from anycann.codegen.space import Choices, Tuned
from anycann.graph.registry import TensorType, dtype_of, library, static_type
from anycann.om.plan import Program, TensorSpec
from anycann.passes.aliases import find_aliases
from anycann.passes.grouping import group_nodes
from anycann.passes.layout import assign_layouts, insert_transfers
from anycann.passes.narrow import narrow_values
from anycann.passes.order import Unit, order_units
from anycann.passes.partition import AICORE, AICPU, CONTROL, DEFERRED, EMPTY, VIEW, Engine, assign_engines
from anycann.passes.pipeline import Report, run_passes
from anycann.passes.planes import planar_convolutions
from anycann.passes.precision import round_inputs
from anycann.passes.widen import HALVES, is_widened
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te.dtypes import DType

_FOR_FEW_REGISTERS = frozenset({"StridedPixels"})  # rules that were measured with 16 vector registers only
_FOR_BYTES = frozenset({"SplitZeroPoint"})  # rules that keep operands bytes, where words are multiplied anyway
_FOR_WORDS = frozenset({"IntegerActivations"})  # rules that make products of words of products of floats


@dataclass(frozen=True)
class GraphCompiler:
    """Compiles graphs for one target; weights go into `constants`, of which every program gets the same copy."""

    target: Target
    constants: ConstantSink
    storage: DType | None = None  # float16, bfloat16: what float32 results are rounded to when a kernel stores them
    switched_off: frozenset[str] = frozenset()
    fuse: bool = True
    tuned: Tuned | None = None  # measured choices, from a knowledge bank
    watch: Watch | None = None  # sees every kernel before it is generated

    def compile(self, model: ir.Model, inputs: Sequence[TensorSpec], prefix: str = "") -> Compiled:
        """The program of `model` (which is not changed) for inputs of these specs, in the order of the graph's inputs.

        dtype "object" stands for an input that is no numeric tensor. `prefix` makes the names of regions unique.
        """
        clone = model.clone()
        inputs = [replace(spec, name=v.name or "") for v, spec in zip(clone.graph.inputs, inputs, strict=True)]
        types = {v.name or "": type_of(spec) for v, spec in zip(clone.graph.inputs, inputs, strict=True)}
        if self.storage is not None:
            round_inputs(clone.graph, self.storage)
        switched_off = self._switched_off(clone.graph, inputs)
        reports = run_passes(clone, types, switched_off)
        compiler = replace(self, storage=dtypes.float16) if is_widened(clone.graph) else self
        _materialise_outputs(clone.graph)
        common.NameFixPass()(clone)
        return compiler._assemble(clone.graph, inputs, prefix, reports, _own_weights(model.graph), switched_off)

    def _switched_off(self, graph: ir.Graph, inputs: Sequence[TensorSpec]) -> frozenset[str]:
        """What is left out by order, and because tuning found this graph faster without."""
        off = self.switched_off if self.target.has_few_registers else self.switched_off | _FOR_FEW_REGISTERS
        off = off | _FOR_BYTES if DotProducts(dtypes.uint8, self.target).widens else off
        off = off if gains_by_words(self.target) else off | _FOR_WORDS
        off = off if self.storage is None else off | {HALVES}
        return off if self.tuned is None else off | Choices(tuned=self.tuned).tile(graph_space(graph, inputs, self.target)).off

    def _assemble(
        self,
        graph: ir.Graph,
        inputs: Sequence[TensorSpec],
        prefix: str,
        reports: list[Report],
        own: dict[int, str],
        switched_off: frozenset[str],
    ) -> Compiled:
        """The stages after the passes. `own`: names of the model's weights by the id of their tensor."""
        narrow = self.storage is dtypes.bfloat16 and multiplies_bfloat(self.target)
        registry, lanes, weights = library(), self.target.lanes, Weights(self.constants, self.storage, not narrow, own)
        choices = replace(Choices.without(switched_off, self.tuned), held=_known_bytes(graph) <= _HELD_BYTES)
        generators = Generators(registry, self.target, choices, self.watch)
        engines = assign_engines(graph, registry, generators.problem)
        groups = group_nodes(graph, engines, registry, self.fuse and FUSION not in switched_off)
        if narrow:
            from anycann.codegen import contract_attention

            narrow_values(graph, engines, groups, registry, lambda attention: contract_attention.multiplies_bfloat(attention, self.target))
        planar = planar_convolutions(graph, groups, generators.gains_by_planes, generators.reads_planes)
        layouts = {} if LAYOUT in switched_off else assign_layouts(graph, engines, groups, lanes, planar)
        insert_transfers(graph, engines, groups, layouts, generators.wanted_layout, planar)
        units = order_units(graph, engines, groups)
        deferred = [node for node in graph if engines[node].kind == DEFERRED]
        aliases = find_aliases(units, layouts, graph, lanes)
        in_turns = self.fuse and not switched_off & {FUSION, BANDS}
        windows = find_windows(units, layouts, aliases, generators) if in_turns else []
        kernels = KernelMaker(generators, weights, layouts | {each.value: each.layout for each in windows}, aliases)
        launches: Mapping[Unit, list[Launch]] = kernels.launches(units)
        if in_turns:
            units, launches = join_windows(units, launches, kernels, windows)
            units, launches = join_in_bands(units, launches, kernels, self.target, lambda value: stored_bytes(value, layouts, lanes))
        placement = Placement(graph, units, deferred, layouts, aliases, kernels, weights, lanes)
        writer = StepWriter(graph, placement, kernels, prefix)
        steps = tuple(writer.write(units, launches, deferred))
        outputs = tuple(_output_spec(value) for value in graph.outputs)
        program = Program(tuple(inputs), outputs, placement.arena_bytes, steps, placement.values)
        apart = [Apart(name, g.nodes[0].name or "", why) for g in dict.fromkeys(groups.values()) for name, why in g.skipped]
        return Compiled(program, kernels.texts, writer.regions, _node_reports(engines), reports, apart, placement.intervals, weights.places)


# Known values of a graph that wait in the third-level cache for its next run; those that Winograd's algorithm transforms grow fourfold.
_HELD_BYTES = 4 << 20


def _known_bytes(graph: ir.Graph) -> int:
    return sum(value.const_value.nbytes for value in graph.initializers.values() if value.const_value is not None and value.uses())


def _own_weights(graph: ir.Graph) -> dict[int, str]:
    return {id(value.const_value): name for name, value in graph.initializers.items() if value.const_value is not None}


def type_of(spec: TensorSpec) -> TensorType | None:
    """The type of an input that kernels read; None for any other."""
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


def _output_spec(value: ir.Value) -> TensorSpec:
    type_ = static_type(value)
    if type_ is not None:
        return TensorSpec(value.name or "", type_.dtype.name, type_.shape)
    return TensorSpec(value.name or "", "object", ())


def _node_reports(engines: Mapping[ir.Node, Engine]) -> list[NodeReport]:
    kinds = {VIEW: AICORE, EMPTY: AICORE, CONTROL: AICPU}
    return [
        NodeReport(node.name or "", node.op_type, kinds.get(engine.kind, engine.kind), engine.reason)
        for node, engine in engines.items()
        if node.op_type != "TransData"
    ]

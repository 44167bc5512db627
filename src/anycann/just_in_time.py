"""Programs compiled while a session runs: for the shapes it is fed, and for the regions whose shapes only running can tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
import os
import threading

import numpy as np
import onnx
import onnx_ir as ir

from anycann.assembly import Compiled, GraphCompiler, NodeReport, type_of
from anycann.codegen.kernel_cache import compile_kernels
from anycann.codegen.kernels.open_attention import OpenAttention, emit_open_attention
from anycann.compiler import declared_spec
from anycann.frontends.onnx.defaults import overridable, with_inputs
from anycann.frontends.onnx.load import load_model
from anycann.frontends.onnx.upgrade import upgrade_model
from anycann.graph.registry import static_type
from anycann.graph.types import numpy_dtype
from anycann.om.growing import GrowingConstants
from anycann.om.model import OfflineModel, input_key
from anycann.om.plan import Program, TensorSpec
from anycann.om.weights import load_graph
from anycann.passes.open_attention import AttentionPart
from anycann.passes.open_sizes import OpenGraph, Part, RowPart, cut
from anycann.passes.partition import AICORE, AICPU
from anycann.passes.precision import KEEP_TYPES, storage_of
from anycann.passes.regions import Extracted
from anycann.support.heap import give_back
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.tuning.bank import open_bank

_MOVES = "its sizes change from call to call, and the host needs no new kernel for them"
LARGE_BYTES = 8 << 20  # packing that many weights takes longer than giving memory back
Source = str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model


@dataclass(frozen=True)
class Choices:
    """What may differ between compilations of one model (`SessionOptions`)."""

    target: Target
    switched_off: frozenset[str] = frozenset()
    fuse: bool = True


@dataclass(frozen=True)
class Ready:
    """A program with its object code."""

    program: Program
    code: Mapping[str, bytes]
    nodes: list[NodeReport]


@dataclass(frozen=True)
class OpenPart:
    """A program of kernels in an open graph, and what its inputs and outputs are called there."""

    program: Program
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class OpenRows:
    """What computes each row by itself in an open graph, compiled `compile_for` a block of so many rows.

    inputs: in one call, their rows along `axes`, None for one that stays. outputs, output_axes: what they are called, and where rows lie.
    results: those in that call. host: gives nodes for the host, and what they read beside `inputs`; None where it does not know them, or
    would have to unpack what they read.
    """

    compile_for: Callable[[int], Ready]
    inputs: tuple[TensorSpec, ...]
    axes: tuple[int | None, ...]
    outputs: tuple[str, ...]
    output_axes: tuple[int, ...]
    results: tuple[TensorSpec, ...]
    host: Callable[[], tuple[list[onnx.NodeProto], Mapping[str, np.ndarray]]] | None


@dataclass(frozen=True)
class OpenHeads:
    """Attention of any number of rows and keys in an open graph: its kernel, or the nodes it stands for.

    turned: the key is [.., keys, depth]. inputs: what the kernel reads, in order, then what else the nodes do.
    """

    what: OpenAttention
    turned: bool
    symbol: str
    nodes: tuple[onnx.NodeProto, ...]
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class OpenReady:
    """An open graph with its object code: programs and nodes for the host, in the order in which they run.

    Programs for blocks of rows are compiled when they are needed.
    """

    graph: OpenGraph
    parts: tuple[OpenPart | OpenRows | OpenHeads | tuple[onnx.NodeProto, ...], ...]
    code: Mapping[str, bytes]
    nodes: list[NodeReport]


class JustInTimeCompiler:
    """Compiles one model for any input shapes; all its programs share `constants`. Safe to use from several threads.

    load: gives the model, when it is first asked for. precision_mode: "" keeps its types. apart: kernels are compiled in other processes,
    so that this one does without LLVM.
    """

    def __init__(self, load: Callable[[], ir.Model], choices: Choices, precision_mode: str = "", apart: bool = False):
        self._load = load
        self._apart = apart
        self.constants = GrowingConstants()
        self.regions: dict[str, ir.Model] = {}  # those of the programs compiled here
        self._load_region = self.regions.__getitem__
        self._target = choices.target
        storage = storage_of(precision_mode or KEEP_TYPES)
        bank = open_bank(choices.target)
        self._compiler = GraphCompiler(choices.target, self.constants, storage, choices.switched_off, choices.fuse, bank)
        self._lock = threading.Lock()

    @classmethod
    def of_source(cls, source: Source, choices: Choices, precision_mode: str = "") -> JustInTimeCompiler:
        """For a model in ONNX's format. Raises ModelError, UnsupportedError, and UsageError for an unknown precision mode."""
        model = upgrade_model(load_model(source))
        return cls(lambda: model, choices, precision_mode)

    @classmethod
    def of_offline_model(cls, offline: OfflineModel, where: str, choices: Choices) -> JustInTimeCompiler:
        """For the graph of an offline model, in its precision; its big weights stay where they are mapped."""
        constants = np.asarray(offline.constants)
        load = partial(load_graph, offline.graph, constants, f"{where}, section graph")
        compiler = cls(load, choices, str(offline.metadata["precision"]), apart=True)
        compiler._load_region = lambda name: load_graph(offline.regions[name].graph, constants, f"{where}, region {name}")
        return compiler

    @cached_property
    def model(self) -> ir.Model:
        """The model. A process that only compiles regions of an offline model never needs it."""
        return self._load()

    def inputs(self) -> tuple[TensorSpec, ...]:
        """The inputs as the model declares them; dtype "object" for what is no numeric tensor."""
        return tuple(_declared(value) for value in self.model.graph.inputs)

    def outputs(self) -> tuple[TensorSpec, ...]:
        """The outputs as the model declares them."""
        return tuple(_declared(value) for value in self.model.graph.outputs)

    def overridable(self) -> tuple[TensorSpec, ...]:
        """Inputs with a default value, as the model declares them."""
        return tuple(_declared(value) for value in overridable(self.model.graph))

    def types(self) -> dict[str, str]:
        """ONNX Runtime's word for the type of each input and output that is no numeric tensor."""
        values = [*self.model.graph.inputs, *self.model.graph.outputs, *overridable(self.model.graph)]
        return {v.name or "": _type_text(v) for v in values}

    def compile(self, specs: Sequence[TensorSpec], fed: Sequence[TensorSpec] = ()) -> Ready:
        """The program for these inputs. `fed` are inputs with a default value that are fed too; they follow the others."""
        model = with_inputs(self.model, [spec.name for spec in fed]) if fed else self.model
        return self._ready(model, [*specs, *fed], f"{input_key(specs, fed)}/")

    def compile_open(self, one: Sequence[TensorSpec], other: Sequence[TensorSpec]) -> OpenReady | None:
        """A program for all inputs that differ as these two do; None where there is no such, or none that computes in the model's types."""
        if self._compiler.storage is not None:
            return None
        names = [value.name or "" for value in self.model.graph.inputs]
        types = [{name: type_of(spec) for name, spec in zip(names, specs, strict=True)} for specs in (one, other)]
        with self._lock:
            graph = cut(self.model, *types)
            if graph is None:
                return None
            kernels: dict[str, str] = {}
            nodes: list[NodeReport] = []
            parts = [self._open_part(part, f"open/{input_key(one)}/{number}/", kernels, nodes) for number, part in enumerate(graph.parts)]
        return OpenReady(graph, tuple(parts), compile_kernels(kernels, self._target, apart=self._apart), nodes)

    def _open_rows(self, part: RowPart, prefix: str) -> OpenRows:
        inputs, outputs = (tuple(value.name or "" for value in values) for values in (part.graph.captures, part.graph.outputs))
        specs = tuple(TensorSpec(name, t.dtype.name, t.shape) for name, t in zip(inputs, part.types, strict=True))

        def compile_for(rows: int) -> Ready:
            shapes = [
                [rows if number == axis else size for number, size in enumerate(s.shape)] for s, axis in zip(specs, part.axes, strict=True)
            ]
            fed = [TensorSpec(spec.name, spec.dtype, tuple(shape)) for spec, shape in zip(specs, shapes, strict=True)]
            return self._ready(part.graph.model, fed, f"{prefix}rows/{rows}/")

        def for_host() -> tuple[list[onnx.NodeProto], Mapping[str, np.ndarray]]:
            read = [value for node in part.nodes for value in node.inputs if value is not None]
            weights = {value.name or "": value.const_value.numpy() for value in read if value.const_value is not None}
            return [ir.to_proto(node) for node in part.nodes], weights

        results = tuple(TensorSpec(name, t.dtype.name, t.shape) for name, t in zip(outputs, part.output_types, strict=True))
        host = for_host if part.nodes and not self._apart else None
        return OpenRows(compile_for, specs, part.axes, outputs, part.output_axes, results, host)

    def _open_heads(self, part: AttentionPart, kernels: dict[str, str], nodes: list[NodeReport]) -> OpenHeads:
        what = OpenAttention(part.depth, part.width, part.scale, len(part.operands) > 3)
        symbol, text = emit_open_attention(what, self._target).finish("open_attention")
        kernels[symbol] = text
        nodes += [NodeReport(node.name or "", node.op_type, AICORE, "") for node in part.nodes]
        made = {value for node in part.nodes for value in node.outputs}
        others = {v: None for node in part.nodes for v in node.inputs if v is not None and v not in made and v not in part.operands}
        names = tuple(value.name or "" for value in (*part.operands, *others))
        return OpenHeads(what, part.turned, symbol, tuple(map(ir.to_proto, part.nodes)), names)

    def _open_part(
        self, part: Part, prefix: str, kernels: dict[str, str], nodes: list[NodeReport]
    ) -> OpenPart | OpenRows | OpenHeads | tuple[onnx.NodeProto, ...]:
        if isinstance(part, RowPart):
            return self._open_rows(part, prefix)
        if isinstance(part, AttentionPart):
            return self._open_heads(part, kernels, nodes)
        if not isinstance(part, Extracted):
            nodes += [NodeReport(node.name or "", node.op_type, AICPU, _MOVES) for node in part]
            return tuple(ir.to_proto(node) for node in part)
        types = [static_type(value) for value in part.captures]
        specs = [TensorSpec(v.name or "", t.dtype.name, t.shape) for v, t in zip(part.captures, types, strict=True) if t is not None]
        compiled = self._compiler.compile(part.model, specs, prefix)
        self.regions.update(compiled.regions)
        kernels.update(compiled.kernels)
        nodes += compiled.nodes
        return OpenPart(compiled.program, tuple(spec.name for spec in specs), tuple(value.name or "" for value in part.outputs))

    def compile_region(self, region: str, specs: Sequence[TensorSpec]) -> Ready:
        """The program of a region that a program of this model names."""
        model = self.regions[region] if region in self.regions else self._load_region(region)
        return self._ready(model, specs, f"{region}/{input_key(specs)}/")

    def _ready(self, model: ir.Model, specs: Sequence[TensorSpec], prefix: str) -> Ready:
        with self._lock:
            before = self.constants.nbytes
            compiled: Compiled = self._compiler.compile(model, specs, prefix)
            self.regions.update(compiled.regions)
            packed = self.constants.nbytes - before
        if packed >= LARGE_BYTES:
            give_back()  # folded, widened and transposed weights, which the graphs of the compiler refer to in cycles
        return Ready(compiled.program, compile_kernels(compiled.kernels, self._target, apart=self._apart), compiled.nodes)


def _declared(value: ir.Value) -> TensorSpec:
    spec = declared_spec(value)
    if not isinstance(value.type, ir.TensorType) or value.shape is None:
        return TensorSpec(spec.name, "object", ())
    return spec


def _type_text(value: ir.Value) -> str:
    if not isinstance(value.type, ir.TensorType):
        return str(value.type)
    if value.type.dtype == ir.DataType.STRING:
        return "tensor(string)"
    return tensor_type(str(numpy_dtype(int(value.type.dtype))))


def tensor_type(dtype: str) -> str:
    """`tensor(float)` for float32, as ONNX Runtime writes it."""
    names = {"float32": "float", "float64": "double"}
    return f"tensor({names.get(dtype, dtype)})"

"""Run a model: compile it or load it compiled, specialise it for the shapes it is fed, and compute its outputs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
import os
from pathlib import Path
import threading
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
import onnx
import onnx_ir as ir

from anycann.assembly import Compiled, GraphCompiler, NodeReport
from anycann.codegen.kernel_cache import compile_kernels
from anycann.frontends.onnx.load import load_model
from anycann.frontends.onnx.upgrade import upgrade_model
from anycann.graph.evaluate import evaluate_node
from anycann.graph.types import numpy_dtype
from anycann.om.growing import GrowingConstants
from anycann.om.model import OfflineModel, input_key
from anycann.om.plan import TensorSpec
from anycann.om.reader import is_offline_model, read_offline_model
from anycann.om.weights import load_graph
from anycann.passes.precision import storage_of
from anycann.runtime.executor import CompiledProgram
from anycann.runtime.host import HostRunner
from anycann.runtime.loader import LoadedCode
from anycann.runtime.region_cache import RegionCache
from anycann.runtime.thread_pool import ThreadPool, shared_pool
from anycann.support import options as settings
from anycann.support.errors import UsageError, context
from anycann.target.target import Target, host
from anycann.te.dtypes import DType

Source: TypeAlias = "str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model"
Array: TypeAlias = NDArray[Any]

PROGRAMS_KEPT = 32  # programs for input shapes met lately


@dataclass(frozen=True)
class SessionOptions:
    """How a session compiles and runs.

    num_threads: 0 takes ANYCANN_NUM_THREADS, else the processors there are. target: what is compiled for (host() if None). switched_off:
    names of passes and rules to leave out. fuse: False compiles every node by itself. poison: fill memory with 0xFF before each run.
    """

    num_threads: int = 0
    target: Target | None = None
    switched_off: frozenset[str] = frozenset()
    fuse: bool = True
    poison: bool = False


@dataclass(frozen=True)
class NodeArg:
    """An input or output as the model declares it: `type` in ONNX Runtime's words ("tensor(float)"), open sizes by name or None."""

    name: str
    type: str
    shape: tuple[int | str | None, ...]


@dataclass
class _Loaded:
    """A program ready to run and how it was compiled."""

    executable: CompiledProgram
    nodes: list[NodeReport] = field(default_factory=list)


class InferenceSession:
    """A model ready to run, in the manner of ONNX Runtime. Safe to use from several threads at once.

    model: path or bytes of an `.onnx` or `.om` file, a ModelProto or an onnx_ir model. Input shapes that the model leaves open are taken
    from the feeds; a program for new shapes is compiled when they are met first, and the last ones are kept.
    """

    def __init__(self, model: Source, options: SessionOptions | None = None, *, num_threads: int | None = None):
        self.options = options or SessionOptions()
        self._engine = _Engine(model, self.options, num_threads or self.options.num_threads)
        graph = self._engine.model.graph
        self._inputs = tuple(_node_arg(value) for value in graph.inputs)
        self._outputs = tuple(_node_arg(value) for value in graph.outputs)
        self._types = tuple(_input_dtype(value) for value in graph.inputs)
        self._checked: dict[tuple[object, ...], CompiledProgram] = {}
        self._positions = {arg.name: n for n, arg in enumerate(self._outputs)}
        if all(isinstance(size, int) for arg in self._inputs for size in arg.shape) and all(self._types):
            self._engine.program(self._declared_specs())

    def get_inputs(self) -> tuple[NodeArg, ...]:
        """Name, type and shape of each input."""
        return self._inputs

    def get_outputs(self) -> tuple[NodeArg, ...]:
        """Name, type and shape of each output."""
        return self._outputs

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, object], outputs: Mapping[str, Array] | None = None) -> list[Any]:
        """Compute the named outputs (None: all) for `feeds` (input name -> numpy array, list for a sequence, None for an absent optional).

        `outputs` may give arrays to write results into, by output name. Raises UsageError for a wrong name, dtype, rank or shape.
        """
        values, executable = self._prepared(feeds)
        results = executable.run(values, None if outputs is None else self._buffers(outputs))
        return results if output_names is None else [results[self._output(name)] for name in output_names]

    def _prepared(self, feeds: Mapping[str, object]) -> tuple[list[object], CompiledProgram]:
        """The feeds in order and the program for their types; types that were checked once are not checked again."""
        values = [feeds.get(arg.name) for arg in self._inputs]
        key = tuple((v.dtype, v.shape) if type(v) is np.ndarray else None for v in values)
        executable = self._checked.get(key) if len(feeds) == len(values) and None not in key else None
        if executable is None:
            values = self._values(feeds)
            executable = self._engine.program(_specs(self._inputs, values)).executable
            if None not in key:
                self._checked = {**(self._checked if len(self._checked) < PROGRAMS_KEPT else {}), key: executable}
        return values, executable

    def engines(self) -> list[NodeReport]:
        """Where every node of the programs compiled so far runs, those in regions included: AiCore (native) or AiCpu, and why."""
        return self._engine.reports()

    # ---- checks
    def _output(self, name: str) -> int:
        if name not in self._positions:
            raise UsageError(f"output {name!r} is unknown; accepted: {', '.join(self._positions)}")
        return self._positions[name]

    def _buffers(self, outputs: Mapping[str, Array]) -> list[Array | None]:
        found: list[Array | None] = [None] * len(self._outputs)
        for name, array in outputs.items():
            found[self._output(name)] = array
        return found

    def _values(self, feeds: Mapping[str, object]) -> list[object]:
        names = {arg.name for arg in self._inputs}
        unknown = [name for name in feeds if name not in names]
        missing = [arg.name for arg in self._inputs if arg.name not in feeds]
        if unknown or missing:
            what = f"input {unknown[0]!r} is unknown" if unknown else f"input {missing[0]!r} is missing"
            raise UsageError(f"{what}; accepted: {', '.join(arg.name for arg in self._inputs) or 'none'}")
        return [_checked(arg, dtype, feeds[arg.name]) for arg, dtype in zip(self._inputs, self._types, strict=True)]

    def _declared_specs(self) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(a.name, str(t), a.shape) for a, t in zip(self._inputs, self._types, strict=True))


def _checked(arg: NodeArg, dtype: np.dtype[Any] | None, value: object) -> object:
    """A feed of the declared dtype and a shape that fits the declared one."""
    if dtype is None or value is None:
        return value
    if not isinstance(value, np.ndarray):
        value = np.asarray(value)
    if value.dtype != dtype:
        raise UsageError(f"input {arg.name!r} has dtype {value.dtype}; accepted: {dtype}")
    declared = arg.shape
    fits = len(declared) == value.ndim and all(not isinstance(d, int) or d == s for d, s in zip(declared, value.shape, strict=True))
    if not fits:
        raise UsageError(f"input {arg.name!r} has shape {list(value.shape)}; accepted: {[d if d is not None else '?' for d in declared]}")
    return value


def _specs(args: Sequence[NodeArg], values: Sequence[object]) -> tuple[TensorSpec, ...]:
    specs = []
    for arg, value in zip(args, values, strict=True):
        if not isinstance(value, np.ndarray) or value.dtype.kind in "OUST":
            specs.append(TensorSpec(arg.name, "object", ()))
        else:
            specs.append(TensorSpec(arg.name, value.dtype.name, value.shape))
    return tuple(specs)


def _node_arg(value: ir.Value) -> NodeArg:
    shape: tuple[int | str | None, ...] = ()
    if value.shape is not None:
        shape = tuple(size if isinstance(size, int) else size.value for size in value.shape)
    if not isinstance(value.type, ir.TensorType):
        return NodeArg(value.name or "", str(value.type), shape)
    names = {"float32": "float", "float64": "double", "bool": "bool"}
    name = value.type.dtype.name.lower() if value.type.dtype == ir.DataType.STRING else str(numpy_dtype(int(value.type.dtype)))
    return NodeArg(value.name or "", f"tensor({names.get(name, name)})", shape)


def _input_dtype(value: ir.Value) -> np.dtype[Any] | None:
    """The numpy dtype a feed must have; None for anything but a numeric tensor of known rank."""
    if not isinstance(value.type, ir.TensorType) or value.type.dtype == ir.DataType.STRING or value.shape is None:
        return None
    return numpy_dtype(int(value.type.dtype))


def _offline(model: Source) -> OfflineModel | None:
    """The offline model, if that is what is given."""
    if isinstance(model, bytes):
        return read_offline_model(model) if is_offline_model(model[:8]) else None
    if not isinstance(model, str | os.PathLike) or not os.path.isfile(model):
        return None
    with open(model, "rb") as file:
        start = file.read(8)
    return read_offline_model(model) if is_offline_model(start) else None


class _Engine:
    """Compiles and keeps the programs of one model."""

    def __init__(self, model: Source, options: SessionOptions, num_threads: int):
        self.source = Path(model).name if isinstance(model, str | os.PathLike) else "the model"
        self.target = options.target or host()
        self.options = options
        self.offline = _offline(model)
        self.storage: DType | None = None
        if self.offline is None:
            self.model = upgrade_model(load_model(model))
        else:
            self.model = load_graph(self.offline.graph, self.offline.constants, f"{self.source}, section graph")  # type: ignore[arg-type]
            self.storage = storage_of(str(self.offline.metadata["precision"]))
        self.constants = GrowingConstants()
        self.pool: ThreadPool = shared_pool(num_threads or settings.NUM_THREADS.get() or os.cpu_count() or 1)
        self.host = HostRunner(evaluate_node)
        self.regions: dict[str, ir.Model] = {}
        self._region_cache = RegionCache(self._compile_region)
        self._programs: OrderedDict[str, _Loaded] = OrderedDict()
        self._region_reports: list[NodeReport] = []
        self._lock = threading.RLock()
        self._load_offline()

    def _load_offline(self) -> None:
        """Take over the programs of an offline model whose code may be trusted; else everything is compiled from its graph."""
        code = None if self.offline is None else self.offline.trusted_code(self.target.key)
        if self.offline is None or code is None or self.options.poison:
            return
        loaded = LoadedCode(code, self.target)
        for name, region in self.offline.regions.items():
            self.regions[name] = load_graph(region.graph, self.offline.constants, f"{self.source}, region {name}")  # type: ignore[arg-type]
        for key, program in self.offline.programs.items():
            executable = CompiledProgram(program, self.offline.constants, loaded, self.pool, self.host, self._region_cache)  # type: ignore[arg-type]
            self._programs[key] = _Loaded(executable)

    def program(self, specs: tuple[TensorSpec, ...]) -> _Loaded:
        """The program for these input types, compiled if it is not there."""
        key = input_key(specs)
        loaded = self._programs.get(key)
        if loaded is not None:
            return loaded
        with self._lock:
            if key not in self._programs:
                with context(f"while compiling {self.source} for {key}"):
                    self._programs[key] = self._load(self._compile(self.model, specs, ""))
                if len(self._programs) > PROGRAMS_KEPT:
                    self._programs.popitem(last=False)
            return self._programs[key]

    def reports(self) -> list[NodeReport]:
        with self._lock:
            return [report for loaded in self._programs.values() for report in loaded.nodes] + list(self._region_reports)

    def _compile(self, model: ir.Model, specs: Sequence[TensorSpec], prefix: str) -> Compiled:
        compiler = GraphCompiler(self.target, self.constants, self.storage, self.options.switched_off, self.options.fuse)
        return compiler.compile(model, specs, prefix)

    def _load(self, compiled: Compiled) -> _Loaded:
        code = LoadedCode(compile_kernels(compiled.kernels, self.target), self.target)
        self.regions.update(compiled.regions)
        executable = CompiledProgram(
            compiled.program, self.constants.block, code, self.pool, self.host, self._region_cache, self.options.poison
        )
        return _Loaded(executable, compiled.nodes)

    def _compile_region(self, region: str, specs: tuple[TensorSpec, ...]) -> CompiledProgram:
        with self._lock:
            loaded = self._load(self._compile(self.regions[region], specs, f"{region}/{input_key(specs)}/"))
            self._region_reports += loaded.nodes
            return loaded.executable

"""Model in, offline model out: the core of atc, and the one place that knows every stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
import os

import numpy as np
import onnx
import onnx_ir as ir

from anycann import __version__
from anycann.assembly import Apart, GraphCompiler, KnownRegions, NodeReport, Watch
from anycann.codegen.kernel_cache import compile_kernels
from anycann.codegen.space import Tuned
from anycann.frontends.onnx.defaults import overridable
from anycann.frontends.onnx.load import load_model
from anycann.frontends.onnx.upgrade import upgrade_model
from anycann.graph.registry import dtype_of
from anycann.om.constants import ConstantPool
from anycann.om.metadata import specs_to_json
from anycann.om.model import OfflineModel, Region, input_key
from anycann.om.plan import Program, TensorSpec
from anycann.om.weights import store_graph
from anycann.passes.memory import Interval
from anycann.passes.pipeline import Report
from anycann.passes.precision import KEEP_TYPES, storage_of
from anycann.support.errors import UsageError, context
from anycann.support.records import dataclass
from anycann.target.target import Target, host
from anycann.tuning.bank import open_bank

Size = int | range  # a size, an inclusive range of sizes, or -1 for any


@dataclass(frozen=True)
class CompileOptions:
    """What atc's options come to.

    input_shapes: by input name; sizes may be open (-1, a range). gears: concrete shapes by input name, a program each. out_nodes: names of
    values (or `node:index`) to return instead of the model's outputs. precision_mode: see passes/precision.py. switched_off: passes and
    rules to leave out. arguments: the command line, kept in the metadata,
    as are further `notes`. banks: folders of knowledge banks to ask in place of the user's.
    tuned: measured choices to take in place of any bank's. watch: sees every kernel before it is generated.
    """

    name: str = "model"
    input_shapes: Mapping[str, tuple[Size, ...]] = field(default_factory=dict)
    gears: tuple[Mapping[str, tuple[int, ...]], ...] = ()
    out_nodes: tuple[str, ...] = ()
    precision_mode: str = KEEP_TYPES
    soc_version: str = "host"
    switched_off: frozenset[str] = frozenset()
    fuse: bool = True
    target: Target | None = None
    workers: int | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, object] = field(default_factory=dict)
    banks: tuple[str, ...] = ()
    tuned: Tuned | None = None
    watch: Watch | None = None


@dataclass
class Conversion:
    """An offline model, and what the passes said on the way of its first program (explain.py makes it readable)."""

    model: OfflineModel
    nodes: list[NodeReport]
    reports: list[Report]
    apart: list[Apart]
    intervals: list[Interval]


def compile_model(
    source: str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model,
    options: CompileOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> OfflineModel:
    """Compile an ONNX model. `progress(done, all)` is called as kernels are compiled. Raises ModelError, UnsupportedError, UsageError."""
    return convert_model(source, options, progress).model


def convert_model(
    source: str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model,
    options: CompileOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
    pool: ConstantPool | None = None,
) -> Conversion:
    """As `compile_model`, and also what every pass did (for `--explain`). Constants go to `pool`, an empty one (om/ahead.py has one)."""
    options = options or CompileOptions()
    model = upgrade_model(load_model(source))
    set_input_shapes(model.graph, options.input_shapes)
    set_outputs(model.graph, options.out_nodes)
    target = options.target or host()
    pool = ConstantPool() if pool is None else pool
    tuned = options.tuned or open_bank(target, options.banks)
    compiler = GraphCompiler(target, pool, storage_of(options.precision_mode), options.switched_off, options.fuse, tuned, options.watch)
    compiled, known = {}, KnownRegions(compiler)
    for shapes in gear_shapes(model.graph, options.gears):
        specs = input_specs(model.graph, shapes)
        key = input_key(specs)
        with context(f"while compiling {options.name} for {key}"):
            compiled[key] = compiler.compile(model, specs, f"{key}/" if options.gears else "")
            known.add(compiled[key], model.graph)
    graph = store_graph(model, pool, known.stored)
    code = compile_kernels(known.kernels, target, options.workers, progress)
    programs: dict[str, Program] = {key: each.program for key, each in compiled.items()}
    regions = {name: Region(store_graph(body, pool, known.stored), known.programs.get(name, {})) for name, body in known.graphs.items()}
    offline = OfflineModel(_metadata(model.graph, options, programs), graph, pool, programs, regions, {target.key: code})
    first = next(iter(compiled.values()), None)
    if first is None:
        return Conversion(offline, [], [], [], [])
    return Conversion(offline, [*first.nodes, *dict.fromkeys(known.nodes)], first.reports, first.apart, first.intervals)


# ---- what the options change in the graph
def set_input_shapes(graph: ir.Graph, shapes: Mapping[str, tuple[Size, ...]]) -> None:
    """Give inputs the shapes asked for. Raises UsageError for an unknown input, another rank, or a size the model contradicts."""
    inputs = {value.name: value for value in graph.inputs}
    for name, sizes in shapes.items():
        if name not in inputs:
            raise UsageError(f"input {name!r} is not in the model; accepted: {', '.join(str(n) for n in inputs)}")
        value = inputs[name]
        old = list(value.shape) if value.shape is not None else [None] * len(sizes)
        if len(old) != len(sizes):
            raise UsageError(f"input {name!r} has rank {len(old)}, the shape given has {len(sizes)} sizes: {list(sizes)}")
        new = []
        for size, declared in zip(sizes, old, strict=True):
            fixed = isinstance(size, int) and size >= 0
            if fixed and isinstance(declared, int) and declared != size:
                told = ", ".join(map(str, old))
                raise UsageError(f"input {name!r} has shape [{told}] in the model; {list(sizes)} contradicts it")
            new.append(size if fixed else declared)
        value.shape = ir.Shape(new)  # type: ignore[arg-type]


def set_outputs(graph: ir.Graph, names: Sequence[str]) -> None:
    """Return the named values instead of the model's outputs. A name is a value's, or `node:index`."""
    if not names:
        return
    values = {value.name: value for node in graph for value in node.outputs}
    values |= {f"{node.name}:{n}": value for node in graph for n, value in enumerate(node.outputs)}
    unknown = [name for name in names if name not in values]
    if unknown:
        raise UsageError(f"output {unknown[0]!r} is no value of the model and no node:index")
    graph.outputs[:] = [values[name] for name in names]


def gear_shapes(graph: ir.Graph, gears: Sequence[Mapping[str, tuple[int, ...]]]) -> list[dict[str, tuple[int, ...]]]:
    """Concrete shapes of all inputs, one set a gear; one set for a model of fixed shapes; none for open shapes without gears."""
    declared: dict[str, list[object]] = {v.name or "": list(v.shape) if v.shape is not None else [None] for v in graph.inputs}
    found = []
    for gear in gears or ({},):
        shapes = {name: list(gear.get(name, sizes)) for name, sizes in declared.items()}
        if all(isinstance(size, int) for sizes in shapes.values() for size in sizes):
            found.append({name: tuple(int(s) for s in sizes) for name, sizes in shapes.items()})  # type: ignore[call-overload]
        elif gears:
            raise UsageError(f"gear {dict(gear)} leaves a size open: inputs are {declared}")
    return found


def input_specs(graph: ir.Graph, shapes: Mapping[str, tuple[int, ...]]) -> tuple[TensorSpec, ...]:
    """Specs of the graph's inputs with those shapes."""
    return tuple(TensorSpec(v.name or "", _dtype_name(v), shapes[v.name or ""]) for v in graph.inputs)


def _dtype_name(value: ir.Value) -> str:
    dtype = dtype_of(value.dtype)
    if dtype is not None:
        return dtype.name
    return "object" if value.dtype is None or value.dtype == ir.DataType.STRING else str(np.dtype(value.dtype.numpy()))


def _metadata(graph: ir.Graph, options: CompileOptions, programs: Mapping[str, Program]) -> dict[str, object]:
    return {
        **options.notes,
        "name": options.name,
        "producer": f"anycann {__version__}",
        "soc_version": options.soc_version,
        "precision": options.precision_mode,
        "atc_arguments": dict(options.arguments),
        "inputs": specs_to_json(tuple(declared_spec(v) for v in graph.inputs)),
        "outputs": specs_to_json(tuple(declared_spec(v) for v in graph.outputs)),
        "overridable": specs_to_json(tuple(declared_spec(v) for v in overridable(graph))),
        "gears": [{"key": key} for key in programs] if options.gears else [],
        **_input_ranges(options.input_shapes),
    }


def _input_ranges(shapes: Mapping[str, tuple[Size, ...]]) -> dict[str, object]:
    """[least, most] of each size, -1 for no bound, of inputs that were given a range."""
    ranged = {name: sizes for name, sizes in shapes.items() if any(isinstance(size, range) for size in sizes)}
    return {"input_ranges": {name: [_bounds(size) for size in sizes] for name, sizes in ranged.items()}} if ranged else {}


def _bounds(size: Size) -> list[int]:
    if isinstance(size, range):
        return [size[0], size[-1]]
    return [size, size] if size >= 0 else [1, -1]


def declared_spec(value: ir.Value) -> TensorSpec:
    """An input or output as the graph declares it; open sizes are names or None."""
    sizes = () if value.shape is None else tuple(size if isinstance(size, int) else size.value for size in value.shape)
    return TensorSpec(value.name or "", _dtype_name(value), sizes)

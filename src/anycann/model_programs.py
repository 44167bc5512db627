"""The programs of one model, ready to run: those of an offline model as they are, others compiled when their shapes are met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
import itertools
import os
from pathlib import Path
import threading
import time
from typing import TYPE_CHECKING
import weakref

import numpy as np

from anycann.om.metadata import specs_from_json
from anycann.om.model import OfflineModel, input_key
from anycann.om.plan import Program, TensorSpec
from anycann.om.reader import is_offline_model, read_offline_model
from anycann.runtime.executor import CompiledProgram
from anycann.runtime.host import Evaluate, HostRunner
from anycann.runtime.launches import Loan
from anycann.runtime.loader import LoadedCode
from anycann.runtime.open_program import OpenProgram
from anycann.runtime.open_sizes import OPEN_SIZES, OpenSizes
from anycann.runtime.region_cache import RegionCache
from anycann.runtime.thread_pool import shared_pool
from anycann.support import options as settings
from anycann.support.errors import UsageError, context
from anycann.support.processors import available_processors
from anycann.support.records import dataclass
from anycann.support.weak_methods import weakly
from anycann.target.target import Target, host

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from anycann.assembly import NodeReport
    from anycann.host_regions import HostRegions
    from anycann.just_in_time import JustInTimeCompiler, Ready, Source

PROGRAMS_KEPT = 32  # programs for different input shapes; the one that was not used for longest goes first
_uses = itertools.count(1)


@dataclass(frozen=True)
class SessionOptions:
    """How a session compiles and runs.

    num_threads: 0 takes ANYCANN_NUM_THREADS, else the processors there are. target: what is compiled for (host() if None). switched_off:
    names of passes and rules to leave out. fuse: False compiles every node by itself. poison: fill memory with 0xFF before each run.
    precision_mode: ATC's, for a model that is compiled here ("mixed_bfloat16" is the fast one); "" keeps its types, or those of the `.om`.
    """

    num_threads: int = 0
    target: Target | None = None
    switched_off: frozenset[str] = frozenset()
    fuse: bool = True
    poison: bool = False
    precision_mode: str = ""


@dataclass
class Loaded:
    """A program ready to run, how it was compiled, and the number of its last use."""

    executable: CompiledProgram
    nodes: list[NodeReport] = field(default_factory=list)
    last_use: int = 0

    def use(self) -> CompiledProgram:
        """The program, which is kept longer than those that were used before."""
        self.last_use = next(_uses)
        return self.executable


class ModelPrograms:
    """Finds, compiles and keeps programs. A trusted offline model needs neither ONNX nor the compiler, so neither is imported.

    Programs with regions run for as long as this is held; when nobody holds it any more, it and its memory go at once.
    """

    def __init__(self, model: Source, options: SessionOptions, num_threads: int):
        self.where = Path(model).name if isinstance(model, str | os.PathLike) else "the model"
        self._source, self._options = model, options
        self._target = options.target or host()
        self._offline = _offline(model)
        self._loaded_code: LoadedCode | None = None  # of the offline model, if it may be trusted
        self._pool = shared_pool(num_threads or settings.NUM_THREADS.get() or available_processors())
        self._host = HostRunner(_prepare)
        self._region_cache = RegionCache(weakly(self._compile_region), run_on_host=weakly(self._run_region_on_host))
        self._programs: dict[str, Loaded] = {}
        self._compiled_shapes: set[tuple[object, ...]] = set()  # of the inputs of all programs, and of those that are gone
        self._region_reports: list[NodeReport] = []
        self._open_reports: weakref.WeakKeyDictionary[OpenProgram, list[NodeReport]] = weakref.WeakKeyDictionary()
        plain = not options.poison and options.fuse and OPEN_SIZES not in options.switched_off
        self._open_sizes = OpenSizes() if plain else None
        self._lock = threading.RLock()
        self._work: Loan | None = None  # memory of the caller's that runs work in
        self._check_precision()
        if self._offline is not None and not options.poison:
            self._take_over(self._offline)

    # ---- what the model is
    @cached_property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Inputs as the model declares them."""
        return self._compiler.inputs() if self._offline is None else specs_from_json(self._offline.metadata["inputs"], self.where)

    @cached_property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Outputs as the model declares them."""
        return self._compiler.outputs() if self._offline is None else specs_from_json(self._offline.metadata["outputs"], self.where)

    @cached_property
    def overridable(self) -> tuple[TensorSpec, ...]:
        """Inputs with a default value as the model declares them; a feed for one makes a program of its own."""
        if self._offline is None:
            return self._compiler.overridable()
        return specs_from_json(self._offline.metadata.get("overridable", []), self.where)

    @cached_property
    def types(self) -> Mapping[str, str]:
        """Types of inputs and outputs in ONNX Runtime's words, as far as they are known."""
        return self._compiler.types() if self._offline is None else {}

    @cached_property
    def ranges(self) -> Mapping[str, Sequence[Sequence[int]]]:
        """[least, most] of each size, -1 for no bound, of inputs for which the offline model was given ranges."""
        found = {} if self._offline is None else self._offline.metadata.get("input_ranges", {})
        return found if isinstance(found, Mapping) else {}

    def check_ranges(self, specs: Sequence[TensorSpec]) -> None:
        """Raises UsageError for an input whose shape is outside the range it was given."""
        for spec in specs:
            bounds = self.ranges.get(spec.name)
            if bounds is not None and not _is_within(spec.shape, bounds):
                words = ", ".join(str(low) if low == high else f"{low}~{high if high >= 0 else ''}" for low, high in bounds)
                raise UsageError(f"input {spec.name!r} has shape {list(spec.shape)}; {self.where} was converted for [{words}]")

    # ---- programs
    def use_memory(self, work: np.ndarray | None, weights: np.ndarray | None) -> None:
        """Run in memory of the caller's, uint8, aligned to 64 bytes with 64 readable ones behind. Before the first run.

        `work` is used by programs that need no more, one run at a time. The constants of an offline model are copied to `weights`.
        """
        if weights is not None and self._offline is not None:
            constants = np.asarray(self._offline.constants)
            weights[: constants.nbytes] = constants
            self._offline = replace(self._offline, constants=weights[: constants.nbytes])
            self._take_over(self._offline)
        self._work = None if work is None else Loan(work)
        for loaded in self._programs.values():
            self._lend(loaded.executable)

    def _lend(self, executable: CompiledProgram) -> None:
        if self._work is not None and executable.program.arena_bytes <= self._work.arena.nbytes:
            executable.lend(self._work)

    def find(self, specs: Sequence[TensorSpec], fed: Sequence[TensorSpec] = ()) -> Loaded:
        """The program for these input types, compiled if it is not there; it takes what `fed` says after the model's own inputs."""
        key = input_key(specs, fed)
        loaded = self._programs.get(key)
        if loaded is not None:
            return loaded
        self.check_ranges(specs)
        with self._lock:
            if key not in self._programs:
                start = time.perf_counter()
                with context(f"while compiling {self.where} for {key}"):
                    loaded = self._load(self._compiler.compile(specs, fed))
                    self._lend(loaded.executable)
                if self._open_sizes is not None and not fed:
                    self._open_sizes.compiled(tuple(specs), time.perf_counter() - start)
                if len(self._programs) >= PROGRAMS_KEPT:
                    del self._programs[min(self._programs, key=lambda known: self._programs[known].last_use)]
                self._programs[key] = loaded
                self._compiled_shapes.add(tuple(spec.shape for spec in specs))
            return self._programs[key]

    def run_open(self, specs: Sequence[TensorSpec], values: Sequence[object]) -> list[object] | None:
        """The outputs for input types that have no program, without compiling one; None where a program is there, or better made."""
        if self._open_sizes is None or input_key(specs, ()) in self._programs:
            return None
        self.check_ranges(specs)
        return self._open_sizes.run(tuple(specs), values, self._compile_open)

    def run_open_again(self, shapes: tuple[tuple[int, ...], ...], values: Sequence[object]) -> list[object] | None:
        """As `run_open`, of values that are known to fit; None also where more has to be decided than whether the program that ran last may
        run again."""
        if self._open_sizes is None or shapes in self._compiled_shapes or self.ranges:
            return None
        return self._open_sizes.run_again(shapes, values)

    def reports(self) -> list[NodeReport]:
        """Where every node of the programs compiled so far runs."""
        with self._lock:
            compiled = [report for loaded in self._programs.values() for report in loaded.nodes]
            opened = [] if self._open_sizes is None else self._open_sizes.programs()
            return compiled + [report for program in opened for report in self._open_reports[program]] + list(self._region_reports)

    @cached_property
    def _compiler(self) -> JustInTimeCompiler:
        from anycann.just_in_time import Choices, JustInTimeCompiler  # imports ONNX

        choices = Choices(self._target, self._options.switched_off, self._options.fuse)
        if self._offline is None:
            return JustInTimeCompiler.of_source(self._source, choices, self._options.precision_mode)
        return JustInTimeCompiler.of_offline_model(self._offline, self.where, choices)

    def _check_precision(self) -> None:
        """Raise UsageError where another precision is asked for than an offline model was converted with."""
        wanted = self._options.precision_mode
        if self._offline is not None and wanted and wanted != (own := self._offline.metadata["precision"]):
            raise UsageError(f"{self.where} was converted with --precision_mode={own}; for {wanted!r} it has to be converted again")

    def _take_over(self, offline: OfflineModel) -> None:
        """Use the programs of an offline model if its code may be trusted; else everything is compiled from its graph."""
        code = offline.trusted_code(self._target.key)
        if not code:
            return
        self._loaded_code = LoadedCode(code, self._target)
        for key, program in offline.programs.items():
            self._programs[key] = Loaded(self._offline_program(offline, program, self._loaded_code))
            self._compiled_shapes.add(tuple(spec.shape for spec in program.inputs))

    def _offline_program(self, offline: OfflineModel, program: Program, code: LoadedCode) -> CompiledProgram:
        return CompiledProgram(program, np.asarray(offline.constants), code, self._pool, self._host, self._region_cache)

    def _load(self, ready: Ready) -> Loaded:
        return Loaded(self._load_program(ready.program, LoadedCode(ready.code, self._target)), ready.nodes)

    def _load_program(self, program: Program, code: LoadedCode) -> CompiledProgram:
        """A program that was compiled here."""
        constants, poison = self._compiler.constants.block, self._options.poison
        return CompiledProgram(program, constants, code, self._pool, self._host, self._region_cache, poison)

    def _compile_open(self, one: Sequence[TensorSpec], other: Sequence[TensorSpec]) -> OpenProgram | None:
        """The program for inputs that differ as these do; None if there is none."""
        from anycann.open_programs import Surroundings, open_program  # imports ONNX and the code generator

        ready = self._compiler.compile_open(one, other)
        if ready is None:
            return None
        load_rows, nodes = weakly(self._load_rows), ready.nodes
        around = Surroundings(
            self._target,
            self._compiler.model.opset_imports[""],
            self._pool,
            self._load_program,
            lambda rows: load_rows(rows, nodes),
        )
        inputs, outputs = (tuple(spec.name for spec in specs) for specs in (self.inputs, self.outputs))
        opened = open_program(ready, inputs, outputs, around)
        self._open_reports[opened] = nodes
        return opened

    def _load_rows(self, ready: Ready, nodes: list[NodeReport]) -> CompiledProgram:
        loaded = self._load(ready)
        with self._lock:
            nodes += [report for report in loaded.nodes if report not in nodes]
        return loaded.executable

    def _compile_region(self, region: str, specs: tuple[TensorSpec, ...]) -> CompiledProgram:
        """The region's program for these inputs: as the offline model has it, else compiled."""
        if self._offline is not None and self._loaded_code is not None and region in self._offline.regions:
            program = self._offline.regions[region].programs.get(input_key(specs))
            if program is not None:
                return self._offline_program(self._offline, program, self._loaded_code)
        start = time.perf_counter()
        loaded = self._load(self._compiler.compile_region(region, specs))
        if self._host_regions is not None:
            self._host_regions.compiled(region, specs, time.perf_counter() - start)
        with self._lock:
            self._region_reports += loaded.nodes
        return loaded.executable

    @cached_property
    def _host_regions(self) -> HostRegions | None:
        """What computes regions without compiling them, if not every shape is to be compiled."""
        if self._open_sizes is None:
            return None
        from anycann.host_regions import HostRegions  # imports ONNX

        precision = self._options.precision_mode if self._offline is None else str(self._offline.metadata["precision"])
        return HostRegions(weakly(self._region_graph), precision)

    def _region_graph(self, region: str) -> ir.Model:
        """A region as it was cut from the graph."""
        if self._offline is not None and region in self._offline.regions:
            from anycann.om.weights import load_graph

            return load_graph(self._offline.regions[region].graph, np.asarray(self._offline.constants), f"{self.where}, region {region}")
        return self._compiler.regions[region]

    def _run_region_on_host(self, region: str, specs: tuple[TensorSpec, ...], values: Sequence[object]) -> list[object] | None:
        """The region's outputs; None if it has a program for these inputs, or is better given one."""
        known = None if self._offline is None else self._offline.regions.get(region)
        if known is not None and self._loaded_code is not None and input_key(specs) in known.programs:
            return None
        return None if self._host_regions is None else self._host_regions.run(region, specs, values)


def _offline(model: Source) -> OfflineModel | None:
    """The offline model, if that is what is given."""
    if isinstance(model, bytes):
        return read_offline_model(model) if is_offline_model(model[:8]) else None
    if not isinstance(model, str | os.PathLike) or not os.path.isfile(model):
        return None
    with open(model, "rb") as file:
        start = file.read(8)
    return read_offline_model(model) if is_offline_model(start) else None


def _prepare(node: onnx.NodeProto, opset: int) -> Evaluate:
    """A node for the AiCpu engine, imported when a program first needs it."""
    from anycann.graph.prepared import PreparedNode

    return PreparedNode(node, opset)


def _is_within(shape: Sequence[int | str | None], bounds: Sequence[Sequence[int]]) -> bool:
    """Whether every size is between its bounds; a size that is not known yet may be anything."""
    sizes = zip(shape, bounds, strict=False)
    return all(not isinstance(size, int) or (low <= size and (high < 0 or size <= high)) for size, (low, high) in sizes)

"""Looks on while a program runs and writes what its operators took and gave, as the settings say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
import threading
import time
from typing import TypeAlias

import numpy as np

from anycann.om.plan import Buffer, HostStep, NativeStep, Program, Task
from anycann.runtime.dump.files import operator_name as file_name
from anycann.runtime.dump.files import run_folder, stamp, write_operator_file
from anycann.runtime.dump.records import DumpedTensor, Record, can_be_dumped, record_bytes
from anycann.runtime.dump.settings import DumpSettings, ModelDump
from anycann.runtime.dump.statistics import statistics_text
from anycann.runtime.observe import Callback, StepEvent
from anycann.support.records import dataclass

NOT_DUMPED = frozenset({"Constant", "Identity", "If", "Loop", "Scan", "deferred", "if", "loop", "scan"})  # data and control flow
EVERYTHING = ModelDump()
Taker: TypeAlias = Callable[[Path, bytes], None]  # of a file's place and content
Inputs: TypeAlias = dict[tuple[str, ...], tuple[str, ...]]  # outputs of each step -> the values it reads


@dataclass(frozen=True)
class DumpedRun:
    """One run that begins. names: those of the model, the first is its folder's; none for a single operator."""

    program: Program
    names: tuple[str, ...]
    model_id: int
    device: int
    stream: int


class Dumper:
    """Dumps from the moment it is made on, into a folder of that moment unless `taker` does something else. Thread-safe."""

    def __init__(self, settings: DumpSettings, taker: Taker = write_operator_file):
        self.settings, self.taker = settings, taker
        self.root = Path(settings.path) / stamp()
        self._runs: Counter[tuple[int, int]] = Counter()
        self._inputs: dict[int, tuple[Program, Inputs]] = {}  # by the program's identity
        self._lock = threading.Lock()

    def watch(self, run: DumpedRun) -> Callback | None:
        """What looks on at this run; None if it is not dumped."""
        wanted = self.settings.of_model(*run.names) if run.names else EVERYTHING if self.settings.operators else None
        if wanted is None:
            return None
        if not run.names:
            return _RunDump(self, wanted, run, self.root / str(run.device))
        with self._lock:
            number = self._runs[run.device, run.model_id]
            self._runs[run.device, run.model_id] += 1
        if not self.settings.has_step(number):
            return None
        folder = run_folder(self.root, run.device, run.names[0], run.model_id, number)
        return _RunDump(self, wanted, run, folder)

    def inputs_of(self, program: Program | None) -> Inputs:
        """What the steps of a program read, if inputs are dumped."""
        if program is None or not self.settings.inputs:
            return {}
        if id(program) not in self._inputs:
            self._inputs[id(program)] = program, inputs_of(program)
        return self._inputs[id(program)][1]


class _RunDump:
    """Writes a file for each step of one run."""

    def __init__(self, dumper: Dumper, wanted: ModelDump, run: DumpedRun, folder: Path):
        self._settings, self._dumper, self._wanted, self._run, self._folder = dumper.settings, dumper, wanted, run, folder
        # values as they were when they were written, by program and name: later ones take their memory
        self._kept: dict[tuple[int, str], np.ndarray] = {}
        self._task = 0
        self._open_ranges = 0

    def __call__(self, event: StepEvent) -> None:
        self._task += 1
        if self._is_wanted(event):
            record = self._record(event)
            if not self._settings.overflow or overflowed(record.outputs):
                self._write(event, record)
        if self._settings.inputs:
            for name in event.outputs:
                if isinstance(value := event.tensor(name), np.ndarray):
                    self._kept[id(event.program), name] = value.copy()

    def _is_wanted(self, event: StepEvent) -> bool:
        if event.kind == "region" or all(op_type in NOT_DUMPED for op_type in event.op_types):
            return False
        names = {*event.nodes, operator_name(event)}
        self._open_ranges += sum(begin in names for begin, _ in self._wanted.ranges)
        in_range = self._open_ranges > 0
        self._open_ranges -= sum(end in names for _, end in self._wanted.ranges)
        chosen = bool(names & self._wanted.layers) or in_range
        return chosen or not (self._wanted.layers or self._wanted.ranges)

    def _record(self, event: StepEvent) -> Record:
        out_of = event.nodes[-1] if event.nodes else event.name
        outputs = [
            DumpedTensor(array, name, out_of, number)
            for number, name in enumerate(event.outputs)
            if self._settings.outputs and self._may(event, f"output{number}") and can_be_dumped(array := event.tensor(name))
        ]
        inputs = [
            DumpedTensor(array, name)
            for number, name in enumerate(self._dumper.inputs_of(event.program).get(event.outputs, ()))
            if self._may(event, f"input{number}") and can_be_dumped(array := self._value(event, name))
        ]
        notes = {"nodes": "\n".join(event.nodes), "op_types": "\n".join(event.op_types)}
        return Record(operator_name(event), time.time_ns() // 1000, tuple(outputs), tuple(inputs), notes)

    def _value(self, event: StepEvent, name: str) -> object:
        kept = self._kept.get((id(event.program), name))
        return event.tensor(name) if kept is None else kept

    def _may(self, event: StepEvent, position: str) -> bool:
        """False for a tensor that a filter leaves out."""
        by_type = [entry for entry in self._wanted.types_left_out if entry.name in event.op_types]
        by_name = [entry for entry in self._wanted.names_left_out if entry.name in (*event.nodes, operator_name(event))]
        return not any(not entry.positions or position in entry.positions for entry in (*by_type, *by_name))

    def _write(self, event: StepEvent, record: Record) -> None:
        if not record.inputs and not record.outputs:
            return
        statistics = self._settings.statistics
        op_type, suffix = event.op_types[0] if event.op_types else event.kind, ".csv" if statistics else ""
        name = file_name(op_type, record.operator, self._task, self._run.stream, record.time_us, suffix)
        content = statistics_text(record, statistics).encode() if statistics else record_bytes(record)
        self._dumper.taker(self._folder / name, content)


def operator_name(event: StepEvent) -> str:
    """What the operator of a step is called: its nodes' names one behind the other, as fused operators are on Ascend."""
    return "".join(event.nodes) or event.name


def overflowed(tensors: tuple[DumpedTensor, ...]) -> bool:
    """Whether a floating-point tensor holds infinities or NaN."""
    return any(has_overflow(tensor.array) for tensor in tensors)


def has_overflow(value: object) -> bool:
    """Whether a floating-point array holds infinities or NaN."""
    if not isinstance(value, np.ndarray) or (value.dtype.kind != "f" and value.dtype.name != "bfloat16"):
        return False
    return not bool(np.isfinite(value).all())


# ---- what a step reads
def inputs_of(program: Program) -> Inputs:
    """Outputs of each step -> the values it reads, as far as values have names: packed weights have none."""
    places = {_key(location.buffer): name for name, location in program.values.items() if location.buffer.space in ("input", "constants")}
    found: Inputs = {}
    for step in program.steps:
        for part in step.tasks if isinstance(step, NativeStep) else (step,):
            if isinstance(part, Task):
                found[part.outputs] = _read_by(part, program, places)
            elif isinstance(part, HostStep):
                found[tuple(name for name in part.outputs if name)] = tuple(name for name in part.inputs if name)
            for name in part.outputs:
                if name in program.values:
                    places[_key(program.values[name].buffer)] = name
    return found


def _read_by(task: Task, program: Program, places: dict[tuple[object, ...], str]) -> tuple[str, ...]:
    """The values behind a kernel's arguments, those behind its results left out once."""
    written = Counter(_key(program.values[name].buffer) for name in task.outputs if name in program.values)
    read: dict[str, None] = {}
    for argument in task.arguments:
        key = _key(argument)
        if written[key] > 0:
            written[key] -= 1
        elif key in places:
            read[places[key]] = None
    return tuple(read)


def _key(buffer: Buffer) -> tuple[object, ...]:
    return (buffer.space, buffer.offset_bytes, buffer.nbytes, buffer.index)

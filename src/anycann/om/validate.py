"""Checks of a program before anything native may follow it: every buffer inside its memory, every name and symbol known."""

from __future__ import annotations

from collections.abc import Collection, Iterable
import math

import ml_dtypes
import numpy as np

from anycann.om.constants import SLACK_BYTES
from anycann.om.model import input_key
from anycann.om.plan import Buffer, HostStep, NativeStep, Program, RegionStep, Task, TensorSpec
from anycann.support.errors import ModelError
from anycann.support.records import dataclass

MAX_MEMORY_BYTES = 1 << 46
LAYOUTS = ("ND", "NC1HWC0", "NHWC")


@dataclass(frozen=True)
class Surroundings:
    """What a program may refer to: so many bytes of constants, these regions, and these symbols (None: it brings no machine code)."""

    constant_bytes: int
    regions: Collection[str] = ()
    symbols: Collection[str] | None = None


def check_program(program: Program, surroundings: Surroundings, where: str) -> None:
    """Raise ModelError, beginning with `where`, for the first thing in `program` that is out of bounds or unknown.

    The arena has `arena_bytes`; the runtime adds slack of its own. A buffer of an input or output may be a part of it.
    """
    if program.arena_bytes > MAX_MEMORY_BYTES:
        raise ModelError(f"{where}: arena_bytes is {program.arena_bytes}; accepted: up to {MAX_MEMORY_BYTES}")
    sizes = _Sizes(program, surroundings.constant_bytes)
    _check_values(program, sizes, where)
    known = {spec.name for spec in program.inputs} | program.values.keys()
    for number, step in enumerate(program.steps):
        here = f"{where}: steps[{number}]"
        if isinstance(step, NativeStep):
            for task in step.tasks:
                _check_task(task, sizes, surroundings, f"{here}, kernel {task.symbol}")
                _check_known(task.outputs, known, here)
        elif isinstance(step, HostStep):
            _check_known(step.inputs + step.captures, known, f"{here}, node {step.name!r} ({step.op_type})")
            known |= set(step.outputs)
        else:
            _check_region_step(step, known, surroundings, f"{here}, {step.kind} {step.name!r}")
            known |= set(step.outputs)
    _check_known((spec.name for spec in program.outputs), known, f"{where}: outputs")


def check_region_program(key: str, program: Program, surroundings: Surroundings, where: str) -> None:
    """As `check_program`, and that `key`, by which the runtime finds the program, is that of its inputs."""
    check_program(program, surroundings, where)
    if any(not isinstance(size, int) for spec in program.inputs for size in spec.shape) or input_key(program.inputs) != key:
        raise ModelError(f"{where} has inputs {program.inputs}; accepted: those its key names")


class _Sizes:
    """How many bytes each space has."""

    def __init__(self, program: Program, constant_bytes: int) -> None:
        self._arena = program.arena_bytes
        self._constants = max(0, constant_bytes - SLACK_BYTES)
        self._specs = {"input": program.inputs, "output": program.outputs}

    def check(self, buffer: Buffer, where: str) -> None:
        """Raise ModelError if `buffer` reaches beyond its space."""
        size = self._size(buffer, where)
        # Python's numbers don't overflow; each part is tested so that a message is right for negative ones too.
        if min(buffer.offset_bytes, buffer.nbytes) < 0 or buffer.offset_bytes + buffer.nbytes > size:
            raise ModelError(f"{where}: {buffer} leaves its space; accepted: offset_bytes + nbytes up to {size}")

    def _size(self, buffer: Buffer, where: str) -> int:
        if buffer.space == "arena":
            return self._arena
        if buffer.space == "constants":
            return self._constants
        specs = self._specs[buffer.space]
        if not 0 <= buffer.index < len(specs):
            raise ModelError(f"{where}: {buffer} is {buffer.space} number {buffer.index}; accepted: 0 to {len(specs) - 1}")
        nbytes = spec_bytes(specs[buffer.index])
        if nbytes is None:
            raise ModelError(f"{where}: {buffer} is {specs[buffer.index]}, whose size is open; accepted: a numeric type and a static shape")
        return nbytes


def spec_bytes(spec: TensorSpec) -> int | None:
    """Bytes of a row-major tensor, or None if its shape is open or its elements are no numbers."""
    item = _item_bytes(spec.dtype)
    if item is None or not all(isinstance(size, int) for size in spec.shape):
        return None
    return item * math.prod(size for size in spec.shape if isinstance(size, int))


def _item_bytes(name: str) -> int | None:
    """Bytes of an element of the dtype called `name`, None for text, objects and unknown names."""
    try:
        dtype = np.dtype(getattr(ml_dtypes, name, name))
    except TypeError:
        return None
    plain = dtype.name == name and not dtype.hasobject and dtype.kind not in "USMm"
    return dtype.itemsize if plain else None


def _check_values(program: Program, sizes: _Sizes, where: str) -> None:
    for name, location in program.values.items():
        here = f"{where}: value {name!r}"
        if location.layout not in LAYOUTS:
            raise ModelError(f"{here} has layout {location.layout!r}; accepted: {', '.join(LAYOUTS)}")
        needed = spec_bytes(location.spec)
        if needed is None:
            raise ModelError(f"{here} is {location.spec}; accepted: a numeric type and a static shape")
        sizes.check(location.buffer, here)
        if location.buffer.nbytes < needed:
            raise ModelError(f"{here} needs {needed} bytes and has {location.buffer}; accepted: at least as many")


def _check_task(task: Task, sizes: _Sizes, surroundings: Surroundings, where: str) -> None:
    if surroundings.symbols is not None and task.symbol not in surroundings.symbols:
        raise ModelError(f"{where} is not in the model's machine code; accepted: one of its {len(surroundings.symbols)} symbols")
    if max(task.scratch_bytes, task.tasks) > MAX_MEMORY_BYTES:
        raise ModelError(f"{where} has {task.tasks} tasks and {task.scratch_bytes} scratch bytes; accepted: up to {MAX_MEMORY_BYTES}")
    for index, argument in enumerate(task.arguments):
        sizes.check(argument, f"{where}, argument {index}")


def _check_region_step(step: RegionStep, known: Collection[str], surroundings: Surroundings, where: str) -> None:
    for name in step.regions:
        if name not in surroundings.regions:
            raise ModelError(f"{where} names region {name!r}; accepted: {', '.join(sorted(surroundings.regions)) or 'none'}")
    if len(step.captures) != len(step.regions):
        raise ModelError(f"{where} has captures for {len(step.captures)} of its {len(step.regions)} regions; accepted: for each one")
    accepted = {"deferred": 1, "if": 2, "loop": 1, "scan": 1}[step.kind]
    if len(step.regions) != accepted:
        raise ModelError(f"{where} has {len(step.regions)} regions; accepted: {accepted}")
    _check_known(step.inputs, known, where)
    for captured in step.captures:
        _check_known(captured, known, where)


def _check_known(names: Iterable[str], known: Collection[str], where: str) -> None:
    """Every name but "" (an absent input) is an input, a located value, or the result of an earlier step."""
    for name in names:
        if name and name not in known:
            raise ModelError(f"{where}: {name!r} is not known there; accepted: an input, a located value or the output of an earlier step")

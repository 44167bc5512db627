"""Programs with regions as one native call: their regions' launches go into the same table, and rows choose between the branches of an If.

Where a branch is not compiled yet, is not native, or gives results of another type, the table stops; the steps do the run then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from anycann.om.plan import Buffer, HostStep, NativeStep, Program, RegionStep, TensorSpec
from anycann.runtime import memory
from anycann.runtime.dispatch import Row
from anycann.runtime.launches import Launches, launches_of
from anycann.runtime.layouts import ND
from anycann.runtime.results import written_in_place
from anycann.runtime.thread_pool import copying_kernel

if TYPE_CHECKING:
    from anycann.runtime.executor import CompiledProgram

Known: TypeAlias = "Callable[[str, tuple[TensorSpec, ...]], CompiledProgram | None]"
BOOL_BYTES = 1


@dataclass(frozen=True)
class Linked:
    """The table of a program and of all regions in it; it writes each of the `outputs` in place."""

    launches: Launches
    outputs: tuple[TensorSpec, ...]
    parts: tuple[CompiledProgram, ...]


def may_be_linked(program: Program) -> bool:
    """Whether the steps are such as `link` writes rows for, as far as the program alone tells."""
    kinds = [step.kind for step in program.steps if isinstance(step, RegionStep)]
    return bool(kinds) and set(kinds) <= {"if", "deferred"} and not any(isinstance(step, HostStep) for step in program.steps)


class _NotNative(Exception):
    """Something that no row of a table does; the text says what."""


def link(compiled: CompiledProgram, known: Known) -> Linked | None:
    """One table for `compiled` and the regions that `known` gives for their input types. None if something else than kernels is needed."""
    linker = _Linker(known)
    outputs = [_Result(Buffer("output", 0, 0, i)) for i in range(len(compiled.program.outputs))]
    try:
        inputs = [_Value(spec, Buffer("input", 0, _nbytes(spec), i)) for i, spec in enumerate(compiled.program.inputs)]
        linker.write(compiled, inputs, outputs)
    except _NotNative:
        return None
    specs = tuple(replace(result.spec, name=spec.name) for result, spec in zip(outputs, compiled.program.outputs, strict=True))
    return Linked(linker.launches(compiled.program), specs, tuple(linker.parts))


@dataclass(frozen=True)
class _Value:
    """A row-major tensor and where it lies: in the linked arena, an input or output of the whole, or, "constants", at an address."""

    spec: TensorSpec
    buffer: Buffer


class _Result:
    """Where a value is to be written; its type, and its place in the arena, are known when the first one who writes it is."""

    def __init__(self, buffer: Buffer | None = None, spec: TensorSpec | None = None):
        self._buffer, self._spec = buffer, spec

    @property
    def spec(self) -> TensorSpec:
        return self.value.spec

    @property
    def value(self) -> _Value:
        """The result. Raises _NotNative if nothing has written it."""
        if self._spec is None or self._buffer is None:
            raise _NotNative("a result that nothing writes")
        return _Value(self._spec, self._buffer)

    def settle(self, spec: TensorSpec, arena: _Arena) -> Buffer:
        """Its place for a value of this type. Raises _NotNative if it has another type."""
        if self._spec is not None and (self._spec.dtype, self._spec.shape) != (spec.dtype, spec.shape):
            raise _NotNative(f"a result is {self._spec.dtype}{self._spec.shape} and {spec.dtype}{spec.shape}")
        nbytes = _nbytes(spec)
        self._buffer = replace(self._buffer, nbytes=nbytes) if self._buffer is not None else arena.take(nbytes)
        self._spec = spec
        return self._buffer

    def state(self) -> tuple[Buffer | None, TensorSpec | None]:
        return self._buffer, self._spec

    def restore(self, state: tuple[Buffer | None, TensorSpec | None]) -> None:
        self._buffer, self._spec = state


class _Arena:
    """Offsets in the linked arena: taken upwards, given back downwards."""

    def __init__(self) -> None:
        self.top = self.size = 0

    def take(self, nbytes: int) -> Buffer:
        offset = self.top
        self.top += -(-(nbytes + memory.SLACK_BYTES) // memory.ALIGNMENT) * memory.ALIGNMENT
        self.size = max(self.size, self.top)
        return Buffer("arena", offset, nbytes)


class _Linker:
    """Writes the rows of programs, one behind the other. A row: function, number of its first argument, tasks, kind."""

    def __init__(self, known: Known):
        self._known = known
        self.rows: list[list[int]] = []
        self.arguments: list[Buffer] = []
        self.scratch_bytes = 0
        self.arena = _Arena()
        self.parts: list[CompiledProgram] = []

    def launches(self, program: Program) -> Launches:
        rows = np.array(self.rows, np.int64).reshape(-1, 4)
        return launches_of(rows, self.arguments, replace(program, arena_bytes=self.arena.size), self.scratch_bytes, constants_address=0)

    def write(self, compiled: CompiledProgram, inputs: Sequence[_Value], outputs: Sequence[_Result]) -> None:
        """The rows of one program. Raises _NotNative; then rows may have been written."""
        _Part(self, compiled, inputs, outputs).write()
        self.parts.append(compiled)

    def row(self, function: int, arguments: Sequence[Buffer], tasks: int, kind: Row) -> list[int]:
        """A row, to which the target of a jump may still be written."""
        self.rows.append([function, len(self.arguments), tasks, kind])
        self.arguments += arguments
        return self.rows[-1]

    def call(self, region: str, inputs: Sequence[_Value], outputs: Sequence[_Result]) -> None:
        """The rows of a region. Raises _NotNative, after undoing what was written."""
        compiled = self._known(region, tuple(value.spec for value in inputs))
        if compiled is None:
            raise _NotNative(f"region {region} is not compiled")
        rows, arguments, parts, top = len(self.rows), len(self.arguments), len(self.parts), self.arena.top
        before = [result.state() for result in outputs]
        try:
            self.write(compiled, inputs, outputs)
        except _NotNative:
            del self.rows[rows:], self.arguments[arguments:], self.parts[parts:]
            for result, state in zip(outputs, before, strict=True):
                result.restore(state)
            self.arena.top = top
            raise
        if all(buffer is not None for buffer, _ in before):
            self.arena.top = top  # no result lies there: what comes next may use the memory again


class _Part:
    """One program within the table: its values by name, and its own arena within the linked one."""

    def __init__(self, linker: _Linker, compiled: CompiledProgram, inputs: Sequence[_Value], outputs: Sequence[_Result]):
        self._linker, self._compiled, self._program = linker, compiled, compiled.program
        self._inputs, self._outputs = inputs, outputs
        self._arena = linker.arena.take(self._program.arena_bytes)
        self._made = {spec.name: value for spec, value in zip(self._program.inputs, inputs, strict=True)}

    def write(self) -> None:
        outputs = self._program.outputs
        for spec, result, in_place in zip(outputs, self._outputs, written_in_place(self._program), strict=True):
            if in_place:
                result.settle(self._program.values[spec.name].spec, self._linker.arena)
        for step in self._program.steps:
            if isinstance(step, HostStep):
                raise _NotNative(f"host node {step.name}")
            if isinstance(step, NativeStep):
                self._kernels(step)
            else:
                self._region(step)
        for spec, result in zip(outputs, self._outputs, strict=True):
            self._copy(self._value(spec.name), result)

    def _kernels(self, step: NativeStep) -> None:
        for task in step.tasks:
            arguments = [self._buffer(argument) for argument in task.arguments]
            self._linker.row(self._compiled.kernel(task.symbol), arguments, task.tasks, Row.SPLIT)
            self._linker.scratch_bytes = max(self._linker.scratch_bytes, task.scratch_bytes)

    # ---- values
    def _buffer(self, buffer: Buffer) -> Buffer:
        """A buffer of this program in the linked one."""
        if buffer.space == "constants":
            return replace(buffer, offset_bytes=self._compiled.constants_address + buffer.offset_bytes)
        if buffer.space == "arena":
            whole = self._arena
        else:
            whole = (self._inputs[buffer.index] if buffer.space == "input" else self._outputs[buffer.index].value).buffer
        return replace(whole, offset_bytes=whole.offset_bytes + buffer.offset_bytes, nbytes=buffer.nbytes)

    def _value(self, name: str) -> _Value:
        """A row-major value by its name. Raises _NotNative for any other."""
        value = self._made.get(name)
        if value is None:
            location = self._program.values.get(name)
            if location is None or location.layout != ND:
                raise _NotNative(f"value {name} has no place that regions can read")
            value = _Value(location.spec, self._buffer(location.buffer))
        if value.spec.dtype == "object":
            raise _NotNative(f"value {name} is no tensor of numbers")
        return value

    def _result(self, name: str) -> _Result:
        """Where a region is to write the value `name`."""
        location = self._program.values.get(name)
        if location is not None:
            if location.layout != ND:
                raise _NotNative(f"value {name} is not row-major")
            return _Result(self._buffer(location.buffer), location.spec)
        names = [spec.name for spec in self._program.outputs]
        return self._outputs[names.index(name)] if name in names else _Result()

    def _copy(self, value: _Value, result: _Result) -> None:
        to = result.settle(value.spec, self._linker.arena)
        if (to.space, to.index, to.offset_bytes) != (value.buffer.space, value.buffer.index, value.buffer.offset_bytes):
            self._linker.row(copying_kernel(), [to, value.buffer], to.nbytes, Row.INLINE)

    # ---- regions
    def _region(self, step: RegionStep) -> None:
        results = [self._result(name) for name in step.outputs]
        if step.kind == "if":
            self._if(step, results)
        elif step.kind == "deferred":
            self._call(step.regions[0], (*step.inputs, *step.captures[0]), results)
        else:
            raise _NotNative(f"{step.kind} {step.name}")
        self._made |= {name: result.value for name, result in zip(step.outputs, results, strict=True) if name}

    def _call(self, region: str, names: Sequence[str], results: Sequence[_Result]) -> None:
        self._linker.call(region, [self._value(name) for name in names], results)

    def _if(self, step: RegionStep, results: Sequence[_Result]) -> None:
        condition = self._value(step.inputs[0])
        if condition.spec.dtype != "bool" or _nbytes(condition.spec) != BOOL_BYTES:
            raise _NotNative("a condition that is not one bool")
        choice = self._linker.row(0, [condition.buffer], 0, Row.CHOICE)
        found = self._branch(step, 0, results)
        leave = self._linker.row(0, [], 0, Row.JUMP)
        choice[2] = len(self._linker.rows)
        if not self._branch(step, 1, results) and not found:
            raise _NotNative(f"no branch of {step.name} is native")
        leave[2] = len(self._linker.rows)

    def _branch(self, step: RegionStep, number: int, results: Sequence[_Result]) -> bool:
        """The rows of a branch, or one that stops."""
        try:
            self._call(step.regions[number], step.captures[number], results)
        except _NotNative:
            self._linker.row(0, [], 0, Row.STOP)
            return False
        return True


def _nbytes(spec: TensorSpec) -> int:
    """Bytes of a value; 0 for one that is no tensor of numbers. Raises _NotNative for an open shape."""
    if spec.dtype == "object":
        return 0
    if not all(isinstance(size, int) for size in spec.shape):
        raise _NotNative(f"{spec.name} has the open shape {spec.shape}")
    return math.prod(size for size in spec.shape if isinstance(size, int)) * memory.numpy_dtype(spec.dtype).itemsize

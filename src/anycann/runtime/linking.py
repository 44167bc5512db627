"""Programs with regions as one native call: their regions' launches go into the same table, and rows choose between the branches of an If
or lead back to the first row of a loop's body (`link_loops.py`).

Branches whose results have different types are each followed by rows of their own for the rest of the program. Where a branch is not
compiled yet, or is not native, the table stops; the steps do the run then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from anycann.om.plan import Buffer, HostStep, NativeStep, Program, RegionStep, Step, TensorSpec
from anycann.runtime.dispatch import Row
from anycann.runtime.launches import Launches, split_kind
from anycann.runtime.layouts import ND
from anycann.runtime.link_loops import turns_of, write_turns
from anycann.runtime.link_table import Known, NotNative, OtherType, Result, Table, TooLarge, Value, nbytes_of
from anycann.runtime.results import written_in_place
from anycann.runtime.thread_pool import copying_kernel
from anycann.support.records import dataclass

if TYPE_CHECKING:
    from anycann.runtime.executor import CompiledProgram

BOOL_BYTES = 1


@dataclass(frozen=True)
class Linked:
    """The table of a program and of all regions in it; it writes each of the `outputs` in place."""

    launches: Launches
    outputs: tuple[TensorSpec, ...]
    parts: tuple[CompiledProgram, ...]


def may_be_linked(program: Program) -> bool:
    """Whether the steps are such as `link` writes rows for, as far as the program alone tells."""
    return any(isinstance(step, RegionStep) for step in program.steps) and not any(isinstance(step, HostStep) for step in program.steps)


def link(compiled: CompiledProgram, known: Known) -> Linked | None:
    """One table for `compiled` and the regions that `known` gives for their input types. None if something else than kernels is needed."""
    table = Table(known)
    outputs = [Result(Buffer("output", 0, 0, i)) for i in range(len(compiled.program.outputs))]
    try:
        inputs = [Value(spec, Buffer("input", 0, nbytes_of(spec), i)) for i, spec in enumerate(compiled.program.inputs)]
        _Part(table, compiled, inputs, outputs).write()
    except (NotNative, TooLarge, RecursionError):  # each If with branches of different types is written within the one before
        return None
    specs = tuple(replace(result.spec, name=spec.name) for result, spec in zip(outputs, compiled.program.outputs, strict=True))
    return Linked(table.launches(compiled.program), specs, tuple(table.parts))


class _Part:
    """One program within the table: its values by name, and its own arena within the linked one."""

    def __init__(self, table: Table, compiled: CompiledProgram, inputs: Sequence[Value], outputs: Sequence[Result]):
        self._table, self._compiled, self._program = table, compiled, compiled.program
        self._inputs, self._outputs = inputs, outputs
        self._arena = table.arena.take(self._program.arena_bytes)
        self._made = {spec.name: value for spec, value in zip(self._program.inputs, inputs, strict=True)}

    def write(self) -> None:
        outputs = self._program.outputs
        for spec, result, in_place in zip(outputs, self._outputs, written_in_place(self._program), strict=True):
            if in_place:
                result.settle(self._program.values[spec.name].spec, self._table.arena)
        self._steps(self._program.steps)

    def _steps(self, steps: Sequence[Step]) -> None:
        """The rows of the last steps, and those that copy results to where they are wanted."""
        for number, step in enumerate(steps):
            if isinstance(step, HostStep):
                raise NotNative(f"host node {step.name}")
            if isinstance(step, NativeStep):
                self._kernels(step)
            elif step.kind == "if":
                try:
                    self._if(step)
                except OtherType:
                    self._apart(step, steps[number + 1 :])
                    return
            elif step.kind == "deferred":
                self._call(step, 0, (*step.inputs, *step.captures[0]), [self._result(name) for name in step.outputs])
            else:
                self._loop(step)
        for spec, result in zip(self._program.outputs, self._outputs, strict=True):
            self._copy(self._value(spec.name), result)
        self._table.parts.append(self._compiled)

    def _kernels(self, step: NativeStep) -> None:
        for task in step.tasks:
            arguments = [self._buffer(argument) for argument in task.arguments]
            self._table.row(self._compiled.kernel(task.symbol), arguments, task.tasks, split_kind(task))
            self._table.scratch_bytes = max(self._table.scratch_bytes, task.scratch_bytes)

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

    def _value(self, name: str) -> Value:
        """A row-major value by its name. Raises NotNative for any other."""
        value = self._made.get(name)
        if value is None:
            location = self._program.values.get(name)
            if location is None or location.layout != ND:
                raise NotNative(f"value {name} has no place that regions can read")
            value = Value(location.spec, self._buffer(location.buffer))
        if value.spec.dtype == "object":
            raise NotNative(f"value {name} is no tensor of numbers")
        return value

    def _result(self, name: str) -> Result:
        """Where a region is to write the value `name`."""
        location = self._program.values.get(name)
        if location is not None:
            if location.layout != ND:
                raise NotNative(f"value {name} is not row-major")
            return Result(self._buffer(location.buffer), location.spec)
        names = [spec.name for spec in self._program.outputs]
        return self._outputs[names.index(name)] if name in names else Result()

    def _copy(self, value: Value, result: Result) -> None:
        to = result.settle(value.spec, self._table.arena)
        if (to.space, to.index, to.offset_bytes) != (value.buffer.space, value.buffer.index, value.buffer.offset_bytes):
            self._table.row(copying_kernel(), [to, value.buffer], to.nbytes, Row.INLINE)

    # ---- regions
    def _call(self, step: RegionStep, region: int, names: Sequence[str], results: Sequence[Result]) -> None:
        """The rows of a region. Raises NotNative, after undoing what was written."""
        self._region(step.regions[region], [self._value(name) for name in names], results)
        self._made |= {name: result.value for name, result in zip(step.outputs, results, strict=True) if name}

    def _region(self, region: str, inputs: Sequence[Value], results: Sequence[Result]) -> None:
        compiled = self._table.known(region, tuple(value.spec for value in inputs))
        if compiled is None:
            raise NotNative(f"region {region} is not compiled")
        with self._table.attempt(results):
            _Part(self._table, compiled, inputs, results).write()

    def _loop(self, step: RegionStep) -> None:
        """The rows of a loop. Raises NotNative, after undoing what was written."""
        results = [self._result(name) for name in step.outputs]
        with self._table.attempt(results):
            write_turns(self._table, turns_of(step, self._value), results, partial(self._region, step.regions[0]))
        self._made |= {name: result.value for name, result in zip(step.outputs, results, strict=True) if name}

    def _if(self, step: RegionStep) -> None:
        """Both branches, and then what follows. Raises OtherType, after undoing what was written, if their results differ in type."""
        results = [self._result(name) for name in step.outputs]
        with self._table.attempt([*results, *self._outputs]):
            self._branches(step, lambda number: self._call(step, number, step.captures[number], results))

    def _apart(self, step: RegionStep, rest: Sequence[Step]) -> None:
        """Each branch with rows of its own for what follows."""

        def branch(number: int) -> None:
            before = dict(self._made)
            try:
                with self._table.attempt(self._outputs):
                    self._call(step, number, step.captures[number], [self._result(name) for name in step.outputs])
                    self._steps(rest)
            finally:
                self._made = before

        self._branches(step, lambda number: _not_for_type(branch, number))

    def _branches(self, step: RegionStep, write: Callable[[int], None]) -> None:
        """The rows that lead to one branch or the other, which `write` writes; it raises NotNative for one that is not native."""
        condition = self._value(step.inputs[0])
        if condition.spec.dtype != "bool" or nbytes_of(condition.spec) != BOOL_BYTES:
            raise NotNative("a condition that is not one bool")
        choice = self._table.row(0, [condition.buffer], 0, Row.CHOICE)
        found = self._or_stop(write, 0)
        leave = self._table.row(0, [], 0, Row.JUMP)
        choice[2] = len(self._table.rows)
        if not self._or_stop(write, 1) and not found:
            raise NotNative(f"no branch of {step.name} is native")
        leave[2] = len(self._table.rows)

    def _or_stop(self, write: Callable[[int], None], number: int) -> bool:
        """The rows of a branch, or one that stops."""
        try:
            write(number)
        except OtherType:
            raise
        except NotNative:
            self._table.row(0, [], 0, Row.STOP)
            return False
        return True


def _not_for_type(write: Callable[[int], None], number: int) -> None:
    """A type that nothing can be done about is a branch that is not native."""
    try:
        write(number)
    except OtherType as error:
        raise NotNative(str(error)) from error

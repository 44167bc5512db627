"""A Loop or a Scan as rows of the linked table: the rows of a turn, what it hands to the next one, and a jump back.

count = -1; carried = the first values
turn:   count += 1; going = the condition holds and count < most
head:   going? else on behind
        parts of the scanned inputs; the body, from `carried` to `made`; its parts of the scanned outputs; carried = made
        turn, and back to head
behind: the results are `carried`
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import ctypes
from dataclasses import replace

import numpy as np

from anycann.om.plan import Buffer, RegionStep, TensorSpec
from anycann.runtime.dispatch import Row
from anycann.runtime.link_table import NotNative, OtherType, Result, Table, Value, nbytes_of
from anycann.runtime.regions import integers
from anycann.runtime.thread_pool import copying_kernel, reading_kernel, turning_kernel, writing_kernel
from anycann.support.records import dataclass

# A turn copies what it carries, at some 10 GB/s; run by Python it costs 10 to 15 us more.
MOST_CARRIED_BYTES = 1 << 18
MOST_SCANNED_BYTES = 1 << 26  # a trip count may be any number where a condition ends the loop
COUNT, TRUTH = TensorSpec("", "int64", ()), TensorSpec("", "bool", ())


_KEPT: dict[int, np.ndarray] = {}  # numbers in memory, for as long as the process runs: tables hold their addresses


def number(value: int) -> Buffer:
    """An int64 that is known."""
    kept = _KEPT.setdefault(value, np.array(value, "<i8"))  # at once: of two threads that come with a new number, one's array stays
    return Buffer("constants", kept.ctypes.data, 8)


def truth() -> Buffer:
    """A bool that is true."""
    return replace(number(1), nbytes=1)


@dataclass(frozen=True)
class Slices:
    """A scanned input, cut along its first axis, the last part first if `backwards`."""

    value: Value
    backwards: bool

    @property
    def part(self) -> TensorSpec:
        return TensorSpec("", self.value.spec.dtype, self.value.spec.shape[1:])


@dataclass(frozen=True)
class Turns:
    """What is known of a loop before its rows are written.

    most: how many turns there are at most. condition: whether there is a first. length: how many turns are expected, None if nobody can
    tell. backwards: of each scanned output, whether the first turn's part is the last. is_loop: whether the body takes the number of the
    turn and a condition, and gives a condition.
    """

    most: Buffer
    condition: Buffer
    carried: Sequence[Value]
    slices: Sequence[Slices]
    captured: Sequence[Value]
    length: int | None
    backwards: Sequence[bool]
    is_loop: bool


def turns_of(step: RegionStep, value: Callable[[str], Value]) -> Turns:
    """The turns of a step; `value` gives its inputs by name. Raises NotNative for what rows cannot do."""
    captured = [value(name) for name in step.captures[0]]
    return _scan(step, value, captured) if step.kind == "scan" else _loop(step, value, captured)


def _loop(step: RegionStep, value: Callable[[str], Value], captured: Sequence[Value]) -> Turns:
    most, condition = (value(name) if name else None for name in step.inputs[:2])
    carried = [value(name) for name in step.inputs[2:]]
    for given, like in ((most, COUNT), (condition, TRUTH)):
        if given is not None and (given.spec.dtype, nbytes_of(given.spec)) != (like.dtype, nbytes_of(like)):
            raise NotNative(f"a trip count or condition that is {given.spec.dtype}{given.spec.shape}")
    scanned = len(step.outputs) - len(carried)
    return Turns(
        number(np.iinfo(np.int64).max) if most is None else most.buffer,
        truth() if condition is None else condition.buffer,
        carried,
        (),
        captured,
        None if most is None else _known_count(most.buffer),
        [False] * scanned,
        True,
    )


def _known_count(buffer: Buffer) -> int | None:
    """A trip count that is a constant of the model."""
    return ctypes.c_int64.from_address(buffer.offset_bytes).value if buffer.space == "constants" else None


def _scan(step: RegionStep, value: Callable[[str], Value], captured: Sequence[Value]) -> Turns:
    cut = integers(step, "num_scan_inputs", 1)[0]
    states = len(step.inputs) - cut
    outputs = len(step.outputs) - states
    if any((*integers(step, "scan_input_axes", cut), *integers(step, "scan_output_axes", outputs))):
        raise NotNative("a scan along another axis than the first")
    backwards = integers(step, "scan_input_directions", cut)
    slices = [Slices(value(name), bool(way)) for name, way in zip(step.inputs[states:], backwards, strict=True)]
    lengths = {(*each.value.spec.shape, None)[0] for each in slices}
    length = lengths.pop() if len(lengths) == 1 else None
    if not isinstance(length, int):
        raise NotNative("scan inputs that are not cut into the same number of parts")
    carried = [value(name) for name in step.inputs[:states]]
    ways = [bool(way) for way in integers(step, "scan_output_directions", outputs)]
    return Turns(number(length), truth(), carried, slices, captured, length, ways, False)


def write_turns(table: Table, turns: Turns, results: Sequence[Result], body: Callable[[Sequence[Value], Sequence[Result]], None]) -> None:
    """The rows of a loop, whose carried values and scanned outputs are the `results`. `body(inputs, results)` writes those of a turn.

    Raises NotNative for a body that does not keep the types of what it carries.
    """
    if sum(nbytes_of(value.spec) for value in turns.carried) > MOST_CARRIED_BYTES:
        raise NotNative("a loop that carries much")
    rows = _Rows(table, turns)
    rows.begin()
    head = len(table.rows)
    choice = table.row(0, [rows.going], 0, Row.CHOICE)
    try:
        rows.turn(body, results[len(turns.carried) :])
    except OtherType as error:
        raise NotNative(f"a turn changes the type of what it carries: {error}") from error
    table.row(0, [], head, Row.JUMP)
    choice[2] = len(table.rows)
    rows.end(results[: len(turns.carried)])


class _Rows:
    """The rows before, in and behind the turns, and where what is handed on lies."""

    def __init__(self, table: Table, turns: Turns):
        self._table, self._turns = table, turns
        self._count, self._back, self.going, self._complete = (table.arena.take(8) for _ in range(4))
        self._carried = [Value(value.spec, table.arena.take(nbytes_of(value.spec))) for value in turns.carried]
        self._made = [Result(table.arena.take(nbytes_of(value.spec)), value.spec) for value in turns.carried]
        self._parts = [Value(each.part, table.arena.take(nbytes_of(each.part))) for each in turns.slices]

    def begin(self) -> None:
        self._copy(self._count, number(-1))
        for carried, first in zip(self._carried, self._turns.carried, strict=True):
            self._copy(carried.buffer, first.buffer)
        self._next(self._turns.condition)

    def turn(self, body: Callable[[Sequence[Value], Sequence[Result]], None], outputs: Sequence[Result]) -> None:
        turns = self._turns
        for part, each in zip(self._parts, turns.slices, strict=True):
            source = [part.buffer, each.value.buffer, self._place(each.backwards)]
            self._table.row(reading_kernel(), source, part.buffer.nbytes, Row.INLINE)
        condition = Result(self._table.arena.take(1), TRUTH)
        scanned = [Result() for _ in outputs]
        own = [Value(COUNT, self._count), Value(TRUTH, truth())] if turns.is_loop else []
        inputs = [*own, *self._carried, *self._parts, *turns.captured]
        body(inputs, [*([condition] if turns.is_loop else []), *self._made, *scanned])
        for output, made, backwards in zip(outputs, scanned, turns.backwards, strict=True):
            self._keep(output, made.value, backwards)
        for to, made in zip(self._carried, self._made, strict=True):
            self._copy(to.buffer, made.value.buffer)
        self._next(condition.value.buffer if turns.is_loop else truth())

    def end(self, results: Sequence[Result]) -> None:
        """Behind the turns. Outputs that were made for more turns than there were are left to the steps."""
        if self._turns.is_loop and self._turns.backwards:
            over = self._table.row(0, [self._complete], 0, Row.CHOICE)
            leave = self._table.row(0, [], 0, Row.JUMP)
            over[2] = len(self._table.rows)
            self._table.row(0, [], 0, Row.STOP)
            leave[2] = len(self._table.rows)
        for result, carried in zip(results, self._carried, strict=True):
            self._copy(result.settle(carried.spec, self._table.arena), carried.buffer)

    def _keep(self, output: Result, part: Value, backwards: bool) -> None:
        """Put what a turn made into its place in a scanned output."""
        length = self._turns.length
        if length is None or length * max(1, nbytes_of(part.spec)) > MOST_SCANNED_BYTES:  # numpy has no array of 2^63 parts of no byte
            raise NotNative("a loop with scanned outputs whose trip count is not known")
        whole = output.settle(TensorSpec("", part.spec.dtype, (max(0, length), *part.spec.shape)), self._table.arena)
        self._table.row(writing_kernel(), [whole, part.buffer, self._place(backwards)], nbytes_of(part.spec), Row.INLINE)

    def _place(self, backwards: bool) -> Buffer:
        return self._back if backwards else self._count

    def _next(self, condition: Buffer) -> None:
        arguments = [self._count, self._back, self.going, self._complete, self._turns.most, condition]
        self._table.row(turning_kernel(), arguments, 1, Row.INLINE)

    def _copy(self, to: Buffer, source: Buffer) -> None:
        self._table.row(copying_kernel(), [to, source], to.nbytes, Row.INLINE)

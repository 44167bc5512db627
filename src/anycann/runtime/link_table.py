"""The table that linking writes: its rows, where the values they read and write lie, and what is undone when a branch cannot be written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from anycann.om.plan import Buffer, Program, TensorSpec
from anycann.runtime import memory
from anycann.runtime.launches import Launches, launches_of
from anycann.support.records import dataclass

if TYPE_CHECKING:
    from anycann.runtime.executor import CompiledProgram

Known: TypeAlias = "Callable[[str, tuple[TensorSpec, ...]], CompiledProgram | None]"
MOST_ROWS = 20_000  # written in all, also in vain: branches of different types, one after the other, double what follows them each time


class NotNative(Exception):
    """Something that no row of a table does; the text says what."""


class OtherType(NotNative):
    """A result of another type than the one that was there before."""


class TooLarge(Exception):
    """The table grows beyond measure. No `NotNative`: a row that stops in place of one branch would leave as much for the others."""


@dataclass(frozen=True)
class Value:
    """A row-major tensor and where it lies: in the linked arena, an input or output of the whole, or, "constants", at an address."""

    spec: TensorSpec
    buffer: Buffer


class Result:
    """Where a value is to be written; its type, and its place in the arena, are known when the first one who writes it is."""

    def __init__(self, buffer: Buffer | None = None, spec: TensorSpec | None = None):
        self._buffer, self._spec = buffer, spec

    @property
    def spec(self) -> TensorSpec:
        return self.value.spec

    @property
    def value(self) -> Value:
        """The result. Raises NotNative if nothing has written it."""
        if self._spec is None or self._buffer is None:
            raise NotNative("a result that nothing writes")
        return Value(self._spec, self._buffer)

    def settle(self, spec: TensorSpec, arena: Arena) -> Buffer:
        """Its place for a value of this type. Raises NotNative if it has another type."""
        if self._spec is not None and (self._spec.dtype, self._spec.shape) != (spec.dtype, spec.shape):
            raise OtherType(f"a result is {self._spec.dtype}{self._spec.shape} and {spec.dtype}{spec.shape}")
        nbytes = nbytes_of(spec)
        self._buffer = replace(self._buffer, nbytes=nbytes) if self._buffer is not None else arena.take(nbytes)
        self._spec = spec
        return self._buffer

    def state(self) -> tuple[Buffer | None, TensorSpec | None]:
        return self._buffer, self._spec

    def restore(self, state: tuple[Buffer | None, TensorSpec | None]) -> None:
        self._buffer, self._spec = state


class Arena:
    """Offsets in the linked arena: taken upwards, given back downwards."""

    def __init__(self) -> None:
        self.top = self.size = 0

    def take(self, nbytes: int) -> Buffer:
        offset = self.top
        self.top += -(-(nbytes + memory.SLACK_BYTES) // memory.ALIGNMENT) * memory.ALIGNMENT
        self.size = max(self.size, self.top)
        return Buffer("arena", offset, nbytes)


class Table:
    """Writes the rows of programs, one behind the other. A row: function, number of its first argument, tasks, kind."""

    def __init__(self, known: Known):
        self.known = known
        self.rows: list[list[int]] = []
        self._written = 0
        self.arguments: list[Buffer] = []
        self.scratch_bytes = 0
        self.arena = Arena()
        self.parts: list[CompiledProgram] = []

    def launches(self, program: Program) -> Launches:
        rows = np.array(self.rows, np.int64).reshape(-1, 4)
        return launches_of(rows, self.arguments, replace(program, arena_bytes=self.arena.size), self.scratch_bytes, constants_address=0)

    def row(self, function: int, arguments: Sequence[Buffer], tasks: int, kind: int) -> list[int]:
        """A row, to which the target of a jump may still be written. Raises TooLarge."""
        if self._written == MOST_ROWS:
            raise TooLarge(f"more than {MOST_ROWS} rows")
        self._written += 1
        self.rows.append([function, len(self.arguments), tasks, kind])
        self.arguments += arguments
        return self.rows[-1]

    @contextmanager
    def attempt(self, results: Sequence[Result]) -> Iterator[None]:
        """What is written within is undone if it raises NotNative; `results` are what it leaves."""
        rows, arguments, parts, top = len(self.rows), len(self.arguments), len(self.parts), self.arena.top
        before = [result.state() for result in results]
        try:
            yield
            if all(buffer is not None for buffer, _ in before):
                self.arena.top = top  # no result lies there: what comes next may use the memory again
        except NotNative:
            del self.rows[rows:], self.arguments[arguments:], self.parts[parts:]
            for result, state in zip(results, before, strict=True):
                result.restore(state)
            self.arena.top = top
            raise


def nbytes_of(spec: TensorSpec) -> int:
    """Bytes of a value; 0 for one that is no tensor of numbers. Raises NotNative for an open shape."""
    if spec.dtype == "object":
        return 0
    if not all(isinstance(size, int) for size in spec.shape):
        raise NotNative(f"{spec.name} has the open shape {spec.shape}")
    return math.prod(size for size in spec.shape if isinstance(size, int)) * memory.numpy_dtype(spec.dtype).itemsize

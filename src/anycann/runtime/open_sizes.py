"""Shapes that a session meets once or seldom: run by a program for open sizes, and compiled when that has taken as long as compiling.

It decides for whole models, and for each region that the host may compute (`host_regions.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
import math
from operator import itemgetter, ne
import threading
import time
from typing import TypeAlias

from anycann.om.plan import TensorSpec
from anycann.runtime.open_program import OpenProgram
from anycann.support.errors import AnyCANNError
from anycann.support.records import dataclass

OPEN_SIZES = "open sizes"  # among `switched_off`: every shape is compiled when it is met
SHAPES_COMPARED = 8  # of those met last
PROGRAMS_KEPT = 4  # for open sizes: each has its kernels once, whatever shapes it runs
SHAPES_COUNTED = 1024
FIRST_SECONDS = 0.005  # what a program is thought to take that has not run yet
REGION_SECONDS = 0.15  # what compiling a region takes at least, if not all its kernels are on the disk
IN_A_ROW, REGION_IN_A_ROW = 2, 4  # so often the same shape comes that stays; detectors find as many as before now and then

Specs: TypeAlias = tuple[TensorSpec, ...]
Shape: TypeAlias = tuple[int | str | None, ...]
Make: TypeAlias = Callable[[Specs, Specs], OpenProgram | None]


@dataclass(frozen=True)
class _Types:
    """What a session was fed, as what is compared in every call: the dtype and rank of each input, and the shapes."""

    kinds: tuple[tuple[str, int], ...]
    shapes: tuple[Shape, ...]

    @classmethod
    def of(cls, specs: Specs) -> _Types:
        """Those of specs."""
        return cls(tuple([(spec.dtype, len(spec.shape)) for spec in specs]), tuple([spec.shape for spec in specs]))

    @property
    def numbers(self) -> int:
        """How many the inputs have, and at least one."""
        return 1 + sum(map(math.prod, self.shapes))  # type: ignore[arg-type]

    def moving(self, other: _Types) -> frozenset[int] | None:
        """The numbers of the inputs whose sizes differ; None where something else does, or an input is no tensor."""
        if not self.may_move(other):
            return None
        return frozenset([number for number, (a, b) in enumerate(zip(self.shapes, other.shapes, strict=True)) if a != b])

    def may_move(self, other: _Types) -> bool:
        """Whether nothing but sizes differs."""
        return self.kinds == other.kinds and not any(dtype == "object" for dtype, _ in self.kinds)


@dataclass
class _Open:
    """A program for all inputs that are as `types` but for those numbered `moving`, and how long it ran last, on so many numbers."""

    types: _Types
    moving: frozenset[int]
    program: OpenProgram | None
    seconds: float = FIRST_SECONDS
    numbers: int = 0
    total: float = 0.0  # what its runs took since one in which less moves was made beside it
    bounded: bool = False  # its nodes refuse large sizes themselves

    def takes(self, types: _Types) -> bool:
        """Whether inputs of these types differ from its own where they may."""
        moving = self.types.moving(types)
        return moving is not None and moving <= self.moving

    def gives_way(self, making_seconds: float) -> bool:
        """Whether one in which less moves is worth making, which takes so long."""
        return self.program is None or self.total >= making_seconds

    def expected_seconds(self, numbers: int) -> float:
        """What a run on so many numbers may take: attention and products of two moving operands grow as the square."""
        return 0.0 if self.bounded else self.seconds * max(numbers / (self.numbers or self.types.numbers), 1.0) ** 2


class OpenSizes:
    """Decides for one model or region which shapes are compiled. Safe to use from several threads.

    The first shape is compiled, so is one that comes twice in a row, and one whose runs have taken as long as compiling took. `region`: a
    program that takes any shapes of a region; then the first one is not, and others stay only when they come four times in a row.
    """

    def __init__(self, region: OpenProgram | None = None) -> None:
        self._region = None if region is None else _Open(_Types((), ()), frozenset(), region, bounded=True)
        self._in_a_row = IN_A_ROW if region is None else REGION_IN_A_ROW
        self._met: deque[_Types] = deque(maxlen=SHAPES_COMPARED)
        self._names: tuple[str, ...] = ()
        self._open: deque[_Open] = deque(maxlen=PROGRAMS_KEPT)
        self._spent: dict[_Types, float] = {}
        self._latest = _Types((), ())
        self._times = 0  # that it came in a row
        self._making_seconds = 0.0
        self._compiling_seconds = math.inf if region is None else REGION_SECONDS
        self._lock = threading.Lock()

    def programs(self) -> list[OpenProgram]:
        """Those there are."""
        return [each.program for each in tuple(self._open) if each.program is not None]

    def compiled(self, specs: Specs, seconds: float) -> None:
        """A program for these types was made in that time."""
        with self._lock:
            self._note(_Types.of(specs))
            self._compiling_seconds = min(self._compiling_seconds, seconds)

    def run(self, specs: Specs, values: Sequence[object], make: Make | None = None) -> list[object] | None:
        """The outputs; None where these types are better compiled. `make` gives a program for all inputs that differ as two do, or None."""
        types = _Types.of(specs)
        with self._lock:
            self._names = tuple([spec.name for spec in specs])
            self._times, self._latest = self._times + 1 if types == self._latest else 1, types
            found = None if self._times >= self._in_a_row else self._region or self._find(types, specs, make)
            if found is None or found.program is None:
                return None
            if self._spent.get(types, 0.0) + found.expected_seconds(types.numbers) > self._compiling_seconds:
                return None
        return self._timed(found, found.program, types, values)

    def run_again(self, shapes: tuple[Shape, ...], values: Sequence[object]) -> list[object] | None:
        """As `run`, of inputs that differ from those before in their shapes alone, by the program that ran last; None where `run` has more
        to decide than whether it may."""
        with self._lock:
            types = _Types(self._latest.kinds, shapes)
            found = self._open[-1] if self._open else None
            if found is None or found.program is None or types == self._latest or not self._stays_best(found, types):
                return None
            if self._spent.get(types, 0.0) + found.expected_seconds(types.numbers) > self._compiling_seconds:
                return None
            self._times, self._latest = 1, types
        return self._timed(found, found.program, types, values)

    def _timed(self, found: _Open, program: OpenProgram, types: _Types, values: Sequence[object]) -> list[object] | None:
        start, made = time.perf_counter(), program.made_seconds
        try:
            results = program.run(values)
        except AnyCANNError:
            return None
        made = program.made_seconds - made  # what the next run does not take again
        with self._lock:
            found.seconds, found.numbers = max(time.perf_counter() - start - made, 0.0), types.numbers
            found.total += found.seconds
            self._note(types)
            self._spent[types] = self._spent.pop(types, 0.0) + found.seconds
            if len(self._spent) > SHAPES_COUNTED:
                del self._spent[next(iter(self._spent))]
        return results

    def _note(self, types: _Types) -> None:
        if self._region is None and types not in self._met:
            self._met.append(types)

    def _specs(self, types: _Types) -> Specs:
        facts = zip(self._names, types.kinds, types.shapes, strict=True)
        return tuple([TensorSpec(name, dtype, shape) for name, (dtype, _), shape in facts])

    def _stays_best(self, found: _Open, types: _Types) -> bool:
        """Whether `_find` gives this program, and makes none."""
        moves = len(found.moving)
        if not found.takes(types) or any(len(each.moving) < moves and each.takes(types) for each in self._open):
            return False
        counts = [sum(map(ne, met.shapes, types.shapes)) for met in self._met if met.kinds == types.kinds]
        return min(counts, default=0) >= moves

    def _find(self, types: _Types, specs: Specs, make: Make | None) -> _Open | None:
        """The program for open sizes in which the least moves; made if two shapes that were met differ in less than those there are.

        When there are as many as are kept, the next is for what moves most, and for less once that has run for as long as making takes.
        """
        if make is None:
            return None
        alike = [met for met in self._met if met.may_move(types)]
        pairs = [(count, met) for met in alike if (count := sum(map(ne, met.shapes, types.shapes)))]
        if not pairs:
            return None
        there = min((each for each in self._open if each.takes(types)), key=lambda each: len(each.moving), default=None)
        full = len(self._open) == PROGRAMS_KEPT
        count, met = (max if full and there is None else min)(pairs, key=itemgetter(0))
        if there is None or (len(there.moving) > count and (not full or there.gives_way(self._making_seconds))):
            if there is not None:
                there.total = 0.0
            made, start = _Open(met, met.moving(types) or frozenset(), None), time.perf_counter()
            with suppress(AnyCANNError):  # the compiled program says what is wrong
                made.program = make(self._specs(met), specs)
            self._making_seconds = time.perf_counter() - start
            self._open.append(made)
            return made
        self._open.remove(there)
        self._open.append(there)  # the one that was not used for longest goes first
        return there

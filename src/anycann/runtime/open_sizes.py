"""Shapes that a session meets once or seldom: run by a program for open sizes, and compiled when that has taken as long as compiling.

It decides for whole models, and for each region that the host may compute (`host_regions.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
import math
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
Make: TypeAlias = Callable[[Specs, Specs], OpenProgram | None]


@dataclass
class _Open:
    """A program for all inputs that are as `specs` but for those numbered `moving`, and how long it ran last, on so many numbers."""

    specs: Specs
    moving: frozenset[int]
    program: OpenProgram | None
    seconds: float = FIRST_SECONDS
    numbers: int = 0
    total: float = 0.0  # what its runs took since one in which less moves was made beside it
    bounded: bool = False  # its nodes refuse large sizes themselves

    def takes(self, specs: Specs) -> bool:
        """Whether inputs of these types differ from its own where they may."""
        moving = _moving(self.specs, specs)
        return moving is not None and moving <= self.moving

    def gives_way(self, making_seconds: float) -> bool:
        """Whether one in which less moves is worth making, which takes so long."""
        return self.program is None or self.total >= making_seconds

    def expected_seconds(self, specs: Specs) -> float:
        """What a run may take: attention and products of two moving operands grow as the square."""
        if self.bounded:
            return 0.0
        return self.seconds * max(_numbers(specs) / (self.numbers or _numbers(self.specs)), 1.0) ** 2


class OpenSizes:
    """Decides for one model or region which shapes are compiled. Safe to use from several threads.

    The first shape is compiled, so is one that comes twice in a row, and one whose runs have taken as long as compiling took. `region`: a
    program that takes any shapes of a region; then the first one is not, and others stay only when they come four times in a row.
    """

    def __init__(self, region: OpenProgram | None = None) -> None:
        self._region = None if region is None else _Open((), frozenset(), region, bounded=True)
        self._in_a_row = IN_A_ROW if region is None else REGION_IN_A_ROW
        self._met: deque[Specs] = deque(maxlen=SHAPES_COMPARED)
        self._open: deque[_Open] = deque(maxlen=PROGRAMS_KEPT)
        self._spent: dict[Specs, float] = {}
        self._latest: Specs = ()
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
            self._note(specs)
            self._compiling_seconds = min(self._compiling_seconds, seconds)

    def run(self, specs: Specs, values: Sequence[object], make: Make | None = None) -> list[object] | None:
        """The outputs; None where these types are better compiled. `make` gives a program for all inputs that differ as two do, or None."""
        with self._lock:
            self._times, self._latest = self._times + 1 if specs == self._latest else 1, specs
            found = None if self._times >= self._in_a_row else self._region or self._find(specs, make)
            if found is None or found.program is None:
                return None
            if self._spent.get(specs, 0.0) + found.expected_seconds(specs) > self._compiling_seconds:
                return None
        start, made = time.perf_counter(), found.program.made_seconds
        try:
            results = found.program.run(values)
        except AnyCANNError:
            return None
        made = found.program.made_seconds - made  # what the next run does not take again
        with self._lock:
            found.seconds, found.numbers = max(time.perf_counter() - start - made, 0.0), _numbers(specs)
            found.total += found.seconds
            self._note(specs)
            self._spent[specs] = self._spent.pop(specs, 0.0) + found.seconds
            if len(self._spent) > SHAPES_COUNTED:
                del self._spent[next(iter(self._spent))]
        return results

    def _note(self, specs: Specs) -> None:
        if self._region is None and specs not in self._met:
            self._met.append(specs)

    def _find(self, specs: Specs, make: Make | None) -> _Open | None:
        """The program for open sizes in which the least moves; made if two shapes that were met differ in less than those there are.

        When there are as many as are kept, the next is for what moves most, and for less once that has run for as long as making takes.
        """
        if make is None:
            return None
        pairs = [(moving, known) for known in self._met if (moving := _moving(known, specs))]
        if not pairs:
            return None
        there = min((each for each in self._open if each.takes(specs)), key=lambda each: len(each.moving), default=None)
        full = len(self._open) == PROGRAMS_KEPT
        moving, known = (max if full and there is None else min)(pairs, key=lambda pair: len(pair[0]))
        if there is None or (len(there.moving) > len(moving) and (not full or there.gives_way(self._making_seconds))):
            if there is not None:
                there.total = 0.0
            made, start = _Open(known, moving, None), time.perf_counter()
            with suppress(AnyCANNError):  # the compiled program says what is wrong
                made.program = make(known, specs)
            self._making_seconds = time.perf_counter() - start
            self._open.append(made)
            return made
        self._open.remove(there)
        self._open.append(there)  # the one that was not used for longest goes first
        return there


def _numbers(specs: Specs) -> int:
    """How many the inputs have, and at least one."""
    return 1 + sum(math.prod(int(size or 0) for size in spec.shape) for spec in specs)


def _moving(one: Specs, other: Specs) -> frozenset[int] | None:
    """The numbers of the inputs whose sizes differ; None where something else does, or an input is no tensor."""
    if any(a.dtype != b.dtype or a.dtype == "object" or len(a.shape) != len(b.shape) for a, b in zip(one, other, strict=True)):
        return None
    return frozenset(number for number, (a, b) in enumerate(zip(one, other, strict=True)) if a.shape != b.shape)

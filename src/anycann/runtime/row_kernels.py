"""Kernels for a block of rows, run over any number of them: the last block is filled up with its last row, and what that gives is cut off.

n = 45 of 384 columns -> rows 0 to 31 where they lie, 32 to 44 copied before 19 times row 44 -> 45 rows of the outputs

Programs for blocks are made when they are first needed, so that a new number of rows costs nothing once they are there. Where one of
more rows is there, it takes fewer too, until that has taken as long as making the smaller one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import threading
import time
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from anycann.runtime.executor import CompiledProgram
from anycann.runtime.part_kernels import Kernels
from anycann.support.records import dataclass

MAKING_SECONDS = 0.05  # of one run, behind which the host computes what still has no program
BLOCKS = (128, 32, 8)  # rows: fewer read all weights for little, and more are mostly filled up
FULL = 3 / 4  # of a block: so many rows and more take it instead of the next smaller ones

Array: TypeAlias = NDArray[Any]
Host: TypeAlias = Callable[["Sequence[Array]"], "list[Array] | None"]


@dataclass(frozen=True)
class Strip:
    """What an array has to be whose rows lie along `axis`: its dtype, and its sizes but for that one. axis None: all its sizes."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    axis: int | None

    def fits(self, value: object) -> bool:
        """Whether it is."""
        if not isinstance(value, np.ndarray) or value.dtype != self.dtype or value.ndim != len(self.shape):
            return False
        return all(a == b or number == self.axis for number, (a, b) in enumerate(zip(value.shape, self.shape, strict=True)))


class Budget:
    """How long the parts of one program may still make programs in this run; several threads have one together."""

    def __init__(self) -> None:
        self.left = MAKING_SECONDS

    def renew(self) -> None:
        """A run begins."""
        self.left = MAKING_SECONDS


class RowKernels:
    """A graph that computes each row by itself. `make` gives its program for a block, whose inputs have so many rows along their axes.

    inputs, outputs: what they are called around it. made_seconds: what making programs took. host: makes what computes any rows, more
    slowly; that does where there is no program and others took what `budget` has. Safe to use from several threads.
    """

    def __init__(
        self,
        make: Callable[[int], CompiledProgram],
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        strips: Sequence[Strip],
        output_axes: Sequence[int],
        budget: Budget | None = None,
        host: Callable[[], Host] | None = None,
    ):
        self.inputs, self.outputs = inputs, outputs
        self.made_seconds = 0.0
        self.budget, self._host = budget or Budget(), host
        self._ready_host: Host | None = None
        self.axes, self.output_axes = [strip.axis for strip in strips], output_axes
        self._make, self._strips = make, strips
        self._programs: dict[int, Kernels] = {}
        self._spent = dict.fromkeys(BLOCKS, 0.0)  # seconds in which larger blocks ran in place of each
        self._lock = threading.Lock()

    def run(self, operands: Sequence[object]) -> list[Array] | None:
        """The outputs; None where operands are not what the graph was made for, or have not all as many rows.

        Raises AnyCANNError where there is no program for a block.
        """
        arrays = [value for value in operands if isinstance(value, np.ndarray)]
        if len(arrays) != len(operands) or not all(strip.fits(value) for strip, value in zip(self._strips, arrays, strict=True)):
            return None
        counts = {array.shape[axis] for array, axis in zip(arrays, self.axes, strict=True) if axis is not None}
        if len(counts) != 1:
            return None
        (rows,) = counts
        if self._host is not None and self.budget.left <= 0 and not self._programs:
            return self._made_host(self._host)(arrays)
        results: list[Array] = []
        begin = 0
        while begin < rows or rows == begin == 0:
            wanted, start = _wanted(rows - begin), time.perf_counter()
            block = self._taken(wanted)
            kernels = self._programs.get(block) or self._program(block)
            feeds = [array if axis is None else _part(array, axis, begin, block) for array, axis in zip(arrays, self.axes, strict=True)]
            if begin == 0 and rows <= block:  # not one that another thread made meanwhile, for what is left
                made = zip(kernels.run(feeds), self.output_axes, strict=True)
                results = [array if rows == block else _at(array, axis, 0, rows) for array, axis in made]
            else:
                results = results or self._room(kernels.program, rows)
                self._run_part(kernels.program, feeds, results, begin, block)
            if block != wanted:
                self._spent[wanted] += time.perf_counter() - start
            begin += block
        return results

    def _run_part(self, program: CompiledProgram, feeds: Sequence[Array], results: Sequence[Array], begin: int, block: int) -> None:
        """Write the rows of a block from `begin` on, as many as there are in the results."""
        places = [_at(array, axis, begin, block) for array, axis in zip(results, self.output_axes, strict=True)]
        whole = [place.shape[axis] == block for place, axis in zip(places, self.output_axes, strict=True)]
        buffers = [place if place.flags.c_contiguous and all_there else None for place, all_there in zip(places, whole, strict=True)]
        for place, buffer, made, axis in zip(places, buffers, program.run(feeds, buffers), self.output_axes, strict=True):
            if buffer is None:
                place[...] = _at(made, axis, 0, place.shape[axis])  # type: ignore[arg-type]

    def _taken(self, wanted: int) -> int:
        """The block to run where this one is wanted: a larger one that is there, as long as making this one is not repaid; any other one
        while this run has made programs for long enough."""
        there = sorted(self._programs)  # others may add some now
        makes = self.budget.left > 0 or not there
        if wanted in there or (makes and self._spent[wanted] * len(there) > self.made_seconds):
            return wanted
        return min((block for block in there if block > wanted), default=wanted if makes else there[-1])

    def _made_host(self, make: Callable[[], Host]) -> Host:
        with self._lock:
            if self._ready_host is None:
                start = time.perf_counter()
                self._ready_host = make()
                self.made_seconds += time.perf_counter() - start
            return self._ready_host

    def _program(self, block: int) -> Kernels:
        with self._lock:
            if block not in self._programs:
                start = time.perf_counter()
                self._programs[block] = Kernels(self._make(block), self.inputs, self.outputs)
                seconds = time.perf_counter() - start
                self.made_seconds += seconds
                self.budget.left -= seconds
            return self._programs[block]

    def _room(self, program: CompiledProgram, rows: int) -> list[Array]:
        shapes = [[*map(int, spec.shape)] for spec in program.program.outputs]  # type: ignore[arg-type]
        for shape, axis in zip(shapes, self.output_axes, strict=True):
            shape[axis] = rows
        return [np.empty(shape, spec.dtype) for shape, spec in zip(shapes, program.program.outputs, strict=True)]


def _wanted(left: int) -> int:
    """The block for so many rows that are left: the largest that they mostly fill."""
    return next((block for block in BLOCKS if left >= block * FULL), BLOCKS[-1])


def _at(array: Array, axis: int, begin: int, count: int) -> Array:
    return array[(slice(None),) * axis + (slice(begin, begin + count),)]


def _part(array: Array, axis: int, begin: int, block: int) -> Array:
    """A block of rows, filled up with the last one (zeros where there is none): whatever is computed of it, that was computed anyway."""
    part = _at(array, axis, begin, block)
    if part.shape[axis] == block:
        return part
    filled = np.zeros((*part.shape[:axis], block, *part.shape[axis + 1 :]), part.dtype)
    _at(filled, axis, 0, part.shape[axis])[...] = part
    if part.shape[axis]:
        _at(filled, axis, part.shape[axis], block)[...] = _at(part, axis, part.shape[axis] - 1, 1)
    return filled

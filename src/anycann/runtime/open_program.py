"""A program for inputs whose sizes change from call to call: kernels compute what stays the same and rows, the host what else moves.

The host's nodes run by their numpy meaning, which asks for no sizes beforehand, so that new ones cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from anycann.runtime.blas_threads import one_thread
from anycann.runtime.host import Evaluate
from anycann.runtime.part_kernels import Kernels
from anycann.runtime.plan_text import Example
from anycann.runtime.row_kernels import RowKernels
from anycann.support.records import dataclass

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class HostNode:
    """A node ready to run, and the names of its operands ("" where absent) and results."""

    evaluate: Evaluate
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    op_type: str = ""
    attributes: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Sized:
    """What an array has to be: its dtype and, unless they may be any, its sizes."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...] | None = None

    def fits(self, value: object) -> bool:
        """Whether it is."""
        return isinstance(value, np.ndarray) and value.dtype == self.dtype and self.shape in (None, value.shape)


class Written(Protocol):
    """A program as one function (`open_plan.py`)."""

    def run(self, feeds: Sequence[object]) -> list[object] | None:
        """As `OpenProgram.run`; None also for a run that it was not written for."""


Write: TypeAlias = Callable[["OpenProgram", Mapping[str, Example]], Written | None]
OWN = 0x0401  # NPY_ARRAY_WRITEABLE and NPY_ARRAY_C_CONTIGUOUS of numpy's C interface
MOST_WRITTEN = 4  # times, for runs that the last one was not written for
MOST_REFUSED = 16  # runs one behind the other; then it is given up


class OpenProgram:
    """Parts in the order in which they run. `checked`: what results of the host have to be, because kernels or the caller read them.

    write: gives the program as one function, by what the values of a run were.

    numpy's products take one thread: those that are small wait for a second one longer than they take, and large ones are compiled soon.
    A value is let go behind the last that reads it: attention over long sequences makes large ones in every layer.
    """

    def __init__(
        self,
        parts: Sequence[Kernels | RowKernels | tuple[HostNode, ...]],
        constants: Mapping[str, Array],
        checked: Mapping[str, Sized],
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        write: Write | None = None,
    ):
        self.inputs, self.outputs = inputs, outputs
        self.constants, self.checked = constants, checked
        self._write, self._times_written, self._refused = write, 0, 0
        self._written: Written | None = None
        self.parts = [each for part in parts for each in (part if isinstance(part, tuple) else (part,))]
        self._budgets = {part.budget for part in self.parts if isinstance(part, RowKernels)}
        self.dead = _last_read(self.parts, outputs)

    @property
    def made_seconds(self) -> float:
        """What making programs for blocks of rows took, in all runs so far."""
        return sum(part.made_seconds for part in self.parts if isinstance(part, RowKernels))

    def run(self, feeds: Sequence[object]) -> list[object] | None:
        """The outputs, arrays of their own; None if a result is not what the kernels behind it were compiled for.

        Raises AnyCANNError where a node of the host refuses its operands.
        """
        for budget in self._budgets:
            budget.renew()
        with one_thread(), np.errstate(all="ignore"):
            written = self._written  # which another thread may give up now
            if written is not None:
                found = written.run(feeds)
                if found is not None:
                    self._refused = 0
                    return found
                self._refused += 1
                if self._refused > MOST_REFUSED:
                    self._written = self._write = None
            return self._run(feeds)

    def _run(self, feeds: Sequence[object]) -> list[object] | None:
        values: dict[str, object] = {"": None, **self.constants, **dict(zip(self.inputs, map(np.asarray, feeds), strict=True))}
        checked, write = self.checked, self._write if self._times_written < MOST_WRITTEN else None
        seen = {name: Example.of(value) for name, value in values.items()}
        for part, dead in zip(self.parts, self.dead, strict=True):
            operands = [values[name] for name in part.inputs]
            results = part.evaluate(operands) if isinstance(part, HostNode) else part.run(operands)
            if results is None:
                return None
            for name, result in zip(part.outputs, results, strict=True):
                if name in checked and not checked[name].fits(result):
                    return None
                if name:
                    values[name] = result
                    seen[name] = None if write is None else Example.of(result)
            for name in dead:
                values.pop(name, None)
        if write is not None:
            self._times_written += 1
            self._written = write(self, {name: example for name, example in seen.items() if example is not None})
        return _owned([values[name] for name in self.outputs], [*feeds, *self.constants.values()])


def _last_read(parts: Sequence[Kernels | RowKernels | HostNode], outputs: Sequence[str]) -> list[tuple[str, ...]]:
    """The values that nobody needs behind each part."""
    needed, dead = {"", *outputs}, []
    for part in reversed(parts):
        dead.append(tuple({*part.inputs, *part.outputs} - needed))
        needed.update(part.inputs)
    return dead[::-1]


def _owned(values: Sequence[Any], others: Sequence[object]) -> list[object]:
    """Arrays that nobody else holds: a view, or one of `others`, is copied."""
    held = {id(other) for other in others}
    found: list[object] = []
    for value in values:
        own = value.base is None and value.flags.num & OWN == OWN and id(value) not in held
        found.append(value if own else np.array(value, order="C"))
        held.add(id(value))
    return found

"""Where outputs go: arrays that kernels write in place, the caller's or fresh, and copies of all other values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
import math
from typing import TypeAlias

import numpy as np

from anycann.om.plan import Location, Program, TensorSpec
from anycann.runtime import memory
from anycann.runtime.feeds import Port, usable_directly
from anycann.runtime.layouts import ND
from anycann.runtime.recycling import LEAST_BYTES, Recycler
from anycann.runtime.run_state import RunState
from anycann.support.errors import InternalError, UsageError

Buffers: TypeAlias = Sequence[np.ndarray | None]


class Results:
    """The outputs of a program; `in_place` says of each whether kernels write the whole of it. poison: fill fresh arrays with 0xFF."""

    def __init__(self, outputs: Sequence[TensorSpec], in_place: Sequence[bool], poison: bool):
        self._ports = [Port(spec, i, "output") for i, spec in enumerate(outputs)]
        self._in_place = in_place
        self.all_in_place = all(self._in_place)
        self.poison = poison
        self.makers = [_maker(port) if direct else _nothing for port, direct in zip(self._ports, in_place, strict=True)]

    def arrays(self, feeds: Sequence[object], buffers: Buffers | None) -> list[np.ndarray | None]:
        """The array for each output that is written in place: the caller's if kernels may write to it, else a fresh one. Else None.

        Raises UsageError for a buffer that cannot hold its output.
        """
        if buffers is None:
            arrays = [make() for make in self.makers]
            return [_poisoned(array) for array in arrays] if self.poison else arrays
        if len(buffers) != len(self._ports):
            raise UsageError(f"{len(buffers)} output buffers; accepted: {len(self._ports)}, with None where there is none")
        for port, buffer in zip(self._ports, buffers, strict=True):
            if buffer is not None:
                port.check_buffer(buffer)
        return [self._array(i, buffer, [*feeds, *buffers[:i], *buffers[i + 1 :]]) for i, buffer in enumerate(buffers)]

    def collect(
        self,
        state: RunState,
        feeds: Sequence[object],
        arrays: Sequence[np.ndarray | None],
        buffers: Buffers | None,
        borrowed: bool = False,
    ) -> list[object]:
        """The values to return after the run; nothing but the caller refers to them. `borrowed`: they may be feeds, or each other."""
        if self.all_in_place:
            return self.handed(arrays, buffers)
        values: list[object] = []
        given = Given([*state.own_memory(), *(() if borrowed else (*feeds, *arrays))])
        for port, array in zip(self._ports, arrays, strict=True):
            value = array if array is not None else given.own(state.output(port.name))
            values.append(value)
            if array is None and not borrowed:
                given.add(value)
        return self.handed(values, buffers)

    def handed(self, values: Sequence[object], buffers: Buffers | None) -> list[object]:
        """The values, in the caller's arrays where there are any."""
        if buffers is None:
            return list(values)
        return [
            value if buffer is None else self._copied(i, value, buffer)
            for i, (value, buffer) in enumerate(zip(values, buffers, strict=True))
        ]

    def _array(self, number: int, buffer: np.ndarray | None, others: Sequence[object]) -> np.ndarray | None:
        if not self._in_place[number]:
            return None
        if buffer is not None and usable_directly(buffer, others):
            return buffer
        array = self.makers[number]()
        return _poisoned(array) if self.poison else array

    def _copied(self, number: int, value: object, buffer: np.ndarray) -> np.ndarray:
        if value is buffer:
            return buffer
        if not isinstance(value, np.ndarray) or value.shape != buffer.shape or value.dtype != buffer.dtype:
            got = f"{value.dtype.name}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
            where = self._ports[number].where
            raise UsageError(f"the buffer for {where} is {buffer.dtype.name}{list(buffer.shape)}, but this run gave {got}")
        np.copyto(buffer, value)
        return buffer


def _maker(port: Port) -> Callable[[], np.ndarray]:
    """Makes fresh arrays for an output that kernels write: small ones by numpy alone, as an aligned place costs more than they gain."""
    if port.shape is None:
        raise InternalError(f"{port.where} is written by kernels, but its shape {port.open_shape} is open")
    nbytes = math.prod(port.shape) * port.dtype.itemsize
    if nbytes <= memory.SMALL_BYTES:
        return partial(np.empty, port.shape, port.dtype)
    return partial(memory.empty if nbytes < LEAST_BYTES else Recycler(nbytes).empty, port.shape, port.dtype)


def _nothing() -> None:
    """For an output that kernels do not write in place."""


def _poisoned(array: np.ndarray | None) -> np.ndarray | None:
    if array is not None:
        array.reshape(-1).view(np.uint8)[:] = memory.POISON
    return array


def written_in_place(program: Program) -> list[bool]:
    """For each output whether its value lies, row-major, in the whole of that output."""
    return [_is_in(program.values.get(spec.name), number) for number, spec in enumerate(program.outputs)]


def _is_in(location: Location | None, number: int) -> bool:
    if location is None or location.layout != ND:
        return False
    buffer = location.buffer
    return buffer.space == "output" and buffer.index == number and buffer.offset_bytes == 0


def own(value: object, others: Sequence[object]) -> object:
    """`value` as the caller's alone: copied if it shares memory with one of `others` or may not be written."""
    if isinstance(value, np.ndarray):
        shared = any(isinstance(other, np.ndarray) and memory.overlaps(value, other) for other in others)
        return value.copy() if shared or not value.flags.writeable else value
    if isinstance(value, list):
        return [own(item, others) for item in value]
    return value


class Given:
    """Values that a step was given; what it results in may be one of them, or a part."""

    def __init__(self, values: Iterable[object]):
        self._values: list[object] = []
        self._owners: dict[int, np.ndarray] = {}
        for value in values:
            self.add(value)

    def add(self, value: object) -> None:
        """One more of them."""
        self._values.append(value)
        if isinstance(value, np.ndarray):
            owner = memory.owner(value)
            self._owners[id(owner)] = owner

    def own(self, value: object) -> object:
        """As `own` of all of them, without looking at each: what a step makes of an array has its owner, or is new."""
        if isinstance(value, np.ndarray) and value.flags.writeable and self._is_new(memory.owner(value)):
            return value
        return own(value, self._values)

    def _is_new(self, owner: np.ndarray) -> bool:
        """Whether this memory is none that was given. What numpy has not allocated may have several owners: their ranges are compared."""
        if id(owner) in self._owners:
            return False
        return owner.base is None or not any(memory.overlaps(owner, other) for other in self._owners.values())

"""Control flow: If, Loop and Scan of the ONNX specification over compiled bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from anycann.om.plan import RegionStep, TensorSpec
from anycann.runtime.memory import numpy_dtype
from anycann.support.errors import ModelError, context
from anycann.support.records import dataclass


@dataclass(frozen=True)
class Scope:
    """What a region step sees of the run it is part of.

    value(name): an array or host object; None for the name "". call(region, names, inputs): its outputs. outputs(region, names, inputs):
    the specs of its outputs, without running it.
    """

    value: Callable[[str], object]
    call: Callable[[str, Sequence[str], Sequence[object]], Sequence[object]]
    outputs: Callable[[str, Sequence[str], Sequence[object]], tuple[TensorSpec, ...]]


def run_region_step(step: RegionStep, scope: Scope) -> list[object]:
    """The values of `step.outputs`. Raises ModelError for a condition, trip count or scan input that is none."""
    with context(f"while running {step.kind} {step.name!r}"):
        return _KINDS[step.kind](step, scope)


def _run_if(step: RegionStep, scope: Scope) -> list[object]:
    branch = 0 if _truth(scope.value(step.inputs[0]), "the condition") else 1
    names = step.captures[branch]
    return list(scope.call(step.regions[branch], names, [scope.value(name) for name in names]))


def _run_loop(step: RegionStep, scope: Scope) -> list[object]:
    """Inputs: trip count or "", condition or "", carried. The body: (iteration, condition, carried) to (condition, carried, scanned)."""
    trip_count, condition = (scope.value(name) for name in step.inputs[:2])
    most = None if trip_count is None else _integer(trip_count, "the trip count")
    going = condition is None or _truth(condition, "the condition")
    body = _Body(step, scope, ("iteration", "condition", *step.inputs[2:]))
    carried = [scope.value(name) for name in step.inputs[2:]]
    along_first = [0] * (len(step.outputs) - len(carried))
    scanned = _Collector(body, axes=along_first, directions=along_first)
    iteration = 0
    while going and (most is None or iteration < most):
        results = body.call([np.array(iteration, np.int64), np.array(True), *carried])
        going = _truth(results[0], "the body's condition")
        carried = list(results[1 : 1 + len(carried)])
        scanned.add(results[1 + len(carried) :])
        iteration += 1
    first = [np.array(0, np.int64), np.array(going), *carried]
    return [*carried, *scanned.results(first, 1 + len(carried))]


def _run_scan(step: RegionStep, scope: Scope) -> list[object]:
    """Inputs: state variables, then `num_scan_inputs` tensors that are cut along their axes. Attributes are those of Scan, version 9 up."""
    cut = integers(step, "num_scan_inputs", 1)[0]
    states = len(step.inputs) - cut
    axes, directions = (integers(step, f"scan_input_{what}", cut) for what in ("axes", "directions"))
    slices = [_Slices(scope.value(n), a, d, n) for n, a, d in zip(step.inputs[states:], axes, directions, strict=True)]
    lengths = {one.length for one in slices}
    if len(lengths) != 1:
        raise ModelError(f"the scan inputs have {sorted(lengths)} slices; accepted: the same number each")
    body = _Body(step, scope, step.inputs)
    carried = [scope.value(name) for name in step.inputs[:states]]
    outputs = len(step.outputs) - states
    scanned = _Collector(body, *(integers(step, f"scan_output_{what}", outputs) for what in ("axes", "directions")))
    for position in range(lengths.pop()):
        results = body.call([*carried, *(one.at(position) for one in slices)])
        carried = list(results[:states])
        scanned.add(results[states:])
    return [*carried, *scanned.results([*carried, *(one.like_slice() for one in slices)], states)]


_Runner: TypeAlias = Callable[[RegionStep, Scope], list[object]]
_KINDS: dict[str, _Runner] = {"if": _run_if, "loop": _run_loop, "scan": _run_scan}


class _Body:
    """The one region of a loop with its captured outer values, which do not change."""

    def __init__(self, step: RegionStep, scope: Scope, names: Sequence[str]):
        self._scope = scope
        self._region = step.regions[0]
        self._names = (*names, *step.captures[0])
        self._captured = [scope.value(name) for name in step.captures[0]]

    def call(self, inputs: Sequence[object]) -> Sequence[object]:
        return self._scope.call(self._region, self._names, [*inputs, *self._captured])

    def outputs(self, inputs: Sequence[object]) -> tuple[TensorSpec, ...]:
        return self._scope.outputs(self._region, self._names, [*inputs, *self._captured])


class _Collector:
    """Scan outputs: one array an iteration each, stacked in the end along `axes[i]`, last first where `directions[i]` is 1."""

    def __init__(self, body: _Body, axes: Sequence[int], directions: Sequence[int]):
        self._body = body
        self._axes = axes
        self._directions = directions
        self._parts: list[list[np.ndarray]] = [[] for _ in axes]

    def add(self, values: Sequence[object]) -> None:
        for parts, value in zip(self._parts, values, strict=True):
            parts.append(np.asarray(value))

    def results(self, like_inputs: Sequence[object], first_output: int) -> list[object]:
        """The stacked arrays; without an iteration, empty ones of the shapes the body would give for `like_inputs`."""
        if not self._parts:
            return []
        if not self._parts[0]:
            specs = self._body.outputs(like_inputs)[first_output:]
            return [_no_iterations(spec, axis) for spec, axis in zip(specs, self._axes, strict=True)]
        return [self._stack(i) for i in range(len(self._parts))]

    def _stack(self, number: int) -> np.ndarray:
        parts = self._parts[number]
        shapes = {part.shape for part in parts}
        if len(shapes) > 1:
            raise ModelError(f"scan output {number} changes its shape between iterations: {sorted(shapes)}; accepted: one shape")
        return np.stack(parts[::-1] if self._directions[number] == 1 else parts, self._axes[number])


class _Slices:
    """A scan input, cut along `axis`, last slice first if `direction` is 1."""

    def __init__(self, value: object, axis: int, direction: int, name: str):
        if not isinstance(value, np.ndarray) or not -value.ndim <= axis < value.ndim:
            got = f"{value.dtype.name}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
            raise ModelError(f"scan input {name!r} is {got} and is cut along axis {axis}; accepted: a tensor that has this axis")
        self._first = np.moveaxis(value, axis, 0)
        self._backwards = direction == 1
        self.length = len(self._first)

    def at(self, position: int) -> np.ndarray:
        return np.asarray(self._first[self.length - 1 - position if self._backwards else position])

    def like_slice(self) -> np.ndarray:
        """An array of the shape and dtype of a slice."""
        return np.zeros(self._first.shape[1:], self._first.dtype)


def _no_iterations(spec: TensorSpec, axis: int) -> np.ndarray:
    """Nothing stacked along `axis`; a size that the body leaves open is taken as 0."""
    sizes = [size if isinstance(size, int) else 0 for size in spec.shape]
    position = axis if axis >= 0 else axis + len(sizes) + 1
    return np.zeros((*sizes[:position], 0, *sizes[position:]), numpy_dtype(spec.dtype))


def _truth(value: object, what: str) -> bool:
    array = np.asarray(value)
    if array.dtype != np.bool_ or array.size != 1:
        raise ModelError(f"{what} is {array.dtype.name}{list(array.shape)}; accepted: one bool")
    return bool(array.reshape(()))


def _integer(value: object, what: str) -> int:
    array = np.asarray(value)
    if array.dtype.kind not in "iu" or array.size != 1:
        raise ModelError(f"{what} is {array.dtype.name}{list(array.shape)}; accepted: one integer")
    return int(array.reshape(()))


def integers(step: RegionStep, name: str, count: int) -> tuple[int, ...]:
    """An attribute of `count` integers; zeros if the step has none, as the specification says."""
    value = step.attributes.get(name, (0,) * count)
    numbers = tuple(value) if isinstance(value, list | tuple) else (value,)
    if len(numbers) != count or not all(isinstance(number, int) for number in numbers):
        raise ModelError(f"{step.kind} {step.name!r}: attribute {name} is {value!r}; accepted: {count} integers")
    return numbers

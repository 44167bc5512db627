"""One run of a program: where each value is while it lasts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from anycann.om.plan import Buffer, HostStep, Location, Program, RegionStep
from anycann.runtime import layouts, memory
from anycann.runtime.launches import Workspace
from anycann.runtime.observe import Observer
from anycann.support.errors import InternalError


class RunState:
    """The values of one run: located ones in the arena, the constants, the feeds or the output arrays; any other in `environment`.

    `environment` also keeps the arrays made to show feeds and outputs, `workspace.views` those of the arena and the constants.
    """

    def __init__(
        self,
        program: Program,
        constants: memory.Bytes,
        lanes: int,
        workspace: Workspace,
        feeds: Sequence[object],
        results: Sequence[np.ndarray | None],
        observers: tuple[Observer, ...],
    ):
        self.workspace = workspace
        self.observers = observers
        self._program = program
        self._values = program.values
        self._constants = constants
        self._lanes = lanes
        self._feeds = feeds
        self._results = results
        self.environment: dict[str, object] = {
            spec.name: feed for spec, feed in zip(program.inputs, feeds, strict=True) if spec.name not in program.values
        }

    @property
    def program(self) -> Program:
        """What runs."""
        return self._program

    def value(self, name: str) -> object:
        """The value now: an array in plain order that must not be written, or a host object; None for "". KeyError for an unknown name."""
        view = self.workspace.views.get(name)
        if view is not None:
            return view
        if name in self.environment:
            return self.environment[name]
        return self._read(name, self._values[name]) if name else None

    def _read(self, name: str, location: Location) -> np.ndarray:
        """The array of a located value. In plain order it shows the memory itself, and is made once for the run, or for all runs."""
        array = self._fed(name, location) if location.buffer.space == "input" else None
        if array is None:
            array = layouts.read(location, self._raw(location.buffer), self._lanes)
        array.setflags(write=False)
        if location.layout == layouts.ND:
            kept = self.workspace.views if location.buffer.space in ("arena", "constants") else self.environment
            kept[name] = array
        return array

    def _fed(self, name: str, location: Location) -> np.ndarray | None:
        """A view of the feed, if `name` is an input and not something within one."""
        feed, index = self._feeds[location.buffer.index], location.buffer.index
        whole = self._program.inputs[index].name == name and location.layout == layouts.ND
        return feed.view() if whole and isinstance(feed, np.ndarray) else None

    def store(self, name: str, value: object) -> None:
        """Keep a result of a host or region step: in its place if it has one, else in the environment."""
        place = self.workspace.places.get(name)
        if place is not None and type(value) is np.ndarray and value.shape == place.shape and value.dtype == place.dtype:
            np.copyto(place, value)
            return
        location = self._values.get(name)
        if location is not None:
            self._write(name, location, _checked(location, value))
        elif name:
            self.environment[name] = _without_arena(value, self.workspace.arena)

    def store_all(self, step: HostStep | RegionStep, results: Sequence[object]) -> None:
        """Keep the results of a step. Raises InternalError if they are not as many as its outputs."""
        if len(results) != len(step.outputs):
            raise InternalError(f"step {step.name!r} has {len(step.outputs)} outputs, but {len(results)} were computed")
        for name, value in zip(step.outputs, results, strict=True):
            self.store(name, value)

    def _write(self, name: str, location: Location, array: np.ndarray) -> None:
        """Put an array where its value lies; a place in the arena that is in plain order is kept for the next time."""
        raw = self._raw(location.buffer)
        layouts.write(location, raw, self._lanes, array)
        if location.layout == layouts.ND and location.buffer.space == "arena":
            self.workspace.places[name] = layouts.read(location, raw, self._lanes)

    def output(self, name: str) -> object:
        """The value of an output. Raises InternalError if no step has computed it."""
        try:
            return self.value(name)
        except KeyError:
            raise InternalError(f"output {name!r} was computed by no step of the program") from None

    def own_memory(self) -> tuple[memory.Bytes, memory.Bytes]:
        """Arena and constants."""
        return self.workspace.arena, self._constants

    def _raw(self, buffer: Buffer) -> memory.Bytes:
        source: object
        if buffer.space == "arena":
            source = self.workspace.arena
        elif buffer.space == "constants":
            source = self._constants
        else:
            source = (self._feeds if buffer.space == "input" else self._results)[buffer.index]
        if not isinstance(source, np.ndarray):
            raise InternalError(f"{buffer} has no memory in this run")
        flat = source.reshape(-1).view(np.uint8)
        return flat[buffer.offset_bytes : buffer.offset_bytes + buffer.nbytes]


def _checked(location: Location, value: object) -> np.ndarray:
    spec = location.spec
    array = np.asarray(value)
    if array.shape != spec.shape or array.dtype != memory.numpy_dtype(spec.dtype):
        got = f"{array.dtype.name}{list(array.shape)}"
        raise InternalError(f"value {spec.name!r} was computed as {got}, but was planned as {spec.dtype}{list(spec.shape)}")
    return array


def _without_arena(value: object, arena: memory.Bytes) -> object:
    """`value`, copied where it is a view of memory that later kernels write to."""
    if isinstance(value, np.ndarray):
        alone = value.base is None and value.flags.owndata
        return value.copy() if not alone and memory.overlaps(value, arena) else value
    if isinstance(value, list):
        return [_without_arena(item, arena) for item in value]
    return value

"""Run a model in the manner of ONNX Runtime: feeds are checked, the program for their shapes is found, and its outputs are handed out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from anycann.model_programs import PROGRAMS_KEPT, Loaded, ModelPrograms, SessionOptions
from anycann.om.plan import TensorSpec
from anycann.runtime.direct_call import PLAIN, Direct
from anycann.runtime.executor import CompiledProgram
from anycann.support.errors import UsageError
from anycann.support.records import dataclass

if TYPE_CHECKING:
    from anycann.assembly import NodeReport
    from anycann.just_in_time import Source

Array: TypeAlias = NDArray[Any]
__all__ = ["InferenceSession", "NodeArg", "SessionOptions"]

_TYPE_NAMES = {"float32": "float", "float64": "double"}


@dataclass(frozen=True)
class NodeArg:
    """An input or output as the model declares it: `type` in ONNX Runtime's words ("tensor(float)"), open sizes by name or None."""

    name: str
    type: str
    shape: tuple[int | str | None, ...]


class InferenceSession:
    """A model ready to run. Safe to use from several threads at once.

    model: path or bytes of an `.onnx` or `.om` file, a ModelProto or an onnx_ir model. Input shapes that the model leaves open are taken
    from the feeds; a program for new shapes is compiled when they are met first, and the last ones are kept.
    """

    def __init__(self, model: Source, options: SessionOptions | None = None, *, num_threads: int | None = None):
        self.options = options or SessionOptions()
        self._programs = ModelPrograms(model, self.options, num_threads or self.options.num_threads)
        specs, types = self._programs.inputs, self._programs.types
        self._inputs = tuple(_node_arg(spec, types) for spec in specs)
        self._outputs = tuple(_node_arg(spec, types) for spec in self._programs.outputs)
        self._overridable = tuple(_node_arg(spec, types) for spec in self._programs.overridable)
        self._types = tuple(_feed_dtype(spec) for spec in specs)
        self._names = tuple(arg.name for arg in self._inputs)
        self._accepted = frozenset(arg.name for arg in (*self._inputs, *self._overridable))
        self._expected = [(dtype, len(spec.shape), _known_sizes(spec)) for dtype, spec in zip(self._types, specs, strict=True)]
        self._checked: dict[tuple[object, ...], Loaded] = {}  # by the types of feeds that kernels read as they are
        self._latest: tuple[tuple[object, ...], Loaded | None] = ((), None)  # of those, for comparing types is faster than hashing them
        self._direct: Direct | None = None  # for feeds of the types that were met last
        self._positions = {arg.name: n for n, arg in enumerate(self._outputs)}
        if all(self._types) and all(isinstance(size, int) for spec in specs for size in spec.shape):
            self._programs.find(specs)

    def get_inputs(self) -> tuple[NodeArg, ...]:
        """Name, type and shape of each input."""
        return self._inputs

    def get_outputs(self) -> tuple[NodeArg, ...]:
        """Name, type and shape of each output."""
        return self._outputs

    def get_overridable_initializers(self) -> tuple[NodeArg, ...]:
        """Inputs with a default value, which feeds may leave out; feeding one compiles a program that takes it."""
        return self._overridable

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, object], outputs: Mapping[str, Array] | None = None) -> list[Any]:
        """Compute the named outputs (None: all) for `feeds` (input name -> numpy array, list for a sequence, None for an absent optional).

        `outputs` may give arrays to write results into, by output name. Raises UsageError for a wrong name, dtype, rank or shape.
        """
        direct = self._direct
        if direct is not None and outputs is None:
            found = direct(feeds)
            if found is not None:
                return found if output_names is None else [found[self._output(name)] for name in output_names]
        buffers = None if outputs is None else self._buffers(outputs)
        if not isinstance(feeds, Mapping):
            raise UsageError(f"the feeds are a {type(feeds).__name__}; accepted: a dictionary of {', '.join(self._names) or 'nothing'}")
        values = [feeds.get(name) for name in self._names]
        loaded = self._known(_types(values)) if len(feeds) == len(values) else None
        if loaded is not None:
            executable = loaded.use()
            results = executable.run_accepted(values, buffers)
            self._direct = executable.direct(self._names, values)
        elif buffers is None and len(feeds) == len(values) and (found := self._again(values)) is not None:
            results = found
        else:
            values, fed = self._values(feeds), self._replaced(feeds)
            specs = _specs(self._inputs, values)
            found = self._programs.run_open(specs, values) if buffers is None and not fed else None
            if found is None:
                found = self._prepared(values, fed, specs).run([*values, *fed.values()], buffers)
            results = found
        return results if output_names is None else [results[self._output(name)] for name in output_names]

    def engines(self) -> list[NodeReport]:
        """Where every node of the programs compiled so far runs, those in regions included: AiCore (native) or AiCpu, and why."""
        return self._programs.reports()

    # ---- checks
    def _known(self, types: tuple[object, ...]) -> Loaded | None:
        """The program for types that were checked."""
        latest, loaded = self._latest
        if types != latest:
            if loaded is not None:
                loaded.use()  # direct calls do not say so
            loaded = self._checked.get(types)
            self._latest = types, loaded
        return loaded

    def _again(self, values: Sequence[object]) -> list[object] | None:
        """The outputs for feeds of other sizes than those before, by what ran last, if that is all there is to it."""
        shapes = []
        for value, (dtype, rank, sizes) in zip(values, self._expected, strict=True):
            if type(value) is not np.ndarray or value.ndim != rank or (value.dtype is not dtype and value.dtype != dtype):
                return None
            shape = value.shape
            for axis, size in sizes:
                if shape[axis] != size:
                    return None
            shapes.append(shape)
        return self._programs.run_open_again(tuple(shapes), values)

    def _prepared(self, values: Sequence[object], fed: Mapping[NodeArg, object], specs: Sequence[TensorSpec]) -> CompiledProgram:
        """The program for feeds of these types. Types whose arrays kernels read as they are need not be checked again."""
        loaded = self._programs.find(specs, _specs(list(fed), list(fed.values())))
        if not fed and all(type(value) is np.ndarray and _is_plain(value) for value in values):
            types = _types(values)
            self._checked = {**(self._checked if len(self._checked) < PROGRAMS_KEPT else {}), types: loaded}
            self._latest = types, loaded
        return loaded.use()

    def _output(self, name: str) -> int:
        if name not in self._positions:
            raise UsageError(f"output {name!r} is unknown; accepted: {', '.join(self._positions)}")
        return self._positions[name]

    def _buffers(self, outputs: Mapping[str, Array]) -> list[Array | None]:
        found: list[Array | None] = [None] * len(self._outputs)
        for name, array in outputs.items():
            found[self._output(name)] = array
        return found

    def _values(self, feeds: Mapping[str, object]) -> list[object]:
        if not (feeds.keys() <= self._accepted and all(map(feeds.__contains__, self._names))):
            unknown = [name for name in feeds if name not in self._accepted]
            missing = [name for name in self._names if name not in feeds]
            what = f"input {unknown[0]!r} is unknown" if unknown else f"input {missing[0]!r} is missing"
            raise UsageError(f"{what}; accepted: {', '.join(arg.name for arg in (*self._inputs, *self._overridable)) or 'none'}")
        return [_fitting(arg, dtype, feeds[arg.name]) for arg, dtype in zip(self._inputs, self._types, strict=True)]

    def _replaced(self, feeds: Mapping[str, object]) -> dict[NodeArg, object]:
        """The feeds for inputs with a default value."""
        chosen = [(arg, spec) for arg, spec in zip(self._overridable, self._programs.overridable, strict=True) if arg.name in feeds]
        return {arg: _fitting(arg, _feed_dtype(spec), feeds[arg.name]) for arg, spec in chosen}


def _types(values: Sequence[Any]) -> tuple[object, ...]:
    """What decides whether feeds are accepted, and how they are read; () for anything that has no memory of numpy's kind."""
    try:
        return tuple([(type(v), v.dtype, v.shape, v.flags.num & PLAIN) for v in values])
    except AttributeError:
        return ()


def _is_plain(value: Array) -> bool:
    """Whether kernels read it where it is: row-major and aligned, and numbers in the processor's byte order."""
    return value.flags.num & PLAIN == PLAIN and value.dtype.kind not in "OUST" and value.dtype.isnative


def _fitting(arg: NodeArg, dtype: np.dtype[Any] | None, value: object) -> object:
    """A feed of the declared dtype and a shape that fits the declared one. Raises UsageError."""
    if dtype is None:
        return value
    if value is None:
        raise UsageError(f"input {arg.name!r} is None; accepted: an array of {dtype}")
    if not isinstance(value, np.ndarray):
        value = np.asarray(value)
    if value.dtype != dtype:
        raise UsageError(f"input {arg.name!r} has dtype {value.dtype}; accepted: {dtype}")
    declared = arg.shape
    fits = len(declared) == value.ndim and all(not isinstance(d, int) or d == s for d, s in zip(declared, value.shape, strict=True))
    if not fits:
        raise UsageError(f"input {arg.name!r} has shape {list(value.shape)}; accepted: {[d if d is not None else '?' for d in declared]}")
    return value


def _specs(args: Sequence[NodeArg], values: Sequence[object]) -> tuple[TensorSpec, ...]:
    specs = []
    for arg, value in zip(args, values, strict=True):
        dtype = _dtype_name(value.dtype) if isinstance(value, np.ndarray) else "object"
        specs.append(TensorSpec(arg.name, dtype, value.shape if isinstance(value, np.ndarray) and dtype != "object" else ()))
    return tuple(specs)


@lru_cache(maxsize=64)  # strings have one for each length
def _dtype_name(dtype: np.dtype[Any]) -> str:
    """Of a spec; numpy writes it anew each time it is asked."""
    return "object" if dtype.kind in "OUST" else dtype.name


def _known_sizes(spec: TensorSpec) -> list[tuple[int, int]]:
    """The axes whose sizes are declared, and those."""
    return [(axis, size) for axis, size in enumerate(spec.shape) if isinstance(size, int)]


def _node_arg(spec: TensorSpec, types: Mapping[str, str]) -> NodeArg:
    return NodeArg(spec.name, types.get(spec.name) or f"tensor({_TYPE_NAMES.get(spec.dtype, spec.dtype)})", spec.shape)


def _feed_dtype(spec: TensorSpec) -> np.dtype[Any] | None:
    """The numpy dtype a feed must have; None for anything but a numeric tensor of known rank."""
    if spec.dtype == "object":
        return None
    return np.dtype(getattr(ml_dtypes, spec.dtype, None) or spec.dtype)

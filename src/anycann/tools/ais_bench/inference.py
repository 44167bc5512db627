"""aclruntime.InferenceSession: an offline model on a virtual device, run on tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
import math
import time
from typing import TypeAlias
import weakref

import numpy as np

from anycann.acl.contexts import reset_device, set_device
from anycann.acl.initialise import finalize, init
from anycann.acl.input_aipp import settings_feeds
from anycann.acl.model_loading import MODELS
from anycann.acl.namespace import declared
from anycann.acl.process import PROCESS
from anycann.acl.runs import run_program
from anycann.runtime.executor import CompiledProgram
from anycann.support import options as settings
from anycann.support.records import dataclass
from anycann.tools.ais_bench.aipp import as_fed
from anycann.tools.ais_bench.shapes import ShapedModel
from anycann.tools.ais_bench.tensors import COPIES, BaseTensor, CallError, Tensor, TensorDescription, raises_call_error

Feeds: TypeAlias = Sequence[Tensor | BaseTensor] | Mapping[str, Tensor | BaseTensor]
Prepared: TypeAlias = tuple[CompiledProgram, list[np.ndarray]]
_DEBUG = 1  # the log level


@dataclass
class SessionOptions:
    """Options of a session. `loop`: how often a run is repeated. `log_level`: 1 debug (says how long each run took), 2 info."""

    acl_json_path: str = ""
    log_level: int = 2
    loop: int = 1


class RunTime(float):
    """How many milliseconds a run took. It unpacks into when it began and ended, as newer versions of ais_bench have it."""

    def __new__(cls, begin_ms: float, end_ms: float) -> RunTime:
        made = super().__new__(cls, end_ms - begin_ms)
        made.begin_ms, made.end_ms = begin_ms, end_ms
        return made

    begin_ms: float
    end_ms: float

    def __iter__(self) -> Iterator[float]:
        return iter((self.begin_ms, self.end_ms))


@dataclass
class RunTimes:
    """Milliseconds of each run."""

    exec_time_list: list[RunTime] = field(default_factory=list)


class InferenceSession(ShapedModel):
    """A model of `path` on device `device`."""

    @raises_call_error
    def __init__(self, path: str, device: int, options: SessionOptions | None = None):
        self._options, self.device = options or SessionOptions(), device
        self._owns_acl = not PROCESS.references
        if self._owns_acl:
            if self._options.acl_json_path or settings.PROFILE.get():
                declared()  # what follows the file at acl.init, a profiler, is there then
            _ask(init, self._options.acl_json_path or "")
        _ask(set_device, device)
        self._number = MODELS.load(path)
        weakref.finalize(self, _unload, self._number).atexit = False
        super().__init__(MODELS.get(self._number))
        self._most_bytes: list[int] = []
        self._times = RunTimes()
        self._ready: Prepared | None = None
        self._values: list[object] | None = None

    def options(self) -> SessionOptions:
        """Its options, which may be changed."""
        return self._options

    def __str__(self) -> str:
        parts = [f"<Model>\ndevice:\t{self.device}\n"]
        for word, tensors in (("input", self.get_inputs()), ("output", self.get_outputs())):
            lines = [
                f"  #{number}    {t.name}  ({', '.join(map(str, t.shape))})  {t.datatype.name}  {t.size}  {t.realsize}\n"
                for number, t in enumerate(tensors)
            ]
            parts.append(f"{word}:\n{''.join(lines)}")
        return "".join(parts)

    __repr__ = __str__

    def set_custom_outsize(self, sizes: Sequence[int]) -> None:
        """Bytes that each output may have at most where its shape is known after the run only."""
        self._most_bytes = [int(size) for size in sizes]

    # ---- runs
    @raises_call_error
    def run(self, names: Sequence[str], feeds: Feeds) -> list[Tensor]:
        """Run on one tensor for each input, in order or by name, and answer with those outputs that are named, on the device."""
        return self._named(names, self._executed(*self._prepared(feeds), self._options.loop))

    @raises_call_error
    def run_setinputs(self, feeds: Feeds) -> None:
        """The first of the three steps of a run: what it runs on."""
        self._ready, self._values = self._prepared(feeds), None

    @raises_call_error
    def run_execute(self, loop: int = 1) -> None:
        """The second: run `loop` times on what run_setinputs was given."""
        if self._ready is None:
            raise CallError("there is nothing to run on; call run_setinputs first")
        self._values = self._executed(*self._ready, loop)

    @raises_call_error
    def run_getoutputs(self, names: Sequence[str]) -> list[Tensor]:
        """The third: the outputs that are named, on the device."""
        if self._values is None:
            raise CallError("there are no outputs yet; call run_execute first")
        return self._named(names, self._values)

    def _prepared(self, feeds: Feeds) -> Prepared:
        """The program for the shapes that are set, and its inputs."""
        MODELS.get(self._number)  # raises for a session that was given back
        descriptions = self.get_inputs()
        if isinstance(feeds, Mapping):
            feeds = self._in_order(feeds, [wanted.name for wanted in descriptions])
        if len(feeds) != len(descriptions):
            raise CallError(f"{len(feeds)} tensors are given; {self.model.where} has {len(descriptions)} inputs")
        feeds_there = [self._on_device(feed, wanted.name) for feed, wanted in zip(feeds, descriptions, strict=True)]
        program = self._program()
        specs = program.program.inputs
        further = settings_feeds(self.model, self._aipp, specs)
        arrays = [
            as_fed(data, wanted.shape, spec) if number in self._aipp else _as_described(data, wanted)
            for number, (data, wanted, spec) in enumerate(zip(feeds_there, descriptions, specs, strict=False))
        ]
        return program, arrays + further

    def _executed(self, program: CompiledProgram, arrays: Sequence[np.ndarray], loop: int) -> list[object]:
        """The outputs of the last of `loop` runs."""
        values: list[object] = []
        for _ in range(max(loop, 1)):
            begin = time.perf_counter()
            values = run_program(program, arrays, None, self.model, self.model.name)
            took = RunTime(begin * 1e3, time.perf_counter() * 1e3)
            self._times.exec_time_list.append(took)
            if self._options.log_level <= _DEBUG:
                print(f"[DEBUG] model aclExec cost : {float(took):.6f}", flush=True)
        self._check_sizes(values)
        return values

    def _named(self, names: Sequence[str], values: Sequence[object]) -> list[Tensor]:
        by_name = dict(zip((tensor.name for tensor in self.model.outputs), values, strict=True))
        unknown = [name for name in names if name not in by_name]
        if unknown:
            raise CallError(f"output {unknown[0]!r} is not there; {self.model.where} has {', '.join(by_name)}")
        return [Tensor(np.asarray(by_name[name]), self.device) for name in names]

    def _in_order(self, feeds: Mapping[str, Tensor | BaseTensor], names: Sequence[str]) -> list[Tensor | BaseTensor]:
        if set(feeds) != set(names):
            raise CallError(f"tensors are given for {', '.join(feeds)}; {self.model.where} has the inputs {', '.join(names)}")
        return [feeds[name] for name in names]

    def _on_device(self, feed: Tensor | BaseTensor, name: str) -> np.ndarray:
        if not isinstance(feed, Tensor | BaseTensor):
            raise TypeError(f"input {name!r} is a {type(feed).__name__}; accepted: Tensor, BaseTensor")
        if isinstance(feed, Tensor) and feed.device != -1:
            return feed.data
        begin = time.perf_counter()
        data = feed.copy() if isinstance(feed, BaseTensor) else np.array(feed.data, order="C")
        COPIES.to_device_ms.append((time.perf_counter() - begin) * 1e3)
        return data

    def _check_sizes(self, values: Sequence[object]) -> None:
        for tensor, value, most in zip(self.model.outputs, values, self._most_bytes, strict=False):
            if isinstance(value, np.ndarray) and not tensor.most_bytes and value.nbytes > most:
                raise CallError(f"output {tensor.name!r} came to {value.nbytes} bytes; its custom size is {most} (--outputSize)")

    def create_tensor_from_fileslist(self, wanted: TensorDescription, files: Sequence[str]) -> Tensor:
        """The raw files one after another as a tensor on the device. Raises CallError where they have not the bytes it needs."""
        parts = [np.fromfile(path, np.uint8) for path in files]
        tensor = Tensor(_as_described(np.concatenate(parts), wanted))
        tensor.to_device(self.device)
        return tensor

    # ---- times and the end
    def sumary(self) -> RunTimes:
        """Milliseconds of each run since the last reset."""
        return self._times

    def reset_sumaryinfo(self) -> None:
        """Forget them."""
        self._times = RunTimes()

    def free_resource(self) -> None:
        """Unload the model, as it is when the session goes."""
        _unload(self._number)

    def finalize(self) -> None:
        """Unload the model, and end AscendCL if this session began it and no other uses it."""
        self.free_resource()
        if PROCESS.references and self.device in PROCESS.primary:
            _ask(reset_device, self.device)
        if self._owns_acl and not MODELS.live() and PROCESS.references:
            _ask(finalize)


def _unload(number: int) -> None:
    if number in MODELS.live():
        MODELS.unload(number)


def model(modelPath: str, deviceId: int = 0, options: SessionOptions | None = None) -> InferenceSession:
    """A session."""
    return InferenceSession(modelPath, deviceId, options)


def _as_described(data: np.ndarray, wanted: TensorDescription) -> np.ndarray:
    """The bytes as the input has them; open sizes are those of the array. Raises CallError."""
    if wanted.realsize or 0 in wanted.shape:
        if data.nbytes != wanted.realsize:
            raise CallError(f"input {wanted.name!r} has {data.nbytes} bytes; {wanted.dtype.name}{wanted.shape} needs {wanted.realsize}")
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8).view(wanted.dtype).reshape(wanted.shape)
    fits = data.ndim == len(wanted.shape) and all(d in (-1, s) for d, s in zip(wanted.shape, data.shape, strict=True))
    if not fits or data.nbytes != math.prod(data.shape) * wanted.dtype.itemsize:
        raise CallError(
            f"input {wanted.name!r} is {data.dtype.name}{list(data.shape)}; accepted: {wanted.dtype.name}{wanted.shape}, -1 open. "
            "Set shapes with set_dynamic_shape (--dymShape)"
        )
    return np.ascontiguousarray(data).view(wanted.dtype)


def _ask(function: Callable[..., object], *arguments: object) -> None:
    """Call a function of AscendCL. Raises CallError with its sentence for a code that is not 0."""
    code = function(*arguments)
    if code:
        raise CallError(PROCESS.thread.error or f"AscendCL answered {code}")

"""Streams and events of an npu. Work is done when the call that asked for it returns, so nothing ever waits; order and times are real."""

from __future__ import annotations

import itertools
import time
from typing import Any

import torch

from anycann.adapters.torch.device import devices

_numbers = itertools.count(1)
_NPU = 20  # c10::DeviceType::PrivateUse1
DEFAULT_STREAM = 0


class Stream(torch.Stream):
    """A queue of work on one npu.

    `device` is where (the current npu by default), `priority` is kept and changes nothing. As context manager it is the current stream.
    """

    priority: int

    def __new__(cls, device: Any = None, priority: int = 0, **keywords: Any) -> Any:
        if "stream_id" in keywords:
            return _stream(cls, keywords["stream_id"], keywords.get("device_index", devices.current()))
        made = _stream(cls, next(_numbers), devices.index_of(device))
        made.priority = priority
        return made

    @property
    def npu_stream(self) -> int:
        """A number that tells streams of the process apart."""
        return int(self.stream_id)

    def synchronize(self) -> None:
        """Wait for the work of this stream: it is done."""

    def query(self) -> bool:
        """Whether the work of this stream is done: always."""
        return True

    def wait_event(self, event: Any) -> None:
        """Let later work wait for `event`: it has happened, or was never recorded."""

    def wait_stream(self, stream: Any) -> None:
        """Let later work wait for the work of `stream`: it is done."""

    def record_event(self, event: Event | None = None) -> Event:
        """Record `event`, a new one by default, and return it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def set_data_preprocess_stream(self, is_data_preprocess_stream: bool = False) -> None:
        """Keep work of this stream out of the task queue: there is none."""

    def __enter__(self) -> Stream:
        _current.append(self)
        self._device_before = devices.current()
        devices.make_current(self.device.index)
        return self

    def __exit__(self, *error: object) -> None:
        _current.remove(self)
        devices.make_current(self._device_before)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, torch.Stream) and (self.stream_id, self.device) == (other.stream_id, other.device)

    def __hash__(self) -> int:
        return hash((self.stream_id, self.device))

    def __repr__(self) -> str:
        return f"<torch_npu.npu.{type(self).__name__} device={self.device} npu_stream={self.npu_stream:#x}>"


def _stream(cls: Any, number: int, index: int) -> Any:
    made = torch.Stream.__new__(cls, stream_id=number, device_index=index, device_type=_NPU)
    made.priority = 0
    return made


class SyncLaunchStream(Stream):
    """A stream whose work is launched without the task queue: as all are here."""


class ExternalStream(Stream):
    """A stream that another library made, by its number."""

    def __new__(cls, stream_ptr: int, device: Any = None, **keywords: Any) -> Any:
        return _stream(cls, stream_ptr, devices.index_of(device))


class Event:
    """A moment in a stream: when `record` was called.

    Times are measured if `enable_timing`; `blocking` and `interprocess` change nothing.
    """

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False):
        self._timed = enable_timing
        self._moment: float | None = None
        self._device: Any = None

    @property
    def device(self) -> Any:
        """The npu it was recorded on, None before."""
        return self._device

    @property
    def npu_event(self) -> int:
        """A number that tells events of the process apart."""
        return id(self)

    def record(self, stream: Any = None) -> None:
        """Keep the time of this moment."""
        self._device = (stream or current_stream()).device
        self._moment = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        """Let later work of `stream` wait for the event: it has happened, or was never recorded."""

    def query(self) -> bool:
        """Whether all work before the event is done: always."""
        return True

    def synchronize(self) -> None:
        """Wait for the event: it has happened, or was never recorded."""

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to `end_event`. Raises RuntimeError if one measures no time or was not recorded."""
        for event in (self, end_event):
            if not event._timed:
                raise RuntimeError("elapsed_time needs two events made with enable_timing=True")
            if event._moment is None:
                raise RuntimeError("elapsed_time needs two events that were recorded")
        return ((end_event._moment or 0.0) - (self._moment or 0.0)) * 1e3

    def recorded_time(self) -> int:
        """When it was recorded, in nanoseconds of the monotonic clock. Raises RuntimeError if it was not."""
        if self._moment is None:
            raise RuntimeError("recorded_time needs an event that was recorded")
        return int(self._moment * 1e9)

    def ipc_handle(self) -> bytes:
        """For another process: events are not shared between processes here, so this raises RuntimeError."""
        raise RuntimeError("events of npus are not shared between processes; use torch.distributed.barrier or a multiprocessing.Event")

    @classmethod
    def from_ipc_handle(cls, device: Any, handle: bytes) -> Event:
        """The event of another process: see `ipc_handle`."""
        raise RuntimeError("events of npus are not shared between processes; use torch.distributed.barrier or a multiprocessing.Event")

    def __repr__(self) -> str:
        state = "uninitialized" if self._moment is None else f"{self.npu_event:#x}"
        return f"<torch_npu.npu.{type(self).__name__} {state}>"


class ExternalEvent:
    """An event that captured graphs wait for and other streams record; `reset` makes it unrecorded."""

    def __init__(self) -> None:
        self.recorded = False

    def record(self, stream: Any = None) -> None:
        """Mark it."""
        self.recorded = True

    def wait(self, stream: Any = None) -> None:
        """Let later work of `stream` wait for it. What would wait here waits on Ascend as well; here the work goes on."""

    def reset(self, stream: Any = None) -> None:
        """Take the mark away."""
        self.recorded = False


_current: list[Any] = []


def default_stream(device: Any = None) -> Stream:
    """The stream of an npu that work goes to if the program names none."""
    return _stream(Stream, DEFAULT_STREAM, devices.index_of(device))


def current_stream(device: Any = None) -> Any:
    """The stream that work of an npu goes to."""
    index = devices.index_of(device)
    return next((stream for stream in reversed(_current) if stream.device.index == index), None) or default_stream(index)


def set_stream(stream: Any) -> None:
    """Send work to `stream` from now on; None changes nothing."""
    if stream is None:
        return
    _current[:] = [other for other in _current if other.device != stream.device] + [stream]
    devices.make_current(stream.device.index)


class StreamContext:
    """`with torch.npu.stream(s):` sends work to `s` inside the block; None changes nothing."""

    def __init__(self, stream_ctx: Any):
        self.stream = stream_ctx

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *error: object) -> None:
        if self.stream is not None:
            self.stream.__exit__(*error)


def stream(stream: Any) -> StreamContext:
    """Context manager: work goes to `stream`."""
    return StreamContext(stream)


_cores: dict[Any, dict[str, int]] = {}


def set_stream_limit(stream: Any, cube_num: int = -1, vector_num: int = -1) -> None:
    """Keep how many cores of each kind a stream may use; -1 leaves a number as it is. Nothing is slower for it."""
    _set_cores(("stream", stream), cube_num, vector_num)


def get_stream_limit(stream: Any) -> dict[str, int]:
    """What `set_stream_limit` kept, else the limit of the stream's npu."""
    return dict(_cores.get(("stream", stream)) or get_device_limit(stream.device))


def reset_stream_limit(stream: Any) -> None:
    """Forget what `set_stream_limit` kept."""
    _cores.pop(("stream", stream), None)


def set_device_limit(device: Any, cube_num: int = -1, vector_num: int = -1) -> None:
    """Keep how many cores of each kind an npu may use; -1 leaves a number as it is. Nothing is slower for it."""
    _set_cores(("device", devices.index_of(device)), cube_num, vector_num)


def get_device_limit(device: Any) -> dict[str, int]:
    """`cube_core_num` and `vector_core_num`: what `set_device_limit` kept, else all cores."""
    from anycann.adapters.torch.device.properties import CUBE_CORES, VECTOR_CORES

    return dict(_cores.get(("device", devices.index_of(device))) or {"cube_core_num": CUBE_CORES, "vector_core_num": VECTOR_CORES})


def _set_cores(key: Any, cube_num: int, vector_num: int) -> None:
    limit = get_device_limit(key[1]) if key[0] == "device" else get_stream_limit(key[1])
    wanted = {"cube_core_num": cube_num, "vector_core_num": vector_num}
    _cores[key] = {name: limit[name] if wanted[name] == -1 else wanted[name] for name in limit}

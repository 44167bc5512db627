"""The module `torch.npu`, which is `torch_npu.npu`: names from the files of this package, put together in one place."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import sys
import time
from types import ModuleType
from typing import Any

import torch

from anycann.adapters.torch.device import devices, generators


def make(torch_npu: ModuleType) -> ModuleType:
    """Fill and return the module `torch_npu.npu`."""
    npu = sys.modules.setdefault(f"{torch_npu.__name__}.npu", ModuleType(f"{torch_npu.__name__}.npu", __doc__))
    npu.__dict__.update(_names())
    torch_npu.__dict__["npu"] = npu
    return npu


def _names() -> dict[str, Any]:
    return {name: value for name, value in globals().items() if name in _NAMES}


_NAMES = (
    "Event", "Stream", "current_device", "current_stream", "default_stream", "device", "device_count", "empty_cache",
    "get_amp_supported_dtype", "get_device_name", "get_rng_state", "initial_seed", "is_available", "is_bf16_supported", "is_initialized",
    "manual_seed", "manual_seed_all", "set_device", "set_rng_state", "set_stream", "stream", "synchronize",
    "_is_in_bad_fork", "_initialized",
)  # fmt: skip


_initialized = True  # checkpointing asks whether there is a state of random numbers to keep


def is_available() -> bool:
    """Whether there is an npu: always."""
    return True


def is_initialized() -> bool:
    """Whether the npus are ready: always."""
    return True


def _is_in_bad_fork() -> bool:
    return False


def device_count() -> int:
    """How many npus there are."""
    return devices.count()


def current_device() -> int:
    """The index of this thread's current npu."""
    return devices.current()


def set_device(device: Any) -> None:
    """Make `device` (an index, a name, a torch.device) this thread's current npu."""
    devices.make_current(devices.index_of(device))


def synchronize(device: Any = None) -> None:
    """Wait for the work of an npu: an operator is done when its call returns."""
    devices.index_of(device)


def empty_cache() -> None:
    """Give unused memory back: nothing is held."""


def get_device_name(device: Any = None) -> str:
    """The chip's name."""
    devices.index_of(device)
    return "Ascend910B1"


class device:  # noqa: N801 - torch's name
    """Context manager: another current npu."""

    def __init__(self, device: Any):
        self.idx = devices.index_of(device)
        self.previous = -1

    def __enter__(self) -> None:
        self.previous = devices.current()
        devices.make_current(self.idx)

    def __exit__(self, *error: object) -> None:
        devices.make_current(self.previous)


def get_amp_supported_dtype() -> list[Any]:
    """The dtypes that autocast may use."""
    return [torch.float16, torch.bfloat16, torch.float32]


def is_bf16_supported() -> bool:
    """Whether bfloat16 is computed with."""
    return True


def manual_seed(seed: int) -> None:
    """Seed the current npu's generator."""
    generators.default_generator(devices.current()).manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seed every npu's generator."""
    for index in range(devices.count()):
        generators.default_generator(index).manual_seed(seed)


def initial_seed() -> int:
    """The seed of the current npu's generator."""
    return int(generators.default_generator(devices.current()).initial_seed())


def get_rng_state(device: Any = "npu") -> Any:
    """The state of an npu's generator, as bytes on the cpu."""
    return generators.default_generator(devices.index_of(device)).get_state()


def set_rng_state(new_state: Any, device: Any = "npu") -> None:
    """Give an npu's generator a state that `get_rng_state` returned."""
    generators.default_generator(devices.index_of(device)).set_state(new_state)


class Event:
    """A moment: when `record` was called."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False):
        self._moment = 0.0

    def record(self, stream: Any = None) -> None:
        """Keep the time."""
        self._moment = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        """Make a stream wait for the event: it has happened."""

    def query(self) -> bool:
        """Whether it has happened."""
        return True

    def synchronize(self) -> None:
        """Wait for the event: it has happened."""

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to `end_event`."""
        return (end_event._moment - self._moment) * 1e3


class Stream:
    """A queue of work, of which nothing is ever waiting."""

    def __init__(self, device: Any = None, priority: int = 0):
        self.device = torch.device(devices.NAME, devices.index_of(device))

    def synchronize(self) -> None:
        """Wait for the work: it is done."""

    def query(self) -> bool:
        """Whether the work is done: always."""
        return True

    def wait_event(self, event: Any) -> None:
        """Wait for an event: it has happened."""

    def wait_stream(self, stream: Any) -> None:
        """Wait for the work of another stream: it is done."""

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event, a new one if none is given."""
        event = event or Event()
        event.record(self)
        return event


_streams: list[Stream] = []


def current_stream(device: Any = None) -> Stream:
    """The stream that work goes to."""
    return _streams[-1] if _streams else default_stream(device)


def default_stream(device: Any = None) -> Stream:
    """The stream of programs that name none."""
    return Stream(device)


def set_stream(stream: Stream) -> None:
    """Send work to `stream` from now on."""
    _streams[:] = [stream]


@contextlib.contextmanager
def stream(stream: Stream) -> Iterator[None]:
    """Send work to `stream` inside the block."""
    _streams.append(stream)
    try:
        yield
    finally:
        _streams.pop()

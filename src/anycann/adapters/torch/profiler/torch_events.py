"""torch's own profiler with the npu as activity: its tables get the npu's times, its Chrome traces the npu's track."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
import gzip
import json
from pathlib import Path
from typing import Any

import torch
from torch.autograd import profiler as autograd_profiler

from anycann.adapters.torch.device.native import count_recordings
from anycann.adapters.torch.profiler.spans import kernels, spans_of
from anycann.support.records import dataclass

_TRACK = 1_000_000  # a process number that no process has


def install() -> None:
    """Make `torch.profiler.profile(activities=[..., ProfilerActivity.PrivateUse1])` tell the npu's times."""
    profile = autograd_profiler.profile
    profile.__init__ = _taking_the_npu(profile.__init__)
    profile._start_trace = _counted(profile._start_trace, True)
    profile.__exit__ = _counted(profile.__exit__, False)
    ensure = autograd_profiler.profile._ensure_function_events
    autograd_profiler.profile._ensure_function_events = _with_times(ensure)
    export = torch.profiler.profile.export_chrome_trace
    torch.profiler.profile.export_chrome_trace = _with_track(export)


def _taking_the_npu(create: Callable[..., None]) -> Callable[..., None]:
    """Scripts written for the npu say `torch.autograd.profiler.profile(use_npu=True)`, as others `use_cuda`."""

    @wraps(create)
    def created(self: Any, *args: Any, use_npu: bool = False, **keywords: Any) -> None:
        if use_npu:
            keywords = {"use_device": "npu", **keywords}
        if keywords.get("use_device") == "npu":
            keywords["use_kineto"] = True  # without it torch has the device mark times, and none here can: every operator would raise
        create(self, *args, **keywords)

    return created


def _counted(method: Callable[..., Any], records: bool) -> Callable[..., Any]:
    """The method with which a profiler begins to record, or ends to."""

    @wraps(method)
    def counted(self: Any, *args: Any) -> Any:
        if getattr(self, "records_npus", False) != records:
            self.records_npus = records
            count_recordings(1 if records else -1)
        return method(self, *args)

    return counted


def _with_times(ensure: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def ensure_function_events(self: Any) -> Any:
        fresh = self._function_events is None
        result = ensure(self)
        if fresh and self.use_device == "npu" and self._function_events:
            _add_times(self._function_events)
        return result

    return ensure_function_events


def _add_times(events: Any) -> None:
    """A kernel's event gets what it took as time of the npu; torch sums it up over those around."""
    device = torch.npu.current_device()
    for event in events:
        if event.cpu_parent is None:
            for kernel in kernels(_View(event)):
                kernel.event.append_kernel(kernel.name, device, kernel.duration)
                kernel.event.is_legacy = True  # the time is the event's own, not that of events of the device beside it


@dataclass
class _View:
    """An event of torch's as the search for kernels wants it."""

    event: Any

    @property
    def name(self) -> str:
        return str(self.event.name)

    @property
    def duration(self) -> float:
        return float(self.event.time_range.elapsed_us())

    @property
    def children(self) -> list[Any]:
        return [_View(child) for child in self.event.cpu_children]


def _with_track(export: Callable[..., Any]) -> Callable[..., Any]:
    def export_chrome_trace(self: Any, path: str) -> Any:
        result = export(self, path)
        if getattr(self.profiler, "use_device", None) == "npu":
            _add_track(Path(path))
        return result

    export_chrome_trace.__doc__ = export.__doc__
    return export_chrome_trace


def _add_track(path: Path) -> None:
    content = path.read_bytes()
    write_trace(path, json.loads((gzip.decompress(content) if path.suffix == ".gz" else content).decode(errors="replace")))


def write_trace(path: Path, trace: dict[str, Any]) -> None:
    """Write a Chrome trace of torch's with the npu's track; compressed if `path` ends in .gz."""
    from anycann.adapters.torch.profiler.tables import all_kernels  # only who profiles waits for them
    from anycann.adapters.torch.profiler.timeline import device_track

    track = device_track(all_kernels(spans_of(trace)), torch.npu.current_device(), _TRACK)
    text = json.dumps({**trace, "traceEvents": [*trace["traceEvents"], *track]}).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)

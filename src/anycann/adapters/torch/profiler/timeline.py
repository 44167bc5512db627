"""trace_view.json: what the host called, what the npu computed, and what was computing, communicating or free, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from anycann.adapters.torch.profiler.spans import OPERATOR, Span, every
from anycann.adapters.torch.profiler.tables import all_kernels, core_of, is_communication, kernel_type, merged

_HOST, _DEVICE, _OVERLAP = 1, 2, 3
_COMPUTE, _COLLECTIVES = 2, 3  # streams


def trace_view(trace: dict[str, Any], spans: Sequence[Span], device: int) -> list[dict[str, Any]]:
    """The events of a Chrome trace; times of kernels on the track "Ascend Hardware"."""
    found = all_kernels(spans)
    inside = {id(inner) for kernel in found for inner in every([kernel])}
    events = _names(_HOST, "Python", {span.thread: f"Thread {span.thread}" for span in spans})
    events += [_complete(span, _HOST, span.thread) for span in every(spans) if id(span) not in inside or span.kind != OPERATOR]
    events += device_track(found, device)
    events += _overlap(found)
    events += [event for event in trace["traceEvents"] if event.get("cat") == "python_function"]
    return events


def device_track(found: Sequence[Span], device: int, process: int = _DEVICE) -> list[dict[str, Any]]:
    """The kernels, on streams of the npu, with an arrow from the host to each."""
    events = _names(process, "Ascend Hardware", {_COMPUTE: f"NPU {device} Stream {_COMPUTE}", _COLLECTIVES: f"NPU {device} Communication"})
    for number, kernel in enumerate(found):
        stream = _COLLECTIVES if is_communication(kernel) else _COMPUTE
        event = _complete(kernel, process, stream)
        event["args"] = {
            "Task Type": core_of(kernel),
            "Type": kernel_type(kernel),
            "Stream Id": stream,
            "Device Id": device,
            "Task Id": number,
        }
        arrow = {"name": "async_npu", "cat": "async_npu", "id": number, "ts": kernel.start}
        events += [event, {**arrow, "ph": "s", "pid": _HOST, "tid": kernel.thread}]
        events.append({**arrow, "ph": "f", "bp": "e", "pid": process, "tid": stream})
    return events


def _overlap(found: Sequence[Span]) -> list[dict[str, Any]]:
    computing = merged((kernel.start, kernel.end) for kernel in found if not is_communication(kernel))
    talking = merged((kernel.start, kernel.end) for kernel in found if is_communication(kernel))
    busy = merged([*computing, *talking])
    free = [(one[1], other[0]) for one, other in pairwise(busy)]
    tracks = {"Computing": computing, "Communication": talking, "Free": free}
    events = _names(_OVERLAP, "Overlap Analysis", dict(enumerate(tracks)))
    for number, (name, intervals) in enumerate(tracks.items()):
        times = [{"ts": start, "dur": end - start} for start, end in intervals]
        events += [{"ph": "X", "name": name, "pid": _OVERLAP, "tid": number, **each} for each in times]
    return events


def _complete(span: Span, process: int, thread: int) -> dict[str, Any]:
    event = {"ph": "X", "name": span.name, "cat": span.kind, "pid": process, "tid": thread, "ts": span.start, "dur": span.duration}
    return {**event, "args": span.arguments}


def _names(process: int, name: str, threads: dict[int, str]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}]
    events.append({"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": process}})
    return events + [
        {"ph": "M", "name": "thread_name", "pid": process, "tid": tid, "args": {"name": text}} for tid, text in threads.items()
    ]

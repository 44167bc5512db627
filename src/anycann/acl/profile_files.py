"""A profile on disk: a folder PROF_* with tables in Ascend's columns. What is not known here says N/A, as msprof does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import csv
from datetime import datetime
import itertools
import os
from pathlib import Path
import secrets
import statistics
import string

from anycann.acl.profile_session import NO_MODEL, KernelTime, Session

_NA = "N/A"
_folders = itertools.count(1)
_OP_SUMMARY = (
    "Device_id", "Model Name", "Model ID", "Task ID", "Stream ID", "Infer ID", "Op Name", "OP Type", "OP State", "Task Type",
    "Task Start Time(us)", "Task Duration(us)", "Task Wait Time(us)", "Block Num", "Mix Block Num", "HF32 Eligible", "Input Shapes",
    "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types", "Output Formats", "Context ID",
)  # fmt: skip
_OP_STATISTIC = (
    "Device_id", "Model Name", "OP Type", "Core Type", "Count", "Total Time(us)", "Min Time(us)", "Avg Time(us)", "Max Time(us)",
    "Ratio(%)",
)  # fmt: skip
_TASK_TIME = ("Device_id", "kernel_name", "kernel_type", "stream_id", "task_id", "task_time(us)", "task_start(us)", "task_stop(us)")
_API = ("Device_id", "Level", "API Name", "Time(us)", "Count", "Avg(us)", "Min(us)", "Max(us)", "Variance")
_MARKS = (
    "pid", "tid", "category", "event_type", "payload_type", "payload_value", "Start_time(us)", "End_time(us)", "message_type", "message",
    "domain", "mark_id",
)  # fmt: skip
_STEPS = (
    "Device_id", "Iteration ID", "FP Start(us)", "BP End(us)", "Iteration End(us)", "Iteration Time(us)", "FP to BP Time(us)",
    "Iteration Refresh(us)", "Data Aug Bound(us)", "Model ID",
)  # fmt: skip


def write_profile(folder: str, session: Session) -> Path:
    """Write the tables of a session below `folder` and return the PROF_* folder. Raises OSError."""
    now = datetime.now()
    letters = "".join(secrets.choice(string.ascii_uppercase) for _ in range(16))
    root = Path(folder) / f"PROF_{next(_folders):06d}_{now:%Y%m%d%H%M%S}{now.microsecond // 1000:03d}_{letters}"
    output = root / "mindstudio_profiler_output"
    output.mkdir(parents=True)
    device, stamp = session.devices[0], f"{now:%Y%m%d%H%M%S}"
    tables = {
        "op_summary": (_OP_SUMMARY, _summary(session, device)),
        "op_statistic": (_OP_STATISTIC, _statistic(session, device)),
        "task_time": (_TASK_TIME, _tasks(session, device)),
        "api_statistic": (_API, _calls(session, device)),
        "msprof_tx": (_MARKS, _marks(session)),
        "step_trace": (_STEPS, _steps(session, device)),
    }
    for name, (columns, rows) in tables.items():
        _write(output / f"{name}_{stamp}.csv", columns, list(rows))
    return root


def _write(path: Path, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    if not rows:
        return  # as msprof: no file without data
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)


def task_type(kernel: KernelTime) -> str:
    """AI_CORE for a generated kernel, AI_CPU for what the host does."""
    return "AI_CORE" if kernel.event.kind == "kernel" else "AI_CPU"


def op_name(kernel: KernelTime) -> str:
    """The nodes that a kernel computes, joined."""
    return "+".join(kernel.event.nodes)


def op_type(kernel: KernelTime) -> str:
    """The operators that a kernel computes, each once, joined."""
    return "+".join(dict.fromkeys(kernel.event.op_types))


def _us(nanoseconds: int) -> str:
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03d}"


def _summary(session: Session, device: int) -> Iterable[Sequence[object]]:
    last = 0
    for task, kernel in enumerate(session.kernels):
        begin, end = kernel.event.begin_ns, kernel.event.end_ns
        wait = max(begin - last, 0) if last else 0
        last = end
        yield (
            device, kernel.model, _NA if kernel.model_id == NO_MODEL else kernel.model_id, task, kernel.stream, _NA, op_name(kernel),
            op_type(kernel), "static", task_type(kernel), _us(begin + session.epoch_ns), _us(end - begin), _us(wait), kernel.event.tasks, 0,
            _NA, _NA, _NA, _NA, '"' + ";".join(kernel.shapes) + '"', ";".join(dtype.upper() for dtype in kernel.dtypes), _NA, _NA,
        )  # fmt: skip


def _tasks(session: Session, device: int) -> Iterable[Sequence[object]]:
    for task, kernel in enumerate(session.kernels):
        begin, end = kernel.event.begin_ns + session.epoch_ns, kernel.event.end_ns + session.epoch_ns
        yield device, kernel.event.name, task_type(kernel), kernel.stream, task, _us(end - begin), _us(begin), _us(end)


def _statistic(session: Session, device: int) -> Iterable[Sequence[object]]:
    groups: dict[tuple[str, str, str], list[int]] = {}
    for kernel in session.kernels:
        key = (kernel.model, op_type(kernel), task_type(kernel))
        groups.setdefault(key, []).append(kernel.event.end_ns - kernel.event.begin_ns)
    whole = sum(map(sum, groups.values())) or 1
    for (model, kind, core), times in sorted(groups.items(), key=lambda item: -sum(item[1])):
        ratio = f"{100 * sum(times) / whole:.3f}"
        yield device, model, kind, core, len(times), _us(sum(times)), _us(min(times)), _us(sum(times) // len(times)), _us(max(times)), ratio


def _calls(session: Session, device: int) -> Iterable[Sequence[object]]:
    groups: dict[str, list[int]] = {}
    for call in session.calls:
        groups.setdefault(call.name, []).append(call.end_ns - call.begin_ns)
    for name, times in sorted(groups.items(), key=lambda item: -sum(item[1])):
        variance = f"{statistics.pvariance([time / 1000 for time in times]):.3f}"
        yield device, "acl", name, _us(sum(times)), len(times), _us(sum(times) // len(times)), _us(min(times)), _us(max(times)), variance


def _marks(session: Session) -> Iterable[Sequence[object]]:
    for mark in session.marks:
        begin, end = _us(mark.begin_ns + session.epoch_ns), _us(mark.end_ns + session.epoch_ns)
        yield os.getpid(), mark.thread, 0, mark.kind, 0, 0, begin, end, 0, mark.message, "default", mark.number


def _steps(session: Session, device: int) -> Iterable[Sequence[object]]:
    for step in session.iterations:
        yield device, step.number, _NA, _NA, _us(step.end_ns + session.epoch_ns), _us(step.end_ns - step.begin_ns), _NA, _NA, _NA, _NA

"""acl.prof: marks and stretches that the program sets, and iterations of a training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
import itertools
import threading
import time
from typing import ClassVar

from anycann.acl.codes import Code
from anycann.acl.entries import status, value, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.process import PROCESS
from anycann.acl.profile_session import MSPROFTX, PROFILER, TRAINING_TRACE, Iteration, Mark
from anycann.support.records import dataclass


# ---- marks
@dataclass
class Stamp:
    """A message, and when what it stands for began."""

    acl_word: ClassVar[str] = "stamp"
    message: str = ""


class _Ranges(threading.local):
    def __init__(self) -> None:
        self.open: list[tuple[str, int]] = []


_pushed = _Ranges()
_started: dict[int, tuple[str, int]] = {}
_mark_numbers = itertools.count(1)


@value("acl.prof.create_stamp", returns="stamp")
def create_stamp() -> int:
    """A mark to be set."""
    return PROCESS.handles.add(Stamp())


@value("acl.prof.destroy_stamp", failed=None, returns="None")
def destroy_stamp(stamp: int) -> None:
    """Forget it."""
    PROCESS.handles.remove(stamp, Stamp)


@status("acl.prof.set_stamp_trace_message")
def set_stamp_trace_message(stamp: int, message: str, length: int) -> None:
    """What the mark says: the first `length` characters of `message`."""
    PROCESS.handles.get(stamp, Stamp).message = message[:length]


@status("acl.prof.mark")
def mark(stamp: int) -> None:
    """A moment."""
    now = time.monotonic_ns()
    _record("marker", PROCESS.handles.get(stamp, Stamp).message, now, now)


@status("acl.prof.mark_ex")
def mark_ex(message: str, stream: int) -> None:
    """A moment in the order of a stream's tasks."""
    thread = threading.get_native_id()

    def task() -> None:
        now = time.monotonic_ns()
        _record("marker_ex", message, now, now, thread)

    PROCESS.stream(stream).submit(task)


@status("acl.prof.push")
def push(stamp: int) -> None:
    """A stretch of this thread begins; stretches nest."""
    _pushed.open.append((PROCESS.handles.get(stamp, Stamp).message, time.monotonic_ns()))


@status("acl.prof.pop")
def pop() -> None:
    """The stretch that this thread began last ends."""
    if not _pushed.open:
        raise AclError(Code.INVALID_PARAM, "this thread has pushed nothing that is still open")
    _record("push/pop", *_pushed.open.pop(), time.monotonic_ns())


@value_and_status("acl.prof.range_start", returns="(id, ret)")
def range_start(stamp: int) -> int:
    """A stretch begins that any thread may end."""
    number = next(_mark_numbers)
    _started[number] = PROCESS.handles.get(stamp, Stamp).message, time.monotonic_ns()
    return number


@status("acl.prof.range_stop")
def range_stop(number: int) -> None:
    """The stretch ends."""
    begun = _started.pop(number, None)
    if begun is None:
        raise AclError(Code.INVALID_PARAM, f"range {number} was not started, or is stopped already")
    _record("start/end", *begun, time.monotonic_ns())


def _record(kind: str, message: str, begin_ns: int, end_ns: int, thread: int = 0) -> None:
    session = PROFILER.wants(MSPROFTX)
    if session is not None:
        session.marks.append(Mark(kind, message, thread or threading.get_native_id(), begin_ns, end_ns, next(_mark_numbers)))


# ---- iterations
@dataclass
class StepInfo:
    """Iterations of a training."""

    acl_word: ClassVar[str] = "step info"
    begin_ns: int = 0
    count: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@value("acl.prof.create_step_info", returns="handle")
def create_step_info() -> int:
    """What counts iterations."""
    return PROCESS.handles.add(StepInfo())


@value("acl.prof.destroy_step_info", failed=None, returns="None")
def destroy_step_info(info: int) -> None:
    """Forget it."""
    PROCESS.handles.remove(info, StepInfo)


@status("acl.prof.get_step_timestamp")
def get_step_timestamp(info: int, tag: int, stream: int) -> None:
    """In order with the tasks of `stream`, an iteration begins (tag 0) or ends (tag 1)."""
    found = PROCESS.handles.get(info, StepInfo)
    tasks: dict[int, Callable[[], None]] = {0: lambda: _begin_step(found), 1: lambda: _end_step(found)}
    if tag not in tasks:
        raise AclError(Code.INVALID_PARAM, f"tag is {tag}; accepted: 0 (begin), 1 (end)")
    PROCESS.stream(stream).submit(tasks[tag])


def _begin_step(info: StepInfo) -> None:
    info.begin_ns = time.monotonic_ns()


def _end_step(info: StepInfo) -> None:
    session = PROFILER.wants(TRAINING_TRACE)
    info.count += 1
    if session is not None and info.begin_ns:
        session.iterations.append(Iteration(info.count, info.begin_ns, time.monotonic_ns()))

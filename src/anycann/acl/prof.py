"""acl.prof: a profile from init to finalize, marks that the program sets, and iterations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
import itertools
import os
import threading
import time
from typing import ClassVar

from anycann.acl.codes import Code
from anycann.acl.entries import status, value, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.process import PROCESS
from anycann.acl.prof_subscriptions import SUBSCRIPTIONS
from anycann.acl.profile_files import write_profile
from anycann.acl.profile_session import KNOWN_BITS, MSPROFTX, PROFILER, TRAINING_TRACE, Iteration, Mark, Session
from anycann.support.logging import get_logger

METRICS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 0xFF)
_log = get_logger("acl")


@dataclass(frozen=True)
class Config:
    """What acl.prof.create_config was told."""

    acl_word: ClassVar[str] = "profiling config"
    devices: tuple[int, ...]
    metrics: int
    mask: int


@status("acl.prof.init")
def init(path: str) -> None:
    """Profiles are written below the folder `path`, which is there."""
    PROCESS.check_initialised()
    if PROFILER.folder is not None:
        raise AclError(Code.PROF_ALREADY_RUN, "acl.prof.init was called before; acl.prof.finalize comes first")
    if SUBSCRIPTIONS.active:
        raise AclError(Code.PROF_API_CONFLICT, "a model is subscribed; acl.prof.init and acl.prof.model_subscribe do not go together")
    if not os.path.isdir(path) or not os.access(path, os.W_OK):
        raise AclError(Code.INVALID_FILE, f"{path!r} is no folder that may be written to")
    PROFILER.folder = path


@status("acl.prof.finalize")
def finalize() -> None:
    """End profiling; what still runs is stopped and written."""
    _folder()
    if PROFILER.session is not None:
        _stop()
    PROFILER.folder = None


@value("acl.prof.create_config", returns="config", limits="metrics of the AI Core have no meaning here: they are checked and not measured")
def create_config(devices: list[int], metrics: int, events: int, mask: int) -> int:
    """What to profile. mask: 0x1 calls of ACL, 0x2 times of kernels, 0x8 of the host, 0x40 iterations, 0x80 marks."""
    for device in devices:
        PROCESS.device(device)
    if not devices:
        raise AclError(Code.INVALID_PARAM, "the list of devices is empty")
    if metrics not in METRICS:
        raise AclError(Code.INVALID_PARAM, f"AI Core metrics are {metrics}; accepted: 0 to 8, 255 (none)")
    if not mask or mask & ~KNOWN_BITS:
        raise AclError(Code.INVALID_PARAM, f"the data type mask is {mask:#x}; accepted: bits of {KNOWN_BITS:#x}, at least one")
    return PROCESS.handles.add(Config(tuple(devices), metrics, mask))


@status("acl.prof.destroy_config")
def destroy_config(config: int) -> None:
    """Forget a configuration."""
    PROCESS.handles.remove(config, Config)


@status("acl.prof.start")
def start(config: int) -> None:
    """Begin to record."""
    wanted = PROCESS.handles.get(config, Config)
    _folder()
    if PROFILER.session is not None:
        raise AclError(Code.PROF_ALREADY_RUN, "a profile runs already; acl.prof.stop ends it")
    PROFILER.session, PROFILER.config = Session(wanted.mask, wanted.devices), config
    PROFILER.session.open()


@status("acl.prof.stop")
def stop(config: int) -> None:
    """End what `start` began, and write it."""
    PROCESS.handles.get(config, Config)
    _folder()
    if PROFILER.session is None or PROFILER.config != config:
        raise AclError(Code.PROF_NOT_RUN, "no profile runs with this configuration; acl.prof.start begins one")
    _stop()


@status("acl.prof.set_config", limits="kept and not used")
def set_config(kind: int, setting: str) -> None:
    """Settings of hardware that is not there."""
    PROFILER.settings[kind] = setting


def _folder() -> str:
    if PROFILER.folder is None:
        raise AclError(Code.PROF_NOT_RUN, "acl.prof.init was not called")
    return PROFILER.folder


def _stop() -> None:
    session = PROFILER.end()
    assert session is not None
    try:
        written = write_profile(_folder(), session)
    except OSError as error:
        raise AclError(Code.PROFILING_FAILURE, f"the profile cannot be written: {error}") from error
    _log.info("profile written to %s", written)


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
    tasks: dict[int, Callable[[], None]] = {0: lambda: _begin(found), 1: lambda: _end(found)}
    if tag not in tasks:
        raise AclError(Code.INVALID_PARAM, f"tag is {tag}; accepted: 0 (begin), 1 (end)")
    PROCESS.stream(stream).submit(tasks[tag])


def _begin(info: StepInfo) -> None:
    info.begin_ns = time.monotonic_ns()


def _end(info: StepInfo) -> None:
    session = PROFILER.wants(TRAINING_TRACE)
    info.count += 1
    if session is not None and info.begin_ns:
        session.iterations.append(Iteration(info.count, info.begin_ns, time.monotonic_ns()))

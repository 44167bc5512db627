"""acl.rt: what failed last, who wants to be told, and how long operators may take."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

from anycann.acl.codes import Code
from anycann.acl.entries import status, value, value_and_status
from anycann.acl.errors import AclError, as_acl_error
from anycann.acl.process import PROCESS
from anycann.acl.runs import WATCHERS, Run
from anycann.runtime.observe import Callback, StepEvent
from anycann.runtime.stream import FAILURES, Stream
from anycann.support.logging import get_logger
from anycann.support.records import dataclass

_log = get_logger("acl")


# ---- the last error
@value("acl.rt.peek_at_last_error", failed=int(Code.INVALID_PARAM), returns="ret")
def peek_at_last_error(level: int) -> int:
    """The code of this thread's last error, 0 for none. level: 0 (thread)."""
    _check_level(level)
    return PROCESS.thread.code


@value("acl.rt.get_last_error", failed=int(Code.INVALID_PARAM), returns="ret")
def get_last_error(level: int) -> int:
    """As peek_at_last_error, and forget it."""
    _check_level(level)
    code, PROCESS.thread.code = PROCESS.thread.code, 0
    return code


def _check_level(level: int) -> None:
    if level:
        raise AclError(Code.INVALID_PARAM, f"level is {level}; accepted: 0 (thread)")


# ---- tasks that fail
@dataclass(frozen=True)
class ExceptionInfo:
    """A task that failed in a stream."""

    acl_word: ClassVar[str] = "exception info"
    task: int
    stream: int
    thread: int
    device: int
    code: int


class _Callback:
    """What a program wants to have called."""

    def __init__(self) -> None:
        self.function: Any = None
        self.lock = threading.Lock()

    def tell(self, stream: Stream, task: int, thread: int, error: BaseException) -> None:
        function = self.function
        if function is None:
            return
        code = int(as_acl_error(error).code)
        info = PROCESS.handles.add(ExceptionInfo(task, stream.number, thread & 0xFFFFFFFF, stream.device, code))
        try:
            function(info)
        except Exception:
            _log.exception("the function of acl.rt.set_exception_info_callback failed")
            self.function = None
        finally:
            PROCESS.handles.remove(info, ExceptionInfo)


_CALLBACK = _Callback()
FAILURES.append(_CALLBACK.tell)
PROCESS.ending.append(lambda: setattr(_CALLBACK, "function", None))


@status("acl.rt.set_exception_info_callback")
def set_exception_info_callback(function: object = None) -> None:
    """From now on call `function(info)` for each task that fails in a stream, in the stream's thread; None: nothing any more."""
    if function is not None and not callable(function):
        raise AclError(Code.INVALID_PARAM, f"the function is {function!r:.80}; accepted: a function, None")
    _CALLBACK.function = function


@value("acl.rt.get_task_id_from_exception_info", failed=0xFFFFFFFF, returns="id")
def get_task_id_from_exception_info(info: int) -> int:
    """Which task of its stream failed, counted from 1."""
    return PROCESS.handles.get(info, ExceptionInfo).task


@value("acl.rt.get_stream_id_from_exception_info", failed=0xFFFFFFFF, returns="id")
def get_stream_id_from_exception_info(info: int) -> int:
    """The number of the stream."""
    return PROCESS.handles.get(info, ExceptionInfo).stream


@value("acl.rt.get_thread_id_from_exception_info", failed=0xFFFFFFFF, returns="id")
def get_thread_id_from_exception_info(info: int) -> int:
    """The thread that gave the task, the low 32 bits of its number."""
    return PROCESS.handles.get(info, ExceptionInfo).thread


@value("acl.rt.get_device_id_from_exception_info", failed=0xFFFFFFFF, returns="id")
def get_device_id_from_exception_info(info: int) -> int:
    """The device of the stream."""
    return PROCESS.handles.get(info, ExceptionInfo).device


@value("acl.rt.get_error_code_from_exception_info", failed=0xFFFFFFFF, returns="code")
def get_error_code_from_exception_info(info: int) -> int:
    """The code of the failure."""
    return PROCESS.handles.get(info, ExceptionInfo).code


# ---- how long operators may take
@dataclass
class Timeouts:
    """Seconds that operators may wait, microseconds that they may run; 0: for ever."""

    wait_s: int = 0
    execute_us: int = 0


TIMEOUTS = Timeouts()


def _forget_timeouts() -> None:
    TIMEOUTS.wait_s = 0
    _set_execute_time(0)


PROCESS.ending.append(_forget_timeouts)
_NOT_ENDED = "an operator that takes longer is not interrupted: its run fails when it is done"


@status("acl.rt.set_op_wait_timeout")
def set_op_wait_timeout(seconds: int) -> None:
    """How many seconds what a stream is given from now on may wait for events, and for values; 0: for ever."""
    TIMEOUTS.wait_s = _not_negative(seconds)


@status("acl.rt.set_op_execute_time_out", limits=_NOT_ENDED)
def set_op_execute_time_out(seconds: int) -> None:
    """How long operators may run."""
    _set_execute_time(_not_negative(seconds) * 1_000_000)


@value_and_status("acl.rt.set_op_execute_timeout_v2", returns="(microseconds, ret)", limits=_NOT_ENDED)
def set_op_execute_timeout_v2(microseconds: int) -> int:
    """How long operators may run, and what it came to."""
    _set_execute_time(_not_negative(microseconds))
    return TIMEOUTS.execute_us


def _set_execute_time(microseconds: int) -> None:
    """Look at the times of operators, or no longer."""
    TIMEOUTS.execute_us = microseconds
    if _look_at_times in WATCHERS:
        WATCHERS.remove(_look_at_times)
    if microseconds:
        WATCHERS.append(_look_at_times)


def _look_at_times(run: Run) -> Callback:
    """End a run with an operator that took longer than it may."""
    most_us = TIMEOUTS.execute_us

    def look(event: StepEvent) -> None:
        took_us = (event.end_ns - event.begin_ns) / 1000
        if took_us > most_us:
            code = Code.RT_AICPU_TIMEOUT if event.kind == "host" else Code.RT_AICORE_TIMEOUT
            nodes = ", ".join(event.nodes[:3]) or event.name
            raise AclError(code, f"{nodes} of {run.name} took {took_us:.0f} us; it may take {most_us} (acl.rt.set_op_execute_time_out)")

    return look


@value_and_status("acl.rt.get_op_timeout_interval", returns="(microseconds, ret)")
def get_op_timeout_interval() -> int:
    """The steps in which that time can be set."""
    return 1


@value_and_status("acl.rt.get_op_execute_timeout", returns="(milliseconds, ret)")
def get_op_execute_timeout() -> int:
    """How long operators may run."""
    return TIMEOUTS.execute_us // 1000


def _not_negative(number: int) -> int:
    if number < 0:
        raise AclError(Code.INVALID_PARAM, f"the time is {number}; accepted: 0 and more")
    return number

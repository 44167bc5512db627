"""acl.rt: streams, events, and reports that a stream makes to a thread of the program."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import field
import threading
import time

from anycann.acl.codes import Code
from anycann.acl.entries import status, value_and_status
from anycann.acl.errors import AclError, as_acl_error
from anycann.acl.failures import TIMEOUTS
from anycann.acl.process import PROCESS
from anycann.runtime.stream import Event, Stream
from anycann.support.records import dataclass

COMPLETE, NOT_READY = 0, 1  # of a stream or an event that is asked
RECORDED_NOT_READY, RECORDED_COMPLETE = 0, 1  # of query_event_status, which counts the other way
FOREVER = -1
MOST_STREAMS, MOST_EVENTS = 2048, 65536
LEAST, GREATEST = 7, 0  # priority of a stream
_NICE = 2  # steps of `nice` for a step of priority
_FAST_LAUNCH, _PERSISTENT = 1, 4


# ---- streams
@value_and_status("acl.rt.create_stream", returns="(stream, ret)")
def create_stream() -> int:
    """A stream of this thread's context. Its tasks run in order, on a thread of its own."""
    return PROCESS.handles.add(_new_stream())


@value_and_status("acl.rt.create_stream_with_config", returns="(stream, ret)")
def create_stream_with_config(priority: int, flags: int) -> int:
    """As create_stream. priority: 0 to 7, the least; its thread steps back behind others by two steps of `nice` each.

    flags: 1 everything is there before the first task, 4 (tasks of a model that is put together one by one) fails, for pyACL has no
    functions that would run them; 2, 8, 16, 32 (waiting awake, longer queues, scheduling by AI CPUs) make no difference.
    """
    if flags & _PERSISTENT:
        raise AclError(Code.RT_FEATURE_NOT_SUPPORT, "flag 4 (PERSISTENT) is for models put together task by task, which pyACL cannot run")
    stream = _new_stream(min(max(priority, GREATEST), LEAST))
    if flags & _FAST_LAUNCH:
        stream.start()
    return PROCESS.handles.add(stream)


def _new_stream(priority: int = GREATEST) -> Stream:
    if PROCESS.handles.count(Stream) >= MOST_STREAMS:
        raise AclError(Code.RT_NO_STREAM_RESOURCE, f"{MOST_STREAMS} streams are there, as many as may be; destroy some first")
    return Stream("acl stream", device=PROCESS.context().device.number, niceness=_NICE * priority)


@status("acl.rt.destroy_stream")
def destroy_stream(stream: int) -> None:
    """Wait for the tasks of a stream and end it."""
    found = PROCESS.handles.remove(stream, Stream, Code.RT_PARAM_INVALID if stream else Code.INVALID_PARAM)
    found.synchronize()
    found.close()


@status("acl.rt.destroy_stream_force")
def destroy_stream_force(stream: int) -> None:
    """End a stream after the task that runs; those that wait are dropped."""
    PROCESS.handles.remove(stream, Stream, Code.RT_PARAM_INVALID if stream else Code.INVALID_PARAM).close(drop=True)


@status("acl.rt.synchronize_stream")
def synchronize_stream(stream: int) -> None:
    """Wait for every task of the stream. Fails with the code of the first task that failed."""
    _wait(PROCESS.stream(stream), FOREVER)


@status("acl.rt.synchronize_stream_with_timeout")
def synchronize_stream_with_timeout(stream: int, timeout_ms: int) -> None:
    """As synchronize_stream, for at most `timeout_ms` (-1: for ever)."""
    _wait(PROCESS.stream(stream), timeout_ms)


@status("acl.rt.synchronize_device")
def synchronize_device() -> None:
    """Wait for every stream."""
    default = PROCESS.context().default_stream
    for stream in (default, *PROCESS.handles.live(Stream).values()):
        _wait(stream, FOREVER)


@value_and_status("acl.rt.stream_query", returns="(status, ret)")
def stream_query(stream: int) -> int:
    """0: every task has ended, 1: not yet."""
    return COMPLETE if PROCESS.stream(stream).idle else NOT_READY


def _wait(stream: Stream, timeout_ms: int) -> None:
    if timeout_ms < FOREVER:
        raise AclError(Code.INVALID_PARAM, f"timeout is {timeout_ms} ms; accepted: -1 (for ever) and more")
    if not stream.synchronize(None if timeout_ms == FOREVER else timeout_ms / 1000):
        raise AclError(Code.RT_WAIT_TIMEOUT, f"the stream was not done after {timeout_ms} ms")
    error = stream.take_error()
    if error is not None:
        raise as_acl_error(error)


# ---- events
@value_and_status("acl.rt.create_event", returns="(event, ret)")
def create_event() -> int:
    """An event that no stream has been asked to record."""
    return _new_event()


@value_and_status("acl.rt.create_event_with_flag", returns="(event, ret)")
def create_event_with_flag(flag: int) -> int:
    """As create_event; every event can be waited for and has its time."""
    return _new_event()


@value_and_status("acl.rt.create_event_ex_with_flag", returns="(event, ret)")
def create_event_ex_with_flag(flag: int) -> int:
    """As create_event_with_flag."""
    return _new_event()


def _new_event() -> int:
    PROCESS.context()
    if PROCESS.handles.count(Event) >= MOST_EVENTS:
        raise AclError(Code.RT_NO_EVENT_RESOURCE, f"{MOST_EVENTS} events are there, as many as may be; destroy some first")
    return PROCESS.handles.add(Event())


@status("acl.rt.destroy_event")
def destroy_event(event: int) -> None:
    """End an event."""
    PROCESS.handles.remove(event, Event, Code.RT_PARAM_INVALID if event else Code.INVALID_PARAM)


@status("acl.rt.record_event")
def record_event(event: int, stream: int) -> None:
    """The event is complete when the stream has done what it was given up to now."""
    _event(event).record(PROCESS.stream(stream))


@status("acl.rt.reset_event")
def reset_event(event: int, stream: int) -> None:
    """In order with the tasks of `stream`, the event becomes as new."""
    PROCESS.stream(stream).submit(_event(event).reset)


@status("acl.rt.stream_wait_event")
def stream_wait_event(stream: int, event: int) -> None:
    """Later tasks of the stream wait for the event, for as long as acl.rt.set_op_wait_timeout said before."""
    seconds = TIMEOUTS.wait_s
    late = AclError(Code.RT_WAIT_TIMEOUT, f"the event was not reached within {seconds} s (acl.rt.set_op_wait_timeout)")
    _event(event).hold_back(PROCESS.stream(stream), seconds or None, lambda: late)


@status("acl.rt.synchronize_event")
def synchronize_event(event: int) -> None:
    """Wait for the event."""
    _event(event).synchronize()


@value_and_status("acl.rt.query_event", returns="(status, ret)")
def query_event(event: int) -> int:
    """0: complete, 1: not yet."""
    return COMPLETE if _event(event).complete else NOT_READY


@value_and_status("acl.rt.query_event_status", returns="(status, ret)")
def query_event_status(event: int) -> int:
    """1: complete, 0: not yet."""
    return RECORDED_COMPLETE if _event(event).complete else RECORDED_NOT_READY


@value_and_status("acl.rt.query_event_wait_status", returns="(status, ret)")
def query_event_wait_status(event: int) -> int:
    """0: no stream waits for it any more, 1: not yet."""
    return COMPLETE if _event(event).complete else NOT_READY


@value_and_status("acl.rt.event_elapsed_time", failed=(0.0,), returns="(milliseconds, ret)")
def event_elapsed_time(start: int, end: int) -> float:
    """Milliseconds between two complete events."""
    begun, ended = _timed(start), _timed(end)
    if ended < begun:
        raise AclError(Code.RT_EVENT_TIMESTAMP_REVERSAL, "the end event was recorded before the start event")
    return (ended - begun) / 1e6


@value_and_status("acl.rt.event_get_timestamp", returns="(microseconds, ret)")
def event_get_timestamp(event: int) -> int:
    """When the event was reached, in microseconds of the machine's clock."""
    return _timed(event) // 1000


def _event(handle: int) -> Event:
    return PROCESS.handles.get(handle, Event, Code.RT_PARAM_INVALID if handle else Code.INVALID_PARAM)


def _timed(handle: int) -> int:
    event = _event(handle)
    if not event.time_ns or not event.complete:
        raise AclError(Code.RT_EVENT_TIMESTAMP_INVALID, f"event {handle:#x} has no time: no stream has reached it")
    return event.time_ns


# ---- reports: functions of the program that a stream asks a thread to run
@dataclass
class Reports:
    """What streams have asked one thread to run."""

    streams: set[int] = field(default_factory=set)
    waiting: deque[Callable[[], None]] = field(default_factory=deque)
    changed: threading.Condition = field(default_factory=threading.Condition)


_reports: dict[int, Reports] = {}  # thread -> its reports
_subscribed: dict[int, int] = {}  # stream -> thread
_any_subscription = threading.Condition()


class Reporter:
    """Lets one thread run functions for an owner that is no stream: a video channel."""

    def __init__(self, owner: int, thread_id: int):
        self._owner, self._thread_id = owner, thread_id
        with _any_subscription:
            _reports.setdefault(thread_id, Reports()).streams.add(owner)
            _any_subscription.notify_all()
        self._reports = _reports[thread_id]

    def report(self, function: Callable[[], None]) -> None:
        """Let the thread run `function` in a call of process_report."""
        with self._reports.changed:
            self._reports.waiting.append(function)
            self._reports.changed.notify_all()

    def run_waiting(self) -> None:
        """Run in this thread what waits."""
        while self._reports.waiting:
            self._reports.waiting.popleft()()

    def close(self) -> None:
        """The thread takes no more reports of this owner."""
        with _any_subscription:
            self._reports.streams.discard(self._owner)
            if not self._reports.streams and _reports.get(self._thread_id) is self._reports:
                del _reports[self._thread_id]


@status("acl.rt.subscribe_report")
def subscribe_report(thread_id: int, stream: int) -> None:
    """Functions launched in `stream` are run by thread `thread_id`, in its calls of process_report."""
    PROCESS.stream(stream)
    with _any_subscription:
        if stream in _subscribed:
            raise AclError(Code.RT_STREAM_SUBSCRIBE, f"stream {stream:#x} reports to thread {_subscribed[stream]} already")
        _subscribed[stream] = thread_id
        _reports.setdefault(thread_id, Reports()).streams.add(stream)
        _any_subscription.notify_all()


@status("acl.rt.unsubscribe_report")
def unsubscribe_report(thread_id: int, stream: int) -> None:
    """End what subscribe_report began; reports that wait are dropped."""
    with _any_subscription:
        if _subscribed.get(stream) != thread_id:
            raise AclError(Code.STREAM_NOT_SUBSCRIBE, f"stream {stream:#x} does not report to thread {thread_id}")
        del _subscribed[stream]
        _reports[thread_id].streams.discard(stream)
        if not _reports[thread_id].streams:
            del _reports[thread_id]


@status("acl.rt.launch_callback")
def launch_callback(function: Callable, user_data: object, block_type: int, stream: int) -> None:  # type: ignore[type-arg]
    """In order with the tasks of `stream`, its thread runs `function(user_data)`. block_type 1: later tasks wait for it."""
    if block_type not in (0, 1):
        raise AclError(Code.INVALID_PARAM, f"block type is {block_type}; accepted: 0 (no block), 1 (block)")
    found, thread_id = PROCESS.stream(stream), _subscribed.get(stream)
    if thread_id is None:
        raise AclError(Code.RT_STREAM_NO_CB_REG, f"stream {stream:#x} reports to no thread; call acl.rt.subscribe_report first")

    def task() -> None:
        done = threading.Event()
        reports = _reports.get(thread_id)
        if reports is None:
            raise AclError(Code.RT_THREAD_SUBSCRIBE, f"thread {thread_id} takes no more reports")

        def report() -> None:
            try:
                function(user_data)
            finally:
                done.set()

        with reports.changed:
            reports.waiting.append(report)
            reports.changed.notify_all()
        while block_type and not done.wait(0.1):
            if _reports.get(thread_id) is not reports:
                raise AclError(Code.RT_THREAD_SUBSCRIBE, f"thread {thread_id} stopped taking reports before it ran one")

    found.submit(task)


@status("acl.rt.process_report")
def process_report(timeout_ms: int) -> None:
    """Run one function that a stream asks this thread to run; wait for it for at most `timeout_ms` (-1: for ever)."""
    if timeout_ms < FOREVER:
        raise AclError(Code.INVALID_PARAM, f"timeout is {timeout_ms} ms; accepted: -1 (for ever) and more")
    thread_id, deadline = threading.get_ident(), time.monotonic() + timeout_ms / 1000
    reports = _reports.get(thread_id)
    if reports is None:  # programs begin to ask before they subscribe, in a loop
        with _any_subscription:
            _any_subscription.wait_for(lambda: thread_id in _reports, 0.01 if timeout_ms == FOREVER else min(0.01, timeout_ms / 1000))
        reports = _reports.get(thread_id)
        if reports is None:
            raise AclError(Code.THREAD_NOT_SUBSCRIBE, f"no stream reports to thread {thread_id}")
    with reports.changed:
        wait = None if timeout_ms == FOREVER else max(0.0, deadline - time.monotonic())
        if not reports.changed.wait_for(lambda: reports.waiting, wait):
            raise AclError(Code.WAIT_CALLBACK_TIMEOUT, f"no report within {timeout_ms} ms")
        report = reports.waiting.popleft()
    report()

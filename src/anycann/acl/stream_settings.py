"""acl.rt: what is known of streams and events beside their work: numbers, settings, limits, and ending work that waits."""

from __future__ import annotations

from collections.abc import Callable
import time
from weakref import WeakKeyDictionary

from anycann.acl.codes import Code
from anycann.acl.entries import status, value_and_status
from anycann.acl.errors import AclError, as_acl_error
from anycann.acl.process import PROCESS
from anycann.acl.streams import GREATEST, LEAST, MOST_EVENTS, MOST_STREAMS
from anycann.runtime.stream import Event, Stream, tasks_given

FAILURE_MODE, OVERFLOW_CHECK, CUSTOM_TAG = 1, 2, 3  # aclrtStreamAttr
OVERFLOW_SWITCHED: list[Callable[[Stream, bool], None]] = []  # told when a stream asks to look for overflow, or no longer
_KEYS = {FAILURE_MODE: "failureMode", OVERFLOW_CHECK: "overflowSwitch", CUSTOM_TAG: "userCustomTag"}


_attributes: WeakKeyDictionary[Stream, dict[int, int]] = WeakKeyDictionary()  # what a program set of a stream


def _attributes_of(stream: int) -> dict[int, int]:
    return _attributes.setdefault(PROCESS.stream(stream), {})


# ---- numbers
@value_and_status("acl.rt.ctx_get_current_default_stream", returns="(stream, ret)")
def ctx_get_current_default_stream() -> int:
    """A handle for the default stream of this thread's context."""
    default = PROCESS.context().default_stream
    known = next((handle for handle, stream in PROCESS.handles.live(Stream).items() if stream is default), 0)
    return known or PROCESS.handles.add(default)


@value_and_status("acl.rt.stream_get_id", returns="(id, ret)")
def stream_get_id(stream: int) -> int:
    """The number of a stream, as profiles have it."""
    return PROCESS.stream(stream).number


@value_and_status("acl.rt.get_stream_available_num", returns="(count, ret)")
def get_stream_available_num() -> int:
    """How many streams can still be created."""
    PROCESS.context()
    return MOST_STREAMS - PROCESS.handles.count(Stream)


@value_and_status("acl.rt.get_event_id", returns="(id, ret)")
def get_event_id(event: int) -> int:
    """The number of an event."""
    return PROCESS.handles.get(event, Event, Code.RT_PARAM_INVALID).number


@value_and_status("acl.rt.get_event_avail_num", returns="(count, ret)")
def get_event_avail_num() -> int:
    """How many events can still be created."""
    PROCESS.context()
    return MOST_EVENTS - PROCESS.handles.count(Event)


@value_and_status("acl.rt.get_thread_last_task_id", returns="(id, ret)")
def get_thread_last_task_id() -> int:
    """The number of the last task that this thread gave to a stream."""
    PROCESS.context()
    if not tasks_given():
        raise AclError(Code.RT_STREAM_TASK_EMPTY, "this thread has given no task to a stream")
    return tasks_given()


@value_and_status("acl.rt.device_get_stream_priority_range", failed=(0, 0), returns="(least, greatest, ret)")
def device_get_stream_priority_range() -> tuple[int, int]:
    """The priorities a stream may have: 7, the least, to 0."""
    PROCESS.context()
    return LEAST, GREATEST


# ---- attributes
@status("acl.rt.set_stream_failure_mode")
def set_stream_failure_mode(stream: int, mode: int) -> None:
    """Whether tasks run after one that failed: 0 they do, 1 they do not."""
    _set_attribute(stream, FAILURE_MODE, mode)


@status("acl.rt.set_stream_overflow_switch")
def set_stream_overflow_switch(stream: int, flag: int) -> None:
    """Whether overflow is looked for: 0, 1."""
    _set_attribute(stream, OVERFLOW_CHECK, flag)


@value_and_status("acl.rt.get_stream_overflow_switch", returns="(flag, ret)")
def get_stream_overflow_switch(stream: int) -> int:
    """What set_stream_overflow_switch set, else 0."""
    return _attributes_of(stream).get(OVERFLOW_CHECK, 0)


@status("acl.rt.set_stream_attribute", limits="tags are kept and told")
def set_stream_attribute(stream: int, attribute: int, setting: dict) -> None:  # type: ignore[type-arg]
    """attribute 1 {"failureMode": 0, 1}, 2 {"overflowSwitch": 0, 1}, 3 {"userCustomTag": number}."""
    key = _key(attribute)
    if not isinstance(setting.get(key), int):
        raise AclError(Code.INVALID_PARAM, f"the setting is {setting!r:.80}; accepted: {{{key!r}: number}}")
    _set_attribute(stream, attribute, setting[key])


@value_and_status("acl.rt.get_stream_attribute", failed=(None,), returns="(dict, ret)")
def get_stream_attribute(stream: int, attribute: int) -> dict[str, int]:
    """What set_stream_attribute set, else 0."""
    return {_key(attribute): _attributes_of(stream).get(attribute, 0)}


def _key(attribute: int) -> str:
    if attribute not in _KEYS:
        raise AclError(
            Code.INVALID_PARAM, f"stream attribute {attribute}; accepted: {', '.join(f'{n} ({key})' for n, key in _KEYS.items())}"
        )
    return _KEYS[attribute]


def _set_attribute(stream: int, attribute: int, setting: int) -> None:
    attributes = _attributes_of(stream)
    if attribute != CUSTOM_TAG and setting not in (0, 1):
        raise AclError(Code.INVALID_PARAM, f"{_KEYS[attribute]} is {setting}; accepted: 0, 1")
    attributes[attribute] = setting
    if attribute == FAILURE_MODE:
        PROCESS.stream(stream).stop_at_error = bool(setting)
    if attribute == OVERFLOW_CHECK:
        for tell in OVERFLOW_SWITCHED:
            tell(PROCESS.stream(stream), bool(setting))


# ---- waiting with an end, and ending
@status("acl.rt.synchronize_event_with_timeout")
def synchronize_event_with_timeout(event: int, timeout_ms: int) -> None:
    """Wait for an event for at most `timeout_ms` (-1: for ever)."""
    found = PROCESS.handles.get(event, Event, Code.RT_PARAM_INVALID)
    if timeout_ms < -1:
        raise AclError(Code.INVALID_PARAM, f"timeout is {timeout_ms} ms; accepted: -1 (for ever) and more")
    if not found.synchronize(None if timeout_ms == -1 else timeout_ms / 1000):
        raise AclError(Code.RT_WAIT_TIMEOUT, f"the event was not reached after {timeout_ms} ms")


@status("acl.rt.synchronize_device_with_timeout")
def synchronize_device_with_timeout(timeout_ms: int) -> None:
    """Wait for every stream, for at most `timeout_ms` (-1: for ever)."""
    if timeout_ms < -1:
        raise AclError(Code.INVALID_PARAM, f"timeout is {timeout_ms} ms; accepted: -1 (for ever) and more")
    _wait_for_all(None if timeout_ms == -1 else timeout_ms / 1000, f"{timeout_ms} ms")
    for stream in _streams():
        error = stream.take_error()
        if error is not None:
            raise as_acl_error(error)


@status("acl.rt.stream_abort")
def stream_abort(stream: int) -> None:
    """Drop the tasks of a stream that wait, and wait for the one that runs."""
    found = PROCESS.stream(stream)
    found.drop()
    found.synchronize()


@status("acl.rt.device_task_abort")
def device_task_abort(device: int, timeout_ms: int) -> None:
    """Drop the tasks of all streams that wait, and wait for those that run, for at most `timeout_ms` (0: for ever)."""
    PROCESS.device(device)
    for stream in _streams():
        stream.drop()
    _wait_for_all(timeout_ms / 1000 or None, f"{timeout_ms} ms")


def _streams() -> tuple[Stream, ...]:
    return PROCESS.context().default_stream, *PROCESS.handles.live(Stream).values()


def _wait_for_all(seconds: float | None, words: str) -> None:
    deadline = None if seconds is None else time.monotonic() + seconds
    for stream in _streams():
        if not stream.synchronize(None if deadline is None else max(deadline - time.monotonic(), 0)):
            raise AclError(Code.RT_WAIT_TIMEOUT, f"a stream was not done after {words}")

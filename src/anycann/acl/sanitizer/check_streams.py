"""Streams, events and callbacks: what is waited for, what is destroyed too early, and threads that nobody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
import threading

from anycann.acl.errors import AclError
from anycann.acl.process import PROCESS
from anycann.acl.sanitizer.check_memory import checksum
from anycann.acl.sanitizer.pending import Mark, Work
from anycann.acl.sanitizer.ranges import Range
from anycann.acl.sanitizer.state import Call, Sanitizer, Subscription, after, after_failure, before

_WAITS = ("acl.rt.synchronize_stream", "acl.rt.synchronize_stream_with_timeout")


# ---- waiting
def finish(state: Sanitizer, call: Call, done: Iterable[Work]) -> None:
    """The program knows now that this work is done. What it read must be as it was when it was launched."""
    finished = list(done)
    for work in finished:
        _check_kept(state, work)
        if work.watched is not None and not any(other is not work and _writes(other, work.watched[0]) for other in finished):
            _check_unchanged(state, call, work, *work.watched)
        work.done = True


def _writes(work: Work, place: Range) -> bool:
    return any(range_.overlaps(place) for range_ in work.writes)


def _check_unchanged(state: Sanitizer, call: Call, work: Work, place: Range, before_: int) -> None:
    now = checksum(state, place)
    if now is not None and now != before_:
        text = f"the {place.nbytes} bytes that {work.name} copies from {place.address:#x} changed before its stream was waited for"
        state.found(call, "overwritten-while-pending", text, {"launched": work.where}, address=place.address)


def _check_kept(state: Sanitizer, work: Work) -> None:
    for place in (*work.reads, *work.writes):
        owner = state.owners.find(place.address)
        if owner is not None and owner.gone and state.blocks.find(place.address) is None:
            asked = Call(work.name, [], (), work.where)
            text = f"a {owner.words} was let go before the stream that uses it was waited for"
            state.found(asked, "temporary-gone", text, {"taken": owner.taken}, address=place.address)


@after(*_WAITS)
def _waited(state: Sanitizer, call: Call) -> None:
    finish(state, call, state.pending.of(state.stream_key(call.number("stream"))))


@after_failure(*_WAITS)
def _waited_for_a_failure(state: Sanitizer, call: Call) -> None:
    """Work that failed was waited for as well; after a timeout there is some left."""
    with suppress(AclError):  # there is no such stream
        if PROCESS.stream(call.number("stream")).idle:
            _waited(state, call)


@after("acl.rt.synchronize_device", "acl.rt.reset_device", "acl.rt.reset_device_force")
def _device_waited(state: Sanitizer, call: Call) -> None:
    finish(state, call, state.pending.everything())


@after("acl.rt.stream_query")
def _queried(state: Sanitizer, call: Call) -> None:
    if call.result == (0, 0):
        _waited(state, call)


# ---- events
@after("acl.rt.record_event")
def _recorded(state: Sanitizer, call: Call) -> None:
    state.pending.record(call.number("event"), state.stream_key(call.number("stream")))


@after("acl.rt.stream_wait_event")
def _held_back(state: Sanitizer, call: Call) -> None:
    state.pending.wait(state.stream_key(call.number("stream")), call.number("event"))


@after("acl.rt.synchronize_event")
def _event_waited(state: Sanitizer, call: Call) -> None:
    finish(state, call, state.pending.events.get(call.number("event"), Mark()).pending)


@after("acl.rt.query_event", "acl.rt.query_event_status")
def _event_queried(state: Sanitizer, call: Call) -> None:
    if call.result == ((1, 0) if call.name.endswith("status") else (0, 0)):
        _event_waited(state, call)


# ---- destroying
@before("acl.rt.destroy_stream", "acl.rt.destroy_stream_force")
def _check_destroy_stream(state: Sanitizer, call: Call) -> None:
    _check_pending(state, call, call.number("stream"), state.pending.of(call.number("stream")))


@before("acl.rt.destroy_event")
def _check_destroy_event(state: Sanitizer, call: Call) -> None:
    _check_pending(state, call, call.number("event"), state.pending.events.get(call.number("event"), Mark()).pending)


@before("acl.rt.destroy_context")
def _check_destroy_context(state: Sanitizer, call: Call) -> None:
    context = call.number("context")
    streams = [handle for handle, made in state.handles.items() if made.context == context and made.live and made.word == "stream"]
    for stream in (context, *streams):
        _check_pending(state, call, context, state.pending.of(stream))


def _check_pending(state: Sanitizer, call: Call, handle: int, pending: list[Work]) -> None:
    if pending and handle in state.handles:
        made, work = state.handles[handle], pending[-1]
        text = f"the {made.word} is destroyed with work in it that nobody waited for: {work.name}"
        state.found(call, "destroyed-while-pending", text, {"created": made.made, "launched": work.where}, handle=handle)


@after("acl.rt.destroy_stream", "acl.rt.destroy_stream_force", "acl.rt.stream_abort")
def _stream_gone(state: Sanitizer, call: Call) -> None:
    for work in state.pending.of(call.number("stream")):
        work.done = True


# ---- streams of another context
def check_stream_context(state: Sanitizer, call: Call) -> None:
    """For every function with a stream: it belongs to this thread's context."""
    made = state.handles.get(call.number("stream"))
    current = state.handles.get(PROCESS.thread.context)
    if made is None or made.word != "stream" or not made.live or current is None or not current.live:
        return
    if made.context != PROCESS.thread.context and call.name not in ("acl.rt.subscribe_report", "acl.rt.unsubscribe_report"):
        text = "the stream belongs to another context than this thread's; call acl.rt.set_context before"
        state.found(call, "other-context", text, {"created": made.made, "context": current.made}, handle=call.number("stream"))


# ---- callbacks
@after("acl.rt.subscribe_report")
def _subscribed(state: Sanitizer, call: Call) -> None:
    state.subscriptions[call.number("stream")] = Subscription(call.number("thread_id"), call.where)
    state.reported_to.add(call.number("thread_id"))


@after("acl.media.vdec_set_channel_desc_thread_id", "acl.media.venc_set_channel_desc_thread_id")
def _channel_subscribed(state: Sanitizer, call: Call) -> None:
    state.reported_to.update(argument for argument in call.arguments[1:] if isinstance(argument, int))


@before("acl.rt.unsubscribe_report")
def _check_unsubscribe(state: Sanitizer, call: Call) -> None:
    check_callbacks(state, call, call.number("stream"))


@after("acl.rt.unsubscribe_report")
def _unsubscribed(state: Sanitizer, call: Call) -> None:
    state.subscriptions.pop(call.number("stream"), None)


def check_callbacks(state: Sanitizer, call: Call | None, stream: int) -> None:
    """The callbacks launched in a stream have run."""
    found = state.subscriptions.get(stream)
    if found is not None and found.run < found.launched:
        text = f"{found.launched - found.run} of {found.launched} callbacks never ran: thread {found.thread} did not ask for reports"
        state.found(call, "callback-never-run", text, {"subscribed": found.where})


@before("acl.rt.launch_callback")
def check_launch(state: Sanitizer, call: Call) -> None:
    """The callback knows that what was launched before it is done; it is told to us by what runs it."""
    subscription = state.subscriptions.get(call.number("stream"))
    if subscription is None:
        state.found(call, "stream-not-subscribed", "no thread takes reports of this stream; call acl.rt.subscribe_report before")
        return
    subscription.launched += 1
    function, mark = call.given("function"), state.mark(call.number("stream"))
    if callable(function):
        call.arguments[0] = _reported(state, call, function, mark, subscription)


def _reported(
    state: Sanitizer, call: Call, function: Callable[[object], object], mark: Mark, subscription: Subscription
) -> Callable[[object], object]:
    def run(data: object) -> object:
        with state.lock:
            subscription.run += 1
            finish(state, call, mark.pending)
        return function(data)

    return run


@before("acl.rt.process_report")
def _processing(state: Sanitizer, call: Call) -> None:
    state.processing.setdefault(threading.get_ident(), call.where)


@before(*_WAITS)
def check_deadlock(state: Sanitizer, call: Call) -> None:
    """A thread cannot wait for a stream and take its reports."""
    found = state.subscriptions.get(call.number("stream"))
    if found is not None and found.run < found.launched and found.thread == threading.get_ident():
        text = "this thread waits for a stream whose callbacks it takes itself, and they have not run"
        state.found(call, "callback-deadlock", text, {"subscribed": found.where})

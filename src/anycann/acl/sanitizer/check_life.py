"""From acl.init to the end: calls at the wrong time, handles that are gone, values of calls that failed, and what is left."""

from __future__ import annotations

from collections import defaultdict
import os

from anycann.acl.handles import StrayHandle
from anycann.acl.model_loading import MODELS
from anycann.acl.process import PROCESS
from anycann.acl.sanitizer.check_streams import check_callbacks
from anycann.acl.sanitizer.places import Place
from anycann.acl.sanitizer.state import Call, Made, Sanitizer, after, before

_ALWAYS = ("acl.init", "acl.app_log", "acl.get_version", "acl.get_version_str", "acl.get_cann_version", "acl.get_recent_err_msg",
           "acl.get_soc_name", "acl.data_type_size", "acl.float16_to_float", "acl.float_to_float16", "acl.finalize",
           "acl.finalize_reference", "acl.rt.get_run_mode", "acl.rt.get_device_count", "acl.rt.get_device",
           "acl.rt.get_context")  # fmt: skip
_NEED_CONTEXT = ("acl.rt.malloc", "acl.rt.mem", "acl.rt.create_stream", "acl.rt.create_event", "acl.rt.synchronize_", "acl.rt.launch_",
                 "acl.mdl.load_", "acl.mdl.execute", "acl.op.execute", "acl.media.dvpp_malloc")  # fmt: skip
_NOT_NULL = ("ptr", "dst", "src", "buffer", "dataset", "desc", "inputs", "outputs", "model_id", "context", "event", "start", "end", "attr")
_END = ("acl.finalize", "acl.finalize_reference")


def check_time(state: Sanitizer, call: Call) -> None:
    """For every function: between acl.init and acl.finalize."""
    if call.name in _ALWAYS or call.name.startswith("acl.util."):
        return
    if state.finalized is not None:
        state.found(call, "after-finalize", "called after acl.finalize", {"finalized": state.finalized})
    elif state.initialised is None:
        state.found(call, "before-init", "called before acl.init")


def check_context(state: Sanitizer, call: Call) -> None:
    """For every function that works in a context: the thread has one, and it is there."""
    if (
        not call.name.startswith(_NEED_CONTEXT)
        or call.name.startswith("acl.rt.malloc_host")
        or state.initialised is None
        or state.finalized
    ):
        return
    current = state.handles.get(PROCESS.thread.context)
    if current is not None and not current.live:
        state.found(call, "destroyed-context", "the context of this thread was destroyed", current.lines)
    elif not PROCESS.thread.context and state.thread.lost_context is not None:
        name, place = state.thread.lost_context
        state.found(call, "destroyed-context", f"the context of this thread went with {name}", {"destroyed": place})
    elif not PROCESS.thread.context:
        text = "this thread has no context; call acl.rt.set_device or acl.rt.set_context in each thread"
        state.found(call, "no-context", text)


def check_handles(state: Sanitizer, call: Call) -> None:
    """For every function: the handles it is given were not destroyed."""
    for argument in call.arguments:
        made = state.handles.get(argument) if isinstance(argument, int) else None
        if made is not None and not made.live:
            kind = "double-destroy" if call.name.rpartition(".")[2].startswith("destroy_") else "use-after-destroy"
            state.found(call, kind, f"the {made.word} was destroyed before", made.lines, handle=argument)


def check_nulls(state: Sanitizer, call: Call) -> None:
    """For every function: no handle or address is null; where a call failed before, that is why."""
    named = [parameter for parameter in call.parameters if parameter in _NOT_NULL and call.given(parameter) == 0]
    named += ["stream"] if _null_stream(state, call) else []
    for parameter in named[:1]:
        if state.thread.failed is not None:
            name, place = state.thread.failed
            text = f"{parameter} is null, the value of a failed {name}"
            state.found(call, "failure-ignored", text, {"failed": place})
        else:
            state.found(call, "null-value", f"{parameter} is null")


def _null_stream(state: Sanitizer, call: Call) -> bool:
    """A stream of 0 is the default one, unless it comes from a create_stream that failed."""
    failed = state.thread.failed
    return "stream" in call.parameters and call.given("stream") == 0 and failed is not None and failed[0].startswith("acl.rt.create_stream")


def check_stray(state: Sanitizer, call: Call) -> None:
    """After every function that failed: it was given a handle of another kind, or a number that is none."""
    if isinstance(call.error, StrayHandle):
        known = (state.handles.get(argument) for argument in call.arguments if isinstance(argument, int))
        given = next((made for made in known if made is not None), None)
        state.found(call, "wrong-handle", str(call.error), given.lines if given else {})


def check_process(state: Sanitizer, call: Call) -> None:
    """For every function: a process that was forked has a copy of the memory, and no device."""
    if state.initialised is not None and state.process != os.getpid() and not call.name.startswith("acl.util."):
        text = f"called in a process that was forked after acl.init (in process {state.process}); fork before it, or spawn"
        state.found(call, "used-after-fork", text, {"initialised": state.initialised})


def remember_failure(state: Sanitizer, call: Call) -> None:
    """After every function: whether its value is a null that something else may be given."""
    values = call.result[:-1] if isinstance(call.result, tuple) and len(call.result) > 1 else (call.result,)
    if call.error is not None and (values[0] == 0 or values[0] is None):
        state.thread.failed = (call.name, call.where)
    elif state.thread.failed is not None and state.thread.failed[0] == call.name:
        state.thread.failed = None


# ---- init, devices, contexts
@before("acl.init")
def _check_init(state: Sanitizer, call: Call) -> None:
    if state.initialised is not None and state.finalized is None:
        state.found(call, "repeated-init", "acl.init was called before", {"first": state.initialised})


@after("acl.init")
def _initialised(state: Sanitizer, call: Call) -> None:
    state.initialised, state.finalized, state.process = call.where, None, os.getpid()


@after("acl.rt.set_device")
def _device_set(state: Sanitizer, call: Call) -> None:
    state.devices[call.number("device")] = call.where
    state.was_set.add(call.number("device"))
    state.thread.lost_context = None


@after("acl.rt.create_context", "acl.rt.set_context")
def _context_set(state: Sanitizer, call: Call) -> None:
    state.thread.lost_context = None


@after("acl.rt.reset_device", "acl.rt.reset_device_force")
def _device_reset(state: Sanitizer, call: Call) -> None:
    if call.number("device") not in PROCESS.primary:
        state.devices.pop(call.number("device"), None)
        state.blocks.reset(call.number("device"), call.where)
    _lost(state, call)


@after("acl.rt.destroy_context")
def _context_gone(state: Sanitizer, call: Call) -> None:
    _lost(state, call)


def _lost(state: Sanitizer, call: Call) -> None:
    if not PROCESS.thread.context and state.thread.lost_context is None:
        state.thread.lost_context = (call.name, call.where)


# ---- the end
@before(*_END)
def _check_end(state: Sanitizer, call: Call) -> None:
    if state.initialised is None:
        state.found(call, "before-init", "called before acl.init")
    elif state.finalized is not None:
        state.found(call, "repeated-finalize", "called before", {"first": state.finalized})
    else:
        check_left(state)


@after(*_END)
def _finalized(state: Sanitizer, call: Call) -> None:
    state.finalized = call.where
    state.report.close()


def check_left(state: Sanitizer) -> None:
    """What is still there when the program ends AscendCL."""
    for device, place in state.devices.items():
        state.found(None, "device-not-reset", f"device {device} was set and never reset with acl.rt.reset_device", {"set": place})
    for stream, subscription in state.subscriptions.items():
        text = f"stream {stream:#x} still reports to thread {subscription.thread}; acl.rt.unsubscribe_report was not called"
        state.found(None, "still-subscribed", text, {"subscribed": subscription.where})
        check_callbacks(state, None, stream)
    for thread, place in state.processing.items():
        if thread not in state.reported_to:
            text = f"thread {thread} asked for reports, and no stream was ever subscribed to it"
            state.found(None, "thread-not-subscribed", text, {"asked": place})
    _left_memory(state)
    _left_things(state)


def _left_memory(state: Sanitizer) -> None:
    """Allocations by the line that made them. With its device, and at the end of the process, Ascend takes them back: a note then."""
    groups: dict[tuple[Place | None, str, bool], list[int]] = defaultdict(list)
    for block in state.blocks.live.values():
        device = block.allocation.device
        reset = not state.devices if device < 0 else device in state.was_set and device not in state.devices
        groups[block.allocated, block.allocation.kind, reset].append(block.allocation.nbytes)
    for (place, kind, reset), sizes in groups.items():
        taker = "; the process ends with them" if kind == "host" else "; reset_device took them"
        text = f"{len(sizes)} allocation(s) of {kind} memory, {sum(sizes)} bytes, were never freed" + (taker if reset else "")
        level = "note" if reset else "error"
        state.found(None, "leaked-memory", text, {"allocated": place}, level, nbytes=sum(sizes), allocations=len(sizes))  # type: ignore[arg-type]


def _left_things(state: Sanitizer) -> None:
    primary = {handle for handle, _ in PROCESS.primary.values()}
    live = [made for handle, made in state.handles.items() if made.live and handle not in primary]
    live += [state.models[number] for number in MODELS.live() if number in state.models]
    groups: dict[tuple[Place | None, str], list[Made]] = defaultdict(list)
    for made in live:
        groups[made.made, made.word].append(made)
    for (place, word), group in groups.items():
        kind = "leaked-" + word.replace(" ", "-").lower()
        ended = "unloaded" if word == "model" else "destroyed"
        state.found(None, kind, f"{len(group)} {word}(s) were never {ended}", {"created": place}, count=len(group))

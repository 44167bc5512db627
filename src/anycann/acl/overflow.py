"""acl.rt: whether numbers overflowed in a stream that asks for it: an operator gave infinities or NaN."""

from __future__ import annotations

from anycann.acl.codes import Code
from anycann.acl.entries import status
from anycann.acl.errors import AclError
from anycann.acl.memory import check_span, move
from anycann.acl.process import PROCESS
from anycann.acl.runs import TENSOR_WATCHERS, Run
from anycann.acl.stream_settings import OVERFLOW_SWITCHED
from anycann.runtime.observe import Callback, StepEvent
from anycann.runtime.stream import Stream

OVERFLOW_BYTES = 64  # of the status that a device writes
NO_STREAM = 0  # runs in the thread of the caller


class _Overflow:
    """Which streams are looked at, and where something overflowed, by numbers of streams."""

    def __init__(self) -> None:
        self.looked_at: set[int] = set()
        self.found: set[int] = set()

    def switch(self, stream: Stream, is_on: bool) -> None:
        """Look at a stream, or no longer. Kernels are launched one by one while one is looked at."""
        (self.looked_at.add if is_on else self.looked_at.discard)(stream.number)
        if bool(self.looked_at) != (self._watch in TENSOR_WATCHERS):
            (TENSOR_WATCHERS.append if self.looked_at else TENSOR_WATCHERS.remove)(self._watch)

    def forget(self) -> None:
        """Look at nothing any more."""
        self.looked_at.clear()
        self.found.clear()
        if self._watch in TENSOR_WATCHERS:
            TENSOR_WATCHERS.remove(self._watch)

    def _watch(self, run: Run) -> Callback | None:
        if run.stream not in self.looked_at and run.stream != NO_STREAM:
            return None
        from anycann.runtime.dump.recorder import has_overflow

        def look(event: StepEvent) -> None:
            if run.stream not in self.found and any(has_overflow(event.tensor(name)) for name in event.outputs):
                self.found.add(run.stream)

        return look


_OVERFLOW = _Overflow()
OVERFLOW_SWITCHED.append(_OVERFLOW.switch)
PROCESS.ending.append(_OVERFLOW.forget)


@status("acl.rt.get_overflow_status")
def get_overflow_status(out: int, size: int, stream: int) -> None:
    """In order with the tasks of `stream`, write the status, 64 bytes, to device memory: not 0 if an operator gave infinities or NaN
    since acl.rt.set_stream_overflow_switch asked to look, or since it was reset."""
    if size < OVERFLOW_BYTES:
        raise AclError(Code.INVALID_PARAM, f"the status needs {OVERFLOW_BYTES} bytes; {size} are given")
    check_span(out, size, OVERFLOW_BYTES, "out")
    if PROCESS.allocations.find(out) is None:
        raise AclError(Code.RT_PARAM_INVALID, f"out {out:#x} is no live device memory")
    told, found = PROCESS.allocations.allocate(OVERFLOW_BYTES, "host", -1), PROCESS.stream(stream)

    def task() -> None:
        check_span(out, size, OVERFLOW_BYTES, "out")
        told.block[:] = 0
        told.block[0] = bool(_OVERFLOW.found & {found.number, NO_STREAM})
        move(out, told.address, OVERFLOW_BYTES)
        PROCESS.allocations.release(told.address)

    found.submit(task)


@status("acl.rt.reset_overflow_status")
def reset_overflow_status(stream: int) -> None:
    """In order with the tasks of `stream`, forget overflow."""
    found = PROCESS.stream(stream)
    found.submit(lambda: _OVERFLOW.found.difference_update({found.number, NO_STREAM}))

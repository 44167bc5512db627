"""acl.rt: notifies, which one stream sets and another waits for; and waiting for a value in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
import itertools
import threading
import time
from typing import ClassVar

import numpy as np

from anycann.acl.codes import Code
from anycann.acl.entries import refused, status, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.failures import TIMEOUTS
from anycann.acl.memory import check_span
from anycann.acl.process import PROCESS
from anycann.acl.util import check_readable, view_at

_numbers = itertools.count(1)
_POLL_S = 0.0002
GREATER_EQUAL, EQUAL, AND, NOR = range(4)  # how a value is compared
_COMPARISONS: dict[int, Callable[[int, int], bool]] = {
    GREATER_EQUAL: lambda found, wanted: found >= wanted,
    EQUAL: lambda found, wanted: found == wanted,
    AND: lambda found, wanted: bool(found & wanted),
    NOR: lambda found, wanted: bool(~(found | wanted) & (2**64 - 1)),
}


@dataclass
class Notify:
    """Set by a task of one stream; a task of another waits for it and takes it back."""

    acl_word: ClassVar[str] = "notify"
    number: int = field(default_factory=lambda: next(_numbers))
    is_set: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)

    def set(self) -> None:
        """Wake the one who waits."""
        with self.changed:
            self.is_set = True
            self.changed.notify_all()

    def take(self, seconds: float | None) -> None:
        """Wait until it is set and take it back. Raises AclError after `seconds`."""
        with self.changed:
            if not self.changed.wait_for(lambda: self.is_set, seconds):
                raise AclError(Code.RT_WAIT_TIMEOUT, f"the notify was not recorded within {seconds} s")
            self.is_set = False

    def reset(self) -> None:
        """As new."""
        with self.changed:
            self.is_set = False


def _notify(handle: int) -> Notify:
    return PROCESS.handles.get(handle, Notify)


@value_and_status("acl.rt.create_notify", returns="(notify, ret)")
def create_notify(flag: int) -> int:
    """A notify that nobody has recorded. flag: 0."""
    PROCESS.context()
    if flag:
        raise AclError(Code.INVALID_PARAM, f"flag is {flag}; accepted: 0")
    return PROCESS.handles.add(Notify())


@status("acl.rt.destroy_notify")
def destroy_notify(notify: int) -> None:
    """Forget a notify."""
    PROCESS.handles.remove(notify, Notify)


@status("acl.rt.record_notify")
def record_notify(notify: int, stream: int) -> None:
    """The notify is set when the stream has done what it was given up to now."""
    PROCESS.stream(stream).submit(_notify(notify).set)


@status("acl.rt.wait_and_reset_notify")
def wait_and_reset_notify(notify: int, stream: int, timeout_s: int) -> None:
    """Later tasks of the stream wait for the notify, for at most `timeout_s` (0: for ever), and take it back."""
    found = _notify(notify)
    if timeout_s < 0:
        raise AclError(Code.INVALID_PARAM, f"timeout is {timeout_s} s; accepted: 0 (for ever) and more")
    PROCESS.stream(stream).submit(lambda: found.take(timeout_s or None))


@value_and_status("acl.rt.get_notify_id", returns="(id, ret)")
def get_notify_id(notify: int) -> int:
    """The number of a notify."""
    return _notify(notify).number


@status("acl.rt.notify_batch_reset")
def notify_batch_reset(notifies: list[int]) -> None:
    """Take several back."""
    if not notifies:
        raise AclError(Code.INVALID_PARAM, "the list of notifies is empty")
    for found in [_notify(handle) for handle in notifies]:
        found.reset()


_PROCESSES = "nothing is shared between processes"
refused("acl.rt.notify_get_export_key", ("notify", "length", "flag"), _PROCESSES, failed=("",))
refused("acl.rt.notify_set_import_pid", ("notify", "pids"), _PROCESSES)
refused("acl.rt.notify_import_by_key", ("key", "flag"), _PROCESSES, failed=(0,))


# ---- values in memory
@status("acl.rt.value_write")
def value_write(address: int, value: int, flag: int, stream: int) -> None:
    """In order with the tasks of `stream`, write 64 bits."""
    check_span(address, 8, 8, "address")
    check_readable(address, 8, "value_write")

    def task() -> None:
        _cell(address)[0] = value & (2**64 - 1)

    PROCESS.stream(stream).submit(task)


@status("acl.rt.value_wait")
def value_wait(address: int, value: int, flag: int, stream: int) -> None:
    """Later tasks of `stream` wait until 64 bits in memory are as wanted. flag: 0 >=, 1 ==, 2 any bit of both, 3 any bit of neither."""
    compare = _COMPARISONS.get(flag)
    if compare is None:
        raise AclError(Code.INVALID_PARAM, f"flag is {flag}; accepted: 0 (>=), 1 (==), 2 (and), 3 (nor)")
    check_readable(address, 8, "value_wait")
    PROCESS.stream(stream).submit(lambda: _wait_for(lambda: compare(int(_cell(address)[0]), value)))


def _cell(address: int) -> np.ndarray:
    check_readable(address, 8, "value")
    return view_at(address, np.dtype(np.uint64), (1,))


def _wait_for(reached: Callable[[], bool]) -> None:
    """Look again and again. Raises AclError after the time of acl.rt.set_op_wait_timeout."""
    deadline = time.monotonic() + TIMEOUTS.wait_s if TIMEOUTS.wait_s else None
    while not reached():
        if deadline is not None and time.monotonic() > deadline:
            raise AclError(Code.RT_WAIT_TIMEOUT, f"the value was not reached within {TIMEOUTS.wait_s} s (acl.rt.set_op_wait_timeout)")
        time.sleep(_POLL_S)

"""acl.rt: notifies, which one stream sets and another waits for; and waiting for a value in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
import itertools
import os
import threading
import time
from typing import ClassVar

import numpy as np

from anycann.acl.codes import Code
from anycann.acl.entries import status, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.failures import TIMEOUTS
from anycann.acl.ipc_memory import allow, key_of, opened
from anycann.acl.memory import check_span
from anycann.acl.process import PROCESS
from anycann.acl.util import check_readable, view_at
from anycann.runtime.memory import PAGE_BYTES
from anycann.runtime.virtual_memory import PhysicalMemory
from anycann.support.records import dataclass

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
    """Set by a task of one stream; a task of another waits for it and takes it back. shared: its state, where other processes have it."""

    acl_word: ClassVar[str] = "notify"
    number: int = field(default_factory=lambda: next(_numbers))
    is_set: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)
    shared: PhysicalMemory | None = None

    def set(self) -> None:
        """Wake the one who waits."""
        self._put(True)

    def _put(self, state: bool) -> None:
        with self.changed:
            self.is_set = state
            if self.shared is not None:
                os.pwrite(self.shared.descriptor, bytes([state]), 0)
            self.changed.notify_all()

    def share(self) -> PhysicalMemory:
        """From now on the state is in memory that other processes may have."""
        with self.changed:
            if self.shared is None:
                self.shared = PhysicalMemory.take(2 * PAGE_BYTES)
                self._put(self.is_set)
            return self.shared

    def close(self) -> None:
        """Share it no more."""
        with self.changed:
            shared, self.shared = self.shared, None
        if shared is not None:
            shared.close()

    def __del__(self) -> None:
        self.close()

    def take(self, seconds: float | None) -> None:
        """Wait until it is set and take it back. Raises AclError after `seconds`."""
        deadline = None if seconds is None else time.monotonic() + seconds
        with self.changed:
            while not self._is_set():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise AclError(Code.RT_WAIT_TIMEOUT, f"the notify was not recorded within {seconds} s")
                self.changed.wait(left if self.shared is None else _POLL_S)  # nobody tells what another process does
            self._put(False)

    def _is_set(self) -> bool:
        return self.is_set if self.shared is None else os.pread(self.shared.descriptor, 1, 0) == b"\1"

    def reset(self) -> None:
        """As new."""
        self._put(False)


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
    """Forget a notify; where it was imported from or exported to it stays."""
    PROCESS.handles.remove(notify, Notify).close()


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


@value_and_status("acl.rt.notify_get_export_key", failed=("",), returns="(key, ret)")
def notify_get_export_key(notify: int, length: int, flag: int) -> str:
    """A key by which another process imports the notify. length: 65. flag: 0 only processes of acl.rt.notify_set_import_pid, else any."""
    return key_of(_notify(notify).share(), PAGE_BYTES, length, anybody=flag != 0)


@status("acl.rt.notify_set_import_pid")
def notify_set_import_pid(notify: int, pids: list[int]) -> None:
    """The processes that may import the notify, by the numbers that acl.rt.device_get_bare_tgid tells them."""
    shared = _notify(notify).shared
    if shared is None:
        raise AclError(Code.RT_PARAM_INVALID, "the notify has no key; acl.rt.notify_get_export_key makes one")
    allow(shared, pids)


@value_and_status("acl.rt.notify_import_by_key", returns="(notify, ret)")
def notify_import_by_key(key: str, flag: int) -> int:
    """The notify of another process. `flag` lets the devices of both reach each other, which they do anyway."""
    PROCESS.context()
    return PROCESS.handles.add(Notify(shared=opened(key, "acl.rt.notify_set_import_pid")))


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

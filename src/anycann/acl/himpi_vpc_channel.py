"""acl.himpi: channels with numbers that process pictures, their results and their colours."""

from __future__ import annotations

from collections.abc import Callable
import itertools
import threading
import time
from typing import Any

from anycann.acl.codes import Code
from anycann.acl.entries import status, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.himpi_system import Channels, code_of, errors_of
from anycann.acl.process import PROCESS
from anycann.media.convert import ColourMatrix, Matrix
from anycann.runtime.stream import Stream

FOREVER = -1


class VpcChannel:
    """Does its tasks in order on a thread of its own, and keeps how each went until it is asked."""

    def __init__(self) -> None:
        self.matrix: ColourMatrix = Matrix.BT601_WIDE
        self.workspaces: list[Any] = []  # what acl.himpi.vpc_set_chn_workspace was told
        self._stream = Stream("VPC channel")
        self._numbers = itertools.count(1)
        self._results: dict[int, BaseException | None] = {}
        self._waiting: set[int] = set()
        self._changed = threading.Condition()

    def submit(self, task: Callable[[], None]) -> int:
        """Do `task` later; its number."""
        number = next(self._numbers)
        with self._changed:
            self._waiting.add(number)
        self._stream.submit(lambda: self._run(number, task))
        return number

    def result(self, number: int, timeout_ms: int) -> None:
        """Wait for a task. Raises what it raised, and AclError for a task that is not there or takes longer."""
        deadline = time.monotonic() + timeout_ms / 1000
        with self._changed:
            while number in self._waiting:
                if not self._changed.wait(None if timeout_ms == FOREVER else max(0.0, deadline - time.monotonic())):
                    raise AclError(code_of("VPC", "TIMEOUT"), f"task {number} was not done after {timeout_ms} ms")
            if number not in self._results:
                raise AclError(Code.INVALID_PARAM, f"task {number} is not there: never given, or its result was fetched before")
            error = self._results.pop(number)
        if error is not None:
            raise error

    def close(self) -> None:
        """Do what waits and end."""
        self._stream.synchronize()
        self._stream.close()

    def _run(self, number: int, task: Callable[[], None]) -> None:
        error: BaseException | None = None
        try:
            task()
        except Exception as raised:
            error = raised
        with self._changed:
            self._results[number] = error
            self._waiting.discard(number)
            self._changed.notify_all()


CHANNELS: Channels[VpcChannel] = Channels("VPC")


@status("acl.himpi.vpc_create_chn")
def vpc_create_chn(channel: int, attributes: dict[str, Any]) -> None:
    """A channel with a number of the program's."""
    with errors_of("VPC"):
        PROCESS.context()
        CHANNELS.check_free(channel)
        CHANNELS.add(channel, VpcChannel())


@value_and_status("acl.himpi.vpc_sys_create_chn", failed=(-1,), returns="(channel, ret)")
def vpc_sys_create_chn(attributes: dict[str, Any]) -> int:
    """A channel with a number that is free."""
    with errors_of("VPC"):
        number = CHANNELS.free_number()
        CHANNELS.check_free(number)
        CHANNELS.add(number, VpcChannel())
        return number


@status("acl.himpi.vpc_destroy_chn")
def vpc_destroy_chn(channel: int) -> None:
    """End a channel after its tasks."""
    with errors_of("VPC"):
        CHANNELS.remove(channel).close()


@status("acl.himpi.vpc_get_process_result")
def vpc_get_process_result(channel: int, task: int, timeout_ms: int) -> None:
    """Wait for a task for at most `timeout_ms` (-1: for ever); its code."""
    with errors_of("VPC"):
        CHANNELS.get(channel).result(task, timeout_ms)

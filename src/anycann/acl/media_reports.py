"""What video channels report: a program's callback for every frame, run by the thread that the program named."""

from __future__ import annotations

from collections.abc import Callable
import threading
import time
from typing import TypeAlias

from anycann.acl.codes import Code
from anycann.acl.errors import AclError
from anycann.acl.streams import Reporter

PATIENCE_S = 10.0  # how long a channel waits for a thread that takes no report
MOST_WAITING = 128  # frames that were sent and not reported; a channel's send waits then
Report: TypeAlias = Callable[[], None]


class ChannelReports:
    """Counts the frames that a channel was given and those that were reported. Never waits for ever."""

    def __init__(self, owner: int, thread_id: int):
        """Reports go to thread `thread_id`. Raises AclError for a thread that is not there."""
        thread = next((thread for thread in threading.enumerate() if thread.ident == thread_id), None)
        if thread is None:
            raise AclError(Code.INVALID_PARAM, f"thread {thread_id}, which is to take the reports, is not running; start it first")
        self._thread = thread  # numbers of threads that ended are used again
        self._reporter = Reporter(owner, thread_id)
        self._open = 0
        self._changed = threading.Condition()

    def expect(self) -> None:
        """One more report will follow. Waits while too many are open and the thread takes some."""
        with self._changed:
            self._wait(MOST_WAITING)
            self._open += 1

    def report(self, function: Report) -> None:
        """Let the thread run `function`, in order."""

        def run() -> None:
            try:
                function()
            finally:
                self.forget()

        self._reporter.report(run)

    def forget(self) -> None:
        """An expected report will not follow, or was made."""
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    def finish(self) -> bool:
        """Wait until every expected report was made; the thread that reports go to makes them itself. False if it takes no more."""
        if threading.current_thread() is self._thread:
            self._reporter.run_waiting()
        with self._changed:
            return self._wait(1)

    def close(self) -> None:
        """Take the thread's name back; reports that were not made are dropped."""
        self._reporter.close()

    def _wait(self, below: int) -> bool:
        """Until fewer than `below` reports are open, or the thread ended, or it took none for PATIENCE_S."""
        before, since = self._open, time.monotonic()
        if threading.current_thread() is self._thread:
            return self._open < below
        while self._open >= below:
            self._changed.wait(0.05)
            if self._open != before:
                before, since = self._open, time.monotonic()
            elif time.monotonic() - since > PATIENCE_S or not self._thread.is_alive():
                return False
        return True

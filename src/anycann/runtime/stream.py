"""Streams: tasks that run in order on a thread of the stream's own, beside the threads that give them; and events between streams."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import field
import itertools
import os
import threading
import time
from typing import TypeAlias

from anycann.support.records import dataclass

Task: TypeAlias = Callable[[], None]
FAILURES: list[Callable[[Stream, int, int, BaseException], None]] = []  # told of (stream, number of the task in it, who gave it, error)
_numbers, _event_numbers = itertools.count(1), itertools.count(1)


class _Thread(threading.local):
    stream: Stream | None = None  # whose thread this is
    tasks = 0  # given by this thread


_THREAD = _Thread()


def current_stream() -> Stream | None:
    """The stream whose task runs in this thread."""
    return _THREAD.stream


def tasks_given() -> int:
    """How many tasks this thread has given to streams."""
    return _THREAD.tasks


class Stream:
    """Runs tasks one after another, in the order they were given, on a thread that starts with the first. `number` is its own.

    The first error of a task is kept for `synchronize`; later tasks run all the same unless `stop_at_error`. device: the number of the one
    it works for. niceness: by how much its thread steps back behind others where processors are few, as of `nice`; `synchronize` leaves
    such tasks to it.
    """

    def __init__(self, name: str = "stream", stop_at_error: bool = False, device: int = 0, niceness: int = 0):
        self.name, self.number = name, next(_numbers)
        self.device, self._niceness = device, niceness
        self.error: BaseException | None = None
        self.stop_at_error = stop_at_error
        self._waiting: deque[tuple[Task, int]] = deque()  # and the thread that gave it
        self._ended = 0
        self._running = 0
        self._closed = False
        self._helpers = 0  # threads that wait for the stream and run its tasks
        self._called = False  # the stream's thread is awake, or will be
        self._lock = threading.Lock()
        self._work_there, self._all_done = threading.Condition(self._lock), threading.Condition(self._lock)
        self._thread: threading.Thread | None = None

    @property
    def idle(self) -> bool:
        """True if every task given so far has ended."""
        return not self._running and not self._waiting

    def submit(self, task: Task) -> None:
        """Put `task` at the end of the queue. Raises RuntimeError if the stream is closed."""
        with self._lock:
            if self._closed:
                raise RuntimeError(f"{self.name} is closed")
            self._waiting.append((task, threading.get_ident()))
            _THREAD.tasks += 1
            if self._thread is None:
                self._start()
            elif not self._helpers:
                self._call()

    def start(self) -> None:
        """Start the thread now, so that the first task need not wait for it."""
        with self._lock:
            if self._thread is None and not self._closed:
                self._start()

    def _start(self) -> None:
        self._called, self._thread = True, threading.Thread(target=self._work, name=self.name, daemon=True)
        self._thread.start()

    def _call(self) -> None:
        """Wake the stream's thread, once: on a busy machine every thread that wakes may keep the others of the process waiting."""
        if not self._called:
            self._called = True
            self._work_there.notify()

    def synchronize(self, timeout_s: float | None = None) -> bool:
        """Wait until every task given so far has ended; False if that took longer. A task may not wait for its own stream.

        Without a timeout this thread runs what the stream's own has not begun: it is awake, and the other may have to wait for a processor.
        """
        if current_stream() is self:
            raise RuntimeError(f"{self.name} waits for itself")
        if timeout_s is None and not self._niceness:
            self._help()
        with self._lock:
            return self._all_done.wait_for(lambda: self.idle, timeout_s)

    def take_error(self) -> BaseException | None:
        """The first error since it was asked last."""
        with self._lock:
            error, self.error = self.error, None
            return error

    def drop(self) -> None:
        """Forget the tasks that wait; the one that runs goes on."""
        with self._lock:
            self._waiting.clear()
            self._all_done.notify_all()

    def close(self, drop: bool = False) -> None:
        """Take no more tasks, and end the thread after those that wait (`drop`: without them)."""
        with self._lock:
            self._closed = True
            if drop:
                self._waiting.clear()
            self._work_there.notify_all()
            self._all_done.notify_all()

    def _work(self) -> None:
        _THREAD.stream = self
        if self._niceness:
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + self._niceness)
        while True:
            with self._lock:
                while not ((self._waiting and not self._running) or (self._closed and not self._waiting)):
                    self._called = False
                    self._work_there.wait()
                if not self._waiting:
                    return
            self._run_next()

    def _help(self) -> None:
        before, _THREAD.stream = _THREAD.stream, self
        with self._lock:
            self._helpers += 1
        try:
            while self._run_next():
                pass
        finally:
            _THREAD.stream = before
            with self._lock:
                self._helpers -= 1
                if self._waiting and not self._running:  # given since the last look, or left by an interrupt
                    self._call()

    def _run_next(self) -> bool:
        """Run the next task in this thread; False if there is none, or one runs in another thread."""
        with self._lock:
            if self._running or not self._waiting:
                return False
            (task, giver), self._running = self._waiting.popleft(), 1
        self._ended += 1
        try:
            if self.error is None or not self.stop_at_error:
                task()
        except BaseException as error:  # an error of a task is told where the stream is waited for
            if isinstance(error, KeyboardInterrupt) and threading.current_thread() is not self._thread:
                raise  # the user's, to a thread that waits
            self.error = self.error or error
            for tell in FAILURES:
                tell(self, self._ended, giver, error)
        finally:
            with self._lock:
                self._running = 0
                del task
                if not self._waiting:
                    self._all_done.notify_all()
        return True


@dataclass
class Event:
    """A point in a stream: recorded by a task, waited for by other streams and threads. Times are `time.perf_counter_ns()`."""

    recorded: int = 0  # how often a stream was asked to record it
    reached: int = 0  # the last of these that the stream came to
    time_ns: int = 0
    number: int = field(default_factory=lambda: next(_event_numbers))
    _changed: threading.Condition = field(default_factory=threading.Condition, repr=False)

    @property
    def complete(self) -> bool:
        """True if the stream came to the last record, or none was asked for."""
        return self.reached >= self.recorded

    def record(self, stream: Stream) -> None:
        """The event is complete when `stream` has done what it was given up to now."""
        with self._changed:
            self.recorded += 1
            number = self.recorded

        def reach() -> None:
            with self._changed:
                self.time_ns = time.perf_counter_ns()
                self.reached = max(self.reached, number)
                self._changed.notify_all()

        stream.submit(reach)

    def hold_back(self, stream: Stream, timeout_s: float | None = None, late: Callable[[], Exception] = TimeoutError) -> None:
        """Later tasks of `stream` wait for the last record asked for up to now; after `timeout_s` the waiting fails with `late`."""
        number = self.recorded

        def wait() -> None:
            with self._changed:
                if not self._changed.wait_for(lambda: self.reached >= number, timeout_s):
                    raise late()

        stream.submit(wait)

    def synchronize(self, timeout_s: float | None = None) -> bool:
        """Wait for the last record asked for up to now; False if that took longer than `timeout_s`."""
        number = self.recorded
        with self._changed:
            return self._changed.wait_for(lambda: self.reached >= number, timeout_s)

    def reset(self) -> None:
        """Take records back: the event is as new."""
        with self._changed:
            self.recorded = self.reached = self.time_ns = 0
            self._changed.notify_all()

"""Long work that keeps what it has when it is asked to end: SIGTERM and SIGHUP are for it what Ctrl-C is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
import signal
import threading
from types import FrameType

_ENDING = (signal.SIGTERM, signal.SIGHUP)  # of a scheduler, of a terminal that was closed


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """The first SIGTERM or SIGHUP raises KeyboardInterrupt inside; more of them don't disturb what is kept then, as `timeout` sends two.

    A signal that is ignored stays so (nohup), and one that has a handler; outside the main thread nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) == 1:
            raise KeyboardInterrupt

    free = [number for number in _ENDING if signal.getsignal(number) == signal.SIG_DFL]
    for number in free:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in free:
            signal.signal(number, signal.SIG_DFL)


def left_to_the_parent() -> None:
    """A worker takes no notice of what asks its process group to end: its parent decides, and the end of the input is its end."""
    for number in (signal.SIGINT, *_ENDING):
        signal.signal(number, signal.SIG_IGN)

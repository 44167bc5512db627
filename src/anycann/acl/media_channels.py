"""acl.media: what channels of video have in common: a thread that works in order, reports to the program's own, and callbacks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, TypeVar

from anycann.acl.codes import Code
from anycann.acl.entries import status, value
from anycann.acl.errors import AclError
from anycann.acl.media_reports import ChannelReports
from anycann.acl.process import PROCESS
from anycann.runtime.stream import Stream

Callback: TypeAlias = Callable[[int, int, object], object]
W = TypeVar("W", bound="ChannelWork")


class ChannelWork(ABC):
    """What a created channel does, in order, on a thread of its own. Everything it is given is reported once."""

    def __init__(self, name: str, owner: int, thread_id: int):
        """Raises AclError for a thread that is not there."""
        self.reports, self._stream = ChannelReports(owner, thread_id), Stream(name)

    def later(self, task: Callable[[], None]) -> None:
        """Do `task`, which reports once, after what was given before."""
        self.reports.expect()
        self._stream.submit(task)

    def finish(self) -> bool:
        """Do and report everything that was given. False if the program takes no reports."""
        self._stream.submit(self.flush)
        self._stream.synchronize()
        return self.reports.finish()

    def close(self) -> bool:
        """As finish, and end the channel."""
        finished = self.finish()
        self.reports.close()
        self._stream.close()
        return finished

    @abstractmethod
    def flush(self) -> None:
        """Report what was held back."""


class _Described(Protocol):
    callback: Callback | None


def working(work: W | None, create: str) -> W:
    """What a channel does. Raises AclError if it was not created."""
    if work is None:
        raise AclError(Code.INVALID_PARAM, f"the channel is not there; call {create} first")
    return work


def callback_of(channel: _Described, setter: str) -> Callback:
    """What the program set. Raises AclError if it set none."""
    if channel.callback is None:
        raise AclError(Code.INVALID_PARAM, f"the channel has no callback; call {setter} first")
    return channel.callback


def check_reported(done: bool, what: str) -> None:
    """Raises AclError unless every frame was reported. `what`: "decoded"."""
    if not done:
        raise AclError(
            Code.RT_REPORT_TIMEOUT, f"frames were {what}, but the channel's thread takes no reports: it ended, or is stuck in a callback"
        )


def declare_callback(kind: type[Any], module: str, arguments: str) -> None:
    """acl.media.{module}_set_channel_desc_callback and its twin, for descriptions of `kind`."""

    def set_it(desc: int, function: Callable) -> None:  # type: ignore[type-arg]
        PROCESS.handles.get(desc, kind).callback = function

    def get_it(desc: int) -> Any:
        """What was set."""
        return PROCESS.handles.get(desc, kind).callback

    set_it.__doc__ = f"The function that every frame is reported to: function({arguments}, user data)."
    status(f"acl.media.{module}_set_channel_desc_callback")(set_it)
    value(f"acl.media.{module}_get_channel_desc_callback", failed=None, returns="function")(get_it)

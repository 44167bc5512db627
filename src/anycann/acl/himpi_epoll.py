"""acl.himpi: waiting for channels by file descriptors, which select and poll take too."""

from __future__ import annotations

from collections.abc import Mapping
import os
import select
import sys
import threading
from typing import Any

from anycann.acl.codes import Code
from anycann.acl.entries import status, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.process import PROCESS

_ADD, _CHANGE, _REMOVE = 1, 2, 3
_EVENTS = 1 | 2 | 1 << 31  # readable, writable, edge triggered: those of Linux but for the bits
_READABLE = 1


class Readiness:
    """How many results of a channel wait, and a descriptor that is readable while there are enough, made when it is asked for."""

    def __init__(self) -> None:
        self._count, self._enough = 0, 1
        self._told = 0  # bytes in the pipe: as many as results, or none
        self._descriptors: tuple[int, int] | None = None
        self._lock = threading.Lock()

    def descriptor(self) -> int:
        """The descriptor. Closed by `close`."""
        with self._lock:
            if self._descriptors is None:
                self._descriptors, self._told = os.pipe(), 0
                self._tell()
            return self._descriptors[0]

    def wake_with(self, enough: int) -> None:
        """Be readable from so many results on."""
        with self._lock:
            self._enough = enough
            self._tell()

    def add(self) -> None:
        """A result is there."""
        with self._lock:
            self._count += 1
            self._tell()

    def take(self) -> None:
        """One was fetched."""
        with self._lock:
            self._count -= 1
            self._tell()

    def _tell(self) -> None:
        if self._descriptors is None:
            return
        wanted = self._count if self._count >= self._enough else 0
        if wanted > self._told:
            os.write(self._descriptors[1], b"1" * (wanted - self._told))
        elif wanted < self._told:
            os.read(self._descriptors[0], self._told - wanted)
        self._told = wanted

    def close(self) -> None:
        """Give the descriptor back; asked for again, there is another."""
        with self._lock:
            for each in self._descriptors or ():
                os.close(each)
            self._descriptors = None


class _Epoll:
    def __init__(self) -> None:
        if sys.platform != "linux":
            raise AclError(Code.HI_SYS_NOT_SUPPORT, "this system has no epoll; ask channels with a timeout")
        self.poll = select.epoll()
        self.data: dict[int, object] = {}  # what a program gave with a descriptor


_OPEN: dict[int, _Epoll] = {}


def _forget() -> None:
    while _OPEN:
        _OPEN.popitem()[1].poll.close()


PROCESS.ending.append(_forget)


def _epoll(number: int) -> _Epoll:
    if number not in _OPEN:
        raise AclError(Code.HI_SYS_UNEXIST, f"epoll {number} is not there: never created, or closed before")
    return _OPEN[number]


@value_and_status("acl.himpi.sys_create_epoll", returns="(epoll, ret)")
def sys_create_epoll(size: int) -> int:
    """Something that waits for channels. `size` says nothing."""
    made = _Epoll()
    _OPEN[made.poll.fileno()] = made
    return made.poll.fileno()


@status("acl.himpi.sys_ctl_epoll")
def sys_ctl_epoll(epoll: int, operation: int, fd: int, event: object) -> None:
    """1: wait for a channel's descriptor too, with {events, data}; 2: with others; 3: no more."""
    found = _epoll(epoll)
    if operation == _REMOVE:
        _known(found, fd)
        found.poll.unregister(fd)
        del found.data[fd]
        return
    if operation not in (_ADD, _CHANGE):
        raise AclError(Code.HI_SYS_ILLEGAL_PARAM, f"operation {operation}; accepted: 1 (add), 2 (change), 3 (remove)")
    if not isinstance(event, Mapping) or not isinstance(event.get("events"), int):
        raise AclError(Code.HI_SYS_ILLEGAL_PARAM, f"the event is {event!r:.60}; accepted: {{'events': int, 'data': any}}")
    if operation == _CHANGE:
        _known(found, fd)
    elif fd in found.data:
        raise AclError(Code.HI_SYS_EXIST, f"descriptor {fd} is waited for already")
    _register(found, fd, event, operation == _CHANGE)


def _known(found: _Epoll, fd: int) -> None:
    if fd not in found.data:
        raise AclError(Code.HI_SYS_UNEXIST, f"descriptor {fd} is not waited for")


def _register(found: _Epoll, fd: int, event: Mapping[str, Any], again: bool) -> None:
    given = event["events"] & _EVENTS
    mask = (select.EPOLLIN if given & _READABLE else 0) | (select.EPOLLOUT if given & 2 else 0) | (select.EPOLLET if given >> 31 else 0)
    try:
        found.poll.modify(fd, mask) if again else found.poll.register(fd, mask)
    except OSError as error:
        raise AclError(Code.HI_SYS_ILLEGAL_PARAM, f"descriptor {fd} cannot be waited for: {error}") from error
    found.data[fd] = event.get("data", fd)


@value_and_status("acl.himpi.sys_wait_epoll", failed=([], 0), returns="(events, count, ret)")
def sys_wait_epoll(epoll: int, most: int, timeout_ms: int) -> tuple[list[dict[str, object]], int]:
    """Wait for at most `timeout_ms` (-1: for ever, 0: not at all). {events, data} of at most `most` channels that have a result."""
    found = _epoll(epoll)
    if most < 1:
        raise AclError(Code.HI_SYS_ILLEGAL_PARAM, f"at most {most} events; accepted: at least 1")
    ready = found.poll.poll(None if timeout_ms < 0 else timeout_ms / 1000, most)
    events: list[dict[str, object]] = [
        {"events": (_READABLE if mask & select.EPOLLIN else 0) | (2 if mask & select.EPOLLOUT else 0), "data": found.data[fd]}
        for fd, mask in ready
    ]
    return events, len(events)


@status("acl.himpi.sys_close_epoll")
def sys_close_epoll(epoll: int) -> None:
    """Wait no more."""
    _epoll(epoll).poll.close()
    del _OPEN[epoll]

"""How long ranks wait for each other: HCCL_CONNECT_TIMEOUT while they meet, HCCL_EXEC_TIMEOUT in a collective. Both in seconds."""

from __future__ import annotations

from datetime import timedelta

from anycann.support import options

CONNECT_SECONDS = 120
EXECUTE_SECONDS = 1800


def connect_timeout() -> timedelta:
    """How long a rank waits for the others to appear."""
    return timedelta(seconds=options.HCCL_CONNECT_TIMEOUT.get() or CONNECT_SECONDS)


def execute_timeout(asked: timedelta | None = None) -> timedelta:
    """How long a collective may take: what the program `asked` for unless that is the framework's default, then the variable's."""
    if asked is not None and asked != timedelta(seconds=EXECUTE_SECONDS):
        return asked
    return timedelta(seconds=options.HCCL_EXEC_TIMEOUT.get() or EXECUTE_SECONDS)

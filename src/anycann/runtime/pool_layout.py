"""The memory that the threads of a pool share: 320 bytes, by offset, so that what is written often lies apart.

Line 0: what the workers read. Line 1: `DONE`, the shares that are done, and whether the caller sleeps on it. Line 2: the lock of the caller
that has the pool. Line 3: the ticket, epoch and next share. Line 4: sleeping workers.
"""

from __future__ import annotations

import enum

POOL_BYTES = 320


class Field(enum.IntEnum):
    """Offsets in bytes. FN to STRIDE and TICKET have 8 bytes, the others 4."""

    EPOCH = 0
    STOP = 4
    THREADS = 8
    SPIN = 12
    FN = 16
    ARGS = 24
    TASKS = 32
    SCRATCH = 40
    STRIDE = 48
    DONE = 64
    CALLER_SLEEPS = 68
    TICKET = 192
    LOCK = 128
    SLEEPERS = 256

"""The memory that the threads of a pool share, by offset, so that what is written often lies apart.

Line 0: what the workers read. Line 1: `DONE`, the units that are done, and whether the caller sleeps on it. Line 2: the lock of the caller
that has the pool, and `READY`: its workers are started, and it is not closed; when the spell of rows that let workers sleep began, and
when its last row did, in ns. Line 3: sleeping workers, and the processor that the caller is on. From line 4 on, one line for each thread:
its range of units (`row_units.py`).
"""

from __future__ import annotations

import enum

LINE_BYTES = 64


def pool_bytes(threads: int) -> int:
    """Bytes for a pool of so many threads."""
    return Field.RANGES + threads * LINE_BYTES


class Field(enum.IntEnum):
    """Offsets in bytes. FN to STRIDE, SPELL_BEGAN, SPELL_SEEN and RANGES have 8 bytes, the others 4."""

    EPOCH = 0
    STOP = 4
    THREADS = 8
    SPIN = 12
    FN = 16
    ARGS = 24
    TASKS = 32
    SCRATCH = 40
    STRIDE = 48
    UNITS = 56
    RESUMES = 60
    DONE = 64
    CALLER_SLEEPS = 68
    LOCK = 128
    READY = 132
    SPELL_BEGAN = 136
    SPELL_SEEN = 144
    SLEEPERS = 192
    CALLER_PROCESSOR = 196
    RANGES = 256

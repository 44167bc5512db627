"""A generated kernel: its text and what a caller must know to launch it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kernel:
    """`symbol(args, begin, end, scratch)` with `args` in the order of `arguments` (names of tensors: inputs, then outputs).

    tasks: extent of the parallel range. scratch_bytes: memory each thread needs. flops: arithmetic of one launch.
    """

    symbol: str
    ir: str
    arguments: tuple[str, ...]
    tasks: int
    scratch_bytes: int = 0
    flops: int = 0

"""Runs of bytes of known length, moved with the widest loads and stores there are."""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value

WIDEST_BYTES = 64


def emit_copy(e: Emitter, source: Value, to: Value, nbytes: int) -> None:
    """`nbytes` bytes from `source` to `to`, which do not overlap; neither needs to be aligned."""
    whole = nbytes // WIDEST_BYTES
    if whole:
        with e.loop(0, whole) as piece:
            _move(e, source, to, e.mul(piece.index, WIDEST_BYTES), WIDEST_BYTES)
    at, size = whole * WIDEST_BYTES, WIDEST_BYTES // 2
    while size:
        if nbytes - at >= size:
            _move(e, source, to, e.const(at), size)
            at += size
        else:
            size //= 2


def _move(e: Emitter, source: Value, to: Value, at: Value, size: int) -> None:
    type_ = f"<{size} x i8>" if size > 1 else "i8"
    e.store(e.load(e.gep(source, at, "i8"), type_, 1), e.gep(to, at, "i8"), 1)

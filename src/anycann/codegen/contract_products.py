"""What kernels of products hand their results to: the tail of the product."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.matmul_writer import Fetch, MatmulIndex, Write
from anycann.codegen.nest_writer import NestWriter
from anycann.codegen.tail import Tail
from anycann.codegen.values import Value

Place: TypeAlias = "Callable[[Emitter, MatmulIndex], Sequence[Value]]"  # where an element of the product lies in the tail's tensor


def of_matrix(e: Emitter, index: MatmulIndex) -> Sequence[Value]:
    """Where it lies in the product."""
    return (*index.batch, index.m, index.n)


def tail_writers(tail: Tail, writer: NestWriter, place: Place = of_matrix) -> tuple[Write, Fetch | None]:
    """What stores a vector of sums, and what asks for the lines that this reads beside them, where any are far."""

    def write(e: Emitter, index: MatmulIndex, sums: Value, mask: Value | None) -> None:
        tail.write(writer, e, place(e, index), sums, mask)

    def fetch(e: Emitter, index: MatmulIndex) -> None:
        tail.fetch(writer, e, place(e, index))

    return write, fetch if tail.far_operands else None

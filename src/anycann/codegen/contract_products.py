"""What kernels of matrix products hand their results to: the tail of the product."""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.matmul_writer import Fetch, MatmulIndex, Write
from anycann.codegen.nest_writer import NestWriter
from anycann.codegen.tail import Tail
from anycann.codegen.values import Value


def tail_writers(tail: Tail, writer: NestWriter) -> tuple[Write, Fetch | None]:
    """What stores a vector of sums, and what asks for the lines that this reads beside them, where any are far."""

    def write(e: Emitter, index: MatmulIndex, sums: Value, mask: Value | None) -> None:
        tail.write(writer, e, (*index.batch, index.m, index.n), sums, mask)

    def fetch(e: Emitter, index: MatmulIndex) -> None:
        tail.fetch(writer, e, (*index.batch, index.m, index.n))

    return write, fetch if tail.far_operands else None

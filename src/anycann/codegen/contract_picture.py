"""Pictures whose settings a kernel reads while it runs: the kernel with its tail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernel import Kernel, RowTasks
from anycann.codegen.kernels.picture import PictureShape, emit_picture
from anycann.codegen.nest_kernel import Output
from anycann.codegen.tail import Generated, Tail, memory_name
from anycann.codegen.values import Value
from anycann.target.target import Target
from anycann.te.contractions import Picture
from anycann.te.tensor import Contraction

_WORK = 16  # operations of an element


def generate_picture(
    anchor: Contraction, operator: Picture, outputs: Sequence[Output], layouts: Mapping[str, str], target: Target
) -> Generated:
    """The kernel of pictures and what joins them; arguments: pictures, table, what the tail reads, outputs. Its tasks are rows."""
    batch, channels, height, width = anchor.shape
    shape = PictureShape(batch, channels, height, width, operator.source.size)
    tail = Tail(anchor, outputs, layouts, target, len(anchor.shape) - 1, split=False)
    e = Emitter()
    source, table = e.argument(0), e.argument(1)
    writer = tail.writer(e, 2)

    def write(index: Sequence[Value], vector: Value, mask: Value | None) -> None:
        tail.write(writer, e, index, vector, mask)

    tasks = emit_picture(e, shape, target.lanes, source, table, write)
    symbol, text = e.finish("picture")
    arguments = (memory_name(operator.source), memory_name(operator.table), *tail.inputs, *(o.name for o in outputs))
    rows = RowTasks(1, height, 1, 0, images=batch)
    return Generated(Kernel(symbol, text, arguments, tasks, shape.scratch_bytes, anchor.size * _WORK, rows))

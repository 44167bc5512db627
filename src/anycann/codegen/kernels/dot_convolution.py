"""Convolutions and matrix products of bytes and bfloat16 by dot products: each output pixel a row, its window in pieces that lie together.

The input is [N, *spatial, C] (`te/layout.py`: NHWC), so that the channels of neighbouring taps are one run of memory: the innermost loop is
that of a matrix product, with a row of A for each pixel and the weights in panels. Where there is padding, a task first copies the rows it
reads, padding and all. A 1x1 convolution with stride 1 and a matrix product with known weights are the same thing, and read in place.

A panel of weights reads the channels of all groups that its output channels belong to, and multiplies those of other groups by zero: so
matrix tiles are full with groups of 4 channels too. What is not a number in one of these groups is so in the results of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution_write import digits
from anycann.codegen.kernels.dot_direct_sums import DirectSums
from anycann.codegen.kernels.dot_kernel import DotKernel, DotTask, DotWrite, Run, WaitingSums
from anycann.codegen.kernels.dot_shape import DotPlan
from anycann.codegen.kernels.dot_sorted_sums import SortedSums
from anycann.codegen.kernels.dot_sums import TileSums, VectorSums
from anycann.codegen.resuming import resumed
from anycann.codegen.values import Value


def emit_dot_convolution(
    e: Emitter, plan: DotPlan, x: Value, weights: Value, write: DotWrite, zero_point: Value | int | None = None, joined: int = 1
) -> int:
    """Write the tasks e.begin..e.end at the current end of `e`, in its entry block; returns how many there are.

    weights: `pack_dots`. zero_point: of integers, counted from the least byte: the number that the weights were packed with, or an i32
    where they were packed with None. write: consumes a vector of finished sums, of int32 or float32; of `joined` neighbours at once where
    there are whole ones.
    """
    shape = plan.shape
    if 0 in (shape.batch, *shape.out_size):
        return 0
    zero = e.const(zero_point or 0, "i32") if not isinstance(zero_point, Value) else zero_point
    scaled = isinstance(zero_point, Value)
    from_head = plan.head > 0 and not (plan.uses_tiles or scaled)
    vectors = SortedSums if plan.sorts else DirectSums if plan.direct else VectorSums
    goes_on = resumed(e) if plan.resumes else None
    given = (plan, x, weights, write, zero, scaled, plan.head > 0 and not from_head, joined)
    tiles = TileSums(plan) if plan.uses_tiles else None
    kernel = _Overlapped(tiles, *given) if tiles is not None else _InTurn(vectors(plan, from_head), *given)
    if tiles is not None:
        tiles.begin(e)
    with e.loop(e.begin, e.end) as task:
        image, chunk, panels = digits(e, task.index, [plan.images, plan.row_chunks, plan.panel_chunks])
        ready = None
        if goes_on is not None:  # what a thread copied is there for all panels
            again = e.binary("or", goes_on, e.compare("ne", task.index, e.begin))
            ready = e.binary("and", again, e.compare("ne", panels, e.const(0)))
        kernel.task(e, image, chunk, panels, ready)
    if tiles is not None:
        tiles.end(e)
    return plan.tasks


class _InTurn(DotKernel):
    """Register tiles whose sums are handed on before the next one is computed."""

    def __init__(self, sums: VectorSums, *given: Any):
        super().__init__(*given)
        self.sums = sums

    def panels(self, e: Emitter, task: DotTask, first: Value, stop: Value, columns: int) -> None:
        with e.loop(first, stop) as panel:

            def tile(e: Emitter, run: Run, _: Sequence[Value]) -> list[Value]:
                self._tile(e, task, columns, panel.index, run)
                return []

            self.lines(e, task.rows, [], tile)

    def _tile(self, e: Emitter, task: DotTask, columns: int, panel: Value, run: Run) -> None:
        self.sums.emit(e, run.pixels, -(-columns // self.plan.target.lanes), self.reads(e, task, panel, run))
        self.hand_on(e, task, columns, WaitingSums(panel, run.line, run.start, e.scratch), run.first, run.stop)


class _Overlapped(DotKernel):
    """Matrix tiles: while one register tile is multiplied, the sums of the one before it are handed on, some with each step.

    A step leaves the vector units idle, and sums come late: who waits for them waits for all products.
    """

    def __init__(self, tiles: TileSums, *given: Any):
        super().__init__(*given)
        self.tiles = tiles

    def panels(self, e: Emitter, task: DotTask, first: Value, stop: Value, columns: int) -> None:
        nothing = [e.const(0)] * 6
        with e.loop(first, stop, carried=nothing) as panel:

            def tile(e: Emitter, run: Run, before: Sequence[Value]) -> list[Value]:
                return self._tile(e, task, columns, panel.index, run, before)

            panel.carry(self.lines(e, task.rows, panel.values, tile))
        *last, low, high = panel.values
        self.hand_on(e, task, columns, self._waiting(e, last), low, high)

    def _waiting(self, e: Emitter, values: Sequence[Value]) -> WaitingSums:
        panel, line, start, offset = values
        return WaitingSums(panel, line, start, e.gep(e.scratch, offset, "i8"))

    def _tile(self, e: Emitter, task: DotTask, columns: int, panel: Value, run: Run, before: Sequence[Value]) -> list[Value]:
        """before, and what this returns: panel, line, start and offset in scratch of the sums that wait, and which pixels of them."""
        plan, vectors = self.plan, -(-columns // self.plan.target.lanes)
        *last, low, high = before
        waiting, offset = self._waiting(e, last), e.sub(e.const(plan.tile_bytes), last[-1])

        def meanwhile(e: Emitter, step: Value, steps: int) -> None:
            share = -(-plan.tile.pixels // steps)
            first = e.add(low, e.mul(step, share))
            self.hand_on(e, task, columns, waiting, first, e.smin(e.add(first, share), high))

        self.tiles.emit(e, vectors, self.reads(e, task, panel, run), e.gep(e.scratch, offset, "i8"), meanwhile)
        return [panel, run.line, run.start, offset, run.first, run.stop]

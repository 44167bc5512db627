"""Products of rounded rows (`rounded_rows.py`) with weights of 4 or 8 bits: dot products of bytes, and floats once a block.

A panel of weights is [block]: the scales of its columns, then its groups of four neighbours of k, [group][vector][column][4], as unsigned
bytes; of 4 bits two groups share bytes, the first in the low halves. Each task rounds the rows that it multiplies, unless the thread's last
one did.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.byte_product_quads import QUAD, multiplies_quads
from anycann.codegen.kernels.convolution_write import digits
from anycann.codegen.kernels.dot_products import DotProducts
from anycann.codegen.kernels.matmul_kernel import Heights, even_heights
from anycann.codegen.kernels.matmul_shape import MatmulShape, Operand, multiply_add
from anycann.codegen.kernels.matmul_writer import MatmulIndex, Write, batch_index, offset, write_rows
from anycann.codegen.kernels.rounded_rows import block_bytes, emit_rounded_row, scale_at, start_at
from anycann.codegen.resuming import resumed
from anycann.codegen.values import Value, vector_type
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te import dtypes

_FLOAT_BYTES, _LINE_BYTES = 4, 64
_WRITTEN_OUT = 8  # steps of a block, at most, that are no loop
# A task is worth so many products; so many tasks are enough for threads to share.
_TASK_PRODUCTS, _MOST_TASKS = 1_000_000, 32


@dataclass(frozen=True)
class RoundedProduct:
    """A product whose B has a scale for each column and `shape.scale_rows` rows. halves: its integers are -8 to 7, two to a byte."""

    shape: MatmulShape
    target: Target
    halves: bool

    @property
    def lanes(self) -> int:
        return self.target.lanes

    @property
    def block(self) -> int:
        return self.shape.scale_rows

    @property
    def blocks(self) -> int:
        return -(-self.shape.k // self.block)

    @property
    def offset(self) -> int:
        """What is added to a weight, so that it is not negative."""
        return 8 if self.halves else 128

    @property
    def vectors(self) -> int:
        """Vectors of a panel: one row waits for each of its sums, of several rows the more are added up beside fewer weights."""
        return min(4 if self.shape.m == 1 else 2, -(-self.shape.n // self.lanes))

    @property
    def width(self) -> int:
        return self.vectors * self.lanes

    @property
    def panels(self) -> int:
        return -(-self.shape.n // self.width)

    @property
    def steps(self) -> int:
        """Vectors of bytes along k in a block."""
        return self.block // (2 * QUAD if self.halves else QUAD)

    @property
    def panel_block_bytes(self) -> int:
        """From one block of a panel to the next."""
        return self.width * (_FLOAT_BYTES + self.steps * QUAD)

    @property
    def most_rows(self) -> int:
        """Rows of a register tile: sums of integers and of floats, beside the weights of a step and what takes halves apart."""
        registers = self.target.registers - self.vectors * (2 if self.halves else 1) - 2
        return max(1, registers // (2 * self.vectors))

    @property
    def row_bytes(self) -> int:
        return self.blocks * block_bytes(self.block)

    @cached_property
    def chunks(self) -> Heights:
        """How the rows are cut for tasks: what is rounded stays in half of the second-level cache."""
        most = max(self.most_rows, self.target.l2_bytes // 2 // max(1, self.row_bytes))
        return even_heights(max(1, self.shape.m), most)

    @property
    def task_panels(self) -> int:
        products = self.shape.batches * self.shape.m * self.shape.n * self.shape.k
        wanted = max(1, min(_MOST_TASKS, products // _TASK_PRODUCTS))
        return -(-self.panels // min(self.panels, -(-wanted // (self.shape.batches * self.chunks.count))))

    @property
    def parts(self) -> int:
        """Tasks along n."""
        return -(-self.panels // self.task_panels)

    @property
    def rows_offset(self) -> int:
        """Where the rounded rows begin in scratch: behind the sums of a register tile."""
        return -(-self.most_rows * self.width * _FLOAT_BYTES // _LINE_BYTES) * _LINE_BYTES

    @property
    def scratch_bytes(self) -> int:
        return self.rows_offset + self.chunks.most * self.row_bytes

    @property
    def tasks(self) -> int:
        return self.shape.batches * self.chunks.count * self.parts


def may_round(shape: MatmulShape, target: Target) -> bool:
    """True if a product with scaled weights can be computed so: there is an instruction, and blocks are whole vectors and steps."""
    fits = shape.scale_rows % max(target.lanes, 2 * QUAD) == 0 and shape.a.column == 1 and shape.b_dtype is dtypes.int8
    return multiplies_quads(target) and target.is_x86 and fits and not any(shape.b.batch)


def pack_rounded(plan: RoundedProduct, weights: npt.NDArray[np.int8], scales: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Weights [K, N] and scales [blocks, N] as the kernel reads them, [panel][block][bytes]."""
    depth, columns = plan.blocks * plan.block, plan.panels * plan.width
    padded = np.full((depth, columns), plan.offset, np.uint8)
    padded[: weights.shape[0], : weights.shape[1]] = (weights.astype(np.int16) + plan.offset).astype(np.uint8)
    groups = padded.reshape(plan.blocks, plan.block // QUAD, QUAD, plan.panels, plan.width).transpose(3, 0, 1, 4, 2)
    if plan.halves:
        groups = np.bitwise_or(groups[:, :, 0::2], groups[:, :, 1::2] << np.uint8(4))
    factors = np.zeros((plan.blocks, columns), np.float32)
    factors[:, : scales.shape[1]] = scales
    heads = np.ascontiguousarray(factors.reshape(plan.blocks, plan.panels, plan.width).swapaxes(0, 1)).view(np.uint8)
    return np.concatenate([heads, groups.reshape(plan.panels, plan.blocks, -1)], axis=2)


def emit_rounded_product(e: Emitter, plan: RoundedProduct, a: Value, panels: Value, write: Write) -> int:
    """Write the loop over the tasks e.begin..e.end; returns how many there are, 0 if there is nothing to write."""
    shape = plan.shape
    if 0 in (shape.batches, shape.m, shape.n):
        return 0
    goes_on = resumed(e)
    rounded = e.gep(e.scratch, plan.rows_offset, "i8")
    with e.loop(e.begin, e.end) as task:
        outer, chunk, part = digits(e, task.index, [shape.batches, plan.chunks.count, plan.parts])
        batch = batch_index(e, outer, shape.batch)
        m, m_end = (plan.chunks.start(e, each) for each in (chunk, e.add(chunk, 1)))
        is_there = e.select(e.compare("eq", task.index, e.begin), goes_on, e.const(1, "i1"))
        is_first = e.compare("eq", part, e.const(0))
        with e.when(e.binary("or", is_first, e.binary("xor", is_there, e.const(1, "i1")))):
            _round_rows(e, plan, e.gep(a, offset(e, batch, shape.a.batch), shape.a_dtype.storage), m, m_end, rounded)
        first = e.mul(part, plan.task_panels)
        with e.loop(first, e.smin(e.add(first, plan.task_panels), e.const(plan.panels))) as panel:
            weights = e.gep(panels, e.mul(panel.index, plan.blocks * plan.panel_block_bytes), "i8")
            _panel(e, plan, _Part(batch, m, m_end, e.mul(panel.index, plan.width), weights), rounded, write)
    return plan.tasks


@dataclass(frozen=True)
class _Part:
    """What a task computes of a panel: rows `m` to `m_end` of the columns from `n` on, whose weights are at `weights`."""

    batch: tuple[Value, ...]
    m: Value
    m_end: Value
    n: Value
    weights: Value


def _round_rows(e: Emitter, plan: RoundedProduct, a: Value, m: Value, m_end: Value, rounded: Value) -> None:
    shape = plan.shape
    operand = Operand(shape.a_dtype, dtypes.float32)
    with e.loop(m, m_end) as row:
        source = operand.step(e, a, e.mul(row.index, shape.a.row))
        place = e.gep(rounded, e.mul(e.sub(row.index, m), plan.row_bytes), "i8")
        emit_rounded_row(e, operand, plan.lanes, source, shape.k, plan.block, plan.offset, place)


def _panel(e: Emitter, plan: RoundedProduct, part: _Part, rounded: Value, write: Write) -> None:
    """Register tiles of one height, the last of which begins earlier."""
    rows = min(plan.most_rows, plan.chunks.low)
    with e.loop(part.m, part.m_end, rows) as tile:
        start = e.smin(tile.index, e.sub(part.m_end, rows))
        _sums(e, plan, rows, e.gep(rounded, e.mul(e.sub(start, part.m), plan.row_bytes), "i8"), part.weights)
        _write_rows(e, plan, part, tile.index, e.sub(tile.index, start), rows, write)


def _sums(e: Emitter, plan: RoundedProduct, rows: int, left: Value, weights: Value) -> None:
    """The sums of a register tile into the first bytes of scratch memory, [row][vector]."""
    vectors, type_ = plan.vectors, vector_type("float", plan.lanes)
    with e.loop(0, plan.blocks, carried=[e.zero(type_)] * (rows * vectors)) as block:
        here = e.gep(weights, e.mul(block.index, plan.panel_block_bytes), "i8")
        at = [e.gep(left, e.add(e.mul(block.index, block_bytes(plan.block)), i * plan.row_bytes), "i8") for i in range(rows)]
        sums = _block_sums(e, plan, at, e.gep(here, plan.width, "float"))
        factors = [e.load(e.gep(here, j * plan.lanes, "float"), type_, _FLOAT_BYTES) for j in range(vectors)]
        totals = []
        for i, row in enumerate(at):
            scale = e.splat(e.load(scale_at(e, row, plan.block), "float", 1), plan.lanes)
            for j, factor in enumerate(factors):
                number = i * vectors + j
                value = e.cast("sitofp", sums[number], "float")
                totals.append(multiply_add(e, value, e.binary("fmul", factor, scale), block.values[number]))
        block.carry(totals)
    for number, total in enumerate(block.values):
        e.store(total, e.gep(e.scratch, number * plan.lanes, "float"), _FLOAT_BYTES)


def _block_sums(e: Emitter, plan: RoundedProduct, rows: list[Value], weights: Value) -> list[Value]:
    """The integer sums of one block, [row][vector]. rows: its rounded elements."""
    lanes, vectors, dots = plan.lanes, plan.vectors, DotProducts(dtypes.uint8, plan.target)
    type_ = vector_type("i32", lanes)

    def step(number: Value | int, sums: list[Value]) -> list[Value]:
        at = e.mul(number, vectors * lanes) if isinstance(number, Value) else e.const(number * vectors * lanes)
        raw = [e.load(e.gep(weights, e.add(at, j * lanes), "i32"), type_, QUAD) for j in range(vectors)]
        groups = [_half(e, raw, 0), _half(e, raw, QUAD)] if plan.halves else [raw]
        first = e.mul(number, len(groups) * QUAD) if isinstance(number, Value) else e.const(number * len(groups) * QUAD)
        for position, group in enumerate(groups):
            found = list[Value]()
            for i, row in enumerate(rows):
                four = e.splat(e.load(e.gep(row, e.add(first, position * QUAD), "i8"), "i32", 1), lanes)
                found += [dots.add(e, sums[i * vectors + j], [each], [four]) for j, each in enumerate(group)]
            sums = found
        return sums

    sums = [e.splat(e.load(start_at(e, row, plan.block), "i32", 1), lanes) for row in rows for _ in range(vectors)]
    if plan.steps <= _WRITTEN_OUT:
        for number in range(plan.steps):
            sums = step(number, sums)
        return sums
    with e.loop(0, plan.steps, carried=sums) as loop:
        loop.carry(step(loop.index, list(loop.values)))
    return list(loop.values)


def _half(e: Emitter, raw: list[Value], shift: int) -> list[Value]:
    """Halves of bytes as bytes."""
    found = list[Value]()
    for each in raw:
        moved = e.binary("lshr", each, e.const(shift, each.type)) if shift else each
        found.append(e.binary("and", moved, e.const(0x0F0F0F0F, each.type)))
    return found


def _write_rows(e: Emitter, plan: RoundedProduct, part: _Part, m: Value, first: Value, rows: int, write: Write) -> None:
    """Hand on the sums of a register tile, from its row `first` on; that is row `m` of the matrix. The last panel may be a short one."""
    sums, place = vector_type("float", plan.lanes), MatmulIndex(part.batch, m, part.n)
    last = (plan.panels - 1) * plan.width
    short = plan.shape.n - last
    if short == plan.width:
        write_rows(e, sums, plan.width, short, (first, rows), place, write)
        return
    for columns, predicate in ((plan.width, "slt"), (short, "sge")):
        with e.when(e.compare(predicate, part.n, e.const(last))):
            write_rows(e, sums, plan.width, columns, (first, rows), place, write)

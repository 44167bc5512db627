"""Products of two matrices of bytes that are both computed, as those of attention: exact for all bytes and zero points.

A task copies its rows of A, and B a panel after the other, as they are multiplied: bytes in fours along k where one instruction multiplies
and adds them (`byte_product_quads.py`), else 16-bit words in pairs (`byte_product_words.py`). Either is a group of four bytes.
"""

from __future__ import annotations

from functools import cached_property

from anycann.codegen.emitter import Emitter
from anycann.codegen.halves import even_count
from anycann.codegen.kernels.byte_product_quads import QUAD, emit_quad_panel, emit_quad_rows, multiplies_quads
from anycann.codegen.kernels.byte_product_words import PAIR, Bytes, emit_word_panel, emit_word_rows
from anycann.codegen.kernels.convolution_write import digits
from anycann.codegen.kernels.dot_products import GROUP_BYTES, DotProducts, add_word_pairs
from anycann.codegen.kernels.matmul_kernel import Heights, even_heights
from anycann.codegen.kernels.matmul_shape import MatmulShape
from anycann.codegen.kernels.matmul_writer import MatmulIndex, Write, batch_index, offset, write_rows
from anycann.codegen.values import Value, vector_type
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te import dtypes

_SUM_BYTES, _LINE_BYTES = 4, 64
# Vectors of a register tile along n at most. With 16 registers each row reads the vectors of B again, as operands in memory: pairs of A
# then are fewer, and 3 x 4 sums take 0.92 and 0.96 of the time of 6 x 2 with B in registers (32 and 99 pairs, within the caches, Zen 3).
# 32 registers hold 6 x 4 sums beside four vectors of B: 24 products take 12 cycles for 17, which 30 loads took (LLVM's model of a Xeon).
_MOST_VECTORS, _STEPS = 4, 2
# A task is worth so many products, and so many rows repay a copy of a panel of their own; so many tasks are enough for threads to share.
_TASK_PRODUCTS, _LEAST_ROWS, _MOST_TASKS = 500_000, 48, 16


@dataclass(frozen=True)
class ByteProduct:
    """A product of row-major bytes, and everything that follows from it."""

    shape: MatmulShape
    target: Target

    @property
    def lanes(self) -> int:
        return self.target.lanes

    @property
    def by_quads(self) -> bool:
        """True if four bytes are multiplied at once, and not two words."""
        return multiplies_quads(self.target)

    @property
    def sums(self) -> int:
        """Vectors of sums of a register tile at most."""
        return 24 if self.keeps_columns else 12

    @property
    def keeps_columns(self) -> bool:
        """True if vectors of B stay in registers beside the sums. ARM takes each apart, for more than its 32 registers hold."""
        return self.target.is_x86 and not self.target.has_few_registers

    @cached_property
    def panels(self) -> Heights:
        """How the vectors along n are cut into panels."""
        return even_heights(-(-self.shape.n // self.lanes), _MOST_VECTORS)

    @property
    def width(self) -> int:
        """Columns of the widest panel."""
        return self.panels.most * self.lanes

    @cached_property
    def chunks(self) -> Heights:
        """How the rows are cut for tasks: their copies stay in a quarter of the second-level cache."""
        m = max(1, self.shape.m)
        most = max(self.sums, self.target.l2_bytes // 4 // max(1, self.row_groups * GROUP_BYTES))
        parts = max(-(-m // most), min(self._wanted, m // _LEAST_ROWS), 1)
        return even_heights(m, -(-m // even_count(parts)))

    def rows(self, vectors: int) -> int:
        """Rows of a register tile of so many vectors."""
        return min(self.sums // vectors, self.chunks.low)

    @property
    def groups(self) -> int:
        """Groups along k."""
        return -(-self.shape.k // (QUAD if self.by_quads else PAIR))

    @property
    def row_groups(self) -> int:
        """Groups from one copied row of A to the next: whole vectors of fours, and one for what its sums start from."""
        return -(-self.groups // self.lanes) * self.lanes + 1 if self.by_quads else self.groups

    @property
    def head_rows(self) -> int:
        """Rows of a panel in front of its groups: what the sums of its columns start from."""
        return 1 if self.by_quads else 0

    @property
    def parts(self) -> int:
        """Tasks along n."""
        return -(-self.panels.count // self.task_panels)

    @property
    def task_panels(self) -> int:
        return -(-self.panels.count // min(self.panels.count, max(1, self._wanted // self.chunks.count)))

    @property
    def _wanted(self) -> int:
        """Tasks of one matrix."""
        products = self.shape.batches * self.shape.m * self.shape.n * self.shape.k
        return max(1, min(_MOST_TASKS, products // _TASK_PRODUCTS) // max(1, self.shape.batches))

    @property
    def panel_offset(self) -> int:
        """Where the panel of B begins in scratch: behind the sums of a register tile."""
        return self.sums * self.lanes * _SUM_BYTES

    @property
    def rows_offset(self) -> int:
        """Where the rows of A begin in scratch."""
        return self.panel_offset + -(-(self.head_rows + self.groups) * self.width * GROUP_BYTES // _LINE_BYTES) * _LINE_BYTES

    @property
    def scratch_bytes(self) -> int:
        return self.rows_offset + self.chunks.most * self.row_groups * GROUP_BYTES

    @property
    def tasks(self) -> int:
        return self.shape.batches * self.chunks.count * self.parts


def emit_byte_product(e: Emitter, plan: ByteProduct, a: Value, b: Value, zero_a: Value, zero_b: Value, write: Write) -> int:
    """Write the loop over the tasks e.begin..e.end; returns how many there are, 0 if there is nothing to write.

    zero_a, zero_b: i8, of the types of A and B. write: as that of `emit_matmul`, with int32 sums.
    """
    shape, panels = plan.shape, plan.panels
    if 0 in (shape.batches, shape.m, shape.n):
        return 0
    with e.loop(e.begin, e.end) as task:
        outer, chunk, part = digits(e, task.index, [shape.batches, plan.chunks.count, plan.parts])
        batch = batch_index(e, outer, shape.batch)
        left = Bytes(e.gep(a, offset(e, batch, shape.a.batch), "i8"), shape.a_dtype, shape.a.row, zero_a)
        right = Bytes(e.gep(b, offset(e, batch, shape.b.batch), "i8"), shape.b_dtype, shape.b.row, zero_b)
        m, m_end = (plan.chunks.start(e, each) for each in (chunk, e.add(chunk, 1)))
        copied = e.gep(e.scratch, plan.rows_offset, "i8")
        if plan.by_quads:
            emit_quad_rows(e, plan.target, left, right, m, m_end, shape.k, plan.row_groups, copied)
        else:
            emit_word_rows(e, left, m, m_end, shape.k, plan.row_groups * PAIR, copied)
        first = e.mul(part, plan.task_panels)
        stop = e.smin(e.add(first, plan.task_panels), e.const(panels.count))
        short = 1 if shape.n % plan.lanes else 0
        last = shape.n - (-(-shape.n // plan.lanes) - panels.low) * plan.lanes
        low, high = panels.talls, panels.count - short
        for columns, begin, end in ((panels.tall * plan.lanes, 0, low), (panels.low * plan.lanes, low, high), (last, high, high + short)):
            if begin == end:
                continue
            with e.loop(e.smax(first, e.const(begin)), e.smin(stop, e.const(end))) as panel:
                _panel(e, plan, left, right, _Part(batch, m, m_end, e.mul(panels.start(e, panel.index), plan.lanes), columns), write)
    return plan.tasks


@dataclass(frozen=True)
class _Part:
    """What a task computes of a panel: rows `m` to `m_end`, `columns` columns from `n` on."""

    batch: tuple[Value, ...]
    m: Value
    m_end: Value
    n: Value
    columns: int


def _panel(e: Emitter, plan: ByteProduct, a: Bytes, b: Bytes, part: _Part, write: Write) -> None:
    """Register tiles of one height, the last of which begins earlier."""
    panel, copied = e.gep(e.scratch, plan.panel_offset, "i8"), e.gep(e.scratch, plan.rows_offset, "i8")
    vectors = -(-part.columns // plan.lanes)
    rows = plan.rows(vectors)
    if plan.by_quads:
        emit_quad_panel(e, plan.target, a, b, plan.shape.k, plan.shape.n, part.n, part.columns, panel)
    else:
        emit_word_panel(e, b, plan.shape.k, plan.shape.n, part.n, part.columns, plan.lanes, panel)
    with e.loop(part.m, part.m_end, rows) as tile:
        start = e.smin(tile.index, e.sub(part.m_end, rows))
        _sums(e, plan, rows, vectors, e.gep(copied, e.mul(e.sub(start, part.m), plan.row_groups), "i32"), panel)
        place = MatmulIndex(part.batch, tile.index, part.n)
        sums = vector_type("i32", plan.lanes)
        write_rows(e, sums, vectors * plan.lanes, part.columns, (e.sub(tile.index, start), rows), place, write)


def _sums(e: Emitter, plan: ByteProduct, rows: int, vectors: int, left: Value, panel: Value) -> None:
    """The sums of a register tile into the first bytes of scratch memory, [row][vector]."""
    lanes, type_ = plan.lanes, vector_type("i32", plan.lanes)
    body = e.gep(panel, plan.head_rows * vectors * lanes, "i32")
    apart = vectors > 2 and not plan.keeps_columns  # few are kept in registers

    def added(k: Value, totals: list[Value]) -> list[Value]:
        row, column = e.gep(body, e.mul(k, vectors * lanes), "i32"), e.gep(left, k, "i32")

        def columns() -> list[Value]:
            return [e.load(e.gep(row, j * lanes, "i32"), type_, _SUM_BYTES) for j in range(vectors)]

        kept, found = [] if apart else columns(), list[Value]()
        for i in range(rows):
            if apart:
                e.keep_order()
            group = e.splat(e.load(e.gep(column, i * plan.row_groups, "i32"), "i32", 1), lanes)
            found += [_added(e, plan, totals[i * vectors + j], group, second) for j, second in enumerate(kept or columns())]
        return found

    steps = _STEPS if apart else 1
    rest = plan.groups % steps
    with e.loop(0, plan.groups - rest, steps, carried=_starts(e, plan, rows, vectors, left, panel)) as loop:
        totals = loop.values
        for step in range(steps):
            totals = added(e.add(loop.index, step), totals)
        loop.carry(totals)
    totals = loop.values
    for step in range(rest):
        totals = added(e.const(plan.groups - rest + step), totals)
    for number, total in enumerate(totals):
        e.store(total, e.gep(e.scratch, number * lanes, "i32"), _SUM_BYTES)


def _starts(e: Emitter, plan: ByteProduct, rows: int, vectors: int, left: Value, panel: Value) -> list[Value]:
    """What the sums of a register tile start from: nothing, or what zero points add to its rows and its columns."""
    type_ = vector_type("i32", plan.lanes)
    if not plan.by_quads:
        return [e.zero(type_)] * (rows * vectors)
    columns = [e.load(e.gep(panel, j * plan.lanes, "i32"), type_, _SUM_BYTES) for j in range(vectors)]
    ends = [e.gep(left, (i + 1) * plan.row_groups - 1, "i32") for i in range(rows)]
    return [e.binary("add", each, e.splat(e.load(end, "i32", 1), plan.lanes)) for end in ends for each in columns]


def _added(e: Emitter, plan: ByteProduct, total: Value, a: Value, b: Value) -> Value:
    """total + the products of the groups in each lane of a and b."""
    if plan.by_quads:
        return DotProducts(dtypes.uint8, plan.target).add(e, total, [a], [b])
    if plan.target.is_x86:
        return add_word_pairs(e, plan.target, total, a, b)
    half = e.const(16, total.type)
    for upper in (True, False):
        low, high = (each if upper else e.binary("shl", each, half) for each in (a, b))
        total = e.binary("add", total, e.binary("mul", e.binary("ashr", low, half), e.binary("ashr", high, half)))
    return total

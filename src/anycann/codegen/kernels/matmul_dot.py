"""Matrix products whose lanes run along k: one column, or few rows times a transposed matrix. Nothing is packed or copied.

A group is as many results as a register has lanes. It is computed four streams at a time (many at once defeat the prefetchers), each a sum
of vectors; a tree of shuffles then adds the lanes of every sum, which leaves the group's results in the lanes of one register.
"""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.matmul_kernel import PanelKernel
from anycann.codegen.kernels.matmul_shape import Operand, addition, multiply_add
from anycann.codegen.kernels.matmul_writer import MatmulIndex, batch_index, offset
from anycann.codegen.values import Value, first_lanes
from anycann.support.records import dataclass

STREAMS = 4


@dataclass(frozen=True)
class _Side:
    """One operand: its `count` rows (of A) or columns (of B) begin at pointer + batch offset + index * stride."""

    operand: Operand
    pointer: Value
    batch: tuple[int, ...]
    stride: int
    count: int

    def start(self, e: Emitter, batch: tuple[Value, ...], index: Value) -> Value:
        """Where number `index` begins; one beyond the last gives the last, whose result is then not used."""
        inside = e.smin(index, e.const(self.count - 1))
        return self.operand.step(e, self.pointer, e.add(offset(e, batch, self.batch), e.mul(inside, self.stride)))


@dataclass(frozen=True)
class _Dots:
    """`many`: the side whose indices are the lanes of the results; `one`: the other, `kernel.tile.rows` of them at a time."""

    kernel: PanelKernel
    many: _Side
    one: _Side

    @property
    def streams(self) -> int:
        return min(STREAMS, self.kernel.lanes)


def dot_scratch(lanes: int, rows: int, nbytes: int) -> int:
    """Bytes of scratch: a partly added vector of each four streams and row, or one group of a single column."""
    return max(1, lanes // STREAMS) * rows * lanes * nbytes


def emit_dots(e: Emitter, kernel: PanelKernel) -> int:
    """The loop over tasks. Returns their number: batches x parts of the groups."""
    shape = kernel.shape
    groups = -(-_dots(kernel).many.count // kernel.lanes)
    parts = -(-groups // kernel.tile.row_blocks)
    with e.loop(e.begin, e.end) as task:
        batch = batch_index(e, e.udiv(task.index, parts), shape.batch)
        first = e.mul(e.urem(task.index, parts), kernel.tile.row_blocks)
        emit_groups(e, kernel, batch, first, e.smin(e.add(first, kernel.tile.row_blocks), e.const(groups)))
    return shape.batches * parts


def emit_groups(e: Emitter, kernel: PanelKernel, batch: tuple[Value, ...], first: Value, last: Value) -> None:
    """The results of groups `first` to `last` of one product."""
    dots = _dots(kernel)
    with e.loop(first, last) as group, e.loop(0, dots.one.count, kernel.tile.rows) as row:
        _emit_group(e, dots, batch, e.mul(group.index, kernel.lanes), row.index)


def _dots(kernel: PanelKernel) -> _Dots:
    shape = kernel.shape
    a = _Side(kernel.left, kernel.a, shape.a.batch, shape.a.row, shape.m)
    b = _Side(Operand(shape.b_dtype, shape.accumulator), kernel.b, shape.b.batch, shape.b.column, shape.n)
    return _Dots(kernel, a, b) if shape.n == 1 else _Dots(kernel, b, a)


def _emit_group(e: Emitter, dots: _Dots, batch: tuple[Value, ...], first: Value, row: Value) -> None:
    """One group of results for a few rows of the other side: four streams after the other into scratch, then to the writer."""
    kernel, parts = dots.kernel, dots.kernel.lanes // dots.streams
    register, nbytes = kernel.shape.accumulator.register, kernel.shape.accumulator.nbytes
    others = [dots.one.start(e, batch, e.add(row, i)) for i in range(kernel.tile.rows)]
    with e.loop(0, parts) as part:
        begin = e.add(first, e.mul(part.index, dots.streams))
        starts = [dots.many.start(e, batch, e.add(begin, i)) for i in range(dots.streams)]
        for number, sums in enumerate(_sums(e, dots, starts, others)):
            place = e.gep(e.scratch, e.mul(e.add(part.index, number * parts), kernel.lanes), register)
            e.store(add_across(e, sums, 1)[0], place, nbytes)
    with e.loop(0, e.smin(e.const(kernel.tile.rows), e.sub(e.const(dots.one.count), row))) as i:
        at = e.gep(e.scratch, e.mul(i.index, parts * kernel.lanes), register)
        vectors = [e.load(e.gep(at, j * kernel.lanes, register), kernel.vector, nbytes) for j in range(parts)]
        total = add_across(e, vectors, dots.streams)[0]
        if kernel.shape.n == 1:
            _write_column(e, kernel, batch, first, total)
        else:
            _write_row(e, kernel, batch, e.add(row, i.index), first, total)


def _sums(e: Emitter, dots: _Dots, starts: list[Value], others: list[Value]) -> list[list[Value]]:
    """For each of `others`, the products with every stream, summed but for their lanes."""
    kernel, k = dots.kernel, dots.kernel.shape.k
    lanes, unroll = kernel.lanes, kernel.tile.vectors
    sums = [e.zero(kernel.vector)] * (len(starts) * len(others))
    whole = k - k % (lanes * unroll) if unroll > 1 else 0
    if whole:
        with e.loop(0, whole, lanes * unroll, carried=sums * unroll) as loop:
            blocks = [loop.values[u * len(sums) : (u + 1) * len(sums)] for u in range(unroll)]
            parts = [_step(e, dots, starts, others, e.add(loop.index, u * lanes), block, None) for u, block in enumerate(blocks)]
            loop.carry([total for part in parts for total in part])
        count = len(sums)
        sums = loop.values[:count]
        for u in range(1, unroll):
            sums = [e.binary(addition(a), a, b) for a, b in zip(sums, loop.values[u * count : (u + 1) * count], strict=True)]
    with e.loop(whole, k - k % lanes, lanes, carried=sums) as loop:
        loop.carry(_step(e, dots, starts, others, loop.index, loop.values, None))
    sums = loop.values
    if k % lanes:
        sums = _step(e, dots, starts, others, e.const(k - k % lanes), sums, first_lanes(k % lanes, lanes))
    return [sums[i * len(starts) : (i + 1) * len(starts)] for i in range(len(others))]


def _step(
    e: Emitter, dots: _Dots, starts: list[Value], others: list[Value], k: Value, sums: list[Value], mask: Value | None
) -> list[Value]:
    """sums[other, stream] + the product of one vector along k."""
    lanes, many, one = dots.kernel.lanes, dots.many.operand, dots.one.operand
    streams = [many.load(e, many.step(e, start, k), lanes, mask) for start in starts]
    shared = [one.load(e, one.step(e, other, k), lanes, mask) for other in others]
    pairs = [(stream, other) for other in shared for stream in streams]
    return [multiply_add(e, stream, other, total) for (stream, other), total in zip(pairs, sums, strict=True)]


def add_across(e: Emitter, vectors: list[Value], distance: int) -> list[Value]:
    """Halve the number of vectors until one is left: neighbours are added so that bit `distance` of a lane says which of them it holds.

    From n = lanes vectors and distance 1, lane i of the result is the sum of the lanes of vector i; the tree may be climbed in parts.
    """
    while len(vectors) > 1:
        size = vectors[0].lanes
        upper = [lane if lane & distance == 0 else size + lane - distance for lane in range(size)]
        lower = [lane + distance if lane & distance == 0 else size + lane for lane in range(size)]
        pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
        vectors = [e.binary(addition(a), e.shuffle(a, b, upper), e.shuffle(a, b, lower)) for a, b in pairs]
        distance *= 2
    return vectors


def _write_row(e: Emitter, kernel: PanelKernel, batch: tuple[Value, ...], m: Value, n: Value, total: Value) -> None:
    """A group along n: masked if it is the last and short."""
    place = MatmulIndex(batch, m, n)
    if kernel.start:
        total = e.binary(addition(total), total, kernel.start(e, place))
    full, rest = divmod(kernel.shape.n, kernel.lanes)
    if not (full and rest):
        kernel.write(e, place, total, first_lanes(rest or kernel.lanes, kernel.lanes))
        return
    for predicate, count in (("slt", kernel.lanes), ("sge", rest)):
        with e.when(e.compare(predicate, n, e.const(full * kernel.lanes))):
            kernel.write(e, place, total, first_lanes(count, kernel.lanes))


def _write_column(e: Emitter, kernel: PanelKernel, batch: tuple[Value, ...], first: Value, total: Value) -> None:
    """A group along m of a single column: there are no neighbours along n, so the writer gets scalars."""
    accumulator = kernel.shape.accumulator
    e.store(total, e.scratch, accumulator.nbytes)
    with e.loop(0, e.smin(e.const(kernel.lanes), e.sub(e.const(kernel.shape.m), first))) as row:
        one = e.load(e.gep(e.scratch, row.index, accumulator.register), accumulator.register, accumulator.nbytes)
        place = MatmulIndex(batch, e.add(first, row.index), e.const(0))
        if kernel.start:
            start = kernel.start(e, place)
            one = e.binary(addition(one), one, e.extract(start, 0) if start.lanes > 1 else start)
        kernel.write(e, place, one, None)

"""Matrix products by Strassen's algorithm, in Winograd's form: seven products of quarters where there are eight.

With quarters A11 A12 A21 A22 (upper and lower rows, first and second half of k), B likewise, and

    S1 = A21 + A22   S2 = S1 - A11    S3 = A11 - A21   S4 = A12 - S2
    T1 = B12 - B11   T2 = B22 - T1    T3 = B22 - B12   T4 = B21 - T2

the quarters of C are chains of products, each of which goes on in the registers of the one before:

    U1 = A11 B11     C11 = U1 + A12 B21
    U2 = U1 + S2 T2  U3 = U2 + S3 T3  C21 = U3 + A22 T4
    U4 = S1 T1       C22 = U3 + U4    C12 = U2 + U4 + S4 B22

A task is a pair of panels of B, one of each half of the columns, for a chunk of rows. Sums of A are made once for all tasks of a chunk,
those of B by the first register tile, in the products that read them. Errors are about twice those of the eight products.

Rows of the upper half are read and written forwards, of the lower one backwards. Processors fetch lines behind those that are used one
after the other: so these are the chunk's own, and not those that another thread writes (`docs/decisions.md`, Threads).
"""

from __future__ import annotations

from collections.abc import Sequence

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.matmul_shape import MatmulShape, folded, multiply_add
from anycann.codegen.kernels.matmul_writer import Fetch, MatmulIndex, Write, unfolded
from anycann.codegen.kernels.strassen_rows import RowOrder, of_images, of_product
from anycann.codegen.kernels.strassen_tile import PARTS, SUMS, UNROLL, StrassenSizes, StrassenTile
from anycann.codegen.resuming import resumed
from anycann.codegen.values import Value, vector_type
from anycann.support.records import dataclass
from anycann.target.target import Target


def emit_strassen(
    e: Emitter,
    shape: MatmulShape,
    target: Target,
    tile: StrassenTile,
    a: Value,
    b: Value,
    write: Write,
    fetch: Fetch | None = None,
    images: bool = False,
) -> int:
    """Write the kernel's loop over its tasks `e.begin..e.end` and return how many tasks there are.

    a: rows of float32 along k, or images in NC1HWC0, whose pixels are the rows; b: panels of `pack_columns`, `tile.vectors` registers wide,
    aligned to a register. `write` and `fetch` as in `emit_matmul`; every vector is whole. `strassen_refusal` says which shapes it computes.
    """
    inner = folded(shape)
    if inner.batch != shape.batch:
        extents = (*shape.batch[len(inner.batch) :], shape.m)
        write, fetch = unfolded(write, extents), unfolded(fetch, extents) if fetch else None
    goes_on = resumed(e)
    sizes = StrassenSizes.of(shape, tile, target.lanes)
    kernel = _Kernel(sizes, of_images(sizes) if images else of_product(sizes), a, b, write, fetch)
    tasks = sizes.chunks * sizes.pairs
    begin, end, chunks = _turns(e, sizes, tasks)
    before = e.select(goes_on, e.udiv(e.sub(e.begin, 1), sizes.pairs), e.const(-1))
    with e.loop(begin, end, carried=[before]) as turn:
        chunk, pair = e.udiv(turn.index, sizes.pairs), e.urem(turn.index, sizes.pairs)
        with e.when(e.compare("ne", chunk, turn.values[0])), e.loop(0, chunks) as number:
            _sum_rows(e, kernel, _rows_of(e, kernel, chunk, number.index))
        with e.loop(0, sizes.slices) as part, e.loop(0, e.mul(chunks, sizes.heights.count)) as place:
            rows = _rows_of(e, kernel, chunk, e.udiv(place.index, sizes.heights.count))
            _register_tile(e, kernel, rows, pair, part.index, place.index)
        turn.carry([chunk])
    return tasks


def _turns(e: Emitter, sizes: StrassenSizes, tasks: int) -> tuple[Value, Value, Value]:
    """The turns of this call, and the chunks of each: its tasks, or all pairs of panels with all chunks where it has all tasks."""
    if sizes.together == 1:
        return e.begin, e.end, e.const(1)
    everything = e.compare("eq", e.sub(e.end, e.begin), e.const(tasks))
    return e.begin, e.select(everything, e.const(sizes.pairs), e.end), e.select(everything, e.const(sizes.together), e.const(1))


@dataclass(frozen=True)
class _Kernel:
    """The product to write, its operands, and where what waits lies in scratch: sums of B, parts and results of C, sums of A."""

    sizes: StrassenSizes
    order: RowOrder
    a: Value
    b: Value
    write: Write
    fetch: Fetch | None

    @property
    def vector(self) -> str:
        return vector_type("float", self.sizes.lanes)

    def load(self, e: Emitter, base: Value, offset: Value | int) -> Value:
        return e.load(e.gep(base, offset, "float"), self.vector, 4)

    def store(self, e: Emitter, value: Value, base: Value, offset: Value | int) -> None:
        e.store(value, e.gep(base, offset, "float"), 4)

    def parts(self, e: Emitter, number: int) -> Value:
        return e.gep(e.scratch, SUMS * self.sizes.sum_panel + number * self.sizes.register_tile, "float")

    def results(self, e: Emitter, rows: _Rows) -> Value:
        return e.gep(self.parts(e, PARTS), e.mul(rows.number, self.sizes.results), "float")

    def row_sums(self, e: Emitter, rows: _Rows) -> Value:
        base = e.gep(self.parts(e, PARTS), self.sizes.together * self.sizes.results, "float")
        return e.gep(base, e.mul(rows.number, SUMS * self.sizes.sum_matrix), "float")


@dataclass(frozen=True)
class _Rows:
    """A chunk: its number among those of a turn, its first row and where in A that is, and the first that no chunk before has written."""

    number: Value
    first: Value
    at: Value
    unwritten: Value


def _rows_of(e: Emitter, kernel: _Kernel, chunk: Value, number: Value) -> _Rows:
    """The `number`-th chunk of a turn, which begins with `chunk`."""
    sizes, order = kernel.sizes, kernel.order
    chunk = e.add(chunk, number)
    sample, within = e.udiv(chunk, sizes.parts), e.mul(e.urem(chunk, sizes.parts), sizes.chunk_rows)
    first = e.smin(within, e.const(sizes.sample_rows - sizes.chunk_rows))
    before = e.mul(sample, sizes.sample_rows)
    at = e.add(e.mul(sample, order.sample), e.mul(first, order.row))
    return _Rows(number, e.add(before, first), at, e.add(before, within))


# ---- sums of A
def _sum_rows(e: Emitter, kernel: _Kernel, rows: _Rows) -> None:
    """S1 to S4 of a chunk, [sum][row of a half][half of k]."""
    sizes, to = kernel.sizes, kernel.row_sums(e, rows)
    order = kernel.order
    down, across = (sizes.chunk_rows - sizes.half) * order.row, order.of_whole(sizes.half_depth)
    with e.loop(0, sizes.slices) as part, e.loop(0, sizes.half_depth, sizes.lanes) as k, e.loop(0, sizes.half) as turn:
        row = _to_the_middle(e, turn.index, sizes.half)
        column = e.add(e.mul(part.index, order.of_whole(sizes.tile.depth)), order.of(e, k.index))
        at = e.add(e.add(rows.at, e.mul(row, order.row)), column)
        a11, a12, a21, a22 = (kernel.load(e, kernel.a, e.add(at, step)) for step in (0, across, down, down + across))
        s1 = e.binary("fadd", a21, a22)
        s2 = e.binary("fsub", s1, a11)
        place = e.add(e.mul(row, sizes.sum_row), e.add(e.mul(part.index, sizes.half_depth), k.index))
        for number, value in enumerate((s1, s2, e.binary("fsub", a11, a21), e.binary("fsub", a12, s2))):
            kernel.store(e, value, to, e.add(place, number * sizes.sum_matrix))


def _to_the_middle(e: Emitter, turn: Value, rows: int) -> Value:
    """The row of a turn: from the first to the middle, then from the last to it, so that what is fetched ahead lies within the half."""
    middle = rows // 2
    return e.select(e.compare("slt", turn, e.const(middle)), turn, e.sub(e.const(rows - 1 + middle), turn))


# ---- products
@dataclass(frozen=True)
class _Left:
    """A quarter of A, or a sum of them, from the first row of a register tile on. backwards: the last row is read first."""

    pointer: Value
    order: RowOrder
    backwards: bool = False


@dataclass(frozen=True)
class _Right:
    """A quarter of B, or a sum of them. terms: what it is the sum of, with their signs, where it is still to be made."""

    pointer: Value
    terms: tuple[tuple[int, Value], ...] = ()


def _register_tile(e: Emitter, kernel: _Kernel, rows: _Rows, pair: Value, part: Value, number: Value) -> None:
    """What a part of k adds to a register tile of a pair of panels; the first one, of number 0, makes the sums of B."""
    sizes = kernel.sizes
    heights, panel = sizes.heights, sizes.shape.k * sizes.width
    left = e.gep(kernel.b, e.add(e.mul(pair, panel), e.mul(part, sizes.tile.depth * sizes.width)), "float")
    place = _Place(rows, pair, part, number, e.urem(number, heights.count), (left, e.gep(left, sizes.pairs * panel, "float")))
    first, tall = e.compare("eq", number, e.const(0)), heights.is_tall(e, place.tile)
    later, low = (e.binary("xor", condition, e.const(1, "i1")) for condition in (first, tall))
    with e.when(first):
        _tile(e, kernel, place, heights.most, True)
    for height, present, count in ((heights.tall, tall, heights.talls), (heights.low, low, heights.count - heights.talls)):
        if count:
            with e.when(e.binary("and", later, present)):
                _tile(e, kernel, place, height, False)


@dataclass(frozen=True)
class _Place:
    """A register tile: its chunk, pair of panels and part of k, its number in the turn and in the halves of the chunk, and the part of each
    panel.
    """

    rows: _Rows
    pair: Value
    part: Value
    number: Value
    tile: Value
    panels: tuple[Value, Value]


def _tile(e: Emitter, kernel: _Kernel, place: _Place, height: int, first: bool) -> None:
    """The seven products of a register tile of `height` rows; `first` makes the sums of B."""
    sizes = kernel.sizes
    start = sizes.heights.start(e, place.tile)
    a11, a12, a22, s1, s2, s3, s4 = _lefts(e, kernel, place, start)
    (b11, b21), (b12, b22) = ((panel, e.gep(panel, sizes.sum_panel, "float")) for panel in place.panels)
    t1, t2, t3, t4 = (e.gep(e.scratch, number * sizes.sum_panel, "float") for number in (3, 0, 1, 2))  # in the order they are read in
    made = [((1, b12), (-1, b11)), ((1, b22), (-1, b12), (1, b11)), ((1, b22), (-1, b12)), ((1, b21), (-1, t2))]
    sums = [_Right(pointer, terms if first else ()) for pointer, terms in zip((t1, t2, t3, t4), made, strict=True)]
    nothing = [e.zero(kernel.vector)] * (height * sizes.tile.vectors)
    next_panels = [_later(e, kernel, panel, place.number) for panel in place.panels]

    def product(before: list[Value], left: _Left, right: _Right, later: Value | None = None) -> list[Value]:
        return _product(e, kernel, before, left, right, later)

    def wait(values: list[Value], number: int) -> list[Value]:
        for value, at in zip(values, _places(kernel, height), strict=True):
            kernel.store(e, value, kernel.parts(e, number), at)
        return values

    def added(values: list[Value], number: int) -> list[Value]:
        others = [kernel.load(e, kernel.parts(e, number), at) for at in _places(kernel, height)]
        return [e.binary("fadd", value, other) for value, other in zip(values, others, strict=True)]

    u1 = wait(product(nothing, a11, _Right(b11), next_panels[0]), 0)
    _keep(e, kernel, place, start, 0, product(u1, a12, _Right(b21)))
    waiting = [kernel.load(e, kernel.parts(e, 0), at) for at in _places(kernel, height)]
    u2 = wait(product(waiting, s2, sums[1], next_panels[1]), 1)
    u3 = wait(product(u2, s3, sums[2]), 2)
    _keep(e, kernel, place, start, 2, product(u3, a22, sums[3]))
    u4 = product(nothing, s1, sums[0])
    _keep(e, kernel, place, start, 3, added(u4, 2))
    _ask(e, kernel, place, start, height)
    _keep(e, kernel, place, start, 1, product(added(u4, 1), s4, _Right(b22)))
    with e.when(e.compare("eq", place.part, e.const(sizes.slices - 1))):
        _write(e, kernel, place, start, height)


def _lefts(e: Emitter, kernel: _Kernel, place: _Place, start: Value) -> list[_Left]:
    """A11, A12, A22 and S1 to S4 from a row of the halves on."""
    sizes, order = kernel.sizes, kernel.order
    first = e.add(place.rows.at, e.mul(start, order.row))
    upper = e.gep(kernel.a, e.add(first, e.mul(place.part, order.of_whole(sizes.tile.depth))), "float")
    across = order.of_whole(sizes.half_depth)
    down = (sizes.chunk_rows - sizes.half) * order.row + across
    quarters = [_Left(upper if not step else e.gep(upper, step, "float"), order, step == down) for step in (0, across, down)]
    at = e.gep(kernel.row_sums(e, place.rows), e.add(e.mul(start, sizes.sum_row), e.mul(place.part, sizes.half_depth)), "float")
    return quarters + [_Left(e.gep(at, number * sizes.sum_matrix, "float"), RowOrder(sizes.sum_row)) for number in range(SUMS)]


# Bytes of a panel ahead of its use that are fetched to the first-level cache.
_AHEAD, _LINE_BYTES = 4096, 64


def _product(e: Emitter, kernel: _Kernel, before: list[Value], left: _Left, right: _Right, later: Value | None) -> list[Value]:
    """before + left right, over half of a part of k. later: what is fetched of the next pair of panels meanwhile."""
    sizes, lines = kernel.sizes, _later_lines(kernel)
    with e.loop(0, sizes.half_depth, UNROLL, carried=before) as turn:
        sums = turn.values
        for line in range(lines if later else 0):
            assert later is not None
            e.prefetch(e.gep(later, e.add(e.mul(turn.index, lines * _LINE_BYTES // UNROLL), line * _LINE_BYTES), "i8"), level=2)
        for step in range(UNROLL):
            if step:
                e.keep_order()  # loads of the next step would need the registers of sums
            k = e.add(turn.index, step)
            vectors = _row_of_b(e, kernel, right, e.mul(k, sizes.width))
            column = e.gep(left.pointer, left.order.of(e, k), "float")
            sums = _added(e, kernel, sums, left.order.row, column, vectors, left.backwards)
        turn.carry(sums)
    return turn.values


def _row_of_b(e: Emitter, kernel: _Kernel, right: _Right, at: Value) -> list[Value]:
    """The vectors of a row of a panel, made and kept if it is a sum that is still to be made."""
    sizes = kernel.sizes
    for line in range(0, 4 * sizes.width, _LINE_BYTES):
        e.prefetch(e.gep(e.gep(right.terms[0][1] if right.terms else right.pointer, at, "float"), _AHEAD + line, "i8"))
    places = [e.add(at, j * sizes.lanes) for j in range(sizes.tile.vectors)]
    if not right.terms:
        return [kernel.load(e, right.pointer, place) for place in places]
    made = []
    for place in places:
        (_, first), *others = right.terms
        value = kernel.load(e, first, place)
        for sign, pointer in others:
            value = e.binary("fadd" if sign > 0 else "fsub", value, kernel.load(e, pointer, place))
        kernel.store(e, value, right.pointer, place)
        made.append(value)
    return made


def _added(
    e: Emitter, kernel: _Kernel, sums: Sequence[Value], apart: int, column: Value, vectors: Sequence[Value], backwards: bool
) -> list[Value]:
    """sums + what one k adds."""
    totals, width = list(sums), len(vectors)
    rows = range(len(sums) // width)
    for i in reversed(rows) if backwards else rows:
        factor = e.splat(e.load(e.gep(column, i * apart, "float"), "float", 4), kernel.sizes.lanes)
        for j, vector in enumerate(vectors):
            totals[i * width + j] = multiply_add(e, factor, vector, totals[i * width + j])
    return totals


def _later_lines(kernel: _Kernel) -> int:
    """Lines of the next panel that a turn of the innermost loop fetches, so that all tiles together fetch all of it."""
    sizes = kernel.sizes
    lines = -(-4 * sizes.tile.depth * sizes.width // _LINE_BYTES)
    return -(-lines // (sizes.heights.count * (sizes.half_depth // UNROLL)))


def _later(e: Emitter, kernel: _Kernel, panel: Value, tile: Value) -> Value:
    """What a register tile fetches of the part of a panel that comes next, behind this one."""
    sizes = kernel.sizes
    each = _later_lines(kernel) * (sizes.half_depth // UNROLL) * _LINE_BYTES
    return e.gep(e.gep(panel, sizes.tile.depth * sizes.width, "float"), e.mul(tile, each), "i8")


# ---- results
def _places(kernel: _Kernel, height: int) -> list[int]:
    """Where the vectors of a register tile lie, in elements from its first."""
    return [i * kernel.sizes.width + j * kernel.sizes.lanes for i in range(height) for j in range(kernel.sizes.tile.vectors)]


def _quarter(e: Emitter, kernel: _Kernel, place: _Place, start: Value, number: Value | int) -> Value:
    """Where a quarter of C waits, from row `start` of its half on."""
    sizes = kernel.sizes
    base = e.gep(kernel.results(e, place.rows), e.mul(e.const(sizes.result_rows * sizes.width), number), "float")
    return e.gep(base, e.mul(start, sizes.width), "float") if sizes.slices > 1 else base


def _keep(e: Emitter, kernel: _Kernel, place: _Place, start: Value, number: int, values: list[Value]) -> None:
    """Leave a register tile of a quarter, added to what the parts of k before made."""
    base, places = _quarter(e, kernel, place, start, number), _places(kernel, len(values) // kernel.sizes.tile.vectors)
    if kernel.sizes.slices > 1:
        is_first, zero = e.compare("eq", place.part, e.const(0)), e.zero(kernel.vector)
        olds = [e.select(is_first, zero, kernel.load(e, base, at)) for at in places]
        values = [e.binary("fadd", value, old) for value, old in zip(values, olds, strict=True)]
    for at, value in zip(places, values, strict=True):
        kernel.store(e, value, base, at)


@dataclass(frozen=True)
class _Row:
    """A row of a quarter of C: whether it is this chunk and half that writes it, its number, its first column."""

    is_written: Value
    m: Value
    n: Value


def _row(e: Emitter, kernel: _Kernel, place: _Place, start: Value, quarter: Value, row: Value) -> _Row:
    sizes, rows = kernel.sizes, place.rows
    lower, right = e.udiv(quarter, 2), e.urem(quarter, 2)
    number = e.add(rows.first, e.add(e.add(start, row), e.mul(lower, sizes.chunk_rows - sizes.half)))
    middle = e.add(rows.first, e.mul(lower, sizes.half))  # rows of both halves are the upper one's
    n = e.mul(e.add(place.pair, e.mul(right, sizes.pairs)), sizes.width)
    return _Row(e.compare("sge", number, e.smax(rows.unwritten, middle)), number, n)


def _write(e: Emitter, kernel: _Kernel, place: _Place, start: Value, height: int) -> None:
    """Hand the rows of a register tile to the writer."""
    sizes = kernel.sizes
    with e.loop(0, 4) as quarter, e.loop(0, height) as number:
        is_upper = e.compare("slt", quarter.index, e.const(2))
        inwards = e.select(is_upper, number.index, e.sub(e.const(height - 1), number.index))
        row = _row(e, kernel, place, start, quarter.index, inwards)
        with e.when(row.is_written):
            base = e.gep(_quarter(e, kernel, place, start, quarter.index), e.mul(inwards, sizes.width), "float")
            for j in range(sizes.tile.vectors):
                index = MatmulIndex((), row.m, e.add(row.n, j * sizes.lanes))
                kernel.write(e, index, kernel.load(e, base, j * sizes.lanes), None)


def _ask(e: Emitter, kernel: _Kernel, place: _Place, start: Value, height: int) -> None:
    """Fetch what the writer reads beside the sums, while the last product is computed."""
    if kernel.fetch is None:
        return
    sizes = kernel.sizes
    with e.when(e.compare("eq", place.part, e.const(sizes.slices - 1))), e.loop(0, 4) as quarter, e.loop(0, height) as number:
        row = _row(e, kernel, place, start, quarter.index, number.index)
        for j in range(sizes.tile.vectors):
            kernel.fetch(e, MatmulIndex((), row.m, e.add(row.n, j * sizes.lanes)))

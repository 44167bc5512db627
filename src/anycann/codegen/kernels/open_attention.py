"""Attention over as many rows and keys as only running tells: one kernel for every length, and for heads that lie anywhere.

a task: some rows of one head, two at a time.
  scores[m, t] = sum over d of query[m, d] key[t, d]          lanes along d; a tree of shuffles adds them, a register of scores at a time
  scores = scale * scores + mask[m, t]                        -inf behind the last key, up to whole registers
  scores = exp(scores - the most of the row), total = their sum
  result[m, w] = sum over t of scores[m, t] value[t, w] / total       lanes along w

Where sizes are known when a kernel is written, attention.py and attention_few.py use more of the processor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import enum
import math

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.attention_softmax import exp_of_difference, greater, greatest_lane
from anycann.codegen.kernels.matmul_dot import add_across
from anycann.codegen.kernels.matmul_shape import multiply_add
from anycann.codegen.values import INDEX, Value, first_lanes, vector_type
from anycann.support.records import dataclass
from anycann.target.target import Target

ROWS_AT_ONCE = 2  # of a task; so many rows of scores are its scratch memory


class Argument(enum.IntEnum):
    """The arrays that the kernel is given; MASK only if it adds one. SIZES are int64, all others float32."""

    SIZES = 0
    QUERY = 1
    KEY = 2
    VALUE = 3
    RESULT = 4
    MASK = 5


class Size(enum.IntEnum):
    """What SIZES says, at least one of each: tasks are batches x HEADS x PARTS of PART_ROWS rows. LENGTH: KEYS in whole registers.

    From FIRST_STRIDE on bytes from one batch to the next, one head, and one row (for keys and values: one key) of each array in the order
    of `Argument`. Neighbours in a row lie side by side.
    """

    ROWS = 0
    KEYS = 1
    LENGTH = 2
    HEADS = 3
    PARTS = 4
    PART_ROWS = 5
    FIRST_STRIDE = 6


SIZES = Size.FIRST_STRIDE + 3 * (len(Argument) - 1)


def length(keys: int, lanes: int) -> int:
    """Floats of a row of scores."""
    return -(-keys // lanes) * lanes


@dataclass(frozen=True)
class OpenAttention:
    """softmax(scale * query @ key^T + mask) @ value, each row of queries and keys of `depth` numbers, and of values of `width`."""

    depth: int
    width: int
    scale: float
    masked: bool


@dataclass(frozen=True)
class _Head:
    """Where the operands of a task begin, and what is known of them."""

    what: OpenAttention
    target: Target
    sizes: Mapping[int, Value]
    places: Mapping[Argument, Value]

    @property
    def lanes(self) -> int:
        return self.target.lanes

    @property
    def vector(self) -> str:
        return vector_type("float", self.lanes)

    def row(self, e: Emitter, argument: Argument, index: Value) -> Value:
        """Where a row of an operand begins."""
        return e.gep(self.places[argument], e.mul(index, self.sizes[_stride(argument) + 2]), "i8")

    def scores(self, e: Emitter, row: int) -> Value:
        """Where the scores of one of the rows at once begin."""
        return e.gep(e.scratch, e.mul(self.sizes[Size.LENGTH], row), "float")


def _stride(argument: Argument) -> int:
    return Size.FIRST_STRIDE + 3 * (argument - Argument.QUERY)


def emit_open_attention(what: OpenAttention, target: Target) -> Emitter:
    """The kernel, whose scratch memory is ROWS_AT_ONCE rows of LENGTH floats."""
    e = Emitter()
    arguments = [each for each in Argument if each != Argument.MASK or what.masked]
    pointers = {each: e.argument(each) for each in arguments}
    sizes = {number: e.load(e.gep(pointers[Argument.SIZES], number, INDEX), INDEX, 8) for number in range(SIZES)}
    with e.loop(e.begin, e.end) as task:
        number, part = (e.binary(opcode, task.index, sizes[Size.PARTS]) for opcode in ("udiv", "urem"))
        batch, head = (e.binary(opcode, number, sizes[Size.HEADS]) for opcode in ("udiv", "urem"))
        places = {}
        for each in arguments[1:]:
            start = e.add(e.mul(batch, sizes[_stride(each)]), e.mul(head, sizes[_stride(each) + 1]))
            places[each] = e.gep(pointers[each], start, "i8")
        first = e.mul(part, sizes[Size.PART_ROWS])
        last = e.smin(e.add(first, sizes[Size.PART_ROWS]), sizes[Size.ROWS])
        whole = e.sub(last, e.urem(e.sub(last, first), ROWS_AT_ONCE))
        for count, begin, end in ((ROWS_AT_ONCE, first, whole), (1, whole, last)):
            with e.loop(begin, end, count) as row:
                _emit_rows(e, _Head(what, target, sizes, places), row.index, count)
    return e


def _emit_rows(e: Emitter, head: _Head, first: Value, count: int) -> None:
    rows = [e.add(first, i) for i in range(count)]
    _emit_products(e, head, [head.row(e, Argument.QUERY, row) for row in rows])
    totals = []
    for i, row in enumerate(rows):
        most = _finish_scores(e, head, head.scores(e, i), head.row(e, Argument.MASK, row) if head.what.masked else None)
        totals.append(_emit_weights(e, head, head.scores(e, i), most))
    vectors = -(-head.what.width // head.lanes)
    most_vectors = max(1, head.target.registers // (2 * count))
    for start in range(0, vectors, most_vectors):
        _emit_results(e, head, rows, totals, start * head.lanes, min(most_vectors, vectors - start))


# ---- scores
def _emit_products(e: Emitter, head: _Head, queries: Sequence[Value]) -> None:
    """scores[m, t] = the product of a query and key t; up to whole registers that of the last key."""
    at_once, keys = head.lanes // len(queries), head.sizes[Size.KEYS]
    whole = e.sub(keys, e.urem(keys, at_once))
    last = e.sub(keys, 1)
    for begin, end, beyond in ((e.const(0), whole, False), (whole, keys, True)):
        with e.loop(begin, end, at_once) as key:
            numbers = [e.add(key.index, j) for j in range(at_once)]
            starts = [head.row(e, Argument.KEY, e.smin(number, last) if beyond else number) for number in numbers]
            total = add_across(e, _sums(e, head, queries, starts), 1)[0]
            for i in range(len(queries)):
                part = e.shuffle(total, total, range(i * at_once, (i + 1) * at_once)) if at_once > 1 else e.extract(total, i)
                e.store(part, e.gep(head.scores(e, i), key.index, "float"), 4)


def _sums(e: Emitter, head: _Head, queries: Sequence[Value], keys: Sequence[Value]) -> list[Value]:
    """The products of each query with each key, summed but for their lanes."""
    lanes, depth = head.lanes, head.what.depth

    def added(place: Value, sums: Sequence[Value], mask: Value | None) -> list[Value]:
        ours, others = ([_loaded(e, head, e.gep(start, place, "float"), mask) for start in starts] for starts in (queries, keys))
        pairs = [(query, key) for query in ours for key in others]
        return [multiply_add(e, query, key, total) for (query, key), total in zip(pairs, sums, strict=True)]

    whole = depth - depth % lanes
    with e.loop(0, whole, lanes, carried=[e.zero(head.vector)] * (len(queries) * len(keys))) as d:
        d.carry(added(d.index, d.values, None))
    return added(e.const(whole), d.values, first_lanes(depth % lanes, lanes)) if depth % lanes else d.values


def _loaded(e: Emitter, head: _Head, place: Value, mask: Value | None) -> Value:
    return e.load(place, head.vector, 4) if mask is None else e.masked_load(place, head.vector, 4, mask, e.zero(head.vector))


def _finish_scores(e: Emitter, head: _Head, scores: Value, mask: Value | None) -> Value:
    """Scores scaled and masked, -inf behind the last key; returns the greatest in every lane."""
    keys, lanes = head.sizes[Size.KEYS], head.lanes
    none, scale = e.const(-math.inf, head.vector), e.const(head.what.scale, head.vector)
    whole = e.sub(keys, e.urem(keys, lanes))

    def finished(place: Value, there: Value | None, most: Value) -> Value:
        at = e.gep(scores, place, "float")
        score = e.load(at, head.vector, 4)
        if mask is None:
            score = e.binary("fmul", score, scale)
        else:
            score = multiply_add(e, score, scale, _loaded(e, head, e.gep(mask, place, "float"), there))
        score = score if there is None else e.select(there, score, none)
        e.store(score, at, 4)
        return greater(e, score, most)

    with e.loop(0, whole, lanes, carried=[none]) as key:
        key.carry([finished(key.index, None, key.values[0])])
    with e.loop(whole, keys, lanes, carried=key.values) as rest:
        left = e.splat(e.sub(keys, rest.index), lanes)
        rest.carry([finished(rest.index, e.compare("slt", e.lane_numbers(lanes), left), rest.values[0])])
    return e.splat(greatest_lane(e, rest.values[0]), lanes)


# ---- weights and results
def _emit_weights(e: Emitter, head: _Head, scores: Value, most: Value) -> Value:
    """exp(scores - most) in their place; returns the sum."""
    with e.loop(0, head.sizes[Size.LENGTH], head.lanes, carried=[e.zero(head.vector)]) as key:
        place = e.gep(scores, key.index, "float")
        weight = exp_of_difference(e, e.load(place, head.vector, 4), most, head.target)
        e.store(weight, place, 4)
        key.carry([e.binary("fadd", key.values[0], weight)])
    return e.reduce("fadd", key.values[0])


def _emit_results(e: Emitter, head: _Head, rows: Sequence[Value], totals: Sequence[Value], column: int, vectors: int) -> None:
    """Some columns of the results of the rows."""
    lanes, width = head.lanes, head.what.width
    tail = first_lanes(min(lanes, width - column - (vectors - 1) * lanes), lanes)
    masks = [tail if j == vectors - 1 else None for j in range(vectors)]
    with e.loop(0, head.sizes[Size.KEYS], carried=[e.zero(head.vector)] * (len(rows) * vectors)) as key:
        line = e.gep(head.row(e, Argument.VALUE, key.index), column, "float")
        values = [_loaded(e, head, e.gep(line, j * lanes, "float"), mask) for j, mask in enumerate(masks)]
        weights = [e.splat(e.load(e.gep(head.scores(e, i), key.index, "float"), "float", 4), lanes) for i in range(len(rows))]
        pairs = [(weight, value) for weight in weights for value in values]
        key.carry([multiply_add(e, weight, value, total) for (weight, value), total in zip(pairs, key.values, strict=True)])
    for i, row in enumerate(rows):
        factor = e.splat(e.binary("fdiv", e.const(1.0, "float"), totals[i]), lanes)
        line = e.gep(head.row(e, Argument.RESULT, row), column, "float")
        for j, mask in enumerate(masks):
            result = e.binary("fmul", key.values[i * vectors + j], factor)
            place = e.gep(line, j * lanes, "float")
            if mask is None:
                e.store(result, place, 4)
            else:
                e.masked_store(result, place, 4, mask)

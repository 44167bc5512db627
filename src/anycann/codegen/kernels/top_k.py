"""The k best elements of each row, in order: what beats the k-th best so far is kept and sorted now and then.

Each candidate is one integer, the order of its value above the order of its place, so that no two are equal and one comparison decides.
Of n elements in random order about k (1 + log(n / k)) ever become candidates.
"""

from __future__ import annotations

from functools import reduce

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.sorting import BLOCK, Sorter
from anycann.codegen.values import Value, vector_type
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te.dtypes import DType

VECTORS = 4  # looked at before deciding whether one of them holds a candidate
LEAST_NEW = 32  # candidates that are worth putting in order
FEW, FEW_BLOCKS = 16, 4  # up to so many elements, of rows of at least so many blocks, are found after a pass that asks how good they are
CELLS_BYTES = 64


@dataclass(frozen=True)
class TopK:
    """The problem: rows of `extent` elements that are `inner` elements apart, `outer` x `inner` of them."""

    outer: int
    extent: int
    inner: int
    count: int
    largest: bool
    dtype: DType

    @property
    def key_bits(self) -> int:
        """Of the integer that orders values."""
        return 64 if self.dtype.nbytes == 8 else 32

    @property
    def limit(self) -> int:
        """Candidates that are put in order once there are so many."""
        return self.count + max(self.count, LEAST_NEW)

    @property
    def scratch_bytes(self) -> int:
        """The cells, and three buffers of candidates."""
        return CELLS_BYTES + 3 * self.room * (self.key_bits // 4)

    @property
    def room(self) -> int:
        """Of one buffer: up to a block more than the limit, and what sorting reads and writes behind the last."""
        return self.limit + BLOCK + BLOCK


def emit_top_k(e: Emitter, problem: TopK, target: Target, x: Value, values: Value | None, places: Value | None) -> int:
    """Write the loop over tasks, one a row; the answer is how many there are. A result nobody wants is None."""
    with e.loop(e.begin, e.end) as task:
        outer, inner = e.udiv(task.index, problem.inner), e.urem(task.index, problem.inner)
        source = e.gep(x, e.add(e.mul(outer, problem.extent * problem.inner), inner), problem.dtype.storage)
        row = _Row(e, problem, target, source)
        row.collect()
        row.settle()
        row.write(e.add(e.mul(outer, problem.count * problem.inner), inner), values, places)
    return problem.outer * problem.inner


class _Row:
    """The code of the row whose first element is at `source`.

    Cells in the scratch memory: how many candidates there are, how many of them are in order, and the least key that is good enough.
    """

    def __init__(self, e: Emitter, problem: TopK, target: Target, source: Value):
        self.e, self.problem, self.source = e, problem, source
        self.lanes = target.lanes if problem.inner == 1 else 1
        self.key, self.wide = f"i{problem.key_bits}", f"i{2 * problem.key_bits}"
        self._count, self._sorted, self._least = (e.gep(e.scratch, at, "i8") for at in (0, 8, 16))
        start = e.gep(e.scratch, CELLS_BYTES, "i8")
        self._kept, self._first, self._second = (e.gep(start, number * problem.room, self.wide) for number in range(3))
        self._sorter = Sorter(e, self.wide, max(1, target.lanes // 2) if problem.key_bits == 32 else 1)

    # ---- candidates
    def collect(self) -> None:
        """Every element that may be among the best, among the candidates."""
        e, problem = self.e, self.problem
        e.store(e.const(0), self._count, 8)
        e.store(e.const(0), self._sorted, 8)
        block = VECTORS * self.lanes if self.lanes > 1 else 1
        whole = problem.extent // block
        few = problem.count <= FEW and problem.count < block and whole >= FEW_BLOCKS
        e.store(self._good_enough(whole) if few else e.const(self._worst, self.key), self._least, 8)
        with e.loop(0, whole) as step:
            first = e.mul(step.index, block)
            with e.when(self._any_candidate(first, block)), e.loop(0, block, self.lanes) as vector:
                at = e.add(first, vector.index)
                with e.when(self._any_candidate(at, self.lanes)):
                    self._keep(at, self.lanes)
        if problem.extent % block:
            with e.loop(whole * block, problem.extent) as element:
                self._keep(element.index, 1)

    @property
    def _worst(self) -> int:
        return -(1 << (self.problem.key_bits - 1))

    def _good_enough(self, blocks: int) -> Value:
        """A key that `count` elements have at least, so that few become candidates: of the best of each lane, that number `count`."""
        e, type_ = self.e, vector_type(self.key, self.lanes)
        with e.loop(0, blocks, carried=[e.const(self._worst, type_)] * VECTORS) as step:
            first = e.mul(step.index, VECTORS * self.lanes)
            keys = [self._keys(e.add(first, part * self.lanes), self.lanes) for part in range(VECTORS)]
            step.carry([e.smax(best, key) for best, key in zip(step.values, keys, strict=True)])

        def best(vectors: list[Value]) -> Value:
            return e.reduce("smax", reduce(e.smax, vectors))

        with e.loop(1, self.problem.count, carried=step.values) as turn:
            most = e.splat(best(turn.values), self.lanes)
            turn.carry([e.select(e.compare("eq", v, most), e.const(self._worst, type_), v) for v in turn.values])
        return best(turn.values)

    def _any_candidate(self, first: Value, count: int) -> Value:
        """Whether one of `count` elements is good enough; an equal one is sorted out by its place."""
        e = self.e
        least = e.splat(e.load(self._least, self.key, 8), self.lanes)
        hits = [e.compare("sge", self._keys(e.add(first, at), self.lanes), least) for at in range(0, count, self.lanes)]
        return e.reduce("or", reduce(lambda a, b: e.binary("or", a, b), hits))

    def _keep(self, first: Value, count: int) -> None:
        """Append those of `count` elements that are good enough; put all in order and cut when there are many."""
        e = self.e
        least, before = e.load(self._least, self.key, 8), e.load(self._count, "i64", 8)
        with e.loop(0, count, carried=[before]) as at:
            place = e.add(first, at.index)
            key = self._keys(place, 1)
            e.store(self._candidate(key, place), e.gep(self._kept, at.values[0], self.wide), 8)
            at.carry([e.add(at.values[0], e.cast("zext", e.compare("sge", key, least), "i64"))])
        e.store(at.values[0], self._count, 8)
        with e.when(e.compare("sge", at.values[0], e.const(self.problem.limit))):
            self.settle()

    def _candidate(self, key: Value, place: Value) -> Value:
        e, bits = self.e, self.problem.key_bits
        high = e.binary("shl", e.cast("sext", key, self.wide), e.const(bits, self.wide))
        low = place if bits == 64 else e.cast("trunc", place, self.key)
        return e.binary("or", high, e.cast("zext", e.binary("xor", low, e.const(-1, self.key)), self.wide))

    def settle(self) -> None:
        """Put the candidates in order and keep the best: those that came since the last time are sorted and merged with the others."""
        e, problem = self.e, self.problem
        count, done = e.load(self._count, "i64", 8), e.load(self._sorted, "i64", 8)
        new = e.sub(count, done)
        ordered, other = self._sorter.sort(e.gep(self._kept, done, self.wide), new, self._first, self._second)
        kept = e.smin(count, e.const(problem.count))
        self._sorter.merge((self._kept, done), (ordered, new), other, kept)
        with e.loop(0, kept) as place:
            e.store(e.load(e.gep(other, place.index, self.wide), self.wide, 8), e.gep(self._kept, place.index, self.wide), 8)
        e.store(kept, self._count, 8)
        e.store(kept, self._sorted, 8)
        with e.when(e.compare("eq", kept, e.const(problem.count))):
            last = e.load(e.gep(self._kept, problem.count - 1, self.wide), self.wide, 8)
            e.store(e.cast("trunc", e.binary("ashr", last, e.const(problem.key_bits, self.wide)), self.key), self._least, 8)

    # ---- elements
    def _keys(self, place: Value, lanes: int) -> Value:
        """Integers that order the elements from `place` on as their values do, the best greatest."""
        e, dtype = self.e, self.problem.dtype
        at = e.gep(self.source, e.mul(place, self.problem.inner), dtype.storage)
        type_ = f"<{lanes} x {dtype.storage}>" if lanes > 1 else dtype.storage
        return element_key(e, e.load(at, type_, dtype.nbytes), self.problem)

    def write(self, first: Value, values: Value | None, places: Value | None) -> None:
        """The first `count` candidates to the results."""
        e, problem = self.e, self.problem
        with e.loop(0, problem.count) as rank:
            low = e.cast("trunc", e.load(e.gep(self._kept, rank.index, self.wide), self.wide, 8), self.key)
            place = e.binary("xor", low, e.const(-1, self.key))
            place = place if problem.key_bits == 64 else e.cast("zext", place, "i64")
            to = e.add(first, e.mul(rank.index, problem.inner))
            if places is not None:
                e.store(place, e.gep(places, to, "i64"), 8)
            if values is not None:
                storage, nbytes = problem.dtype.storage, problem.dtype.nbytes
                element = e.load(e.gep(self.source, e.mul(place, problem.inner), storage), storage, nbytes)
                e.store(element, e.gep(values, to, storage), nbytes)


def element_key(e: Emitter, value: Value, problem: TopK) -> Value:
    """Integers that order elements, the best greatest."""
    key = order_key(e, value, problem.dtype)
    return key if problem.largest else e.binary("xor", key, e.const(-1, key.type))


def order_key(e: Emitter, value: Value, dtype: DType) -> Value:
    """Signed integers of 32 or 64 bits in the order of the values, lane by lane; both zeros are one, and what is no number is greatest."""
    if not dtype.is_float:
        return _integer_key(e, value, dtype)
    if dtype.name == "bfloat16":
        wide = e.cast("zext", value, "i32")
        value = e.cast("bitcast", e.binary("shl", wide, e.const(16, wide.type)), "float")
    elif dtype.name == "float16":
        value = e.cast("fpext", value, "float")
    bits = 64 if dtype.nbytes == 8 else 32
    number = e.cast("bitcast", e.binary("fadd", value, e.const(0.0, value.type)), f"i{bits}")
    sign = e.binary("ashr", number, e.const(bits - 1, number.type))
    largest = e.const((1 << (bits - 1)) - 1, number.type)
    key = e.binary("xor", number, e.binary("and", sign, largest))
    return e.select(e.compare("uno", value, value), largest, key)


def _integer_key(e: Emitter, value: Value, dtype: DType) -> Value:
    if dtype.nbytes < 4:
        return e.cast("sext" if dtype.kind == "int" else "zext", value, "i32")
    if dtype.kind == "int":
        return value
    return e.binary("xor", value, e.const(-(1 << (8 * dtype.nbytes - 1)), value.type))

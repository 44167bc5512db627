"""Suppression of boxes that overlap better ones: candidates leave a heap, the best first, and each is compared with all chosen so far.

Only as many candidates are put in order as are looked at. Overlaps are computed as ONNX Runtime does, a division for each pair.
"""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.heap import Heap
from anycann.codegen.kernels.top_k import order_key
from anycann.codegen.values import Value
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te import dtypes

CORNERS = 4
ROWS = 5  # of what is known of chosen boxes: low and high of either coordinate, and the area


@dataclass(frozen=True)
class SuppressionProblem:
    """scores [batch, classes, boxes] of boxes [batch, boxes, 4]; at most `count` of a class are chosen. least: None accepts any score.

    centred: a box is the middle of both coordinates, then both sizes; else two opposite corners.
    """

    batch: int
    classes: int
    boxes: int
    count: int
    overlap: float
    least: float | None
    centred: bool

    def padded(self, lanes: int) -> int:
        """Places for chosen boxes, whole vectors of them."""
        return -(-self.count // lanes) * lanes

    def scratch_bytes(self, lanes: int) -> int:
        """The cells, what is known of the chosen boxes, and the heap."""
        return 64 + ROWS * self.padded(lanes) * 4 + 64 + Heap.bytes_for(self.boxes)


def emit_suppression(e: Emitter, problem: SuppressionProblem, target: Target, boxes: Value, scores: Value, result: Value) -> int:
    """Write the loop over tasks, one a class of an image; the answer is how many there are. result: numbers of boxes, -1 behind them."""
    with e.loop(e.begin, e.end) as task:
        own = e.gep(boxes, e.mul(e.udiv(task.index, problem.classes), problem.boxes * CORNERS), "float")
        row = e.gep(scores, e.mul(task.index, problem.boxes), "float")
        to = e.gep(result, e.mul(task.index, problem.count), "i64")
        _Class(e, problem, target, own, to).choose(row)
    return problem.batch * problem.classes


class _Class:
    """The code of one class of one image. `boxes`: of the image; `result`: the numbers of the chosen ones."""

    def __init__(self, e: Emitter, problem: SuppressionProblem, target: Target, boxes: Value, result: Value):
        self.e, self.problem, self.lanes = e, problem, target.lanes
        self.boxes, self.result = boxes, result
        self._chosen = e.scratch
        self._known = e.gep(e.scratch, 64, "i8")
        padded = problem.padded(self.lanes)
        self._heap = Heap(e, e.gep(e.scratch, 64 + ROWS * padded * 4 + 64, "i8"), problem.boxes, self.lanes)

    def choose(self, scores: Value) -> None:
        """Fill the result."""
        e, problem = self.e, self.problem
        self._clear()
        self._collect(scores)
        self._heap.order()
        with e.loop(0, self._heap.count()) as _, e.when(e.compare("slt", e.load(self._chosen, "i64", 8), e.const(problem.count))):
            self._consider(self._heap.pop())

    def _clear(self) -> None:
        """Nothing chosen: areas of zero overlap nothing."""
        e = self.e
        e.store(e.const(0), self._chosen, 8)
        with e.loop(0, self.problem.count) as place:
            e.store(e.const(-1), e.gep(self.result, place.index, "i64"), 8)
        with e.loop(0, self.problem.padded(self.lanes), self.lanes) as place:
            e.store(e.zero(self._vector), self._row(4, place.index), 4)

    # ---- candidates
    def _collect(self, scores: Value) -> None:
        """All boxes with a score that is good enough, into the heap."""
        e, problem = self.e, self.problem
        self._heap.clear()
        whole = problem.boxes // self.lanes
        with e.loop(0, whole) as vector:
            first = e.mul(vector.index, self.lanes)
            found = e.load(e.gep(scores, first, "float"), self._vector, 4)
            with e.when(e.reduce("or", self._is_good(found))), e.loop(0, self.lanes) as lane:
                self._collect_one(scores, e.add(first, lane.index))
        with e.loop(whole * self.lanes, problem.boxes) as box:
            self._collect_one(scores, box.index)

    def _collect_one(self, scores: Value, box: Value) -> None:
        e = self.e
        score = e.load(e.gep(scores, box, "float"), "float", 4)
        high = e.binary("shl", e.cast("sext", order_key(e, score, dtypes.float32), "i64"), e.const(32))
        low = e.binary("xor", e.binary("and", box, e.const(0xFFFFFFFF)), e.const(0xFFFFFFFF))
        self._heap.append(e.binary("or", high, low), self._is_good(score))

    def _is_good(self, score: Value) -> Value:
        if self.problem.least is None:
            return self.e.compare("ord", score, score)
        return self.e.compare("ogt", score, self.e.const(self.problem.least, score.type))

    # ---- overlaps
    def _consider(self, candidate: Value) -> None:
        """Choose the box unless it overlaps one that was chosen."""
        e = self.e
        box = e.binary("xor", e.binary("and", candidate, e.const(0xFFFFFFFF)), e.const(0xFFFFFFFF))
        sides = self._sides(box)
        chosen = e.load(self._chosen, "i64", 8)
        with e.loop(0, chosen, self.lanes, carried=[e.zero(self._mask)]) as place:
            place.carry([e.binary("or", place.values[0], self._overlaps(sides, place.index))])
        free = e.binary("xor", e.reduce("or", place.values[0]), e.const(1, "i1"))
        with e.when(free):
            for number, side in enumerate(sides):
                e.store(side, self._row(number, chosen), 4)
            e.store(box, e.gep(self.result, chosen, "i64"), 8)
            e.store(e.add(chosen, 1), self._chosen, 8)

    def _sides(self, box: Value) -> list[Value]:
        """Low and high of the first coordinate, of the second, and the area."""
        e = self.e
        at = e.gep(self.boxes, e.mul(box, CORNERS), "float")
        a, b, c, d = (e.load(e.gep(at, number, "float"), "float", 4) for number in range(CORNERS))
        if self.problem.centred:
            half = [e.binary("fmul", size, e.const(0.5, "float")) for size in (c, d)]
            low = [e.binary("fsub", middle, size) for middle, size in zip((a, b), half, strict=True)]
            high = [e.binary("fadd", middle, size) for middle, size in zip((a, b), half, strict=True)]
        else:
            low = [e.intrinsic("minnum", [first, second]) for first, second in ((a, c), (b, d))]
            high = [e.intrinsic("maxnum", [first, second]) for first, second in ((a, c), (b, d))]
        area = e.binary("fmul", e.binary("fsub", high[0], low[0]), e.binary("fsub", high[1], low[1]))
        return [low[0], high[0], low[1], high[1], area]

    def _overlaps(self, sides: list[Value], first: Value) -> Value:
        """Which of a vector of chosen boxes the sides overlap too much."""
        e = self.e
        own = [e.splat(side, self.lanes) for side in sides]
        other = [e.load(self._row(number, first), self._vector, 4) for number in range(ROWS)]
        zero = e.zero(self._vector)
        shared, meets = None, None
        for low, high in ((0, 1), (2, 3)):
            begin, end = e.intrinsic("maxnum", [own[low], other[low]]), e.intrinsic("minnum", [own[high], other[high]])
            meet, size = e.compare("ogt", end, begin), e.binary("fsub", end, begin)
            shared = size if shared is None else e.binary("fmul", shared, size)
            meets = meet if meets is None else e.binary("and", meets, meet)
        assert shared is not None
        assert meets is not None
        union = e.binary("fsub", e.binary("fadd", own[4], other[4]), shared)
        for area in (own[4], other[4], union):
            meets = e.binary("and", meets, e.compare("ogt", area, zero))
        return e.binary("and", meets, e.compare("ogt", e.binary("fdiv", shared, union), e.const(self.problem.overlap, self._vector)))

    # ---- memory
    @property
    def _vector(self) -> str:
        return f"<{self.lanes} x float>"

    @property
    def _mask(self) -> str:
        return f"<{self.lanes} x i1>"

    def _row(self, number: int, place: Value) -> Value:
        return self.e.gep(self.e.gep(self._known, number * self.problem.padded(self.lanes), "float"), place, "float")

"""The softmax between the two products of attention of bfloat16: rows of scores in scratch, which become weights of bfloat16."""

from __future__ import annotations

import math

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.attention_shape import Pointers, address
from anycann.codegen.kernels.attention_softmax import changed_scores, greater, greatest_lane
from anycann.codegen.kernels.attention_tile_plan import LANES, STEP, VECTOR, TiledAttention
from anycann.codegen.kernels.tile_packing import lanes_below
from anycann.codegen.values import Value
from anycann.support.records import dataclass


@dataclass(frozen=True)
class Part:
    """A group of rows of a task and a block of keys.

    first: its first row, `row` among those of the task, of which `left` are left; key: the block's first; seen: keys of it that are seen.
    """

    batch: tuple[Value, ...]
    first: Value
    row: Value
    left: Value
    key: Value
    seen: Value


@dataclass(frozen=True)
class Weights:
    """Writes the softmax of rows of scores."""

    plan: TiledAttention
    pointers: Pointers

    def weigh(self, e: Emitter, part: Part, row: Value, padded: Value) -> None:
        """Weights of one row over its scores, in bfloat16; total and what was summed before follow the greatest score."""
        plan, number = self.plan, e.add(part.row, row)
        scores = self._scores(e, part, row, padded)
        most = self._greatest(e, scores) if plan.shape.is_plain else self._finish(e, part, row, scores)
        place, where = (e.gep(plan.at(e, name), number, "float") for name in ("most", "total"))
        if not plan.once:
            before = e.load(place, "float", 4)
            most = greater(e, most, before)
            with e.when(e.compare("une", most, before)):
                self._rescale(e, number, before, most)
                e.store(most, place, 4)
        nothing = e.compare("oeq", most, e.const(-math.inf, "float"))
        total = self._exponentials(e, scores, e.select(nothing, e.const(0.0, "float"), most))
        e.store(total if plan.once else e.binary("fadd", total, e.load(where, "float", 4)), where, 4)

    def _scores(self, e: Emitter, part: Part, row: Value, padded: Value) -> _Scores:
        """The scores of one row of a group."""
        plan, shape = self.plan, self.plan.shape
        line = e.gep(plan.at(e, "scores"), e.mul(row, plan.score_row), "float")
        if plan.all_seen:
            return _Scores(line, padded, padded, padded)
        seen = e.sub(e.const(shape.keys), part.key)
        if shape.reach is not None:
            own = e.sub(e.add(e.add(part.first, row), 1 + shape.reach), part.key)
            seen = e.smax(e.smin(seen, own), e.const(0))
        seen = e.smin(seen, padded)
        return _Scores(line, seen, e.sub(seen, e.urem(seen, STEP)), padded)

    def _rescale(self, e: Emitter, row: Value, before: Value, most: Value) -> None:
        """What was summed for a row so far, as weights of a greater score see it."""
        plan = self.plan
        scale = e.splat(e.binary("fmul", e.binary("fsub", before, most), e.const(plan.exponent_scale, "float")), LANES)
        factor, where = _power_of_two(e, scale), e.gep(plan.at(e, "total"), row, "float")
        e.store(e.binary("fmul", e.load(where, "float", 4), e.extract(factor, 0)), where, 4)
        results = e.gep(plan.at(e, "results"), e.mul(row, plan.width), "float")
        for column in range(0, plan.width, LANES):
            at = e.gep(results, column, "float")
            e.store(e.binary("fmul", e.load(at, VECTOR, 4), factor), at, 4)

    def _greatest(self, e: Emitter, scores: _Scores) -> Value:
        """The greatest score that the row sees."""
        most = [e.const(-math.inf, VECTOR)] * 2
        for start, stop, all_seen in scores.parts(e):
            with e.loop(start, stop, STEP, carried=most) as t:
                t.carry([greater(e, score, one) for score, one in zip(scores.load(e, t.index, all_seen), t.values, strict=True)])
            most = t.values
        return greatest_lane(e, greater(e, *most))

    def _finish(self, e: Emitter, part: Part, row: Value, scores: _Scores) -> Value:
        """All that is done to the scores of a row, written back; returns the greatest."""
        plan, shape, lowest = self.plan, self.plan.shape, e.const(-math.inf, VECTOR)
        number, left = e.add(part.first, row), e.sub(e.const(shape.keys), part.key)
        with e.loop(0, scores.padded, LANES, carried=[lowest]) as t:
            place = e.gep(scores.line, t.index, "float")
            product = e.load(place, VECTOR, 4)
            exists = lanes_below(e, e.sub(left, t.index), LANES)
            masks = [self._mask(e, part, n, number, t.index, exists) for n in range(len(shape.scores))]
            score = changed_scores(e, shape, product, masks)
            if not plan.all_seen:
                score = e.select(lanes_below(e, e.sub(scores.seen, t.index), LANES), score, lowest)
            e.store(score, place, 4)
            t.carry([greater(e, score, t.values[0])])
        return greatest_lane(e, t.values[0])

    def _mask(self, e: Emitter, part: Part, number: int, row: Value, key: Value, exists: Value) -> Value:
        """The elements of a mask for one row and a vector of keys from `key` of the block on."""
        score = self.plan.shape.scores[number]
        at = address(e, score.view, (*part.batch, row, e.add(part.key, key)))
        place = e.gep(self.pointers.scores[number], at, "float")
        if score.key == 0:
            return e.splat(e.load(place, "float", 4), LANES)
        return e.masked_load(place, VECTOR, 4, exists, e.zero(VECTOR))

    def _exponentials(self, e: Emitter, scores: _Scores, highest: Value) -> Value:
        """exp(scores - highest) as bfloat16 over the scores; a vector is read before what lies there is written. Returns their sum."""
        scale = e.const(self.plan.exponent_scale, "float")
        start = e.splat(e.op(f"fneg float {e.binary('fmul', highest, scale).text}", "float"), LANES)
        totals = [e.zero(VECTOR)] * 2
        for first, stop, all_seen in scores.parts(e) if self.plan.shape.is_plain else [(e.const(0), scores.padded, True)]:
            with e.loop(first, stop, STEP, carried=totals) as t:
                loaded = scores.load(e, t.index, all_seen)
                weights = [_power_of_two(e, e.fma(score, e.splat(scale, LANES), start)) for score in loaded]
                rounded = e.call("llvm.x86.avx512bf16.cvtne2ps2bf16.512", "<32 x bfloat>", weights[::-1])
                e.store(rounded, e.gep(scores.line, t.index, "i16"), 2)
                t.carry([e.binary("fadd", total, weight) for total, weight in zip(t.values, weights, strict=True)])
            totals = t.values
        return e.reduce("fadd", e.binary("fadd", *totals))


@dataclass(frozen=True)
class _Scores:
    """The scores of one row: `padded` of them, of which the row sees `seen`; below `whole` every step is seen as a whole."""

    line: Value
    seen: Value
    whole: Value
    padded: Value

    def parts(self, e: Emitter) -> list[tuple[Value, Value, bool]]:
        """From, to, and whether all of them are seen."""
        some = [] if self.whole is self.padded else [(self.whole, self.padded, False)]
        return [(e.const(0), self.whole, True), *some]

    def load(self, e: Emitter, key: Value, all_seen: bool) -> list[Value]:
        """A step of scores, -inf for keys that are not seen: in registers, for what is half written cannot be read back at once."""
        values = [e.load(e.gep(self.line, e.add(key, first), "float"), VECTOR, 4) for first in range(0, STEP, LANES)]
        if all_seen:
            return values
        left, lowest = e.sub(self.seen, key), e.const(-math.inf, VECTOR)
        return [e.select(lanes_below(e, e.sub(left, n * LANES), LANES), value, lowest) for n, value in enumerate(values)]


# 2^r for |r| <= 1/2, least relative error (2.6e-6), lowest coefficient first
_POWERS = (0.9999992847442627, 0.6931217908859253, 0.240247443318367, 0.05591785907745361, 0.009570102207362652)
_ROUND, _SMALLEST = 1.5 * 2.0**23, -126.0


def _power_of_two(e: Emitter, x: Value) -> Value:
    """2^x lane by lane, zero below 2^-126; not a number where x is none. In whole numbers: what scales by a power stumbles over zeros."""
    bits, shift = "<16 x i32>", e.const(_ROUND, VECTOR)
    shifted = e.binary("fadd", x, shift)
    rest = e.binary("fsub", x, e.binary("fsub", shifted, shift))
    power = e.const(_POWERS[-1], VECTOR)
    for coefficient in _POWERS[-2::-1]:
        power = e.fma(power, rest, e.const(coefficient, VECTOR))
    exponent = e.binary("shl", e.cast("bitcast", shifted, "i32"), e.const(23, bits))
    result = e.cast("bitcast", e.binary("add", e.cast("bitcast", power, "i32"), exponent), "float")
    return e.select(e.compare("olt", x, e.const(_SMALLEST, VECTOR)), e.zero(VECTOR), result)

"""The sums of a register tile of bytes from weights in the order of `dot_direct.py`: three loops, to counts that a panel begins with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.dot_magnitudes import add_direct
from anycann.codegen.kernels.dot_products import GROUP_BYTES
from anycann.codegen.kernels.dot_shape import ORDER_COUNTS, DotPlan
from anycann.codegen.kernels.dot_sums import Reads, VectorSums, fetch_panel
from anycann.codegen.values import INDEX, Value, vector_type


class DirectSums(VectorSums):
    """Pairs of groups whose products are added in 16 bits, then groups that are multiplied as they are, then magnitudes."""

    def along(self, e: Emitter, pixels: int, reads: Reads, later: Value, totals: list[Value]) -> list[Value]:
        plan, rows, weights = self.plan, reads.rows, reads.weights
        paired, direct, needed = (read_number(e, weights, number) for number in range(ORDER_COUNTS))
        row = plan.width * GROUP_BYTES  # a group that is multiplied as it is
        last = plan.width * self.dots.weight_bytes
        unrolled = 2 - plan.depth % 2

        def pairs(k: Value, place: Value, totals: Sequence[Value]) -> list[Value]:
            return add_as_they_are(e, plan, pixels, [self._row(e, rows, weights, k, step) for step in range(2)], place, totals)

        def single(k: Value, place: Value, totals: Sequence[Value]) -> list[Value]:
            for step in range(unrolled):
                at = self._row(e, rows, weights, k, step)
                totals = add_as_they_are(e, plan, pixels, [at], e.gep(place, step * row, "i8"), totals)
            return list(totals)

        def magnitudes(k: Value, place: Value, totals: Sequence[Value]) -> list[Value]:
            for step in range(unrolled):
                at = self._row(e, rows, weights, k, step)
                totals = self.multiply(e, pixels, at, e.gep(place, step * last, "i8"), totals)
            return list(totals)

        carried, first = [e.gep(weights, plan.order_bytes, "i8"), *totals], e.const(0)
        for stop, step, nbytes, body in (
            (paired, 2, row, pairs),
            (direct, unrolled, row, single),
            (needed, unrolled, last, magnitudes),
        ):
            with e.loop(first, stop, step, carried=carried) as loop:
                fetch_panel(e, self.plan, later, loop.index, step)
                place, *totals = loop.values
                loop.carry([e.gep(place, step * nbytes, "i8"), *body(loop.index, place, totals)])
            carried, first = list(loop.values), stop
        return carried[1:]

    def _row(self, e: Emitter, rows: Value, weights: Value, k: Value, step: int) -> Value:
        """Where the first pixel reads the group that a panel takes `step` behind number k."""
        return e.gep(rows, read_number(e, e.gep(weights, k, "i32"), ORDER_COUNTS + step), "i8")


def add_as_they_are(e: Emitter, plan: DotPlan, pixels: int, rows: Sequence[Value], place: Value, totals: Sequence[Value]) -> list[Value]:
    """totals + the products of neighbouring groups of weights at `place`, each with what the first pixel reads at its row."""
    vectors, dots = len(totals) // pixels, replace(plan.dots, narrow=False)
    groups = vector_type("i32", plan.target.lanes)
    result = []
    for i in range(pixels):
        e.keep_order()  # weights are read by the instructions that multiply them
        factors = [dots.spread(e, e.gep(row, i * plan.pixel_stride * plan.nbytes, "i8"))[0] for row in rows]
        for j in range(vectors):
            at = [e.gep(place, (step * plan.width + j * plan.target.lanes) * GROUP_BYTES, "i8") for step in range(len(rows))]
            products = [(factor, e.load(each, groups, GROUP_BYTES)) for factor, each in zip(factors, at, strict=True)]
            result.append(add_direct(e, totals[i * vectors + j], products))
    return result


def read_number(e: Emitter, table: Value, number: int) -> Value:
    """One of the int32 numbers of a table."""
    return e.cast("sext", e.load(e.gep(table, number, "i32"), "i32", GROUP_BYTES), INDEX)

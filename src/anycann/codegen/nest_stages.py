"""The stages of a nest at one point of its outer loops: reductions, whose results later stages read, and stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from itertools import product
from math import prod

from anycann.codegen.accesses import FlatNest, Stage
from anycann.codegen.clipping import Bounds, clip
from anycann.codegen.combining import absent_from, combine, combine_all, extreme, neutral, total
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.arithmetic_rate import has_fma
from anycann.codegen.lanes import Lanes
from anycann.codegen.near_places import permutes_floats
from anycann.codegen.stores import emit_store
from anycann.codegen.values import Value, vector_type
from anycann.codegen.vector_loop import own_vector
from anycann.target.target import Target
from anycann.te.dtypes import DType
from anycann.te.expression import COSTLY, Expr, Op, Var
from anycann.te.traversal import walk

# Elements of a window that is reduced without loops: more where vectors are short and lanes without masks, or where few vectors hide no
# loop. Rows of 28 to 48 onto 5 to 29 numbers take 0.52 to 1.00 of the time, onto 48 to 98 0.95 to 1.06 (AVX-512, Zen 4).
_WRITTEN_OUT, _OF_FEW, _FEW_VECTORS = range(2, 28), range(2, 50), 2
UNROLL = 4  # accumulators of a long row: additions of one do not wait for each other


class StageWriter:
    """Writes stages. The vector loop is either one outer loop (`self.vector`) or, per stage, one of its own.

    values: the scalar value of each loop variable. pointers: inputs by name. stores: outputs by number.
    """

    wide = 1  # vectors of float32 that the vector loop takes at once, where elements are narrower
    aligned = False  # whether lane 0 of the vector loop is always a multiple of the lanes

    def __init__(self, nest: FlatNest, dtypes_: Sequence[DType], target: Target, vector: Var | None, emitter: Emitter | None = None):
        self.nest, self.dtypes, self.target = nest, dtypes_, target
        self.e = emitter or Emitter()
        self.e.scales, self.e.masks, self.e.flushes = target.has("avx512f"), target.has("avx512f"), True
        self.e.fuses = has_fma(target)
        self.vector = vector
        self.once: tuple[Expr, ...] = ()  # what a store computes before its own loops (invariant.py)
        self.existing: int | None = None  # lanes that ever exist, where they are few and no guard but their number says so
        self.unroll = UNROLL
        self.pointers: dict[str, Value] = {}
        self.stores: list[Value] = []
        self.values: dict[Var, Value] = {}

    def stages(self, lanes: int, mask: Value | None, known: Mapping[int, Value] | None = None) -> None:
        """All stages at one outer point: `lanes` > 1 if an outer loop is the vector loop. `known`: elements that are there already."""
        bound: dict[int, Value] = dict(known or {})
        vector = self.vector if lanes > 1 else None
        for stage in self.nest.stages:
            if vector is None and stage.over:
                self._horizontal(stage, bound)
            elif stage.is_store and self.once:
                self._store_in_turns(stage, lanes, vector, bound, mask)
            elif stage.is_store:
                self._loops(stage.over, partial(self._store, stage, lanes, vector, bound, mask))
            else:
                assert stage.tensor is not None
                bound[id(stage.tensor)] = self._vertical(stage, lanes, vector, bound, mask)

    def _lanes(self, lanes: int, vector: Var | None, bound: Mapping[int, Value], mask: Value | None, stage: Stage) -> Lanes:
        """The expression writer at this point, its mask narrowed by partial channel blocks.

        Stores under a condition that all lanes share are under a branch: behind the last channel a page may not exist, and there a store
        that a mask leaves out takes some 100 ns. 24 channels of 160 x 160 as planes took 0.14 to 2.3 ms, by what lay behind them (Zen 4).
        """
        here = Lanes(self.e, lanes, vector, self.values, self.pointers, bound, None)
        filled, shared = mask, None
        for guard in (*self.nest.guards, *stage.guards):
            condition = here.value(guard)
            mask = self._both(mask, here.spread(condition))
            if lanes > 1 and condition.lanes == 1:
                shared = self._both(shared, condition)
            elif guard is not stage.fills or lanes == 1:
                filled = self._both(filled, here.spread(condition))
        return Lanes(
            self.e, lanes, vector, self.values, self.pointers, bound, mask, existing=self.existing, filled=filled, shared=shared,
            rounds_bfloat=self.target.has("avx512bf16"), permutes_bytes=self.target.has("avx512vbmi"),
            shuffles_bytes=self.target.has("avx2"), aligned=self.aligned, saturates=self.target.has("avx2") and self.target.lanes >= 8,
            packs=self.target.has("avx512bw"), permutes_floats=permutes_floats(self.target),
        )  # fmt: skip

    def _both(self, mask: Value | None, condition: Value) -> Value:
        return condition if mask is None else self.e.binary("and", mask, condition)

    def _store(self, stage: Stage, lanes: int, vector: Var | None, bound: Mapping[int, Value], mask: Value | None) -> None:
        self._store_at(stage, self._lanes(lanes, vector, bound, mask, stage))

    def _store_in_turns(self, stage: Stage, lanes: int, vector: Var | None, bound: Mapping[int, Value], mask: Value | None) -> None:
        """The loops of a store, for which some of what it stores is computed once."""
        around = self._lanes(lanes, vector, bound, mask, stage)
        for expr in self.once:
            around.value(expr)

        def turn() -> None:
            here = self._lanes(lanes, vector, bound, mask, stage)
            here.inherit(around)
            self._store_at(stage, here)

        self._loops(stage.over, turn)

    def _store_at(self, stage: Stage, here: Lanes) -> None:
        emit_store(here, stage, self.stores[stage.output], self.dtypes[stage.output])

    # -- loops
    def _loops(self, loops: Sequence[Var], body: Callable[[], None]) -> None:
        if not loops:
            body()
            return
        with self.e.loop(0, loops[0].extent) as loop:
            self.values[loops[0]] = loop.index
            self._loops(loops[1:], body)

    def _reducing(
        self, loops: Sequence[Var], totals: list[Value], body: Callable[[list[Value]], list[Value]], bounds: Mapping[Var, Bounds]
    ) -> list[Value]:
        """Loops, within their bounds, that hand the totals on; `body` adds to them."""
        if not loops:
            return body(totals)
        first, last = self._limits(loops[0], bounds.get(loops[0], Bounds()))
        with self.e.loop(first, last, carried=totals) as loop:
            self.values[loops[0]] = loop.index
            loop.carry(self._reducing(loops[1:], list(loop.values), body, bounds))
        return list(loop.values)

    def _vector_loop(self, variable: Var, start: Value, stop: Value, body: Callable[[int, Value | None], None]) -> None:
        """Whole vectors from start, `wide` at once, then those that are left and one masked vector for the rest of the extent."""
        e, lanes, step = self.e, self.target.lanes, self.target.lanes * self.wide
        whole = variable.extent - variable.extent % step
        main_stop = e.smin(stop, e.const(whole)) if whole != variable.extent else stop
        if whole:
            with e.loop(start, main_stop, step) as loop:
                self.values[variable] = loop.index
                body(step, None)
        if whole != variable.extent:
            with e.when(e.compare("sgt", stop, e.const(whole))):
                for first in range(whole, variable.extent, lanes):
                    self.values[variable] = e.const(first)
                    body(lanes, self._tail_mask(variable.extent - first) if variable.extent - first < lanes else None)

    def _tail_mask(self, count: int) -> Value:
        bits = ", ".join("i1 true" if lane < count else "i1 false" for lane in range(self.target.lanes))
        return Value(f"<{bits}>", vector_type("i1", self.target.lanes))

    # -- an outer loop runs over the lanes
    def _vertical(self, stage: Stage, lanes: int, vector: Var | None, bound: Mapping[int, Value], mask: Value | None) -> Value:
        """Reduce over loops with one accumulator a lane."""
        assert stage.kind is not None
        kind, dtype = stage.kind, stage.body.dtype
        start = self.e.const(neutral(kind, dtype), vector_type(dtype.register, lanes))
        stage, bounds = clip(stage, vector, neutral(kind, dtype))
        clipped = bool(bounds) and not any(isinstance(x, Op) and x.name == "select" for x in walk(stage.body))

        def here() -> Lanes:
            found = self._lanes(lanes, vector, bound, mask, stage)
            found.clipped = clipped
            return found

        def add(total: Value) -> Value:
            return combine(self.e, kind, dtype, total, self._contribution(stage, here()))

        def row(totals: list[Value]) -> list[Value]:
            return self._abreast(stage.over[-1], totals, lambda totals: [add(*totals)])

        def nest() -> Value:
            several = self._totals(stage, bounds)
            loops, body = (stage.over[:-1], row) if several > 1 else (stage.over, lambda totals: [add(*totals)])
            totals = self._reducing(loops, [start] * several, body, bounds)
            return reduce(lambda a, b: combine(self.e, kind, dtype, a, b), totals)

        if self._is_small_window(stage):
            whole = self._whole(bounds)
            if whole is None:
                return self._window(stage, here)
            return self.e.either(whole, lambda: self._window(stage, here), nest)
        return nest()

    def _abreast(self, variable: Var, totals: list[Value], body: Callable[[list[Value]], list[Value]], step: int = 1) -> list[Value]:
        """The loop, with `step` totals for each of some turns that run side by side and do not wait for each other."""
        turns = len(totals) // step
        whole = variable.extent - variable.extent % turns
        parts = [slice(turn * step, turn * step + step) for turn in range(turns)]
        with self.e.loop(0, whole, turns, carried=totals) as loop:
            found = list[Value]()
            for turn, part in enumerate(parts):
                self.values[variable] = self.e.add(loop.index, turn)
                found += body(list(loop.values[part]))
            loop.carry(found)
        totals = list(loop.values)
        for number in range(whole, variable.extent):
            self.values[variable] = self.e.const(number)
            totals[parts[number - whole]] = body(totals[parts[number - whole]])
        return totals

    def _totals(self, stage: Stage, bounds: Mapping[Var, Bounds]) -> int:
        """How many totals an accumulator of a lane is split into: as many as the innermost loop can fill."""
        if not stage.over or stage.over[-1] in bounds or prod(v.extent for v in stage.over) < 2 * self.unroll:
            return 1
        return min(self.unroll, stage.over[-1].extent)

    def _is_small_window(self, stage: Stage) -> bool:
        """Whether it is reduced without loops. Where blocks of channels are partial, some elements do not exist.

        Sums of 8 to 27 rows take 0.59 to 1.04 of the time of loops with sums side by side, 0.88 in the mean (60 drawn ones with 16 lanes
        and with 8, Zen 4).
        """
        is_narrow = self.vector is not None and self.vector.extent <= _FEW_VECTORS * self.target.lanes
        few = _OF_FEW if is_narrow or not self.e.masks else _WRITTEN_OUT
        if not stage.body.dtype.is_float or stage.keeps or stage.guards or prod(v.extent for v in stage.over) not in few:
            return False
        return stage.kind in ("max", "min", "sum")

    def _whole(self, bounds: Mapping[Var, Bounds]) -> Value | None:
        """Whether these loops run over their whole extent; None where all do."""
        found: Value | None = None
        for variable, bound in bounds.items():
            first, last = self._limits(variable, bound)
            whole = self.e.binary(
                "and", self.e.compare("eq", first, self.e.const(0)), self.e.compare("eq", last, self.e.const(variable.extent))
            )
            found = whole if found is None else self.e.binary("and", found, whole)
        return found

    def _window(self, stage: Stage, lanes: Callable[[], Lanes]) -> Value:
        """The largest or smallest element of a small window, or its sum, written out. What lanes get that do not exist is never read."""
        assert stage.kind is not None
        found = list[Value]()
        for place in product(*(range(v.extent) for v in stage.over)):
            self.values |= {v: self.e.const(index) for v, index in zip(stage.over, place, strict=True)}
            here = lanes()
            value = here.value(stage.body)
            found.append(here.spread(value) if here.lanes > 1 else value)
        return total(self.e, found) if stage.kind == "sum" else extreme(self.e, stage.kind, found)

    def _limits(self, variable: Var, bounds: Bounds) -> tuple[Value, Value]:
        scalar = Lanes(self.e, 1, None, self.values, self.pointers)
        return scalar.value(bounds.start()), scalar.value(bounds.stop(variable.extent))

    def _contribution(self, stage: Stage, lanes: Lanes) -> Value:
        """The body in every lane; the neutral element in lanes that do not exist."""
        assert stage.kind is not None
        value = lanes.spread(lanes.value(stage.body)) if lanes.lanes > 1 else lanes.value(stage.body)
        for expr, row in stage.keeps:
            assert lanes.vector is not None
            self.e.store(lanes.vector_of(expr), self.e.gep(self.pointers[row.source.name], self.values[lanes.vector], row.dtype.storage), 4)
        if lanes.mask is None:
            return value
        absent = self.e.const(absent_from(stage.kind, stage.body.dtype), value.type)
        return self.e.select(lanes.spread(lanes.mask), value, absent)

    # -- a loop of the stage runs over the lanes
    def _horizontal(self, stage: Stage, bound: dict[int, Value]) -> None:
        """Store whole rows, or reduce a row to a scalar."""
        variable = own_vector(stage)
        assert variable is not None
        others = [v for v in stage.over if v is not variable]
        if stage.is_store:
            self._loops(others, lambda: self._store_row(stage, variable, bound))
            return
        assert stage.tensor is not None
        bound[id(stage.tensor)] = self._reduce_row(stage, variable, others, bound)

    def _store_row(self, stage: Stage, variable: Var, bound: Mapping[int, Value]) -> None:
        def body(lanes: int, mask: Value | None) -> None:
            self._store(stage, lanes, variable, bound, mask)

        self._vector_loop(variable, self.e.const(0), self.e.const(variable.extent), body)

    def _partial_sums(self, stage: Stage) -> int:
        """Sums side by side. One that adds up what functions give waits for nothing, and few registers are full of their constants."""
        costly = any(isinstance(expr, Op) and expr.name in COSTLY for expr in walk(stage.body))
        return 1 if costly and self.target.has_few_registers else self.unroll

    def _reduce_row(self, stage: Stage, variable: Var, others: list[Var], bound: Mapping[int, Value]) -> Value:
        e, lanes, kind, dtype = self.e, self.target.lanes, stage.kind, stage.body.dtype
        assert kind is not None
        unroll, turns = self._row_totals(stage, variable, others)
        step = lanes * unroll
        whole = variable.extent - variable.extent % step

        def add(total: Value, at: Value, mask: Value | None = None) -> Value:
            self.values[variable] = at
            return combine(e, kind, dtype, total, self._contribution(stage, self._lanes(lanes, variable, bound, mask, stage)))

        def row(totals: list[Value]) -> list[Value]:
            if whole:
                with e.loop(0, whole, step, carried=totals) as loop:
                    loop.carry([add(total, e.add(loop.index, part * lanes)) for part, total in enumerate(loop.values)])
                totals = list(loop.values)
            for part, first in enumerate(range(whole, variable.extent, lanes)):
                mask = self._tail_mask(variable.extent - first) if variable.extent - first < lanes else None
                totals[part] = add(totals[part], e.const(first), mask)
            return totals

        def rows(totals: list[Value]) -> list[Value]:
            return self._abreast(others[-1], totals, row, unroll)

        start = e.const(neutral(kind, dtype), vector_type(dtype.register, lanes))
        loops, body = (others[:-1], rows) if turns > 1 else (others, row)
        return combine_all(e, kind, dtype, self._reducing(loops, [start] * unroll * turns, body, {}))

    def _row_totals(self, stage: Stage, variable: Var, others: list[Var]) -> tuple[int, int]:
        """Totals side by side along a row of vectors, and rows side by side where one is too short to fill them."""
        most, vectors = self._partial_sums(stage), -(-variable.extent // self.target.lanes)
        if not others:
            return (most if variable.extent >= 2 * self.unroll * self.target.lanes else 1), 1
        along = min(most, vectors)
        return along, min(most // along, others[-1].extent)

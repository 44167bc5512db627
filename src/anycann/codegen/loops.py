"""Nests to kernels: picks the vector loop and the parallel split, then writes the loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
import math

from anycann.codegen.accesses import FlatNest, Stage, flatten
from anycann.codegen.clipping import Bounds, clip
from anycann.codegen.emitter import Emitter, Value, mangle, vector_type
from anycann.codegen.kernel import Kernel
from anycann.codegen.lanes import Flat, Lanes, emit_op, to_storage
from anycann.codegen.rows import keep_rows
from anycann.target.target import Target
from anycann.te.dtypes import DType
from anycann.te.expression import Const, Load, Op, Var, walk
from anycann.te.layout import ND, Place
from anycann.te.nest import build_nest
from anycann.te.simplify import Linear, linear
from anycann.te.tensor import Placeholder, Tensor

SERIAL_WORK = 16_384  # element operations below which splitting costs more than it gains
PARALLEL_PARTS = 64


@dataclass(frozen=True)
class Output:
    """A tensor to compute and how it is stored."""

    name: str
    tensor: Tensor
    layout: str = ND
    within: Place | None = None  # set for a piece of a larger buffer

    @property
    def place(self) -> Place:
        """Where its elements are stored."""
        return self.within or Place(self.tensor.shape, self.layout)


def generate(outputs: Sequence[Output], layouts: Mapping[str, str], target: Target, family: str = "te") -> Kernel:
    """The kernel that computes all outputs in one nest. `layouts`: storage of the placeholders by name. Raises CannotFuse."""
    if not any(o.tensor.size for o in outputs):
        symbol, text = Emitter().finish("nothing")
        return Kernel(symbol, text, tuple(o.name for o in outputs), 1)
    nest = build_nest([o.tensor for o in outputs])
    flat = flatten(nest, [o.place for o in outputs], layouts, target.lanes)
    from anycann.codegen.transposing import TransposingWriter, transposition  # which stands on this module

    inputs = placeholders(flat)
    vector = vector_variable(flat)  # keeping rows takes loads away, so it is decided before
    flat, rows = keep_rows(flat, target.lanes) if vector is None else (flat, ())
    turned = transposition(flat, target.lanes)
    types = [o.tensor.dtype for o in outputs]
    writer = NestWriter(flat, types, target, vector) if turned is None else TransposingWriter(flat, types, target, turned)
    kernel = writer.write(family, inputs, [o.name for o in outputs], rows)
    return replace(kernel, scratch_bytes=sum(row.size * row.dtype.nbytes for row in rows))


def placeholders(nest: FlatNest) -> list[str]:
    """Names of the tensors a nest reads, in order of first use."""
    names: dict[str, None] = {}
    for stage in nest.stages:
        roots = (stage.body,) if stage.address is None else (stage.body, stage.address)
        for expr in walk(*roots):
            if isinstance(expr, Load) and isinstance(expr.tensor, Flat):
                names[expr.tensor.source.name] = None
            assert not (isinstance(expr, Load) and isinstance(expr.tensor, Placeholder))
    return list(names)


# ---- decisions
def vector_variable(nest: FlatNest) -> Var | None:
    """The outer loop that runs over lanes; None if each stage vectorises a loop of its own."""
    scores: dict[Var, float] = {}
    for stage in nest.stages:
        for form, weight in _strides(stage):
            for atom, factor in form.terms:
                if isinstance(atom, Var) and factor == 1:
                    scores[atom] = scores.get(atom, 0) + weight
    best_outer = max(nest.outer, key=lambda v: scores.get(v, 0), default=None)
    own = max((scores.get(v, 0) for stage in nest.stages for v in stage.over), default=0)
    if best_outer is not None and scores.get(best_outer, 0) > own:
        return best_outer
    if own == 0 and nest.outer and not any(stage.over for stage in nest.stages):
        return nest.outer[-1]
    return None


def _strides(stage: Stage) -> list[tuple[Linear, float]]:
    """Linear forms of the stage's loads and store; a store counts double (scattering costs more than gathering)."""
    found = [
        (linear(expr.indices[0]), math.log2(2 + expr.tensor.size))
        for expr in walk(stage.body)
        if isinstance(expr, Load) and isinstance(expr.tensor, Flat)
    ]
    if stage.address is not None:
        volume = math.prod(v.extent for v in stage.over)
        found.append((linear(stage.address), 2 * math.log2(2 + volume) + 12))
    return found


def _own_vector(stage: Stage) -> Var | None:
    scores = dict.fromkeys(stage.over, 0.0)
    for form, weight in _strides(stage):
        for variable in stage.over:
            if form.coefficient(variable) == 1:
                scores[variable] += weight
    return max(stage.over, key=lambda v: (scores[v], v.extent > 1), default=None)


_EXPENSIVE = {"exp", "log", "tanh", "erf", "sigmoid", "pow", "sin", "cos", "sqrt", "div", "softplus"}


def _cost(stage: Stage) -> int:
    per_element = sum(8 if isinstance(x, Op) and x.name in _EXPENSIVE else 1 for x in walk(stage.body))
    return per_element * math.prod(v.extent for v in stage.over)


def round_up(size: int, step: int) -> int:
    """The next multiple of `step`."""
    return -(-size // step) * step


# ---- writing
IDENTITY: dict[str, dict[str, float]] = {
    "float": {"sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf},
    "int": {"sum": 0, "prod": 1},
    "bool": {"any": 0, "all": 1, "max": 0, "min": 1},
}


def identity(kind: str, dtype: DType) -> float:
    """The neutral element of a reduction."""
    if dtype.kind in ("int", "uint") and kind in ("max", "min"):
        bits = 8 * dtype.nbytes
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype.kind == "int" else (0, (1 << bits) - 1)
        return low if kind == "max" else high
    return IDENTITY["int" if dtype.kind == "uint" else dtype.kind][kind]


_COMBINE = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}


class NestWriter:
    """Writes one kernel. The vector loop is either one outer loop (`self.vector`) or, per stage, one of its own."""

    def __init__(self, nest: FlatNest, dtypes_: Sequence[DType], target: Target, vector: Var | None, emitter: Emitter | None = None):
        self.nest, self.dtypes, self.target = nest, dtypes_, target
        self.e = emitter or Emitter()
        self.vector = vector
        self.pointers: dict[str, Value] = {}
        self.stores: list[Value] = []
        self.values: dict[Var, Value] = {}

    def write(self, family: str, inputs: Sequence[str], outputs: Sequence[str], rows: Sequence[Flat] = ()) -> Kernel:
        e = self.e
        self.bind(inputs, len(outputs))
        offset = 0
        for row in rows:
            self.pointers[row.source.name] = e.gep(e.scratch, offset, row.dtype.storage)
            offset += row.size
        loops = self.task_loops()
        work = math.prod(v.extent for v in self.nest.outer) * sum(_cost(stage) for stage in self.nest.stages)
        tasks = self._chunks(work) if not loops and self.vector is not None else self._tasks(loops, work)
        symbol, ir = e.finish(family)
        return Kernel(symbol, ir, (*inputs, *outputs), tasks, flops=work)

    def bind(self, inputs: Sequence[str], outputs: int, first: int = 0) -> None:
        """Load the pointers of inputs and outputs from the argument slots `first` and up."""
        for number, name in enumerate(inputs):
            self.pointers[name] = self.e.argument(first + number)
        self.stores = [self.e.argument(first + len(inputs) + number) for number in range(outputs)]

    # -- outer loops
    def task_loops(self) -> list[Var]:
        """The loops that may be shared out to threads."""
        return [v for v in self.nest.outer if v is not self.vector]

    def _chunks(self, work: int) -> int:
        """One long vector loop, cut into chunks of whole vectors."""
        e, variable = self.e, self.vector
        assert variable is not None
        lanes, extent = self.target.lanes, variable.extent
        parts = 1 if work < SERIAL_WORK else min(PARALLEL_PARTS, work // (SERIAL_WORK // 4) + 1)
        chunk = max(lanes, round_up(round_up(extent, parts) // parts, lanes))
        tasks = max(1, -(-extent // chunk))
        stop = e.smin(e.mul(e.end, chunk), e.const(extent))
        self._vector_loop(variable, e.mul(e.begin, chunk), stop, lambda lanes_, mask: self.stages(lanes_, mask))
        return tasks

    def _tasks(self, loops: list[Var], work: int) -> int:
        """The leading loops are the parallel range; the rest run inside a task."""
        leading, tasks = 0, 1
        while work >= SERIAL_WORK and leading < len(loops) and tasks < PARALLEL_PARTS:
            tasks *= loops[leading].extent
            leading += 1
        with self.e.loop(self.e.begin, self.e.end) as task:
            rest = task.index
            for variable in reversed(loops[:leading]):
                first = variable is loops[0]
                self.values[variable] = rest if first else self.e.urem(rest, variable.extent)
                rest = rest if first else self.e.udiv(rest, variable.extent)
            self._inner(loops[leading:])
        return tasks

    def _inner(self, loops: list[Var]) -> None:
        if loops:
            with self.e.loop(0, loops[0].extent) as loop:
                self.values[loops[0]] = loop.index
                self._inner(loops[1:])
        elif self.vector is not None:
            self._vector_loop(self.vector, self.e.const(0), self.e.const(self.vector.extent), lambda lanes, mask: self.stages(lanes, mask))
        else:
            self.stages(1, None)

    def _vector_loop(self, variable: Var, start: Value, stop: Value, body) -> None:  # type: ignore[no-untyped-def]
        """Whole vectors from start, then one masked vector for the rest of the extent."""
        e, lanes = self.e, self.target.lanes
        whole = variable.extent - variable.extent % lanes
        main_stop = e.smin(stop, e.const(whole)) if whole != variable.extent else stop
        if whole:
            with e.loop(start, main_stop, lanes) as loop:
                self.values[variable] = loop.index
                body(lanes, None)
        if whole != variable.extent:
            with e.when(e.compare("sgt", stop, e.const(whole))):
                self.values[variable] = e.const(whole)
                body(lanes, self._tail_mask(variable.extent - whole))

    def _tail_mask(self, count: int) -> Value:
        bits = ", ".join("i1 true" if lane < count else "i1 false" for lane in range(self.target.lanes))
        return Value(f"<{bits}>", vector_type("i1", self.target.lanes))

    # -- stages
    def stages(self, lanes: int, mask: Value | None, known: Mapping[int, Value] | None = None) -> None:
        """All stages at one outer point: `lanes` > 1 if an outer loop is the vector loop. `known`: elements that are there already."""
        bound: dict[int, Value] = dict(known or {})
        vector = self.vector if lanes > 1 else None
        for stage in self.nest.stages:
            if vector is None and stage.over:
                self._horizontal(stage, bound)
            elif stage.is_store:
                self._loops(list(stage.over), lambda stage=stage: self._store(stage, self._lanes(lanes, vector, bound, mask, stage)))
            else:
                assert stage.tensor is not None
                bound[id(stage.tensor)] = self._vertical(stage, lanes, vector, bound, mask)

    def _lanes(self, lanes: int, vector: Var | None, bound: Mapping[int, Value], mask: Value | None, stage: Stage) -> Lanes:
        """The expression writer at this point, its mask narrowed by partial channel blocks."""
        here = Lanes(self.e, lanes, vector, self.values, self.pointers, bound, None)
        guards = (*self.nest.guards, *stage.guards)
        for guard in guards:
            condition = here.spread(here.value(guard))
            mask = condition if mask is None else self.e.binary("and", mask, condition)
        return Lanes(self.e, lanes, vector, self.values, self.pointers, bound, mask)

    def _loops(self, loops: list[Var], body) -> None:  # type: ignore[no-untyped-def]
        if not loops:
            body()
            return
        with self.e.loop(0, loops[0].extent) as loop:
            self.values[loops[0]] = loop.index
            self._loops(loops[1:], body)

    def _store(self, stage: Stage, lanes: Lanes) -> None:
        e, dtype = self.e, self.dtypes[stage.output]
        assert stage.address is not None
        form = linear(stage.address)
        value = lanes.value(stage.body)
        pointer = self.stores[stage.output]
        stride = form.coefficient(lanes.vector) if lanes.vector is not None and lanes.lanes > 1 else 0
        opaque = any(not isinstance(a, Var) and lanes.value(a).lanes > 1 for a in form.atoms)
        if lanes.lanes > 1 and (opaque or stride != 1):
            self._scatter(stage, lanes, lanes.spread(value), pointer, dtype)
            return
        stored = to_storage(e, lanes.spread(value) if lanes.lanes > 1 else value, dtype)
        offset = e.const(form.constant)
        for atom, factor in form.terms:
            offset = e.add(offset, e.mul(self.values[atom] if isinstance(atom, Var) else lanes.value(atom), factor))
        address = e.gep(pointer, offset, dtype.storage)
        if lanes.mask is None:
            e.store(stored, address, dtype.nbytes)
        elif lanes.lanes == 1:
            with e.when(lanes.mask):
                e.store(stored, address, dtype.nbytes)
        else:
            e.masked_store(stored, address, dtype.nbytes, lanes.mask)

    def _scatter(self, stage: Stage, lanes: Lanes, value: Value, pointer: Value, dtype: DType) -> None:
        e = self.e
        assert stage.address is not None
        stored = to_storage(e, value, dtype)
        indices = lanes.spread(lanes.value(stage.address))
        pointers = vector_type("ptr", lanes.lanes)
        addresses = e.op(f"getelementptr inbounds {dtype.storage}, ptr {pointer.text}, {indices.type} {indices.text}", pointers)
        mask = lanes.mask or e.const(1, vector_type("i1", lanes.lanes))
        name = f"llvm.masked.scatter.{mangle(stored.type)}.v{lanes.lanes}p0"
        e.declarations[name] = f"declare void @{name}({stored.type}, {pointers}, {mask.type})"
        e.do(f"call void @{name}({stored.type} {stored.text}, {pointers} align {dtype.nbytes} {addresses.text}, {mask.type} {mask.text})")

    # -- reductions
    def _combine(self, kind: str, dtype: DType, a: Value, b: Value) -> Value:
        operand = Const(0, dtype)
        return emit_op(self.e, Op(_COMBINE[kind], (operand, operand), dtype), [a, b])

    def _contribution(self, stage: Stage, lanes: Lanes) -> Value:
        """The body in every lane; the neutral element in lanes that do not exist."""
        assert stage.kind is not None
        value = lanes.spread(lanes.value(stage.body)) if lanes.lanes > 1 else lanes.value(stage.body)
        for expr, row in stage.keeps:
            assert lanes.vector is not None
            self.e.store(lanes.vector_of(expr), self.e.gep(self.pointers[row.source.name], self.values[lanes.vector], row.dtype.storage), 4)
        if lanes.mask is None:
            return value
        neutral = self.e.const(identity(stage.kind, stage.body.dtype), value.type)
        return self.e.select(lanes.spread(lanes.mask), value, neutral)

    def _vertical(self, stage: Stage, lanes: int, vector: Var | None, bound: Mapping[int, Value], mask: Value | None) -> Value:
        """Reduce over loops with one accumulator a lane."""
        assert stage.kind is not None
        kind, dtype = stage.kind, stage.body.dtype
        start = self.e.const(identity(kind, dtype), vector_type(dtype.register, lanes))
        stage, bounds = clip(stage, vector, identity(kind, dtype))
        clipped = bool(bounds) and not any(isinstance(x, Op) and x.name == "select" for x in walk(stage.body))

        def nest(loops: list[Var], total: Value) -> Value:
            if not loops:
                here = self._lanes(lanes, vector, bound, mask, stage)
                here.clipped = clipped
                return self._combine(kind, dtype, total, self._contribution(stage, here))
            limits, scalar = bounds.get(loops[0], Bounds()), Lanes(self.e, 1, None, self.values, self.pointers)
            first, last = scalar.value(limits.start()), scalar.value(limits.stop(loops[0].extent))
            with self.e.loop(first, last, carried=[total]) as loop:
                self.values[loops[0]] = loop.index
                loop.carry([nest(loops[1:], loop.values[0])])
            return loop.values[0]

        return nest(list(stage.over), start)

    def _horizontal(self, stage: Stage, bound: dict[int, Value]) -> None:
        """A stage whose own loop runs over the lanes: stores whole rows, or reduces a row to a scalar."""
        variable = _own_vector(stage)
        assert variable is not None
        others = [v for v in stage.over if v is not variable]
        if stage.is_store:
            whole = self.e.const(variable.extent)
            self._loops(
                others,
                lambda: self._vector_loop(
                    variable,
                    self.e.const(0),
                    whole,
                    lambda lanes, mask: self._store(stage, self._lanes(lanes, variable, bound, mask, stage)),
                ),
            )
            return
        assert stage.tensor is not None
        bound[id(stage.tensor)] = self._reduce_row(stage, variable, others, bound)

    def _reduce_row(self, stage: Stage, variable: Var, others: list[Var], bound: Mapping[int, Value]) -> Value:
        e, lanes, kind, dtype = self.e, self.target.lanes, stage.kind, stage.body.dtype
        assert kind is not None
        start = e.const(identity(kind, dtype), vector_type(dtype.register, lanes))
        unroll = 4 if variable.extent >= 8 * lanes else 1

        def row(totals: list[Value]) -> list[Value]:
            step = lanes * unroll
            whole = variable.extent - variable.extent % step
            with e.loop(0, whole, step, carried=totals) as loop:
                following = []
                for part, total in enumerate(loop.values):
                    self.values[variable] = e.add(loop.index, part * lanes)
                    following.append(
                        self._combine(kind, dtype, total, self._contribution(stage, self._lanes(lanes, variable, bound, None, stage)))
                    )
                loop.carry(following)
            totals = list(loop.values)
            for first in range(whole, variable.extent, lanes):
                self.values[variable] = e.const(first)
                mask = self._tail_mask(variable.extent - first) if variable.extent - first < lanes else None
                here = self._lanes(lanes, variable, bound, mask, stage)
                totals[0] = self._combine(kind, dtype, totals[0], self._contribution(stage, here))
            return totals

        def nest(loops: list[Var], totals: list[Value]) -> list[Value]:
            if not loops:
                return row(totals)
            with e.loop(0, loops[0].extent, carried=totals) as loop:
                self.values[loops[0]] = loop.index
                loop.carry(nest(loops[1:], list(loop.values)))
            return list(loop.values)

        totals = nest(others, [start] * unroll)
        while len(totals) > 1:
            totals = [self._combine(kind, dtype, a, b) for a, b in zip(totals[::2], totals[1::2], strict=True)]
        return self._across(kind, dtype, totals[0])

    def _across(self, kind: str, dtype: DType, vector: Value) -> Value:
        """Combine the lanes of one vector by halves."""
        e = self.e
        while vector.lanes > 1:
            half = vector.lanes // 2
            low = e.shuffle(vector, vector, range(half)) if half > 1 else e.extract(vector, 0)
            high = e.shuffle(vector, vector, range(half, 2 * half)) if half > 1 else e.extract(vector, 1)
            vector = self._combine(kind, dtype, low, high)
        return vector

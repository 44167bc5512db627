"""Expressions to LLVM values, one vector of lanes at a time: loads are vector, broadcast, strided or gathered by their linear form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from anycann.codegen.byte_lookup import lookup
from anycann.codegen.byte_packing import pack_bytes, packs_bytes
from anycann.codegen.conversions import convert, from_storage, to_storage
from anycann.codegen.emitter import Emitter
from anycann.codegen.near_places import load_near, near_places
from anycann.codegen.operations import emit_op
from anycann.codegen.saturating import unclamped
from anycann.codegen.strided import gather_one_by_one, is_pickable, load_repeated, load_strided
from anycann.codegen.values import Value, vector_type
from anycann.support.errors import InternalError
from anycann.support.records import dataclass
from anycann.te import dtypes
from anycann.te.dtypes import DType
from anycann.te.expression import Const, Expr, Load, Op, Var
from anycann.te.simplify import Linear, is_short, linear, range_of_linear, to_expr
from anycann.te.tensor import Placeholder, Tensor
from anycann.te.traversal import walk

# Outside a tensor: there, masked loads of lanes that nobody reads take long, where they meet a page that does not exist. Of Pad that moves
# the pixels of 60 x 3 rows of 1069 by two images they took 14.8 ms, of 49 rows of 607 by three rows 1.97; without them it takes 0.15 and
# 0.11. 33 planes of 16 x 16 that end with their page become blocks of channels in 19 us where it took 87 (Zen 4).
_FAR_BYTES = 1 << 8


@dataclass(frozen=True, eq=False)
class Flat(Tensor):
    """A buffer as one row of elements: what a load reads after layouts are resolved."""

    source: Placeholder

    @property
    def bounds(self) -> tuple[int, int] | None:
        return self.source.bounds


@dataclass
class Lanes:
    """Writes expressions at one point of the loops.

    values: the scalar value of each index variable. vector: the variable that runs over the lanes (its value is that of lane 0), or None.
    bound: what reads of reductions and contractions stand for. mask: lanes that exist (None: all).
    """

    emitter: Emitter
    lanes: int
    vector: Var | None
    values: Mapping[Var, Value]
    pointers: Mapping[str, Value]
    bound: Mapping[int, Value] = field(default_factory=dict)
    mask: Value | None = None
    _memo: dict[tuple[int, str], tuple[Expr, Value]] = field(default_factory=dict)  # keeps the expression alive: ids are reused
    _short: dict[str, Value] = field(default_factory=dict)  # by the text of a 64-bit integer: the same in 32 bits
    _within: dict[str, str] = field(default_factory=dict)  # of a mask made for a branch: the mask around it
    clipped: bool = False  # the loops around keep every read inside (clipping.py)
    filled: Value | None = None  # lanes that a store in order may write: those of the mask, and those behind them that nothing lies in
    shared: Value | None = None  # a condition on all lanes that a store in order is under
    existing: int | None = None  # so many of the lanes exist, whatever the mask says of them
    aligned: bool = False  # lane 0 of `vector` is a multiple of the lanes
    rounds_bfloat: bool = False  # the processor has an instruction that rounds a vector to bfloat16
    permutes_bytes: bool = False  # it has one that permutes the bytes of two registers
    shuffles_bytes: bool = False  # it has one that permutes 16 bytes
    saturates: bool = False  # its instructions that pack bytes saturate, and what is too small for an int32 becomes the least one
    permutes_floats: bool = False  # it has one that permutes the float32 of a vector
    packs: bool = False  # it has those of AVX-512 (byte_packing.py)

    def value(self, expr: Expr, mask: Value | None = None) -> Value:
        """The value of expr: a scalar if it is the same in all lanes, else a vector. `mask` guards loads inside a select's branch."""
        guard = mask.text if mask else ""
        known = self._known(id(expr), guard)
        if known is None:
            known = self._emit(expr, mask)
            self._memo[id(expr), guard] = (expr, known)
        return known

    def _known(self, number: int, guard: str) -> Value | None:
        """What was written for these lanes, or for more: a clamp would else be written once in its condition and again in its branch."""
        while (number, guard) not in self._memo:
            if not guard:
                return None
            guard = self._within.get(guard, "")
        return self._memo[number, guard][1]

    def provide(self, expr: Expr, value: Value) -> None:
        """Say what an expression is, so that it is not written."""
        self._memo[id(expr), ""] = (expr, value)

    def inherit(self, around: Lanes) -> None:
        """Take over what was computed for the same lanes outside of the loop that this is in."""
        self._memo |= around._memo
        self._short |= around._short

    def vector_of(self, expr: Expr) -> Value:
        """The value of expr in every lane."""
        return self.spread(self.value(expr))

    def spread(self, value: Value) -> Value:
        return value if value.lanes == self.lanes else self.emitter.splat(value, self.lanes)

    def _emit(self, expr: Expr, mask: Value | None) -> Value:
        e = self.emitter
        if isinstance(expr, Const):
            return e.const(expr.value, expr.dtype.register)
        if isinstance(expr, Var):
            scalar = self.values[expr]
            if expr is not self.vector or self.lanes == 1:
                return scalar
            return e.binary("add", e.splat(scalar, self.lanes), e.lane_numbers(self.lanes))
        if isinstance(expr, Load):
            known = self.bound.get(id(expr.tensor))
            return known if known is not None else self._load(expr, mask)
        assert isinstance(expr, Op)
        if expr.name == "select":
            return self._select(expr, mask)
        if expr.name == "lookup":
            return self._lookup(expr, mask)
        whole = unclamped(expr) if self.packs and packs_bytes(self.lanes) else None
        if whole is not None and (value := self.value(whole, mask)).lanes > 1:
            return pack_bytes(e, value, expr.dtype is dtypes.int8)
        operands = [self.value(operand, mask) for operand in expr.operands]
        if expr.name == "cast":
            return self._cast(operands[0], expr.operands[0].dtype, expr.dtype)
        if expr.name == "bitcast":
            stored = to_storage(e, operands[0], expr.operands[0].dtype)
            return from_storage(e, e.cast("bitcast", stored, expr.dtype.storage), expr.dtype)
        if any(operand.lanes > 1 for operand in operands):
            if is_short(expr):
                return self._widened(emit_op(e, expr, [self.short(operand, mask) for operand in expr.operands]))
            operands = [self.spread(operand) for operand in operands]
        return emit_op(e, expr, operands)

    # ---- 64-bit integers that 32 bits hold: there are no vector instructions for half of what indices need, and twice as many lanes
    def short(self, expr: Expr, mask: Value | None = None) -> Value:
        """A 64-bit integer that 32 bits hold, as a vector of those."""
        e = self.emitter
        if isinstance(expr, Const):
            return e.const(expr.value, vector_type("i32", self.lanes))
        if expr is self.vector:
            first = e.splat(e.cast("trunc", self.values[expr], "i32"), self.lanes)
            return e.binary("add", first, e.lane_numbers(self.lanes, "i32"))
        value = self.value(expr, mask)
        known = self._short.get(value.text)
        return known if known is not None else self.spread(e.cast("trunc", value, "i32"))

    def _widened(self, value: Value) -> Value:
        """64 bits for 32, which are remembered; what a comparison gives stays."""
        if value.element != "i32":
            return value
        wide = self.emitter.cast("sext", value, "i64")
        self._short[wide.text] = value
        return wide

    def _cast(self, value: Value, source: DType, target: DType) -> Value:
        if source is dtypes.int32 and target is dtypes.int64 and value.lanes > 1:
            return self._widened(value)
        return convert(self.emitter, value, source, target)

    def _lookup(self, expr: Op, mask: Value | None) -> Value:
        index, table = expr.operands
        assert isinstance(table, Const)
        return lookup(self.emitter, self.value(index, mask), int(table.value), self.permutes_bytes, self.shuffles_bytes)

    def _select(self, expr: Op, mask: Value | None) -> Value:
        e = self.emitter
        condition = self.value(expr.operands[0], mask)
        if condition.text in ("true", "false"):
            return self.value(expr.operands[1 if condition.text == "true" else 2], mask)
        a = self.value(expr.operands[1], self._branch(condition, mask))
        negated = e.binary("xor", condition, e.const(1, condition.type)) if _has_loads(expr.operands[2]) else condition
        b = self.value(expr.operands[2], self._branch(negated, mask))
        if condition.lanes > 1 or a.lanes > 1 or b.lanes > 1:
            a, b = self.spread(a), self.spread(b)
        return e.select(condition, a, b)

    def _branch(self, condition: Value, mask: Value | None) -> Value:
        """The lanes of `mask` in which the condition holds."""
        lanes = self._both(condition, mask)
        if mask is not None and lanes.text != mask.text:
            self._within[lanes.text] = mask.text
        return lanes

    def _both(self, condition: Value, mask: Value | None) -> Value:
        if mask is None:
            return condition
        if condition.lanes != mask.lanes:
            condition, mask = self.spread(condition), self.spread(mask)
        return self.emitter.binary("and", condition, mask)

    # ---- loads
    def _load(self, expr: Load, guard: Value | None) -> Value:
        tensor = expr.tensor
        if not isinstance(tensor, Flat):
            raise InternalError(f"a read of {type(tensor).__name__} was not resolved before code generation")
        form = linear(expr.indices[0])
        inside = self.clipped or range_of_linear(form).within(0, tensor.size - 1)
        pointer = self.pointers[tensor.source.name]
        if guard is None:
            guard = self.mask  # partial channel blocks: the lanes that exist are inside
        raw = self._raw(tensor, form, pointer, None if inside else guard, inside)
        return from_storage(self.emitter, raw, tensor.dtype)

    def _raw(self, tensor: Flat, form: Linear, pointer: Value, guard: Value | None, inside: bool) -> Value:
        if not inside and guard is None:
            raise InternalError(f"a read of {tensor.source.name} is not proved to stay inside its {tensor.size} elements")
        stride = form.coefficient(self.vector) if self.vector is not None and self.lanes > 1 else 0
        opaque = any(not isinstance(a, Var) and self.value(a, guard).lanes > 1 for a in form.atoms)
        masked = guard is not None or self.mask is not None
        if not opaque and is_pickable(stride, tensor.dtype, masked):
            address = self.emitter.gep(pointer, self._offset(form, guard), tensor.dtype.storage)
            mask = self.mask if guard is None else self._both(guard, self.mask)
            return load_strided(self.emitter, address, stride, self.lanes, tensor.dtype, None if mask is None else self.spread(mask))
        if opaque and not masked and (repeated := self._repeated(form)) is not None:
            return self._load_repeated(tensor, form, pointer, *repeated)
        if opaque and inside and (table := self._permuted(tensor, form)) is not None:
            return self._load_permuted(tensor, form, pointer, table)
        if opaque or stride not in (0, 1):
            return self._gather(tensor, form, pointer, guard)
        return self._contiguous(tensor, form, pointer, guard) if stride else self._broadcast(tensor, form, pointer, guard)

    def _repeated(self, form: Linear) -> tuple[Op, int] | None:
        """The term v // times of the vector variable, and `times`, where nothing else in the form differs between the lanes."""
        differing = [(atom, factor) for atom, factor in form.terms if self.value(atom).lanes > 1]
        (atom, factor), others = differing[0], differing[1:]
        if not self.aligned or others or factor != 1 or not (isinstance(atom, Op) and atom.name == "floordiv"):
            return None
        variable, divisor = atom.operands
        whole = variable is self.vector and isinstance(divisor, Const) and self.lanes % int(divisor.value) == 0
        return (atom, int(divisor.value)) if whole else None  # type: ignore[attr-defined]

    def _load_repeated(self, tensor: Flat, form: Linear, pointer: Value, term: Op, times: int) -> Value:
        e, dtype = self.emitter, tensor.dtype
        rest = Linear(tuple((atom, factor) for atom, factor in form.terms if atom is not term), form.constant)
        assert self.vector is not None
        offset = e.add(self._offset(rest, None), e.udiv(self.values[self.vector], times))
        return load_repeated(e, e.gep(pointer, offset, dtype.storage), times, self.lanes, dtype)

    def _permuted(self, tensor: Flat, form: Linear) -> Load | None:
        """What differs between the lanes, if one load and a permutation read them all. What is read lies inside in any case."""
        if not self.permutes_floats or tensor.dtype.storage != "float" or tensor.size < self.lanes:
            return None
        return near_places(form, self.vector, self.lanes)

    def _load_permuted(self, tensor: Flat, form: Linear, pointer: Value, table: Load) -> Value:
        e, places = self.emitter, self.short(table)
        rest = Linear(tuple((atom, factor) for atom, factor in form.terms if atom is not table), form.constant)
        lowest = e.extract(places, 0)
        first = e.add(self._offset(rest, None), e.cast("sext", lowest, "i64"))
        return load_near(e, pointer, tensor.size, first, e.binary("sub", places, e.splat(lowest, self.lanes)), tensor.dtype)

    def _offset(self, form: Linear, guard: Value | None) -> Value:
        """The scalar offset of lane 0."""
        e = self.emitter
        total = e.const(form.constant)
        for atom, factor in form.terms:
            scalar = self.values[atom] if isinstance(atom, Var) else self.value(atom, guard)
            total = e.add(total, e.mul(scalar, factor))
        return total

    def _broadcast(self, tensor: Flat, form: Linear, pointer: Value, guard: Value | None) -> Value:
        e, dtype = self.emitter, tensor.dtype
        offset = self._offset(form, guard)
        if guard is not None and guard.lanes > 1:
            return self._gather_at(tensor, e.splat(offset, self.lanes), pointer, guard)
        if guard is not None:
            offset = e.select(guard, offset, e.const(0))
        return e.load(e.gep(pointer, offset, dtype.storage), dtype.storage, dtype.nbytes)

    def _contiguous(self, tensor: Flat, form: Linear, pointer: Value, guard: Value | None) -> Value:
        e, dtype = self.emitter, tensor.dtype
        offset = self._offset(form, guard)
        if guard is not None and self._reaches_far(tensor, form):
            offset = self._near(tensor, offset)
        address = e.gep(pointer, offset, dtype.storage)
        type_ = vector_type(dtype.storage, self.lanes)
        mask = self._both(guard, self.mask) if guard is not None else self.mask
        if mask is None or (guard is None and self._is_padded(tensor, form)):
            return e.load(address, type_, dtype.nbytes)
        return e.masked_load(address, type_, dtype.nbytes, self.spread(mask), e.zero(type_))

    def _reaches_far(self, tensor: Flat, form: Linear) -> bool:
        """True if vectors lie so far outside that there may be no page."""
        reach, far = range_of_linear(form), _FAR_BYTES // tensor.dtype.nbytes
        return not reach.within(-far, tensor.size - 1 + far)

    def _near(self, tensor: Flat, offset: Value) -> Value:
        """The offset, or zero where no lane is inside: processors take long over lanes that nobody reads in pages that do not exist."""
        e = self.emitter
        shifted = e.add(offset, self.lanes - 1)
        return e.select(e.compare("ult", shifted, e.const(tensor.size + self.lanes - 1)), offset, e.const(0))

    def _is_padded(self, tensor: Flat, form: Linear) -> bool:
        """True if the last vector of the loop lies in the tensor as the others do, as in a row that is kept (`rows.py`)."""
        (term, *others) = form.terms
        if self.vector is None or others or term != (self.vector, 1) or form.constant < 0:
            return False
        return form.constant + -(-self.vector.extent // self.lanes) * self.lanes <= tensor.size

    def _gather(self, tensor: Flat, form: Linear, pointer: Value, guard: Value | None) -> Value:
        e, place = self.emitter, to_expr(form)
        value = self.value(place, guard)
        indices = self._short.get(value.text) or self.spread(value)
        mask = self.mask
        if guard is not None:
            mask = self._both(guard, mask)
        if mask is None:
            mask = e.const(1, vector_type("i1", self.lanes))
        return self._gather_at(tensor, indices, pointer, self.spread(mask))

    def _gather_at(self, tensor: Flat, indices: Value, pointer: Value, mask: Value) -> Value:
        e, dtype = self.emitter, tensor.dtype
        if not e.masks and tensor.size:
            return gather_one_by_one(e, pointer, indices, dtype, mask)
        type_ = vector_type(dtype.storage, self.lanes)
        pointers = vector_type("ptr", self.lanes)
        addresses = e.op(f"getelementptr inbounds {dtype.storage}, ptr {pointer.text}, {indices.type} {indices.text}", pointers)
        name = f"llvm.masked.gather.v{self.lanes}{_suffix(dtype)}.v{self.lanes}p0"
        e.declarations[name] = f"declare {type_} @{name}({pointers}, {mask.type}, {type_})"
        text = f"call {type_} @{name}({pointers} align {dtype.nbytes} {addresses.text}, {mask.type} {mask.text}, {type_} zeroinitializer)"
        return e.op(text, type_)


def _suffix(dtype: DType) -> str:
    return {"float": "f32", "double": "f64", "half": "f16"}.get(dtype.storage, dtype.storage)


def _has_loads(expr: Expr) -> bool:
    return any(isinstance(node, Load) for node in walk(expr))

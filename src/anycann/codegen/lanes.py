"""Expressions to LLVM values, one vector of lanes at a time: loads are vector, broadcast, strided or gathered by their linear form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from anycann.codegen import vector_math
from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value, vector_type
from anycann.support.errors import InternalError, UnsupportedError
from anycann.te import dtypes
from anycann.te.dtypes import DType
from anycann.te.expression import Const, Expr, Load, Op, Var, walk
from anycann.te.simplify import Linear, linear, range_of_linear, to_expr
from anycann.te.tensor import Placeholder, Tensor


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
    clipped: bool = False  # the loops around keep every read inside (clipping.py)

    def value(self, expr: Expr, mask: Value | None = None) -> Value:
        """The value of expr: a scalar if it is the same in all lanes, else a vector. `mask` guards loads inside a select's branch."""
        key = (id(expr), mask.text if mask else "")
        if key not in self._memo:
            self._memo[key] = (expr, self._emit(expr, mask))
        return self._memo[key][1]

    def provide(self, expr: Expr, value: Value) -> None:
        """Say what an expression is, so that it is not written."""
        self._memo[id(expr), ""] = (expr, value)

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
        operands = [self.value(operand, mask) for operand in expr.operands]
        if expr.name == "cast":
            return convert(e, operands[0], expr.operands[0].dtype, expr.dtype)
        if expr.name == "bitcast":
            stored = to_storage(e, operands[0], expr.operands[0].dtype)
            return from_storage(e, e.cast("bitcast", stored, expr.dtype.storage), expr.dtype)
        if any(operand.lanes > 1 for operand in operands):
            operands = [self.spread(operand) for operand in operands]
        return emit_op(e, expr, operands)

    def _select(self, expr: Op, mask: Value | None) -> Value:
        e = self.emitter
        condition = self.value(expr.operands[0], mask)
        if condition.text in ("true", "false"):
            return self.value(expr.operands[1 if condition.text == "true" else 2], mask)
        a = self.value(expr.operands[1], self._both(condition, mask))
        negated = e.binary("xor", condition, e.const(1, condition.type)) if _has_loads(expr.operands[2]) else condition
        b = self.value(expr.operands[2], self._both(negated, mask))
        if condition.lanes > 1 or a.lanes > 1 or b.lanes > 1:
            a, b = self.spread(a), self.spread(b)
        return e.select(condition, a, b)

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
        if opaque or stride not in (0, 1):
            return self._gather(tensor, form, pointer, guard)
        return self._contiguous(tensor, form, pointer, guard) if stride else self._broadcast(tensor, form, pointer, guard)

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
        address = e.gep(pointer, self._offset(form, guard), dtype.storage)
        type_ = vector_type(dtype.storage, self.lanes)
        mask = self._both(guard, self.mask) if guard is not None else self.mask
        if mask is None:
            return e.load(address, type_, dtype.nbytes)
        return e.masked_load(address, type_, dtype.nbytes, self.spread(mask), e.zero(type_))

    def _gather(self, tensor: Flat, form: Linear, pointer: Value, guard: Value | None) -> Value:
        e = self.emitter
        indices = self.spread(self.value(to_expr(form), guard))
        mask = self.mask
        if guard is not None:
            mask = self._both(guard, mask)
        if mask is None:
            mask = e.const(1, vector_type("i1", self.lanes))
        return self._gather_at(tensor, indices, pointer, self.spread(mask))

    def _gather_at(self, tensor: Flat, indices: Value, pointer: Value, mask: Value) -> Value:
        e, dtype = self.emitter, tensor.dtype
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


# ---- memory <-> register
def from_storage(e: Emitter, raw: Value, dtype: DType) -> Value:
    """What was loaded, in the type arithmetic uses: half and bfloat16 widen to float, bool bytes to i1."""
    if dtype is dtypes.float16:
        return e.cast("fpext", raw, "float")
    if dtype is dtypes.bfloat16:
        wide = e.cast("zext", raw, "i32")
        return e.cast("bitcast", e.binary("shl", wide, e.const(16, wide.type)), "float")
    if dtype is dtypes.bool_:
        return e.compare("ne", raw, e.const(0, raw.type))
    return raw


def to_storage(e: Emitter, value: Value, dtype: DType) -> Value:
    """A register value as it is stored (bfloat16 rounds to nearest even, NaN stays NaN)."""
    if dtype is dtypes.float16:
        return e.cast("fptrunc", value, "half")
    if dtype is dtypes.bfloat16:
        return _to_bfloat16(e, value)
    if dtype is dtypes.bool_:
        return e.cast("zext", value, "i8")
    return value


def _to_bfloat16(e: Emitter, value: Value) -> Value:
    bits = e.cast("bitcast", value, "i32")
    odd = e.binary("and", e.binary("lshr", bits, e.const(16, bits.type)), e.const(1, bits.type))
    rounded = e.binary("add", e.binary("add", bits, e.const(0x7FFF, bits.type)), odd)
    is_nan = e.compare("uno", value, value)
    quiet = e.binary("or", bits, e.const(0x400000, bits.type))
    high = e.binary("lshr", e.select(is_nan, quiet, rounded), e.const(16, bits.type))
    return e.cast("trunc", high, "i16")


def convert(e: Emitter, value: Value, source: DType, target: DType) -> Value:
    """ONNX Cast between register values."""
    if source.register == target.register and source.kind == target.kind:
        return _rounded(e, value, source, target)
    if target is dtypes.bool_:
        return e.compare("une" if source.is_float else "ne", value, e.const(0, value.type))
    if source.is_float and target.is_float:
        return e.cast("fpext" if target is dtypes.float64 else "fptrunc", value, target.register)
    if source.is_float:
        return _float_to_int(e, value, target)
    if target.is_float:
        opcode = "sitofp" if source.kind == "int" else "uitofp"
        return _rounded(e, e.cast(opcode, value, target.register), dtypes.float32, target)
    if source.nbytes == target.nbytes and source is not dtypes.bool_:
        return value
    if target.nbytes < source.nbytes:
        return e.cast("trunc", value, target.register)
    return e.cast("sext" if source.kind == "int" else "zext", value, target.register)


def _rounded(e: Emitter, value: Value, source: DType, target: DType) -> Value:
    """float32 register values of a 16-bit type must hold a value of that type."""
    if target in (dtypes.float16, dtypes.bfloat16) and source is not target:
        return from_storage(e, to_storage(e, value, target), target)
    return value


def _float_to_int(e: Emitter, value: Value, target: DType) -> Value:
    """Truncation. What int32 or int64 cannot hold saturates, NaN gives 0; narrower types keep the low bits of that (300.0 is uint8 44)."""
    if target.nbytes == 8 and target.kind == "uint":
        return _saturated(e, value, "fptoui", "i64", 0, (1 << 64) - 1)
    bits = 64 if target.nbytes == 8 or target is dtypes.uint32 else 32
    whole = _saturated(e, value, "fptosi", f"i{bits}", -(1 << bits - 1), (1 << bits - 1) - 1)
    return whole if target.register == f"i{bits}" else e.cast("trunc", whole, target.register)


def _saturated(e: Emitter, value: Value, opcode: str, element: str, low: int, high: int) -> Value:
    """LLVM's own saturating conversions are written lane by lane on x86. `high + 1` is a power of two, so exact as a float."""
    beyond = e.compare("oge", value, e.const(float(high + 1), value.type))
    below = e.compare("olt", value, e.const(float(low), value.type))
    outside = e.binary("or", e.binary("or", beyond, below), e.compare("uno", value, value))
    whole = e.cast(opcode, e.select(outside, e.zero(value.type), value), element)
    whole = e.select(beyond, e.const(high, whole.type), whole)
    return e.select(below, e.const(low, whole.type), whole)


# ---- operations
_COMPARE = {"lt": ("olt", "slt", "ult"), "le": ("ole", "sle", "ule"), "gt": ("ogt", "sgt", "ugt"), "ge": ("oge", "sge", "uge"),
            "eq": ("oeq", "eq", "eq"), "ne": ("une", "ne", "ne")}  # fmt: skip
_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTEGER = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor", "shl": "shl"}


def emit_op(e: Emitter, expr: Op, operands: list[Value]) -> Value:
    """One operation on operands of equal lanes."""
    kind = expr.operands[0].dtype
    if expr.name in _COMPARE:
        predicates = _COMPARE[expr.name]
        return e.compare(predicates[0] if kind.is_float else predicates[1] if kind.kind == "int" else predicates[2], *operands)
    if expr.name == "not":
        return e.binary("xor", operands[0], e.const(1 if kind is dtypes.bool_ else -1, operands[0].type))
    if kind.is_float:
        return _float_op(e, expr, operands)
    return _integer_op(e, expr, operands, kind)


def _float_op(e: Emitter, expr: Op, operands: list[Value]) -> Value:
    if expr.name in _FLOAT:
        return e.binary(_FLOAT[expr.name], *operands)
    if expr.name == "neg":
        return e.op(f"fneg {operands[0].type} {operands[0].text}", operands[0].type)
    function: Callable[..., Value] | None = vector_math.FUNCTIONS.get(expr.name)
    if function is None:
        raise UnsupportedError(f"no vector function for {expr.name} on {expr.dtype}")
    return function(e, *operands)


def _integer_op(e: Emitter, expr: Op, operands: list[Value], kind: DType) -> Value:
    signed, name = kind.kind == "int", expr.name
    if name in _INTEGER:
        return e.binary(_INTEGER[name], *operands)
    if name in ("max", "min"):
        if kind is dtypes.bool_:
            return e.binary("or" if name == "max" else "and", *operands)
        return e.intrinsic(("s" if signed else "u") + name, operands)
    if name == "neg":
        return e.binary("sub", e.zero(operands[0].type), operands[0])
    if name == "shr":
        return e.binary("ashr" if signed else "lshr", *operands)
    if name == "abs":
        return e.select(e.compare("slt", operands[0], e.zero(operands[0].type)), e.binary("sub", e.zero(operands[0].type), operands[0]),
                        operands[0]) if signed else operands[0]  # fmt: skip
    if name in ("div", "rem", "floordiv", "floormod"):
        return _division(e, name, operands, signed)
    raise UnsupportedError(f"no integer operation {name} on {kind}")


def _division(e: Emitter, name: str, operands: list[Value], signed: bool) -> Value:
    """Integer division that cannot trap: x / 0 gives x, smallest / -1 the smallest. div and rem truncate; floor* round down."""
    a, b = operands
    zero, one = e.zero(a.type), e.const(1, a.type)
    b = e.select(e.compare("eq", b, zero), one, b)
    if not signed:
        return e.binary("udiv" if name in ("div", "floordiv") else "urem", a, b)
    minus = e.compare("eq", b, e.const(-1, a.type))
    safe = e.select(minus, one, b)
    quotient = e.select(minus, e.binary("sub", zero, a), e.binary("sdiv", a, safe))
    remainder = e.select(minus, zero, e.binary("srem", a, safe))
    if name in ("div", "rem"):
        return quotient if name == "div" else remainder
    negative = e.compare("slt", e.binary("xor", remainder, b), zero)
    adjust = e.binary("and", e.compare("ne", remainder, zero), negative)
    if name == "floordiv":
        return e.binary("sub", quotient, e.cast("zext", adjust, a.element))
    return e.select(adjust, e.binary("add", remainder, b), remainder)

"""Conversions of register values: to and from what memory holds, and ONNX's Cast."""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value
from anycann.te import dtypes
from anycann.te.dtypes import DType


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

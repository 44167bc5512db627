"""Stores of a nest: a scalar, a vector in order, masked lanes, or lanes scattered over memory, by the linear form of the address."""

from __future__ import annotations

from anycann.codegen.accesses import Stage
from anycann.codegen.byte_packing import REGISTER_LANES
from anycann.codegen.conversions import to_storage
from anycann.codegen.emitter import Emitter
from anycann.codegen.lanes import Lanes
from anycann.codegen.saturating import by_packing
from anycann.codegen.values import Value, vector_type
from anycann.te import dtypes
from anycann.te.dtypes import DType
from anycann.te.expression import Expr, Op, Var
from anycann.te.simplify import Linear, linear


def emit_store(lanes: Lanes, stage: Stage, pointer: Value, dtype: DType) -> None:
    """Evaluate the stage's body at this point and store it, as `dtype`, where its address says."""
    assert stage.address is not None
    form = linear(stage.address)
    value, rounds = _computed(lanes, stage, dtype)
    stride = form.coefficient(lanes.vector) if lanes.vector is not None and lanes.lanes > 1 else 0
    opaque = any(not isinstance(a, Var) and lanes.value(a).lanes > 1 for a in form.atoms)
    if lanes.lanes > 1 and stride > 1 and not opaque and lanes.existing is not None:
        _one_by_one(lanes, lanes.spread(value), _address(lanes, form, pointer, dtype), stride, dtype)
        return
    if lanes.lanes > 1 and (opaque or stride != 1):
        _scatter(lanes, stage, lanes.spread(value), pointer, dtype)
        return
    _in_order(lanes, _stored(lanes, value, rounds, dtype), _address(lanes, form, pointer, dtype), dtype.nbytes)


def stored_value(lanes: Lanes, stage: Stage, dtype: DType) -> Value:
    """The stage's body in every lane at this point, as it is stored in memory of `dtype`."""
    return _stored(lanes, *_computed(lanes, stage, dtype), dtype)


def address_of(lanes: Lanes, stage: Stage, pointer: Value, dtype: DType) -> Value:
    """Where the first lane is stored."""
    assert stage.address is not None
    return _address(lanes, linear(stage.address), pointer, dtype)


def _computed(lanes: Lanes, stage: Stage, dtype: DType) -> tuple[Value, bool]:
    """What a stage stores, and whether that is not yet rounded to the type that is stored."""
    body = by_packing(stage.body, dtype) if lanes.saturates and lanes.lanes > 1 else stage.body
    source = _before_rounding(body, dtype)
    return lanes.value(source), source is not body


def _stored(lanes: Lanes, value: Value, rounds: bool, dtype: DType) -> Value:
    value = lanes.spread(value) if lanes.lanes > 1 else value
    return _rounded(lanes, value, dtype) if rounds else to_storage(lanes.emitter, value, dtype)


def _before_rounding(body: Expr, dtype: DType) -> Expr:
    """What a cast to the 16-bit type that is stored is made of: storing rounds as well."""
    rounded = isinstance(body, Op) and body.name == "cast" and body.dtype is dtype and dtype in (dtypes.bfloat16, dtypes.float16)
    return body.operands[0] if rounded and body.operands[0].dtype is dtypes.float32 else body  # type: ignore[attr-defined]


def _rounded(lanes: Lanes, value: Value, dtype: DType) -> Value:
    """A float32 as it is stored in 16 bits; the instruction for it takes denormal numbers for zero, as kernels may."""
    if dtype is dtypes.bfloat16 and lanes.rounds_bfloat and value.lanes > 1:
        e = lanes.emitter
        made = _rounded_pair(e, value) if value.lanes == 2 * REGISTER_LANES else e.cast("fptrunc", value, "bfloat")
        return e.cast("bitcast", made, "i16")
    return to_storage(lanes.emitter, value, dtype)


def _rounded_pair(e: Emitter, value: Value) -> Value:
    """Two registers of float32 as one of bfloat16, by an instruction that LLVM 22 does not choose."""
    low, high = (e.shuffle(value, value, range(first, first + REGISTER_LANES)) for first in (0, REGISTER_LANES))
    return e.call("llvm.x86.avx512bf16.cvtne2ps2bf16.512", vector_type("bfloat", value.lanes), [high, low])


def _address(lanes: Lanes, form: Linear, pointer: Value, dtype: DType) -> Value:
    """Where the first lane is stored."""
    e = lanes.emitter
    offset = e.const(form.constant)
    for atom, factor in form.terms:
        offset = e.add(offset, e.mul(lanes.values[atom] if isinstance(atom, Var) else lanes.value(atom), factor))
    return e.gep(pointer, offset, dtype.storage)


def _in_order(lanes: Lanes, stored: Value, address: Value, align: int) -> None:
    """Under a branch rather than a mask where that will do: without AVX-512, a masked store takes some processors 12 cycles (Zen 3)."""
    if lanes.shared is None:
        _masked(lanes, stored, address, align)
        return
    with lanes.emitter.when(lanes.shared):
        _masked(lanes, stored, address, align)


def _masked(lanes: Lanes, stored: Value, address: Value, align: int) -> None:
    e = lanes.emitter
    if lanes.filled is None:
        e.store(stored, address, align)
    elif lanes.lanes == 1:
        with e.when(lanes.filled):
            e.store(stored, address, align)
    else:
        e.masked_store(stored, address, align, lanes.filled)


def _one_by_one(lanes: Lanes, value: Value, first: Value, stride: int, dtype: DType) -> None:
    """The lanes that exist, each by a store of its own: a scatter takes as long for few lanes as for all."""
    e, stored = lanes.emitter, to_storage(lanes.emitter, value, dtype)
    for lane in range(lanes.existing or 0):
        e.store(e.extract(stored, lane), e.gep(first, lane * stride, dtype.storage), dtype.nbytes)


def _scatter(lanes: Lanes, stage: Stage, value: Value, pointer: Value, dtype: DType) -> None:
    e = lanes.emitter
    assert stage.address is not None
    stored = to_storage(e, value, dtype)
    indices = lanes.spread(lanes.value(stage.address))
    e.scatter(stored, pointer, indices, dtype.nbytes, lanes.mask)

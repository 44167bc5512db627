"""Sums of short dot products in every lane: four bytes (u8 times s8 into int32) or two bfloat16 (into float32), on any target.

The first operand is one group of elements in every lane, the second a group a lane. Where the processor has an instruction for it, that is
one instruction. x86 without one multiplies pairs of 16-bit integers: bytes are widened before, and a group is two of them. Elsewhere groups
are taken apart, which costs the more the fewer products share an operand: so each is prepared once. With AVX2 bytes may be multiplied as
they are, by magnitudes (`dot_magnitudes.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.dot_magnitudes import LANES, LESS_128, add_magnitudes, magnitudes_of, turned_bits
from anycann.codegen.values import Value, vector_type
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te.dtypes import DType

GROUP_BYTES = 4


@dataclass(frozen=True)
class DotProducts:
    """Dot products of groups of `dtype` (uint8, with int8 on the other side, or bfloat16) on a target.

    magnitudes: bytes are multiplied by magnitudes, where `may_take_magnitudes`. narrow: these, and the signs, are found where weights are
    read, which are signed bytes in memory.
    """

    dtype: DType
    target: Target
    magnitudes: bool = False
    narrow: bool = False

    @property
    def widens(self) -> bool:
        """True if bytes are multiplied as 16-bit integers."""
        return self.dtype is not dtypes.bfloat16 and self.target.is_x86 and self._name is None and not self.magnitudes

    @property
    def takes_two_steps(self) -> bool:
        """True if x86 multiplies bytes by one instruction and adds what that makes by others, as words or by magnitudes."""
        return self.widens or self.magnitudes

    @property
    def weight_bytes(self) -> int:
        """Bytes of a group of the second operand."""
        return 2 * GROUP_BYTES if self.magnitudes and not self.narrow else GROUP_BYTES

    @property
    def nbytes(self) -> int:
        """Bytes of an element as it is multiplied."""
        return 2 if self.widens else self.dtype.nbytes

    @property
    def group(self) -> int:
        """Elements that one lane multiplies at a time."""
        return GROUP_BYTES // self.nbytes

    @property
    def accumulator(self) -> DType:
        return dtypes.float32 if self.dtype is dtypes.bfloat16 else dtypes.int32

    @property
    def sums(self) -> str:
        """The type of a vector of sums."""
        return vector_type(self.accumulator.register, self.target.lanes)

    @property
    def is_one_instruction(self) -> bool:
        return self._name is not None

    @property
    def _name(self) -> str | None:
        """The instruction that multiplies and adds a whole vector; None where there is none."""
        lanes, has = self.target.lanes, self.target.has
        if not self.target.is_x86:
            return "llvm.aarch64.neon.usdot.v4i32.v16i8" if self.dtype is not dtypes.bfloat16 and has("i8mm") else None
        if self.dtype is dtypes.bfloat16:
            wide = has("avx512bf16") and (lanes == 16 or has("avx512vl"))
            return f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}" if wide else None
        wide = has("avx512vnni") and (lanes == 16 or has("avx512vl"))
        return f"llvm.x86.avx512.vpdpbusd.{32 * lanes}" if wide or (has("avxvnni") and lanes <= 8) else None

    def spread(self, e: Emitter, pointer: Value) -> list[Value]:
        """The group at `pointer` in every lane, prepared as a first operand."""
        lanes = self.target.lanes
        return self.first(e, e.splat(e.load(pointer, "i32", self.nbytes), lanes))

    def first(self, e: Emitter, groups: Value) -> list[Value]:
        """A vector of groups (i32) as a first operand: unsigned bytes."""
        if self.narrow:
            return [e.binary("xor", groups, e.const(LESS_128, groups.type))]
        if self._name or self.takes_two_steps:
            return [groups]
        if self.dtype is dtypes.bfloat16:
            return self._halves(e, groups)
        return [e.binary("and", _shifted(e, "lshr", groups, 8 * i), e.const(255, groups.type)) for i in range(4)]

    def second(self, e: Emitter, pointer: Value) -> list[Value]:
        """The groups of all lanes at `pointer` as a second operand: signed bytes, or magnitudes, which `signs` go with."""
        groups = e.load(pointer, vector_type("i32", self.target.lanes), GROUP_BYTES)
        if self.narrow:
            return [magnitudes_of(e, groups)]
        if self._name or self.takes_two_steps:
            return [groups]
        if self.dtype is dtypes.bfloat16:
            return self._halves(e, groups)
        return [_shifted(e, "ashr", _shifted(e, "shl", groups, 24 - 8 * i), 24) for i in range(4)]

    def signs(self, e: Emitter, pointer: Value) -> list[Value]:
        """What goes with magnitudes that were read at `pointer`: the bits that signs turn; nothing for other second operands."""
        if not self.magnitudes:
            return []
        groups = vector_type("i32", self.target.lanes)
        if self.narrow:
            return [turned_bits(e, e.load(pointer, groups, GROUP_BYTES))]
        return [e.load(e.gep(pointer, self.target.lanes * GROUP_BYTES, "i8"), groups, GROUP_BYTES)]

    def ones(self, e: Emitter) -> list[Value]:
        """A second operand of bytes that are all one."""
        type_ = vector_type("i32", self.target.lanes)
        if self._name or self.widens:
            return [e.const(0x00010001 if self.widens else 0x01010101, type_)]
        return [e.const(1, type_)] * 4

    def add(self, e: Emitter, total: Value, first: Sequence[Value], second: Sequence[Value]) -> Value:
        """total + the products of prepared operands."""
        if self._name:
            return self._add_once(e, self._name, total, first[0], second[0])
        if self.magnitudes:
            return add_magnitudes(e, total, first[0], *second)
        for a, b in zip(first, second, strict=True):
            if self.dtype is dtypes.bfloat16:
                total = e.intrinsic("fmuladd", [a, b, total])
            elif self.widens:
                total = add_word_pairs(e, self.target, total, a, b)
            else:
                total = e.binary("add", total, e.binary("mul", a, b))
        return total

    def _add_once(self, e: Emitter, name: str, total: Value, a: Value, b: Value) -> Value:
        lanes, element = self.target.lanes, "bfloat" if self.dtype is dtypes.bfloat16 else "i8"
        if self.dtype is dtypes.bfloat16:  # the last operand is spread from memory by the instruction: 14 x 1 take 0.72 of the time (Zen 4)
            a, b = b, a
        type_ = f"<{self.group * lanes} x {element}>"
        a, b = (e.bitcast(v, type_) for v in (a, b))
        return e.call(name, total.type, [total, a, b])

    def _halves(self, e: Emitter, groups: Value) -> list[Value]:
        """The two bfloat16 of each lane as float32."""
        high = e.binary("and", groups, e.const(-65536, groups.type))
        return [e.cast("bitcast", half, "float") for half in (_shifted(e, "shl", groups, 16), high)]


def multiplies_words_at_once(target: Target) -> bool:
    """True if one instruction multiplies pairs of 16-bit integers and adds them to a sum."""
    wide = target.has("avx512vnni") and (target.lanes == 16 or target.has("avx512vl"))
    return target.is_x86 and (wide or (target.has("avxvnni") and target.lanes <= 8))


def add_word_pairs(e: Emitter, target: Target, total: Value, a: Value, b: Value) -> Value:
    """total + products of the two 16-bit integers in each lane (i32) of a and b, on x86: exact for all bytes, unlike products of bytes."""
    lanes, type_ = total.lanes, vector_type("i16", 2 * total.lanes)
    a, b = (e.bitcast(v, type_) for v in (a, b))
    if multiplies_words_at_once(target):
        return e.call(f"llvm.x86.avx512.vpdpwssd.{32 * lanes}", total.type, [total, a, b])
    name = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}[lanes]
    return e.binary("add", total, e.call(f"llvm.x86.{name}", total.type, [a, b]))


def may_take_magnitudes(target: Target) -> bool:
    """True if bytes should be multiplied by magnitudes where their weights have no zero point.

    Both ways are four instructions for 32 products, but bytes are half the loads and are read where they are: products of 197 x 768 x 768
    take 0.84 to 0.88 of the time of words, 197 x 3072 x 768 0.88 to 0.95, 64 x 384 x 384 0.73 to 0.76 (Zen 3).
    """
    return target.lanes == LANES and target.has("avx2") and DotProducts(dtypes.uint8, target).widens


def _shifted(e: Emitter, opcode: str, value: Value, bits: int) -> Value:
    return e.binary(opcode, value, e.const(bits, value.type)) if bits else value

"""Hidden states as 16-bit integers, for weights that are whole numbers of 8 bits: a pair of products and their sum are one instruction.

A float takes three instructions for a vector of products (the weights are widened and converted), these two or three for two vectors. A
state is rounded to multiples of its own range / 32767 at most, the sums of a product stay within 32 bits; a layer that was quantised
allows 255 of its range. Cells that only fill the last vector are not of that range. A state that is not finite makes sums that are not
numbers.
"""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.recurrent_kernel import RecurrentKernel
from anycann.codegen.kernels.recurrent_packing import panel_depth
from anycann.codegen.kernels.recurrent_state import Sequences
from anycann.codegen.values import Value, vector_type
from anycann.codegen.vector_math_basic import nearest
from anycann.target.target import Target

_LARGEST_WEIGHT, _LARGEST_SUM, _LARGEST_WORD = 128, 2**31 - 1, 2**15 - 1


def may_take_words(target: Target) -> bool:
    """True if a target multiplies pairs of 16-bit integers at once."""
    return target.is_x86 and target.lanes >= 8


def emit_words(e: Emitter, kernel: RecurrentKernel, sequences: Sequences, source: Value) -> Value:
    """Where a state lies in words, each row of it in multiples of what `steps` in scratch then says."""
    type_, largest = kernel.vector, min(_LARGEST_WORD, _LARGEST_SUM // (_LARGEST_WEIGHT * panel_depth(kernel.shape, kernel.tile)))
    bits, words = vector_type("i32", kernel.lanes), kernel.memory.at(e, "words")
    with e.loop(0, sequences.count) as row:
        before = e.mul(row.index, kernel.padded)
        line, to = e.gep(source, before, "float"), e.gep(words, before, "i16")
        with e.loop(0, kernel.padded, kernel.lanes, carried=[e.zero(bits)]) as cell:  # magnitudes in the order of their bits, NaN the last
            found = e.cast("bitcast", sequences.load(e, e.gep(line, cell.index, "float"), cell.index), "i32")
            cell.carry([e.intrinsic("smax", [e.binary("and", found, e.const(0x7FFFFFFF, bits)), cell.values[0]])])
        range_ = e.cast("bitcast", e.reduce("smax", cell.values[0]), "float")
        e.store(e.binary("fmul", range_, e.const(1 / largest, "float")), e.gep(kernel.memory.at(e, "steps"), row.index, "float"), 4)
        scale = e.splat(e.binary("fdiv", e.const(float(largest), "float"), range_), kernel.lanes)
        with e.loop(0, kernel.padded, kernel.lanes) as cell:
            number = nearest(e, e.binary("fmul", e.load(e.gep(line, cell.index, "float"), type_, 4), scale))
            e.store(e.cast("trunc", number, "i16"), e.gep(to, cell.index, "i16"), 2)
    return words

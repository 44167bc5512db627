"""One product added to a sum of a convolution: of floats, and of integers by the instructions there are for pairs of words."""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.arithmetic_rate import has_fma
from anycann.codegen.kernels.convolution_kernel import DirectKernel
from anycann.codegen.kernels.dot_products import add_word_pairs
from anycann.codegen.values import Value, is_float
from anycann.target.target import Target


def add_product(e: Emitter, kernel: DirectKernel, a: Value, b: Value, c: Value) -> Value:
    """a * b + c for an input and a weight, widened, of a kernel."""
    return (_multiply_words if kernel.multiplies_words else multiply_add)(e, kernel.target, a, b, c)


def _multiply_words(e: Emitter, target: Target, a: Value, b: Value, c: Value) -> Value:
    """a * b + c of int32 that fit into 16 bits, by instructions that multiply both halves of a lane: the upper half of b is made zero."""
    return add_word_pairs(e, target, c, a, e.binary("and", b, e.const(0xFFFF, b.type)))


def multiply_add(e: Emitter, target: Target, a: Value, b: Value, c: Value) -> Value:
    """a * b + c, in one instruction where the processor has it; never a call of a library."""
    if not is_float(a.element):
        return e.binary("add", e.binary("mul", a, b), c)
    if has_fma(target):
        return e.fma(a, b, c)
    return e.binary("fadd", e.binary("fmul", a, b), c)

"""Hidden states in bfloat16, for dot products of two: half the bytes of weights, and half the instructions of float32.

The weights of two cells lie beside each other. A state is rounded once a step, before its products; the state itself stays in float32.
"""

from __future__ import annotations

from anycann.codegen.conversions import to_storage
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.dot_products import DotProducts
from anycann.codegen.kernels.recurrent_kernel import RecurrentKernel
from anycann.codegen.kernels.recurrent_state import Sequences
from anycann.codegen.values import Value
from anycann.target.target import Target
from anycann.te import dtypes


def multiplies_by_pairs(target: Target) -> bool:
    """True if a target has dot products of bfloat16."""
    return DotProducts(dtypes.bfloat16, target).is_one_instruction


def emit_halves(e: Emitter, kernel: RecurrentKernel, sequences: Sequences, source: Value) -> Value:
    """Where a state lies in bfloat16, its rows as far apart as in float32."""
    factors = kernel.memory.at(e, "factors")
    with e.loop(0, sequences.count) as row, e.loop(0, kernel.padded, kernel.lanes) as cell:
        at = e.add(e.mul(row.index, kernel.padded), cell.index)
        value = e.load(e.gep(source, at, "float"), kernel.vector, 4)
        e.store(to_storage(e, value, dtypes.bfloat16), e.gep(factors, at, "i16"), 2)
    return factors

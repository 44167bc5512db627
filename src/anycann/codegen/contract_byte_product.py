"""Matrix products of bytes that are both computed: operands, zero points, and the kernel with its tail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from anycann.codegen.contract_dot_places import BYTES
from anycann.codegen.contract_matmul import matmul_shape
from anycann.codegen.contract_products import tail_writers
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernel import Kernel
from anycann.codegen.kernels.byte_product import ByteProduct, emit_byte_product
from anycann.codegen.kernels.matmul_shape import folded
from anycann.codegen.kernels.matmul_writer import unfolded
from anycann.codegen.nest_kernel import Output
from anycann.codegen.repeats import Repeats
from anycann.codegen.tail import Constants, Generated, Tail, known_value, memory_name
from anycann.target.target import Target
from anycann.te.contractions import MatMul
from anycann.te.expression import Const
from anycann.te.tensor import Compute, Contraction, Tensor


def takes_byte_product(operator: MatMul, constants: Constants) -> bool:
    """True for bytes that have zero points, or that are computed on both sides and make more than one column."""
    if operator.zero_a is not None or operator.zero_b is not None:
        return True
    plain = operator.scale is None and not (operator.transpose_a or operator.transpose_b)
    matrices = {operator.a.dtype, operator.b.dtype} <= set(BYTES) and min(operator.a.rank, operator.b.rank) > 1
    return plain and matrices and operator.b.shape[-1] > 1 and known_value(operator.b, constants) is None


def generate_byte_product(
    anchor: Contraction,
    operator: MatMul,
    outputs: Sequence[Output],
    layouts: Mapping[str, str],
    target: Target,
    constants: Constants,
    repeats: Repeats,
) -> Generated:
    """The kernel of a product and its tail; arguments: A, B, the zero points that are computed, what the tail reads, outputs."""
    shape = matmul_shape(operator, anchor.shape)
    plan = ByteProduct(folded(shape), target)
    known = [_known_zero(zero, constants) for zero in (operator.zero_a, operator.zero_b)]
    zeros = zip((operator.zero_a, operator.zero_b), known, strict=True)
    computed = [memory_name(zero) for zero, value in zeros if zero is not None and value is None]

    def written() -> Kernel:
        tail = Tail(anchor, outputs, layouts, target, len(anchor.shape) - 1, split=False)
        e = Emitter()
        a, b, *points = (e.argument(n) for n in range(2 + len(computed)))
        loaded = iter(points)
        zero_a, zero_b = (e.load(next(loaded), "i8", 1) if value is None else e.const(value, "i8") for value in known)
        write, _ = tail_writers(tail, tail.writer(e, 2 + len(computed)))
        sizes = (*shape.batch[len(plan.shape.batch) :], shape.m)
        tasks = emit_byte_product(e, plan, a, b, zero_a, zero_b, write if len(sizes) == 1 else unfolded(write, sizes))
        symbol, ir = e.finish("byte_product")
        arguments = (memory_name(operator.a), memory_name(operator.b), *computed, *tail.inputs, *(o.name for o in outputs))
        return Kernel(symbol, ir, arguments, tasks, plan.scratch_bytes, shape.flops)

    return Generated(repeats.kernel((plan, *known), outputs, layouts, (), written))


def _known_zero(zero: Tensor | None, constants: Constants) -> int | None:
    """A zero point as a signed byte of the same bits, 0 where there is none; None where it is computed."""
    if zero is None:
        return 0
    value = zero.body.value if isinstance(zero, Compute) and isinstance(zero.body, Const) else known_value(zero, constants)
    return None if value is None else int(np.asarray(value).reshape(-1)[0].astype(np.int64).astype(np.int8))

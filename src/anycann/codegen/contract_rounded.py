"""Products of rows that a model allows to be rounded to bytes, with weights of few bits: operands and the kernel with its tail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from anycann.codegen.contract_matmul import matmul_shape
from anycann.codegen.contract_products import tail_writers
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernel import Kernel
from anycann.codegen.kernels.matmul_shape import folded
from anycann.codegen.kernels.matmul_writer import unfolded
from anycann.codegen.kernels.rounded_product import RoundedProduct, emit_rounded_product, may_round, pack_rounded
from anycann.codegen.nest_kernel import Output
from anycann.codegen.repeats import Repeats
from anycann.codegen.space import Choices
from anycann.codegen.tail import Constants, Generated, Tail, known_value, memory_name, pack
from anycann.target.target import Target
from anycann.te.contractions import MatMul
from anycann.te.tensor import Contraction, Tensor


def takes_rounded(operator: MatMul, result: Sequence[int], target: Target, choices: Choices) -> bool:
    """True if the rows of a product, which may be, are rounded."""
    return operator.rounds_rows and choices.rounded and may_round(folded(matmul_shape(operator, result)), target)


def generate_rounded(
    anchor: Contraction,
    operator: MatMul,
    outputs: Sequence[Output],
    layouts: Mapping[str, str],
    target: Target,
    constants: Constants,
    repeats: Repeats,
) -> Generated:
    """The kernel of a product and its tail; arguments: A, B with its scales in panels, what the tail reads, outputs."""
    shape, weights = matmul_shape(operator, anchor.shape), _known(operator.b, constants)
    assert operator.scale is not None
    halves = not weights.size or bool(weights.min() >= -8 and weights.max() <= 7)
    plan = RoundedProduct(folded(shape), target, halves)
    panels = pack("rounded", pack_rounded(plan, weights.astype(np.int8, copy=False), _known(operator.scale, constants)))

    def written() -> Kernel:
        tail = Tail(anchor, outputs, layouts, target, len(anchor.shape) - 1, split=False)
        e = Emitter()
        a, b = e.argument(0), e.argument(1)
        write, _ = tail_writers(tail, tail.writer(e, 2))
        sizes = (*shape.batch[len(plan.shape.batch) :], shape.m)
        tasks = emit_rounded_product(e, plan, a, b, write if len(sizes) == 1 else unfolded(write, sizes))
        symbol, ir = e.finish("rounded")
        arguments = (memory_name(operator.a), panels.name, *tail.inputs, *(o.name for o in outputs))
        return Kernel(symbol, ir, arguments, tasks, plan.scratch_bytes, shape.flops, resumes=True)

    return Generated(repeats.kernel((plan,), outputs, layouts, (panels.name,), written), (panels,))


def _known(tensor: Tensor, constants: Constants) -> np.ndarray:
    value = known_value(tensor, constants)
    assert value is not None
    return value

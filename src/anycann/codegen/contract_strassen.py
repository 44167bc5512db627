"""Matrix products by Strassen's algorithm: the kernel with its tail, and B in panels as other products have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from anycann.codegen.contract_products import tail_writers
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernel import Kernel
from anycann.codegen.kernels.matmul_packing import columns_arrangement, pack_columns
from anycann.codegen.kernels.matmul_shape import MatmulShape
from anycann.codegen.kernels.strassen import emit_strassen
from anycann.codegen.kernels.strassen_space import ProductAlgorithmSpace, StrassenSpace
from anycann.codegen.kernels.strassen_tile import StrassenSizes
from anycann.codegen.nest_kernel import Output
from anycann.codegen.repeats import Repeats
from anycann.codegen.space import Choices
from anycann.codegen.tail import Generated, Packed, Tail, memory_name, pack
from anycann.target.target import Target
from anycann.te.contractions import MatMul
from anycann.te.tensor import Contraction


def uses_strassen(shape: MatmulShape, target: Target, choices: Choices) -> bool:
    """True if the product, whose constant B lies in panels by `shape`, takes seven products of quarters."""
    return choices.strassen and choices.tile(ProductAlgorithmSpace(shape, target)).strassen


def generate_strassen(
    anchor: Contraction,
    operator: MatMul,
    shape: MatmulShape,
    known: np.ndarray,
    outputs: Sequence[Output],
    layouts: Mapping[str, str],
    target: Target,
    choices: Choices,
    repeats: Repeats,
) -> Generated:
    """The kernel of a product and its tail; arguments: A, B in panels, what the tail reads, outputs."""
    tile = choices.tile(StrassenSpace(shape, target))
    sizes = StrassenSizes.of(shape, tile, target.lanes)
    panels = _panels(operator, known, sizes)

    def written() -> Kernel:
        tail = Tail(anchor, outputs, layouts, target, len(anchor.shape) - 1, split=False)
        e = Emitter()
        a, b = e.argument(0), e.argument(1)
        write, fetch = tail_writers(tail, tail.writer(e, 2))
        tasks = emit_strassen(e, shape, target, tile, a, b, write, fetch)
        symbol, ir = e.finish("strassen")
        arguments = (memory_name(operator.a), panels.name, *tail.inputs, *(o.name for o in outputs))
        return Kernel(symbol, ir, arguments, tasks, sizes.scratch_bytes, shape.flops, resumes=True, begin_bytes=sizes.begin_bytes)

    return Generated(repeats.kernel((shape, tile), outputs, layouts, (panels.name,), written), (panels,))


def _panels(operator: MatMul, known: np.ndarray, sizes: StrassenSizes) -> Packed:
    columns = np.swapaxes(known, -1, -2) if operator.transpose_b else known
    arrangement = columns_arrangement(tuple(operator.b.shape), sizes.width, operator.transpose_b)
    return pack("panels", pack_columns(columns, sizes.width), memory_name(operator.b), arrangement)

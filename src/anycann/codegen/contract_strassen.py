"""Matrix products by Strassen's algorithm: the kernel with its tail, and B in panels as other products have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from anycann.codegen.contract_products import Place, of_matrix, tail_writers
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernel import Kernel
from anycann.codegen.kernels.matmul_packing import columns_arrangement, pack_columns
from anycann.codegen.kernels.matmul_shape import MatmulShape
from anycann.codegen.kernels.strassen import emit_strassen
from anycann.codegen.kernels.strassen_space import ProductAlgorithmSpace, StrassenSpace
from anycann.codegen.kernels.strassen_tile import StrassenSizes, StrassenTile
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
    panels = _panels(operator, known, StrassenSizes.of(shape, tile, target.lanes).width)

    def written() -> Kernel:
        tail = Tail(anchor, outputs, layouts, target, len(anchor.shape) - 1, split=False)
        return strassen_kernel(tail, shape, tile, (memory_name(operator.a), panels.name))

    return Generated(repeats.kernel((shape, tile), outputs, layouts, (panels.name,), written), (panels,))


def strassen_kernel(
    tail: Tail, shape: MatmulShape, tile: StrassenTile, operands: tuple[str, str], place: Place = of_matrix, images: bool = False
) -> Kernel:
    """The kernel of a product and its tail. operands: A, or `images`, and B in panels. place: of the tail's tensor."""
    e = Emitter()
    a, b = e.argument(0), e.argument(1)
    write, fetch = tail_writers(tail, tail.writer(e, 2), place)
    tasks = emit_strassen(e, shape, tail.target, tile, a, b, write, fetch, images)
    symbol, ir = e.finish("strassen")
    sizes = StrassenSizes.of(shape, tile, tail.target.lanes)
    arguments = (*operands, *tail.inputs, *(o.name for o in tail.outputs))
    return Kernel(symbol, ir, arguments, tasks, sizes.scratch_bytes, shape.flops, resumes=True, begin_bytes=sizes.begin_bytes)


def _panels(operator: MatMul, known: np.ndarray, width: int) -> Packed:
    columns = np.swapaxes(known, -1, -2) if operator.transpose_b else known
    arrangement = columns_arrangement(tuple(operator.b.shape), width, operator.transpose_b)
    return pack("panels", pack_columns(columns, width), memory_name(operator.b), arrangement)

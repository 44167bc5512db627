"""Pointwise convolutions by Strassen's algorithm: the kernel with its tail, and the weights in panels as products have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anycann.codegen.contract_strassen import strassen_kernel
from anycann.codegen.contract_weights import known_weights
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernel import Kernel
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_write import digits
from anycann.codegen.kernels.matmul_packing import columns_arrangement, pack_columns
from anycann.codegen.kernels.matmul_writer import MatmulIndex
from anycann.codegen.kernels.strassen_images import image_product
from anycann.codegen.kernels.strassen_space import ImageAlgorithmSpace, ImageStrassenSpace
from anycann.codegen.kernels.strassen_tile import StrassenSizes
from anycann.codegen.nest_kernel import Output
from anycann.codegen.repeats import Repeats
from anycann.codegen.space import Choices
from anycann.codegen.tail import Constants, Generated, Packed, Tail, memory_name, pack
from anycann.codegen.values import Value
from anycann.target.target import Target
from anycann.te.contractions import Convolution
from anycann.te.tensor import Contraction


def uses_strassen(operator: Convolution, shape: ConvolutionShape, target: Target, choices: Choices) -> bool:
    """True if the convolution, whose sizes are `shape`, takes seven products of quarters where its input is in NC1HWC0."""
    if operator.transposed or operator.computed or not (choices.winograd and choices.strassen):
        return False
    return choices.tile(ImageAlgorithmSpace(shape, target)).strassen


def generate_pointwise(
    anchor: Contraction,
    operator: Convolution,
    shape: ConvolutionShape,
    outputs: Sequence[Output],
    layouts: Mapping[str, str],
    target: Target,
    constants: Constants,
    choices: Choices,
    repeats: Repeats,
) -> Generated:
    """The kernel of a convolution that `uses_strassen`, and its tail; arguments: input, weights in panels, what the tail reads, outputs."""
    tile, product = choices.tile(ImageStrassenSpace(shape, target)), image_product(shape, target.lanes)
    panels = _panels(operator, constants, shape, StrassenSizes.of(product, tile, target.lanes).width)

    def place(e: Emitter, index: MatmulIndex) -> list[Value]:
        return [*index.batch, index.n, *digits(e, index.m, shape.out_size)]

    def written() -> Kernel:
        tail = Tail(anchor, outputs, layouts, target, 1, split=True)
        return strassen_kernel(tail, product, tile, (memory_name(operator.x), panels.name), place, images=True)

    return Generated(repeats.kernel(("strassen", tile), outputs, layouts, (panels.name,), written), (panels,))


def _panels(operator: Convolution, constants: Constants, shape: ConvolutionShape, width: int) -> Packed:
    """Weights [O, I, 1..] as panels of columns, an output channel each."""
    rows = known_weights(operator, constants, shape).reshape(shape.out_channels, shape.in_channels)
    arrangement = columns_arrangement(rows.shape, width, transposed=True) if operator.weight_zero is None else None
    return pack("panels", pack_columns(rows.T, width), memory_name(operator.w), arrangement)

"""The gradient of a convolution's weights: which there is a kernel for, and its operands."""

from __future__ import annotations

from collections.abc import Mapping

from anycann.codegen.contract_layouts import check_layouts
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernel import Kernel
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.weight_gradient import emit_weight_gradient
from anycann.codegen.kernels.weight_gradient_tile import default_tile, scratch_bytes
from anycann.codegen.space import Choices
from anycann.codegen.tail import Generated, memory_name
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te.contractions import WeightGradient
from anycann.te.layout import NC1HWC0, ND
from anycann.te.tensor import Placeholder

STORED = (dtypes.float32, dtypes.float16, dtypes.bfloat16)


def refuse_gradient(operator: WeightGradient) -> str | None:
    """Why no kernel computes this gradient, or None."""
    if not operator.fills_vectors or operator.x.dtype not in STORED or operator.dy.dtype not in STORED:
        return f"the gradient of weights in {operator.group} groups, of {operator.x.dtype}"
    if not isinstance(operator.x, Placeholder) or not isinstance(operator.dy, Placeholder):
        return "an operand is a single known number"
    return None if 3 <= operator.x.rank <= 5 else f"a convolution over {operator.x.rank - 2} spatial dimensions"


def gradient_layout(operator: WeightGradient, name: str) -> str:
    """dy in blocks of channels, x row-major."""
    return NC1HWC0 if isinstance(operator.dy, Placeholder) and operator.dy.name == name else ND


def gradient_shape(operator: WeightGradient) -> ConvolutionShape:
    """Sizes of the convolution."""
    batch, channels, *size = operator.x.shape
    return ConvolutionShape(
        batch,
        channels,
        operator.dy.shape[1],
        operator.group,
        tuple(size),
        operator.kernel,
        operator.strides,
        operator.dilations,
        operator.pads_begin,
        operator.dy.shape[2:],
        operator.x.dtype,
    )


def generate_gradient(name: str, operator: WeightGradient, layouts: Mapping[str, str], target: Target) -> Generated:
    """The kernel of the result `name`; arguments: x, dy, the result. `layouts`: of the operands by name."""
    check_layouts(operator, layouts, target, Choices())
    shape, e = gradient_shape(operator), Emitter()
    tile = default_tile(shape, target)
    tasks = emit_weight_gradient(e, shape, target, tile, e.argument(0), e.argument(1), e.argument(2), operator.dy.dtype)
    symbol, ir = e.finish("weightgradient")
    arguments = (memory_name(operator.x), memory_name(operator.dy), name)
    return Generated(Kernel(symbol, ir, arguments, tasks, scratch_bytes(shape, target, tile), shape.flops))

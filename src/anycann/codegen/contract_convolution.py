"""Convolutions: the choice between direct, Winograd and transposed kernels, and their operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from anycann.codegen.emitter import Emitter, Value
from anycann.codegen.kernel import Kernel
from anycann.codegen.kernels.convolution import emit_convolution
from anycann.codegen.kernels.convolution_packing import pack_weights
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_tile import default_tile, method
from anycann.codegen.kernels.convolution_transposed import emit_transposed_convolution, pack_transposed_weights, transposed_flops
from anycann.codegen.kernels.winograd import emit_winograd
from anycann.codegen.kernels.winograd_tile import default_winograd_tile, winograd_profitable
from anycann.codegen.kernels.winograd_transform import pack_winograd_weights
from anycann.codegen.loops import Output
from anycann.codegen.tail import Constants, Generated, Packed, Tail, memory_name, pack
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te.contractions import Convolution
from anycann.te.layout import NC1HWC0, ND
from anycann.te.tensor import Contraction, Placeholder


def refuse_convolution(operator: Convolution, is_constant: Callable[[str], bool]) -> str | None:
    """Why no kernel computes this convolution, or None."""
    if operator.x.dtype is not dtypes.float32:
        return f"a convolution of {operator.x.dtype}"
    if not isinstance(operator.w, Placeholder) or not is_constant(operator.w.name):
        return "the weights of the convolution are computed at run time"
    if not 3 <= operator.x.rank <= 5:
        return f"a convolution over {operator.x.rank - 2} spatial dimensions"
    return None


def convolution_layout(operator: Convolution, name: str, stored: str, target: Target) -> str:
    """Depthwise and Winograd kernels, and those with few output channels, read NC1HWC0; the others read either layout."""
    if not isinstance(operator.x, Placeholder) or operator.x.name != name:
        return stored
    shape = convolution_shape(operator)
    wants_blocks = method(shape, target.lanes, blocked_input=True) in ("lanes", "inner")
    return NC1HWC0 if wants_blocks or _uses_winograd(operator, shape, target) else stored


def _uses_winograd(operator: Convolution, shape: ConvolutionShape, target: Target) -> bool:
    return not operator.transposed and winograd_profitable(shape, target)


def convolution_shape(operator: Convolution) -> ConvolutionShape:
    """Sizes of a convolution, or the attributes of a transposed one."""
    batch, channels, *in_size = operator.x.shape
    out_channels = operator.w.shape[1] * operator.group if operator.transposed else operator.w.shape[0]
    kernel = operator.w.shape[2:]
    return ConvolutionShape(
        batch,
        channels,
        out_channels,
        operator.group,
        tuple(in_size),
        tuple(kernel),
        operator.strides,
        operator.dilations,
        operator.pads_begin,
        operator.out_size,
    )


def generate_convolution(
    anchor: Contraction, operator: Convolution, outputs: Sequence[Output], layouts: Mapping[str, str], target: Target, constants: Constants
) -> Generated:
    """The kernel of a convolution and its tail; arguments: input, packed weights, what the tail reads, outputs."""
    shape, x = convolution_shape(operator), memory_name(operator.x)
    weights = np.asarray(constants(memory_name(operator.w)), np.float32)
    blocked = layouts.get(x, ND) == NC1HWC0
    tail = Tail(anchor, outputs, layouts, target, 1, split=True)
    e = Emitter()
    pointers = (e.argument(0), e.argument(1))
    writer = tail.writer(e, 2)

    def write(emitter: Emitter, index: Sequence[Value], vector: Value) -> None:
        tail.write(writer, emitter, index, vector)

    scratch, flops = 0, shape.flops
    if operator.transposed:
        packed = pack("deconv", pack_transposed_weights(weights, shape, target.lanes, blocked))
        tasks = emit_transposed_convolution(e, shape, target, *pointers, write, blocked)
        family, flops = "deconv", transposed_flops(shape)
    elif blocked and winograd_profitable(shape, target):
        packed = pack("winograd", pack_winograd_weights(weights, shape, target.lanes))
        launch = emit_winograd(e, shape, target, default_winograd_tile(shape, target), *pointers, write)
        tasks, scratch, family = launch.tasks, launch.scratch_bytes, "winograd"
    else:
        packed = pack("conv", pack_weights(weights, shape, target.lanes, blocked))
        tasks = emit_convolution(e, shape, target, default_tile(shape, target, blocked), *pointers, write, blocked)
        family = "conv"
    return _finish(e, family, (x, packed.name, *tail.inputs, *(o.name for o in outputs)), tasks, scratch, flops, packed)


def _finish(e: Emitter, family: str, arguments: tuple[str, ...], tasks: int, scratch: int, flops: int, packed: Packed) -> Generated:
    symbol, ir = e.finish(family)
    return Generated(Kernel(symbol, ir, arguments, tasks, scratch, flops), (packed,))

"""Convolutions: the choice between direct, Winograd and transposed kernels, and their operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from anycann.codegen.conversions import convert, from_storage
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernel import Kernel
from anycann.codegen.kernels.convolution import emit_convolution
from anycann.codegen.kernels.convolution_method import method, reads_channels_last
from anycann.codegen.kernels.convolution_packing import pack_weights, weights_arrangement
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_space import AlgorithmSpace, ConvolutionSpace, WinogradSpace
from anycann.codegen.kernels.convolution_transposed import emit_transposed_convolution, pack_transposed_weights, transposed_flops
from anycann.codegen.kernels.winograd import emit_winograd
from anycann.codegen.kernels.winograd_transform import pack_winograd_weights
from anycann.codegen.nest_kernel import Output
from anycann.codegen.space import Choices
from anycann.codegen.tail import Constants, Generated, Packed, Tail, memory_name, pack
from anycann.codegen.values import Value
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te.contractions import Convolution
from anycann.te.expression import Const
from anycann.te.layout import NC1HWC0, ND, NHWC
from anycann.te.tensor import Compute, Contraction, Placeholder, Tensor

STORED = (dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.float64, dtypes.int8, dtypes.uint8)


def refuse_convolution(operator: Convolution, is_constant: Callable[[str], bool]) -> str | None:
    """Why no kernel computes this convolution, or None."""
    if operator.x.dtype not in STORED or (operator.transposed and operator.x.dtype is not dtypes.float32):
        return f"a convolution of {operator.x.dtype}"
    for tensor in (operator.w, operator.weight_zero):
        if isinstance(tensor, Placeholder) and not is_constant(tensor.name):
            return "the weights of the convolution are computed at run time"
    if not isinstance(operator.w, Placeholder):
        return "the weights of the convolution are one number"
    if not 3 <= operator.x.rank <= 5:
        return f"a convolution over {operator.x.rank - 2} spatial dimensions"
    return None


def convolution_layout(operator: Convolution, name: str, stored: str, target: Target, choices: Choices) -> str:
    """Depthwise and Winograd kernels, and those with few output channels, read NC1HWC0; the others read either layout."""
    if not isinstance(operator.x, Placeholder) or operator.x.name != name:
        return stored
    shape = convolution_shape(operator)
    if stored == NHWC and reads_channels_last(shape, target.lanes) and not operator.transposed:
        return NHWC
    wants_blocks = stored == NHWC or method(shape, target.lanes, blocked_input=True) in ("lanes", "inner")
    return NC1HWC0 if wants_blocks or _uses_winograd(operator, shape, target, choices) else stored


def _uses_winograd(operator: Convolution, shape: ConvolutionShape, target: Target, choices: Choices) -> bool:
    return choices.winograd and not operator.transposed and choices.tile(AlgorithmSpace(shape, target)).winograd


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
        operator.x.dtype,
    )


def generate_convolution(
    anchor: Contraction,
    operator: Convolution,
    outputs: Sequence[Output],
    layouts: Mapping[str, str],
    target: Target,
    constants: Constants,
    choices: Choices,
) -> Generated:
    """The kernel of a convolution and its tail; arguments: input, packed weights, what the tail reads, outputs."""
    shape, x = convolution_shape(operator), memory_name(operator.x)
    weights = _weights(operator, constants, shape)
    channels_last = layouts.get(x, ND) == NHWC
    blocked = layouts.get(x, ND) == NC1HWC0 or channels_last
    tail = Tail(anchor, outputs, layouts, target, 1, split=True)
    e = Emitter()
    pointers = (e.argument(0), e.argument(1))
    zero = (operator.zero_point.name,) if isinstance(operator.zero_point, Placeholder) else ()
    zero_point = _zero_point(e, operator.zero_point, shape)
    writer = tail.writer(e, 2 + len(zero))

    def write(emitter: Emitter, index: Sequence[Value], vector: Value) -> None:
        tail.write(writer, emitter, index, vector)

    scratch, flops = 0, shape.flops
    if operator.transposed:
        packed = pack("deconv", pack_transposed_weights(weights, shape, target.lanes, blocked))
        tasks = emit_transposed_convolution(e, shape, target, *pointers, write, blocked)
        family, flops = "deconv", transposed_flops(shape)
    elif blocked and _uses_winograd(operator, shape, target, choices):
        packed = pack("winograd", pack_winograd_weights(weights, shape, target.lanes))
        launch = emit_winograd(e, shape, target, choices.tile(WinogradSpace(shape, target)), *pointers, write)
        tasks, scratch, family = launch.tasks, launch.scratch_bytes, "winograd"
    else:
        arrangement = weights_arrangement(shape, target.lanes, blocked) if operator.weight_zero is None else None
        packed = pack("conv", pack_weights(weights, shape, target.lanes, blocked), memory_name(operator.w), arrangement)
        tile = choices.tile(ConvolutionSpace(shape, target, blocked))
        tasks = emit_convolution(e, shape, target, tile, *pointers, write, blocked, zero_point=zero_point, channels_last=channels_last)
        family = "conv"
    return _finish(e, family, (x, packed.name, *zero, *tail.inputs, *(o.name for o in outputs)), tasks, scratch, flops, packed)


def _weights(operator: Convolution, constants: Constants, shape: ConvolutionShape) -> np.ndarray[Any, Any]:
    """The weights in the type of the sums, less their zero point."""
    weights: np.ndarray[Any, Any] = np.asarray(constants(memory_name(operator.w))).astype(shape.accumulator.numpy, copy=False)
    zero = operator.weight_zero
    if zero is None:
        return weights
    known = zero.body.value if isinstance(zero, Compute) and isinstance(zero.body, Const) else constants(memory_name(zero))
    zeros = np.asarray(known).astype(weights.dtype).reshape(-1, *[1] * (weights.ndim - 1))
    centred: np.ndarray[Any, Any] = weights - zeros
    return centred


def _zero_point(e: Emitter, zero: Tensor | None, shape: ConvolutionShape) -> Value | None:
    """The zero point of the input as a scalar of the sums' type: a literal, or from argument 2."""
    if zero is None:
        return None
    if isinstance(zero, Compute) and isinstance(zero.body, Const):
        return e.const(zero.body.value, shape.accumulator.register)
    dtype = zero.dtype
    return convert(e, from_storage(e, e.load(e.argument(2), dtype.storage, dtype.nbytes), dtype), dtype, shape.accumulator)


def _finish(e: Emitter, family: str, arguments: tuple[str, ...], tasks: int, scratch: int, flops: int, packed: Packed) -> Generated:
    symbol, ir = e.finish(family)
    return Generated(Kernel(symbol, ir, arguments, tasks, scratch, flops), (packed,))

"""The weights of a convolution in the order of its kernel: packed while compiling, or by a kernel of their own if they are computed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernel import Kernel
from anycann.codegen.kernels.computed_weights import (
    direct_weights,
    emit_by_table,
    emit_dense,
    emit_transformed,
    moves_squares,
    place_table,
    transform_scratch,
    transposed_weights,
    whole_piece,
)
from anycann.codegen.kernels.convolution_method import packed_size
from anycann.codegen.kernels.convolution_packing import pack_weights, weights_arrangement
from anycann.codegen.kernels.convolution_planes import pack_planes_weights, planes_arrangement
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_transposed import pack_transposed_weights, transposed_pieces
from anycann.codegen.kernels.planes_tile import PlanesTile
from anycann.codegen.kernels.winograd_tile import WinogradTile, winograd_algorithm, winograd_shape, winograd_weight_bytes
from anycann.codegen.kernels.winograd_transform import pack_winograd_weights
from anycann.codegen.tail import Constants, Packed, Workspace, known_value, memory_name, pack
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te.contractions import Convolution
from anycann.te.expression import Const
from anycann.te.tensor import Compute

Order: TypeAlias = Literal["conv", "deconv"]  # of the direct kernel, of the phases of a transposed convolution


@dataclass(frozen=True)
class Weights:
    """The name under which the kernel finds its weights, and what has to be there for that."""

    name: str
    packed: tuple[Packed, ...] = ()
    before: Kernel | None = None
    workspace: Workspace | None = None


def stated_shape(operator: Convolution) -> ConvolutionShape:
    """Sizes of a convolution, or the attributes of a transposed one."""
    batch, channels, *in_size = operator.x.shape
    out_channels = operator.w.shape[1] * operator.group if operator.transposed else operator.w.shape[0]
    return ConvolutionShape(
        batch,
        channels,
        out_channels,
        operator.group,
        tuple(in_size),
        tuple(operator.w.shape[2:]),
        operator.strides,
        operator.dilations,
        operator.pads_begin,
        operator.out_size,
        operator.x.dtype,
    )


def has_phases(operator: Convolution) -> bool:
    """True for a transposed convolution that is computed phase by phase; one of computed weights with stride 1 is an ordinary one."""
    return operator.transposed and not (operator.computed and all(stride == 1 for stride in operator.strides))


def kernel_shape(operator: Convolution) -> ConvolutionShape:
    """Sizes of the ordinary convolution that is computed, or the attributes of one with phases."""
    shape = stated_shape(operator)
    if not operator.transposed or has_phases(operator):
        return shape
    pads = tuple(d * (k - 1) - p for k, d, p in zip(shape.kernel, shape.dilations, shape.pads_begin, strict=True))
    return replace(shape, pads_begin=pads)


def ordered_weights(
    operator: Convolution, order: Order | WinogradTile, target: Target, blocked: bool, constants: Constants, result: str
) -> Weights:
    """The weights for a kernel that reads them in `order`, or computes tiles by Winograd's; `result` names the kernel's result."""
    if operator.computed:
        return _computed(operator, order, target, blocked, result)
    shape, lanes = kernel_shape(operator), target.lanes
    known = known_weights(operator, constants, shape)
    if order == "deconv":
        packed = pack("deconv", pack_transposed_weights(known, shape, lanes, blocked))
    elif isinstance(order, WinogradTile):
        plane = winograd_shape(shape)
        packed = pack("winograd", pack_winograd_weights(known, plane, lanes, winograd_algorithm(plane, order)))
    else:
        arrangement = weights_arrangement(shape, lanes, blocked) if operator.weight_zero is None else None
        packed = pack("conv", pack_weights(known, shape, lanes, blocked), memory_name(operator.w), arrangement)
    return Weights(packed.name, (packed,))


def planes_weights(operator: Convolution, tile: PlanesTile, constants: Constants) -> Weights:
    """The weights for a kernel of row-major planes."""
    shape = kernel_shape(operator)
    array = pack_planes_weights(known_weights(operator, constants, shape), shape, tile)
    packed = pack("planes", array, memory_name(operator.w), planes_arrangement(shape, tile))
    return Weights(packed.name, (packed,))


def known_weights(operator: Convolution, constants: Constants, shape: ConvolutionShape) -> np.ndarray[Any, Any]:
    """The weights in the type of the sums, less their zero point."""
    weights: np.ndarray[Any, Any] = np.asarray(known_value(operator.w, constants)).astype(shape.accumulator.numpy, copy=False)
    zero = operator.weight_zero
    if zero is None:
        return weights
    known = zero.body.value if isinstance(zero, Compute) and isinstance(zero.body, Const) else known_value(zero, constants)
    zeros = np.asarray(known).astype(weights.dtype).reshape(-1, *[1] * (weights.ndim - 1))
    centred: np.ndarray[Any, Any] = weights - zeros
    return centred


# ---- computed
def _computed(operator: Convolution, order: Order | WinogradTile, target: Target, blocked: bool, result: str) -> Weights:
    """A kernel that brings the weights into a workspace."""
    shape, lanes = kernel_shape(operator), target.lanes
    make = transposed_weights if operator.transposed else direct_weights
    weights = make(shape, operator.w.dtype)
    source, name = memory_name(operator.w), f"{result}/weights"
    e = Emitter()
    pointers = (e.argument(0), e.argument(1))
    if isinstance(order, WinogradTile):
        tasks = emit_transformed(e, weights, target, winograd_algorithm(shape, order), whole_piece(weights), *pointers)
        kernel = _kernel(e, (source, name), tasks, transform_scratch(shape, lanes))
        return Weights(name, (), kernel, Workspace(name, winograd_weight_bytes(shape, lanes, order)))
    pieces = transposed_pieces(shape, lanes, blocked) if order == "deconv" else (whole_piece(weights),)
    if moves_squares(shape, lanes, blocked):
        tasks = emit_dense(e, weights, target, pieces, *pointers)
        nbytes = shape.accumulator.nbytes * packed_size(shape, lanes, blocked) // shape.taps * sum(len(p.taps) for p in pieces)
        return Weights(name, (), _kernel(e, (source, name), tasks, 0), Workspace(name, nbytes))
    table = pack("places", place_table(operator.w.shape, lambda numbers: _order(operator, shape, order, numbers, lanes, blocked)))
    tasks = emit_by_table(e, operator.w.dtype, shape.accumulator, table.array.size, *pointers, e.argument(2))
    kernel = _kernel(e, (source, table.name, name), tasks, 0)
    return Weights(name, (table,), kernel, Workspace(name, table.array.size * shape.accumulator.nbytes))


def _order(
    operator: Convolution, shape: ConvolutionShape, order: Order, numbers: np.ndarray[Any, Any], lanes: int, blocked: bool
) -> np.ndarray[Any, Any]:
    """`numbers`, shaped as the weights, in the order of the kernel."""
    if order == "deconv":
        return pack_transposed_weights(numbers, shape, lanes, blocked)
    if operator.transposed:
        grouped = numbers.reshape(shape.group, shape.group_inputs, shape.group_outputs, *shape.kernel).swapaxes(1, 2)
        numbers = np.flip(grouped.reshape(shape.out_channels, shape.group_inputs, *shape.kernel), tuple(range(2, 2 + len(shape.kernel))))
    return pack_weights(numbers, shape, lanes, blocked)


def _kernel(e: Emitter, arguments: tuple[str, ...], tasks: int, scratch: int) -> Kernel:
    symbol, ir = e.finish("weights")
    return Kernel(symbol, ir, arguments, tasks, scratch)

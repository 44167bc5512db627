"""A convolution or matrix product and the elementwise tail fused to it, as one kernel.

The generator in kernels/ delivers finished vectors of the product; `Tail` evaluates the group's outputs on each and stores them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
import hashlib

import numpy as np

from anycann.codegen.accesses import FlatNest, resolve
from anycann.codegen.emitter import Emitter, Value
from anycann.codegen.kernel import Kernel
from anycann.codegen.kernels.convolution import emit_convolution
from anycann.codegen.kernels.convolution_packing import pack_weights
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_tile import default_tile, method
from anycann.codegen.loops import NestWriter, Output, placeholders
from anycann.support.errors import InternalError
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te.contractions import Convolution, MatMul
from anycann.te.expression import Var
from anycann.te.layout import NC1HWC0, ND
from anycann.te.nest import build_nest, contractions
from anycann.te.tensor import Contraction, Placeholder, Tensor

Constants = Callable[[str], "np.ndarray | None"]  # the value of a placeholder, if it is known while compiling


@dataclass(frozen=True)
class Packed:
    """A constant in the order its kernel reads it, under the name it has in `Kernel.arguments`."""

    name: str
    array: np.ndarray


@dataclass(frozen=True)
class Generated:
    """A kernel and the constants that were packed for it."""

    kernel: Kernel
    packed: tuple[Packed, ...] = ()


def refuse(contraction: Contraction, is_constant: Callable[[str], bool]) -> str | None:
    """Why no generator takes this product, or None."""
    operator = contraction.operator
    if isinstance(operator, Convolution):
        return _refuse_convolution(operator, is_constant)
    if isinstance(operator, MatMul):
        return None if contraction.dtype is dtypes.float32 else f"a matrix product of {contraction.dtype}"
    return f"no kernel generator for {type(operator).__name__}"


def _refuse_convolution(operator: Convolution, is_constant: Callable[[str], bool]) -> str | None:
    if operator.x.dtype is not dtypes.float32:
        return f"a convolution of {operator.x.dtype}"
    if not isinstance(operator.w, Placeholder) or not is_constant(operator.w.name):
        return "the weights of the convolution are computed at run time"
    if not 3 <= operator.x.rank <= 5:
        return f"a convolution over {operator.x.rank - 2} spatial dimensions"
    if operator.transposed:
        return "transposed convolution"
    return None


def wanted_layout(contraction: Contraction, name: str, stored: str, lanes: int) -> str:
    """The layout operand `name` must have: `stored` itself if the generator reads it as it is."""
    operator = contraction.operator
    if isinstance(operator, MatMul):
        return ND
    assert isinstance(operator, Convolution)
    if isinstance(operator.x, Placeholder) and operator.x.name == name:
        blocked = method(convolution_shape(operator), lanes, blocked_input=True) == "lanes"
        return NC1HWC0 if blocked else stored
    return stored


def convolution_shape(operator: Convolution) -> ConvolutionShape:
    """Sizes of a (not transposed) convolution."""
    batch, channels, *in_size = operator.x.shape
    out_channels, _, *kernel = operator.w.shape
    return ConvolutionShape(
        batch, channels, out_channels, operator.group, tuple(in_size), tuple(kernel), operator.strides, operator.dilations,
        operator.pads_begin, operator.out_size,
    )  # fmt: skip


def generate_contraction(outputs: Sequence[Output], layouts: Mapping[str, str], target: Target, constants: Constants) -> Generated:
    """The kernel of one contraction and its tail. `layouts`: storage of the placeholders by name (absent: row-major)."""
    anchor = contractions([o.tensor for o in outputs])[0]
    if isinstance(anchor.operator, Convolution):
        return _convolution(anchor, anchor.operator, outputs, layouts, target, constants)
    raise InternalError(f"no kernel generator for {type(anchor.operator).__name__}")


class Tail:
    """The elementwise end of a contraction: evaluated once for each finished vector of the product."""

    def __init__(self, anchor: Contraction, outputs: Sequence[Output], layouts: Mapping[str, str], target: Target, vector_axis: int, split: bool):
        tensors = [o.tensor for o in outputs]
        nest = build_nest(tensors)
        self.anchor, self.outputs, self.target = anchor, outputs, target
        self.axes = _axis_variables(anchor, nest.outer)
        along = self.axes[vector_axis]
        parts = [along] if split and along is not None else []
        flat, blocks = resolve(nest, [o.place for o in outputs], layouts, target.lanes, parts)
        self.block = blocks.get(along) if along is not None else None
        self.vector = None if along is None else self.block[1] if self.block is not None else along
        self.flat: FlatNest = flat
        self.vector_axis = vector_axis

    @property
    def inputs(self) -> list[str]:
        """Placeholders the tail reads."""
        return placeholders(self.flat)

    def writer(self, e: Emitter, first: int) -> NestWriter:
        """The writer of the tail, its pointers taken from argument slots `first` and up (tail inputs, then outputs)."""
        writer = NestWriter(self.flat, [o.tensor.dtype for o in self.outputs], self.target, e, self.vector)
        writer.bind(self.inputs, len(self.outputs), first)
        return writer

    def write(self, writer: NestWriter, e: Emitter, index: Sequence[Value], vector: Value, mask: Value | None = None) -> None:
        """Store the outputs for one vector of the product; `index` is that of its first lane."""
        writer.e = e
        for axis, variable in enumerate(self.axes):
            if variable is None:
                continue
            writer.values[variable] = index[axis]
            if axis == self.vector_axis and self.block is not None:
                block, lane = self.block
                writer.values[block] = e.udiv(index[axis], self.target.lanes)
                writer.values[lane] = e.const(0)
        if self.vector is None:
            writer.stages(1, None, {id(self.anchor): e.extract(vector, 0)})
        else:
            writer.stages(self.target.lanes, mask, {id(self.anchor): vector})


def _axis_variables(anchor: Contraction, outer: Sequence[Var]) -> list[Var | None]:
    """The loop of each axis of the contraction; None for an axis of extent 1."""
    loops = iter(outer)
    return [next(loops) if extent != 1 else None for extent in anchor.shape]


def packed_name(kind: str, array: np.ndarray) -> str:
    """A name that equal packed constants share."""
    return f"{kind}:{hashlib.blake2b(array.tobytes(), digest_size=12).hexdigest()}"


def _name(tensor: Tensor) -> str:
    if not isinstance(tensor, Placeholder):
        raise InternalError("an operand of a contraction must be in memory")
    return tensor.name


def _convolution(
    anchor: Contraction, operator: Convolution, outputs: Sequence[Output], layouts: Mapping[str, str], target: Target, constants: Constants
) -> Generated:
    shape, x = convolution_shape(operator), _name(operator.x)
    blocked = layouts.get(x, ND) == NC1HWC0
    weights = constants(_name(operator.w))
    assert weights is not None
    packed = pack_weights(np.asarray(weights, np.float32), shape, target.lanes)
    weight = Packed(packed_name("conv", packed), packed)
    tail = Tail(anchor, outputs, layouts, target, 1, split=True)
    e = Emitter()
    pointers = [e.argument(0), e.argument(1)]
    writer = tail.writer(e, 2)
    tasks = emit_convolution(
        e, shape, target, default_tile(shape, target, blocked), pointers[0], pointers[1],
        lambda emitter, index, vector: tail.write(writer, emitter, index, vector), blocked,
    )  # fmt: skip
    symbol, ir = e.finish("conv")
    arguments = (x, weight.name, *tail.inputs, *(o.name for o in outputs))
    return Generated(Kernel(symbol, ir, arguments, tasks, 0, shape.flops), (weight,))



"""Convolutions: the choice between direct, Winograd and transposed kernels, and their operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from anycann.codegen.contract_dot_places import is_sum_of_bytes
from anycann.codegen.contract_pointwise import generate_pointwise, uses_strassen
from anycann.codegen.contract_weights import Order, has_phases, kernel_shape, ordered_weights, planes_weights
from anycann.codegen.conversions import convert, from_storage
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernel import Kernel, RowTasks
from anycann.codegen.kernels.convolution import emit_convolution
from anycann.codegen.kernels.convolution_method import method, reads_channels_last
from anycann.codegen.kernels.convolution_place import row_tasks
from anycann.codegen.kernels.convolution_planes import emit_planes, planes_rows
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_space import AlgorithmSpace, ConvolutionSpace, PlanesSpace, WinogradSpace
from anycann.codegen.kernels.convolution_transposed import emit_transposed_convolution, transposed_flops
from anycann.codegen.kernels.planes_tile import PlanesTile, planes_profitable
from anycann.codegen.kernels.winograd import emit_winograd
from anycann.codegen.kernels.winograd_tile import WinogradTile, winograd_shape
from anycann.codegen.nest_kernel import Output
from anycann.codegen.repeats import Repeats
from anycann.codegen.space import Choices
from anycann.codegen.tail import Constants, Generated, Tail, memory_name
from anycann.codegen.values import Value
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te.contractions import Convolution
from anycann.te.expression import Const
from anycann.te.layout import NC1HWC0, ND, NHWC, WINDOW, window_rows
from anycann.te.tensor import Compute, Constant, Contraction, Placeholder, Tensor

STORED = (dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.float64, dtypes.int8, dtypes.uint8)
FEW_PIXELS = 64  # so few do not repay what transforming computed weights costs
# Row-major planes that are worth a copy: a tile reads one line of each, and they often share their places in the cache. With the copy
# 0.9 to 2.5 times as fast from 32 channels on, 0.5 to 1.1 with fewer (20 pointwise and strided 3 x 3 shapes with AVX-512, 8 with AVX2).
MANY_PLANES = 32


def refuse_convolution(operator: Convolution, is_constant: Callable[[str], bool]) -> str | None:
    """Why no kernel computes this convolution, or None."""
    if operator.x.dtype not in STORED or (operator.transposed and operator.x.dtype.nbytes not in (2, 4) and not is_sum_of_bytes(operator)):
        return f"a convolution of {operator.x.dtype}"
    if not all(_is_known(t, is_constant) for t in (operator.w, operator.weight_zero)) and not operator.computed:
        return "the weights of the convolution are computed at run time"
    if not isinstance(operator.w, Placeholder):
        return "the weights of the convolution are one number"
    if not 3 <= operator.x.rank <= 5:
        return f"a convolution over {operator.x.rank - 2} spatial dimensions"
    return None


def _is_known(tensor: Tensor | None, is_constant: Callable[[str], bool]) -> bool:
    """True for what is known while compiling, a table (weights of bytes less their zero point) too; and for what is not there."""
    return not isinstance(tensor, Placeholder) or isinstance(tensor, Constant) or is_constant(tensor.name)


def convolution_layout(operator: Convolution, name: str, stored: str, target: Target, choices: Choices) -> str:
    """Depthwise and Winograd kernels, those with few output channels, and those with many planes to read, want NC1HWC0; weights are ND."""
    if isinstance(operator.w, Placeholder) and operator.w.name == name:
        return ND
    if not isinstance(operator.x, Placeholder) or operator.x.name != name:
        return stored
    shape = kernel_shape(operator)
    if stored == NHWC and reads_channels_last(shape, target.lanes) and not has_phases(operator):
        return NHWC
    wants_blocks = stored == NHWC or method(shape, target.lanes, blocked_input=True) in ("lanes", "inner")
    many_planes = shape.group == 1 and shape.in_channels >= MANY_PLANES
    return NC1HWC0 if wants_blocks or many_planes or uses_winograd(operator, shape, target, choices) else stored


def convolution_reads(operator: Convolution, target: Target) -> frozenset[str]:
    """The layouts in which some kernel of a convolution reads its input."""
    if has_phases(operator):
        return frozenset({ND, NC1HWC0})
    last = {NHWC} if reads_channels_last(kernel_shape(operator), target.lanes) else set()
    return frozenset({ND, NC1HWC0, WINDOW, *last})


def uses_winograd(operator: Convolution, shape: ConvolutionShape, target: Target, choices: Choices) -> bool:
    """True if the convolution, whose sizes are `shape`, is computed in float32 by Winograd's algorithm."""
    computed_alike = shape.batch * shape.out_pixels >= FEW_PIXELS and len(shape.kernel) == 2 and shape.group == 1
    if has_phases(operator) or (operator.computed and not computed_alike):
        return False
    return choices.winograd and choices.tile(AlgorithmSpace(winograd_shape(shape), target, choices.held)).winograd


def gains_by_planes(operator: Convolution, target: Target, choices: Choices, written: bool) -> bool:
    """Whether lanes along the pixels of row-major planes are better than lanes along the output channels, for an image in planes.

    `written`: whether the result has to be planes in any case.
    """
    if has_phases(operator) or operator.computed or operator.weight_zero is not None or operator.zero_point is not None:
        return False
    shape = kernel_shape(operator)
    return not uses_winograd(operator, shape, target, choices) and planes_profitable(shape, target, written)


def generate_convolution(
    anchor: Contraction,
    operator: Convolution,
    outputs: Sequence[Output],
    layouts: Mapping[str, str],
    target: Target,
    constants: Constants,
    choices: Choices,
    repeats: Repeats,
) -> Generated:
    """The kernel of a convolution and its tail; arguments: input, packed weights, what the tail reads, outputs."""
    shape, x = kernel_shape(operator), memory_name(operator.x)
    stored = layouts.get(x, ND)
    planes = (window_rows(stored) or stored == ND) and all(o.place.layout == ND for o in outputs)
    if planes and gains_by_planes(operator, target, choices, written=True):
        tile = choices.tile(PlanesSpace(shape, target))
        found = planes_weights(operator, tile, constants)
        writer = _Writer(anchor, operator, outputs, layouts, target, choices, found.name)
        return Generated(repeats.kernel("planes", outputs, layouts, (found.name,), lambda: writer.planes(tile)), found.packed)
    if stored == NC1HWC0 and uses_strassen(operator, shape, target, choices):
        return generate_pointwise(anchor, operator, shape, outputs, layouts, target, constants, choices, repeats)
    blocked = stored in (NC1HWC0, NHWC)
    order: Order | WinogradTile = "conv"
    if has_phases(operator):
        order = "deconv"
    elif blocked and uses_winograd(operator, shape, target, choices):
        winograd_tile = choices.tile(WinogradSpace(winograd_shape(shape), target, choices.held))
        order = winograd_tile
    found = ordered_weights(operator, order, target, blocked, constants, outputs[0].name)
    writer = _Writer(anchor, operator, outputs, layouts, target, choices, found.name)
    kernel = repeats.kernel(_named(order), outputs, layouts, (found.name,), lambda: writer.kernel(order, blocked))
    return Generated(kernel, found.packed, found.before, found.workspace)


def _named(order: Order | WinogradTile) -> str:
    return "winograd" if isinstance(order, WinogradTile) else order


@dataclass(frozen=True)
class _Writer:
    """Writes the kernel of a convolution and its tail, which finds its weights under the name `weights`."""

    anchor: Contraction
    operator: Convolution
    outputs: Sequence[Output]
    layouts: Mapping[str, str]
    target: Target
    choices: Choices
    weights: str

    def kernel(self, order: Order | WinogradTile, blocked: bool) -> Kernel:
        """With lanes along the output channels. Arguments: input, packed weights, zero point if in memory, what the tail reads, outputs."""
        operator, target = self.operator, self.target
        shape, stored = kernel_shape(operator), self.layouts.get(memory_name(operator.x), ND)
        tail = Tail(self.anchor, self.outputs, self.layouts, target, 1, split=True)
        e = Emitter()
        pointers = (e.argument(0), e.argument(1))
        zero = (operator.zero_point.name,) if isinstance(operator.zero_point, Placeholder) else ()
        zero_point = _zero_point(e, operator.zero_point, shape)
        writer = tail.writer(e, 2 + len(zero))

        def write(emitter: Emitter, index: Sequence[Value], vector: Value) -> None:
            tail.write(writer, emitter, index, vector)

        scratch, flops, rows = 0, shape.flops, None
        if order == "deconv":
            tasks, flops = emit_transposed_convolution(e, shape, target, *pointers, write, blocked), transposed_flops(shape)
        elif isinstance(order, WinogradTile):
            rank = len(shape.in_size)  # a line is computed as a plane

            def write_line(emitter: Emitter, index: Sequence[Value], vector: Value) -> None:
                write(emitter, index[: 2 + rank], vector)

            launch = emit_winograd(e, winograd_shape(shape), target, order, *pointers, write_line)
            tasks, scratch = launch.tasks, launch.scratch_bytes
        else:
            channels_last, window = stored == NHWC, window_rows(stored) or 0
            tile = self.choices.tile(ConvolutionSpace(shape, target, blocked))
            tasks = emit_convolution(e, shape, target, tile, *pointers, write, blocked, None, zero_point, channels_last, window)
            rows = row_tasks(shape, target, tile, blocked, channels_last, window)
        symbol, ir = e.finish(_named(order))
        return Kernel(symbol, ir, self._arguments(tail, zero), tasks, scratch, flops, rows, isinstance(order, WinogradTile))

    def planes(self, tile: PlanesTile) -> Kernel:
        """With lanes along the pixels of row-major planes, read and written. Arguments: input, weights, what the tail reads, outputs."""
        shape, window = kernel_shape(self.operator), window_rows(self.layouts.get(memory_name(self.operator.x), ND)) or 0
        tail = Tail(self.anchor, self.outputs, self.layouts, self.target, len(self.anchor.shape) - 1, split=False)
        e = Emitter()
        pointers = (e.argument(0), e.argument(1))
        writer = tail.writer(e, 2)

        def write(emitter: Emitter, index: Sequence[Value], vector: Value, mask: Value | None) -> None:
            tail.write(writer, emitter, index, vector, mask)

        tasks = emit_planes(e, shape, self.target, tile, *pointers, write, window)
        symbol, ir = e.finish("planes")
        rows = planes_rows(shape, self.target, tile, window)
        return Kernel(symbol, ir, self._arguments(tail), tasks, 0, shape.flops, rows)

    def _arguments(self, tail: Tail, zero: tuple[str, ...] = ()) -> tuple[str, ...]:
        return (memory_name(self.operator.x), self.weights, *zero, *tail.inputs, *(o.name for o in self.outputs))


def convolution_rows(operator: Convolution, target: Target, choices: Choices) -> RowTasks | str:
    """How the tasks of a convolution lie along the rows of a row-major image that it reads through a window; else why it cannot."""
    if has_phases(operator) or operator.computed:
        return "a transposed convolution, or one of weights that are computed"
    if convolution_layout(operator, memory_name(operator.x), ND, target, choices) != ND:
        return "the convolution reads blocks of channels"
    shape = kernel_shape(operator)
    tile = choices.tile(ConvolutionSpace(shape, target, blocked_input=False))
    return row_tasks(shape, target, tile, False, False, 1) or "the tasks of the convolution are not rows of its result"


def _zero_point(e: Emitter, zero: Tensor | None, shape: ConvolutionShape) -> Value | None:
    """The zero point of the input as a scalar of the sums' type: a literal, or from argument 2."""
    if zero is None:
        return None
    if isinstance(zero, Compute) and isinstance(zero.body, Const):
        return e.const(zero.body.value, shape.accumulator.register)
    dtype = zero.dtype
    return convert(e, from_storage(e, e.load(e.argument(2), dtype.storage, dtype.nbytes), dtype), dtype, shape.accumulator)

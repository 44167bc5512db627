"""Convolutions of bytes and bfloat16 by dot products: their operands, their weights, and the kernel with its tail."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from anycann.codegen.byte_packing import MOST_REGISTERS
from anycann.codegen.contract_convolution import uses_winograd
from anycann.codegen.contract_dot_places import BYTES, dot_shape, is_sum_of_pixels, output_place, product_weights, windows_of
from anycann.codegen.contract_dot_plan import plan_dots, sorting
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernel import Kernel, RowTasks
from anycann.codegen.kernels.arithmetic_rate import multiplies_bfloat
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.dot_convolution import emit_dot_convolution
from anycann.codegen.kernels.dot_kernel import DotWrite
from anycann.codegen.kernels.dot_packing import pack_dots
from anycann.codegen.kernels.dot_plane import as_plane, used_taps, with_taps
from anycann.codegen.kernels.dot_products import DotProducts
from anycann.codegen.kernels.dot_reading import is_column
from anycann.codegen.kernels.dot_shape import DotPlan
from anycann.codegen.kernels.dot_space import DotSpace, gains_by_magnitudes
from anycann.codegen.kernels.dot_tiles import has_tiles
from anycann.codegen.kernels.winograd_words import emit_word_winograd
from anycann.codegen.kernels.winograd_words_lines import word_tile_sizes
from anycann.codegen.kernels.winograd_words_space import WordAlgorithmSpace, WordWinogradSpace
from anycann.codegen.kernels.winograd_words_tile import WordWinograd
from anycann.codegen.kernels.winograd_words_transform import pack_words, sums_fit
from anycann.codegen.nest_kernel import Output
from anycann.codegen.repeats import Repeats
from anycann.codegen.space import Choices
from anycann.codegen.tail import Constants, Generated, Packed, Tail, known_value, memory_name, pack
from anycann.codegen.values import Value
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te.contractions import Convolution
from anycann.te.dtypes import DType
from anycann.te.expression import Const
from anycann.te.layout import NC1HWC0, ND, NHWC, WINDOW, window_rows
from anycann.te.tensor import Compute, Contraction, Placeholder, Tensor

Array: TypeAlias = np.ndarray[Any, Any]

FLOATS = (dtypes.bfloat16, dtypes.float32)  # weights that are rounded to bfloat16 when they are packed
PLANAR_CHANNELS = 4  # up to so many channels, a copy gathers the planes of a row-major image as fast as it copies


def takes_convolution(operator: Convolution, target: Target, choices: Choices) -> bool:
    """True for bytes, or bfloat16 where it has instructions and Winograd in float32 is not faster; for groups that have channels enough.

    Transposed convolutions are among them where they are sums of pixels.
    """
    if operator.computed or (operator.transposed and not is_sum_of_pixels(operator, target)) or not _gains_in_groups(operator, target):
        return False
    if operator.x.dtype in BYTES:
        return operator.w.dtype in BYTES
    halves = operator.x.dtype is dtypes.bfloat16 and operator.w.dtype in FLOATS and multiplies_bfloat(target)
    return halves and not uses_winograd(operator, dot_shape(operator), target, choices)


def _gains_in_groups(operator: Convolution, target: Target) -> bool:
    """True if the products with zeros, for the other groups of a panel, cost less than the dot products gain.

    3 x 3 on 28 x 28 pixels of 128 channels against the other kernels: with matrix tiles 0.6 of their speed in groups of 1, 1.7 to 2.0 of 2
    (but 0.7 to 0.9 on few pixels), 2.5 to 3.6 of 4, 6 to 30 of more; by instructions of 16 bits 0.4 to 0.9 of 4, 1.6 to 3 of 8.
    A zero point of weights would be taken from the channels of all groups of a panel; unsigned weights have one, 128.
    """
    if operator.group == 1:
        return True
    dots = DotProducts(operator.x.dtype, target)
    fast = has_tiles(target, operator.x.dtype) or (dots.is_one_instruction and operator.x.dtype is not dtypes.bfloat16)
    least = 4 if fast else min(target.lanes, 8)
    centred = operator.weight_zero is None and operator.w.dtype is not dtypes.uint8
    return centred and operator.w.shape[1] >= least and operator.w.shape[0] // operator.group >= least


def dot_layout(operator: Convolution, name: str, stored: str) -> str:
    """The layout in which operand `name` is read: channels last, or as it is where that is the same or as good."""
    if not isinstance(operator.x, Placeholder) or operator.x.name != name:
        return stored
    return ND if stored == ND and ND in dot_reads(operator) else NHWC


def dot_reads(operator: Convolution) -> frozenset[str]:
    """The layouts in which dot products read the input: channels last, and planes where they are the same or gathered by a copy."""
    same = operator.x.shape[1] == 1 or all(extent == 1 for extent in operator.x.shape[2:])
    return frozenset({NHWC, ND, WINDOW} if same or _is_planar(operator, ND) else {NHWC})


def _is_planar(operator: Convolution, layout: str) -> bool:
    """True if a copy gathers the planes of a row-major input, whose images are also those of the kernel."""
    few = operator.group == 1 and 1 < operator.x.shape[1] <= PLANAR_CHANNELS
    if not few or operator.x.rank < 4 or (layout != ND and window_rows(layout) is None):
        return False
    sizes = dot_shape(operator)
    return as_plane(with_taps(sizes, used_taps(sizes))).batch == sizes.batch


def dot_rows(operator: Convolution, target: Target, choices: Choices) -> RowTasks | str:
    """How the tasks of a convolution lie along the rows of a row-major image that it reads through a window; else why they do not."""
    if operator.transposed:
        return "a task of a transposed convolution is not one row of its result"
    sizes = dot_shape(operator)
    shape = as_plane(with_taps(sizes, used_taps(sizes)))
    if len(shape.in_size) != 2 or shape.in_size != sizes.in_size or is_column(shape) or shape.out_pixels * shape.batch == 0:
        return "the convolution reads all pixels as one row"
    planar = _is_planar(operator, ND)
    return DotPlan(shape, target, choices.tile(DotSpace(shape, target, planar)), planar).row_tasks


def generate_dot_convolution(
    anchor: Contraction,
    operator: Convolution,
    outputs: Sequence[Output],
    layouts: Mapping[str, str],
    target: Target,
    constants: Constants,
    choices: Choices,
    repeats: Repeats,
) -> Generated:
    """The kernel of a convolution and its tail; arguments: input, packed weights, the zero point if it is computed, the tail's, outputs."""
    sizes = dot_shape(operator)
    windows, x = windows_of(operator), memory_name(operator.x)
    taps = (slice(None),) * len(sizes.kernel) if windows else used_taps(sizes)  # what one reads in the padding another may in the image
    shape = sizes if windows else as_plane(with_taps(sizes, taps))
    planar = _is_planar(operator, layouts.get(x, ND)) and shape.in_pixels > 1
    weights, weight_zero = _signed_weights(operator, constants)
    weights = product_weights(operator, weights)
    window = window_rows(layouts.get(x, ND)) or 0
    known = known_zero(operator.zero_point, constants, sizes.dtype)
    kept = weights[(slice(None), slice(None), *taps)].reshape(*weights.shape[:2], *shape.kernel)
    magnitudes = not (planar or window or known is None) and weight_zero is None and gains_by_magnitudes(shape, target)
    middle = None if operator.transposed else known  # taps that a place does not have are left out where groups of weights are sorted
    space = sorting(DotSpace(shape, target, planar, magnitudes, windows=windows), middle, kept, window)
    method = None if planar or window or operator.transposed else _by_winograd(space, choices, kept, weight_zero)
    if method is None:
        plan = plan_dots(space, choices, kept, weight_zero is None, window)
        method = _by_dots(plan, kept, known, weight_zero)
    blocked = NC1HWC0 in (*layouts.values(), *(o.place.layout for o in outputs))

    def written() -> Kernel:
        tail = Tail(anchor, outputs, layouts, target, 1, split=blocked)
        e = Emitter()
        pointers = (e.argument(0), e.argument(1))
        zero = () if known is not None or operator.zero_point is None else (memory_name(operator.zero_point),)
        zero_point = _load_zero(e, sizes) if zero else known
        writer = tail.writer(e, 2 + len(zero))

        def write(e: Emitter, image: Value, channel: Value, row: Value, column: Value, sums: Value, mask: Value | None) -> None:
            tail.write(writer, e, output_place(e, operator, shape, image, row, column, channel), sums, None if blocked else mask)

        joined = 1 if blocked or not _neighbours_stay(operator, method.plan) else joined_vectors(target, outputs)
        tasks = method.emit(e, *pointers, write, zero_point, joined)
        symbol, ir = e.finish(method.family)
        arguments = (x, method.weights.name, *zero, *tail.inputs, *(o.name for o in outputs))
        return Kernel(symbol, ir, arguments, tasks, method.scratch_bytes, shape.flops, method.rows, method.resumes)

    kernel = repeats.kernel((method.plan, known, blocked), outputs, layouts, (method.weights.name,), written)
    return Generated(kernel, (method.weights,))


def _neighbours_stay(operator: Convolution, plan: DotPlan | WordWinograd) -> bool:
    """True if no two vectors that a panel has beside each other lie at two places of the windows of a transposed convolution."""
    if not operator.transposed or not isinstance(plan, DotPlan):
        return not operator.transposed
    outputs, pair = operator.w.shape[1], 2 * plan.target.lanes
    return outputs % plan.width == 0 or (outputs % pair == 0 and plan.width % pair == 0)


def joined_vectors(target: Target, outputs: Sequence[Output]) -> int:
    """How many neighbouring vectors are written at once: as many as are packed to one register of bytes or bfloat16; two with AVX2.

    1x1 from 64 to 256 channels on 56 x 56 with a residual of bytes take 0.95 of the time, 197 x 768 x 3072 with GELU 0.985 (Zen 3).
    """
    if target.has("avx512bw"):
        types = {output.tensor.dtype for output in outputs}
        if types == {dtypes.bfloat16}:
            return 2 if target.has("avx512bf16") and target.lanes == 16 else 1
        return MOST_REGISTERS if all(dtype.nbytes == 1 for dtype in types) else 1
    return 2 if target.has("avx2") and target.lanes == 8 else 1


@dataclass(frozen=True)
class _Method:
    """A way to compute a convolution: its weights, what writes it (pointers of input and weights, results, zero point), and its needs."""

    family: str
    plan: DotPlan | WordWinograd
    weights: Packed
    emit: Callable[[Emitter, Value, Value, DotWrite, Value | int | None, int], int]
    scratch_bytes: int
    rows: RowTasks | None = None
    resumes: bool = False


def _by_dots(plan: DotPlan, weights: Array, zero_point: int | None, weight_zero: Array | None) -> _Method:
    packed = pack("dots", pack_dots(plan, weights, zero_point, weight_zero))
    rows = plan.row_tasks if plan.window else None

    def emit(e: Emitter, x: Value, weights: Value, write: DotWrite, zero: Value | int | None, joined: int) -> int:
        return emit_dot_convolution(e, plan, x, weights, write, zero, joined)

    return _Method("dots", plan, packed, emit, plan.scratch_bytes, rows, plan.resumes)


def _by_winograd(space: DotSpace, choices: Choices, weights: Array, weight_zero: Array | None) -> _Method | None:
    """With the largest tiles that pay beside dot products of a space and whose sums come back; None if there are none."""
    shape, target = space.problem, space.target
    spaces = {size: WordAlgorithmSpace(shape, target, size, space.magnitudes, space.around) for size in word_tile_sizes(shape)}
    wanted = [size for size, each in spaces.items() if choices.tile(each).winograd]
    centred = _centred(weights, weight_zero) if wanted else weights
    plans = [WordWinograd(shape, target, choices.tile(WordWinogradSpace(shape, target, size))) for size in wanted]
    plan = next((plan for plan in plans if sums_fit(centred, plan.algorithm)), None)
    if plan is None:
        return None
    packed = pack("winograd", pack_words(plan, centred))

    def emit(e: Emitter, x: Value, weights: Value, write: DotWrite, zero: Value | int | None, joined: int) -> int:
        return emit_word_winograd(e, plan, x, weights, write, zero or 0)

    return _Method("winograd", plan, packed, emit, plan.scratch_bytes, None, True)


def _centred(weights: Array, zero: Array | None) -> Array:
    """Signed bytes less their zero points."""
    return weights.astype(np.int32) - (0 if zero is None else zero.reshape(-1, *[1] * (weights.ndim - 1)))


def _signed_weights(operator: Convolution, constants: Constants) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]:
    """The weights as signed bytes, and their zero point if they have one; unsigned ones are taken 128 lower, as is their zero point."""
    weights = np.asarray(known_value(operator.w, constants))
    if operator.x.dtype is dtypes.bfloat16:
        return weights.astype(dtypes.bfloat16.numpy), None
    zero = np.zeros((), np.int32)
    if operator.weight_zero is not None:
        constant = isinstance(operator.weight_zero, Compute) and isinstance(operator.weight_zero.body, Const)
        found = operator.weight_zero.body.value if constant else known_value(operator.weight_zero, constants)  # type: ignore[attr-defined]
        zero = np.asarray(found).astype(np.int32)
    if weights.dtype == np.uint8:
        weights, zero = (weights ^ np.uint8(128)).view(np.int8), zero - 128
    return weights, zero if zero.any() else None


def known_zero(zero: Tensor | None, constants: Constants, dtype: DType) -> int | None:
    """The zero point of an input of a type, counted from the least byte, if it is known."""
    lift = 128 if dtype is dtypes.int8 else 0
    if zero is None or dtype is dtypes.bfloat16:
        return lift
    if isinstance(zero, Compute) and isinstance(zero.body, Const):
        return int(zero.body.value) + lift
    value = known_value(zero, constants)
    return None if value is None else int(np.asarray(value).reshape(-1)[0]) + lift


def _load_zero(e: Emitter, shape: ConvolutionShape) -> Value:
    """The zero point from argument 2, counted from the least byte."""
    raw = e.load(e.argument(2), "i8", 1)
    if shape.dtype is dtypes.int8:
        raw = e.binary("xor", raw, e.const(-128, "i8"))
    return e.cast("zext", raw, "i32")

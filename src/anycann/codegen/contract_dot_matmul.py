"""Products of bytes and bfloat16 with a known matrix by dot products: a 1x1 convolution of as many pixels as there are rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from anycann.codegen.contract_dot_places import BYTES
from anycann.codegen.contract_dot_plan import plan_dots, sorting
from anycann.codegen.contract_dots import FLOATS, joined_vectors, known_zero
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernel import Kernel
from anycann.codegen.kernels.arithmetic_rate import multiplies_bfloat
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_write import digits
from anycann.codegen.kernels.dot_convolution import emit_dot_convolution
from anycann.codegen.kernels.dot_packing import pack_dots
from anycann.codegen.kernels.dot_products import DotProducts, may_take_magnitudes
from anycann.codegen.kernels.dot_space import DotSpace
from anycann.codegen.kernels.dot_tiles import has_tiles
from anycann.codegen.nest_kernel import Output
from anycann.codegen.repeats import Repeats
from anycann.codegen.space import Choices
from anycann.codegen.tail import Constants, Generated, Tail, known_value, memory_name, pack
from anycann.codegen.values import Value
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te.contractions import MatMul
from anycann.te.tensor import Contraction

WORDS = (*BYTES, dtypes.int16)  # weights that are multiplied as 16-bit integers, so with any zero point of bytes taken off


def takes_matmul(operator: MatMul, constants: Constants, target: Target) -> bool:
    """True for bytes or bfloat16 times one known matrix, where the processor has no better way; for words where bytes are widened."""
    a, b = operator.a, operator.b
    if operator.scale is not None or a.rank < 2 or b.rank != 2 or operator.transpose_a or 0 in (*a.shape, *b.shape) or 1 in b.shape:
        return False
    if a.dtype is dtypes.bfloat16:
        return b.dtype in FLOATS and multiplies_bfloat(target) and known_value(b, constants) is not None
    if a.dtype not in BYTES or known_value(b, constants) is None:
        return False
    if DotProducts(a.dtype, target).widens:
        return b.dtype in WORDS
    if b.dtype not in BYTES:
        return False
    others = target.lanes == 16 and target.has("avx512vnni")  # another generator, which copies nothing and takes unsigned columns too
    return not others or (a.dtype is dtypes.uint8 and (b.dtype is dtypes.int8 or has_tiles(target, a.dtype)))


def generate_dot_matmul(
    anchor: Contraction,
    operator: MatMul,
    outputs: Sequence[Output],
    layouts: Mapping[str, str],
    target: Target,
    constants: Constants,
    choices: Choices,
    repeats: Repeats,
) -> Generated:
    """The kernel of a product and its tail: a 1x1 convolution of as many pixels as A has rows."""
    *rows, depth = operator.a.shape
    pixels = int(np.prod(rows, dtype=np.int64))
    columns = operator.b.shape[0 if operator.transpose_b else 1]
    one = (1, 1)
    shape = ConvolutionShape(1, depth, columns, 1, (pixels, 1), one, one, one, (0, 0), (pixels, 1), operator.a.dtype)
    widens = DotProducts(shape.dtype, target).widens
    zero = np.full((), -128, np.int32) if operator.b.dtype is dtypes.uint8 and not widens else None
    magnitudes = shape.dtype in BYTES and operator.b.dtype is dtypes.int8 and may_take_magnitudes(target)
    matrix = np.asarray(known_value(operator.b, constants))
    weights = (matrix if operator.transpose_b else matrix.T).reshape(columns, depth, 1, 1)
    weights = weights.astype(dtypes.bfloat16.numpy) if shape.dtype is dtypes.bfloat16 else weights
    weights = weights if zero is None else (weights ^ np.uint8(128)).view(np.int8)
    least = known_zero(None, constants, shape.dtype)
    middle = None if operator.around is None or least is None else operator.around + least
    space = sorting(DotSpace(shape, target, magnitudes=magnitudes), middle, weights)
    plan = plan_dots(space, choices, weights, zero is None)
    packed = pack("dots", pack_dots(plan, weights, least, zero))

    def written() -> Kernel:
        tail = Tail(anchor, outputs, layouts, target, len(anchor.shape) - 1, split=False)
        e = Emitter()
        pointers = (e.argument(0), e.argument(1))
        writer = tail.writer(e, 2)

        def write(e: Emitter, image: Value, channel: Value, row: Value, column: Value, sums: Value, mask: Value | None) -> None:
            tail.write(writer, e, [*digits(e, row, rows), channel], sums, mask)

        tasks = emit_dot_convolution(e, plan, *pointers, write, joined=joined_vectors(target, outputs))
        symbol, ir = e.finish("dots")
        arguments = (memory_name(operator.a), packed.name, *tail.inputs, *(o.name for o in outputs))
        return Kernel(symbol, ir, arguments, tasks, plan.scratch_bytes, shape.flops, resumes=plan.resumes)

    return Generated(repeats.kernel(plan, outputs, layouts, (packed.name,), written), (packed,))

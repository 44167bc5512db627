"""Matrix products: operand strides, packed weights, and the kernel with its tail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from anycann.codegen.contract_products import tail_writers
from anycann.codegen.contract_strassen import generate_strassen, uses_strassen
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernel import Kernel
from anycann.codegen.kernels.matmul import (
    MatmulShape,
    MatmulTile,
    Strides,
    b_arrangement,
    emit_matmul,
    keeps_rows,
    pack_b,
    pack_columns,
    panel_width,
    scratch_bytes,
    wants_groups,
    wants_packing,
    writes_registers,
)
from anycann.codegen.kernels.matmul_packing import columns_arrangement
from anycann.codegen.kernels.matmul_space import MatmulSpace
from anycann.codegen.nest_kernel import Output
from anycann.codegen.repeats import Repeats
from anycann.codegen.space import Choices
from anycann.codegen.tail import Constants, Generated, Packed, Tail, memory_name, pack
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te.contractions import MatMul
from anycann.te.dtypes import DType
from anycann.te.tensor import Constant, Contraction, Tensor

ACCUMULATORS: dict[DType, DType] = {
    dtypes.float32: dtypes.float32,
    dtypes.float16: dtypes.float32,
    dtypes.bfloat16: dtypes.float32,
    dtypes.float64: dtypes.float64,
    dtypes.int8: dtypes.int32,
    dtypes.uint8: dtypes.int32,
    dtypes.int16: dtypes.int32,
}


def refuse_matmul(operator: MatMul) -> str | None:
    """Why no kernel computes this product, or None."""
    for tensor in (operator.a, operator.b) if operator.scale is None else (operator.a,):
        if tensor.dtype not in ACCUMULATORS:
            return f"a matrix product of {tensor.dtype}"
        if tensor.rank < 2:
            return f"a matrix product of a rank-{tensor.rank} operand"
    if operator.scale is None and ACCUMULATORS[operator.a.dtype] is not ACCUMULATORS[operator.b.dtype]:
        return f"a matrix product of {operator.a.dtype} and {operator.b.dtype}"
    return None


def matmul_shape(operator: MatMul, result: Sequence[int]) -> MatmulShape:
    """Sizes and strides of a product of row-major operands; batch dimensions broadcast."""
    a, b, batch = operator.a, operator.b, tuple(result[:-2])
    k = a.shape[-2] if operator.transpose_a else a.shape[-1]
    return MatmulShape(
        batch,
        result[-2],
        result[-1],
        k,
        _strides(a.shape, len(batch), operator.transpose_a),
        _strides(b.shape, len(batch), operator.transpose_b),
        a_dtype=a.dtype,
        b_dtype=b.dtype,
        accumulator=ACCUMULATORS[a.dtype],
        scale_rows=operator.scale_rows,
    )


def _strides(shape: Sequence[int], batches: int, transposed: bool) -> Strides:
    """Row-major strides with the last two swapped if transposed; 0 along broadcast batch dimensions."""
    steps = [1]
    for extent in reversed(shape[1:]):
        steps.insert(0, steps[0] * extent)
    batch = [0 if extent == 1 else step for extent, step in zip(shape[:-2], steps[:-2], strict=True)]
    row, column = (steps[-1], steps[-2]) if transposed else (steps[-2], steps[-1])
    return Strides((*[0] * (batches - len(batch)), *batch), row, column)


def generate_matmul(
    anchor: Contraction,
    operator: MatMul,
    outputs: Sequence[Output],
    layouts: Mapping[str, str],
    target: Target,
    constants: Constants,
    choices: Choices,
    repeats: Repeats,
) -> Generated:
    """The kernel of a product and its tail; arguments: A, B (packed if constant), its scales, what the tail reads, outputs."""
    shape = matmul_shape(operator, anchor.shape)
    known = operator.b.value if isinstance(operator.b, Constant) else constants(memory_name(operator.b))
    if known is not None and wants_packing(shape):
        known = _as_halves(known, shape, target)
        shape = replace(shape, b_dtype=dtypes.of(known.dtype))
        shape = replace(shape, packed=True, b=replace(shape.b, batch=_matrix_strides(operator.b.shape, len(shape.batch))))
        shape = replace(shape, grouped=wants_groups(shape, target))
        if uses_strassen(shape, target, choices):
            return generate_strassen(anchor, operator, shape, known, outputs, layouts, target, choices, repeats)
    tile = choices.tile(MatmulSpace(shape, target))
    columns = _packed_columns(operator, shape, target, tile, known)
    factors = [] if operator.scale is None else [_packed_scales(operator.scale, constants, panel_width(shape, target, tile))]
    names = (memory_name(operator.b) if columns is None else columns.name, *(each.name for each in factors))

    def written() -> Kernel:
        tail = Tail(anchor, outputs, layouts, target, len(anchor.shape) - 1, split=False)
        e = Emitter()
        a, b, *scales = (e.argument(n) for n in range(1 + len(names)))
        write, fetch = tail_writers(tail, tail.writer(e, 1 + len(names)))
        inline = writes_registers(shape, target) and tail.is_short
        tasks = emit_matmul(e, shape, target, tile, a, b, write, inline=inline, scales=scales[0] if scales else None, fetch=fetch)
        symbol, ir = e.finish("matmul")
        arguments = (memory_name(operator.a), *names, *tail.inputs, *(o.name for o in outputs))
        scratch, resumes = scratch_bytes(shape, target, tile), keeps_rows(shape, target, tile)
        return Kernel(symbol, ir, arguments, tasks, scratch, shape.flops, resumes=resumes)

    packed = (*([] if columns is None else [columns]), *factors)
    return Generated(repeats.kernel((shape, tile), outputs, layouts, names, written), packed)


_WAITING_ROWS = 4  # rows whose products take less time than their weights from memory


def _as_halves(known: np.ndarray, shape: MatmulShape, target: Target) -> np.ndarray:
    """The columns in float16 if that is what they are, and a few rows would wait for them: those of a model of float16."""
    converts = target.has("f16c") or not target.is_x86
    if not converts or known.dtype != np.float32 or shape.batches * shape.m > _WAITING_ROWS or known.nbytes <= target.l2_bytes:
        return known
    with np.errstate(over="ignore"):
        if not np.array_equal(known[..., :1, :].astype(np.float16), known[..., :1, :]):  # most models: nothing else is converted
            return known
        halves = known.astype(np.float16)
    return halves if np.array_equal(halves, known) else known


def _packed_columns(operator: MatMul, shape: MatmulShape, target: Target, tile: MatmulTile, known: np.ndarray | None) -> Packed | None:
    """B as the kernel reads it: in panels, or as it is where it is no operand of the graph; None where it is read in place."""
    if known is not None and shape.packed:
        columns = np.swapaxes(known, -1, -2) if operator.transpose_b else known
        arrangement = b_arrangement(shape, target, tile, tuple(operator.b.shape), operator.transpose_b)
        return pack("panels", pack_b(shape, target, tile, columns), memory_name(operator.b), arrangement)
    return pack("matrix", operator.b.value) if isinstance(operator.b, Constant) else None


def _packed_scales(scale: Tensor, constants: Constants, width: int) -> Packed:
    """The scales of B in panels as its columns are."""
    known = scale.value if isinstance(scale, Constant) else constants(memory_name(scale))
    assert known is not None
    return pack("scales", pack_columns(known, width), memory_name(scale), columns_arrangement(known.shape, width, transposed=False))


def _matrix_strides(shape: Sequence[int], batches: int) -> tuple[int, ...]:
    """Batch strides counted in matrices, as packed panels lie."""
    steps: list[int] = []
    step = 1
    for extent in reversed(shape[:-2]):
        steps.insert(0, 0 if extent == 1 else step)
        step *= extent
    return (*[0] * (batches - len(steps)), *steps)

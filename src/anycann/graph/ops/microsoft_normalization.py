"""Normalisations of ONNX Runtime's domain: a residual sum and the normalisation of it in one operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import onnx_ir as ir

from anycann.graph.ops.common import broadcast_index, floats
from anycann.graph.ops.normalization import row_statistics, scaled, statistics
from anycann.graph.registry import Lowering, Sample, Samples, TensorType, operator
from anycann.te import dtypes
from anycann.te import tensor as te
from anycann.te.expression import Expr
from anycann.te.tensor import Tensor

DOMAIN = "com.microsoft"
EPSILON = 1e-5  # where the node does not say


def _infer_skip(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    """Output, mean, inverse deviation, and the sum that was normalised."""
    assert inputs[0] is not None
    row = TensorType(dtypes.float32, (*inputs[0].shape[:-1], 1))
    return [inputs[0], row, row, inputs[0]][: len(node.outputs)]


def _skip_samples(vectors: int, outputs: int) -> Samples:
    """Operands x, skip and as many vectors of the last axis; with and without the last vector."""

    def draw(rng: np.random.Generator) -> Iterable[Sample]:
        for shape, skip in (((2, 3, 20), (2, 3, 20)), ((2, 3, 17), (2, 3, 17)), ((2, 3, 70), (3, 70)), ((5, 20), (5, 20))):
            for count in (vectors - 1, vectors):
                rows = [floats(rng, shape[-1]) for _ in range(count)]
                yield Sample((floats(rng, *shape), floats(rng, *skip), *rows), {"epsilon": 1e-3}, outputs=outputs)

    return draw


def _summed(context: Lowering, bias: int) -> Tensor:
    """x + skip + bias; skip and bias broadcast."""
    parts = [context.operand(n) for n in (0, 1, bias) if context.has(n)]

    def element(*index: Expr) -> Expr:
        total: Expr = parts[0][index]
        for part in parts[1:]:
            total = total + part[broadcast_index(part, index)]
        return total

    return te.compute(parts[0].shape, element)


def _skip(op_type: str, centred: bool, bias: int) -> None:
    """Define one whose operands are x, skip, scale, (shift,) and the bias of the sum at number `bias`."""

    @operator(op_type, domain=DOMAIN, samples=_skip_samples(bias - 1, 4 if centred else 1), infer=_infer_skip)
    def lower(context: Lowering) -> Sequence[Tensor]:
        total = _summed(context, bias)
        stats = statistics(total, [total.rank - 1], context.number("epsilon", EPSILON), centred)
        shift = context.operand(3) if centred and context.has(3) else None
        makers: tuple[Callable[[TensorType], Tensor], ...] = (
            lambda type_: scaled(context, stats, context.operand(2), shift),
            lambda type_: row_statistics(type_, stats, "mean"),
            lambda type_: row_statistics(type_, stats, "inverse"),
            lambda type_: total,
        )
        return [make(type_) for make, type_ in zip(makers, context.outputs, strict=False)]


_skip("SkipLayerNormalization", centred=True, bias=4)
_skip("SkipSimplifiedLayerNormalization", centred=False, bias=3)


def _infer_simplified(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    assert inputs[0] is not None
    axis = node.attributes.get_int("axis", -1) % len(inputs[0].shape)
    outer = inputs[0].shape[:axis]
    return [inputs[0], TensorType(dtypes.float32, (*outer, *(1,) * (len(inputs[0].shape) - axis)))][: len(node.outputs)]


def _simplified_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, axis, outputs in (((3, 17), -1, 1), ((2, 3, 20), 1, 2), ((2, 5, 4, 3), -1, 1)):
        yield Sample((floats(rng, *shape), floats(rng, *shape[axis % len(shape) :])), {"axis": axis}, outputs=outputs)


@operator("SimplifiedLayerNormalization", samples=_simplified_samples, infer=_infer_simplified)  # ONNX Runtime puts it in ONNX's domain
def simplified_layer_normalization(context: Lowering) -> Sequence[Tensor]:
    """RMSNormalization, and its inverse deviation where it is asked for."""
    source = context.operand(0)
    axes = range(context.integer("axis", -1) % source.rank, source.rank)
    stats = statistics(source, tuple(axes), context.number("epsilon", EPSILON), centred=False)
    outputs = [scaled(context, stats, context.operand(1), None)]
    return [*outputs, *(row_statistics(type_, stats, "inverse") for type_ in context.outputs[1:])]

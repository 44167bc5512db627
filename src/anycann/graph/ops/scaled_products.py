"""Products with weights that are stored as integers with scales."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from anycann.graph.ops.common import floats, integers
from anycann.graph.ops.device import DOMAIN
from anycann.graph.registry import Lowering, NotLowered, Sample, TensorType, operator
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.contractions import MatMul
from anycann.te.expression import Expr
from anycann.te.tensor import Placeholder, Tensor

SCALED_MATMUL = "ScaledMatMul"


def scaled_product(source: Tensor, weights: Tensor, scale: Tensor, rows: int, rounds_rows: bool = False) -> Tensor:
    """source [.., K] @ (weights [K, N] of integers times scale [ceil(K / rows), N]) in float32. Raises NotLowered for a vector.

    rounds_rows: source may be rounded to 8 bits, `rows` elements to multiples of one number.
    """
    if source.rank < 2 or source.dtype not in (dtypes.float32, dtypes.float16, dtypes.bfloat16) or not isinstance(source, Placeholder):
        raise NotLowered(f"a rank-{source.rank} operand of {source.dtype} times scaled weights")
    product = MatMul(source, weights, scale=scale, scale_rows=rows, rounds_rows=rounds_rows)
    return te.contraction(product, (*source.shape[:-1], weights.shape[1]), dtypes.float32)


def floats_of(weights: np.ndarray, scale: np.ndarray, rows: int) -> np.ndarray:
    """The weights [K, N] that integers and scales stand for."""
    return np.asarray(weights.astype(np.float32) * np.repeat(scale, rows, axis=0)[: len(weights)])


def _infer(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    source, weights = inputs[:2]
    assert source is not None
    assert weights is not None
    return [TensorType(source.dtype, (*source.shape[:-1], weights.shape[1]))]


def _reference(source: np.ndarray, weights: np.ndarray, scale: np.ndarray, rows: int) -> np.ndarray:
    return np.asarray((source.astype(np.float32) @ floats_of(weights, scale, rows)).astype(source.dtype))


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, columns, rows, dtype in (
        ((1, 70), 37, 16, "int8"), ((2, 3, 40), 20, 40, "int8"), ((5, 9), 1, 4, "int16"), ((70, 33), 130, 32, "int8"),
        ((0, 4), 3, 4, "int8"), ((1, 130), 150, 7, "int8"), ((45, 17), 1, 17, "int8"), ((3, 1), 1, 1, "int8"),
    ):  # fmt: skip
        depth = shape[-1]
        weights = integers(rng, depth, columns, low=-128, high=127, dtype=dtype)
        yield Sample((floats(rng, *shape), weights, floats(rng, -(-depth // rows), columns, low=0.01, high=0.1)), {"rows": rows}, (1, 2))


@operator(SCALED_MATMUL, domain=DOMAIN, samples=_samples, infer=_infer, reference=_reference)
def scaled_matmul(context: Lowering) -> Tensor:
    """x times known weights [K, N] of 8 or 16-bit integers, whose columns have a scale for every `rows` rows."""
    sums = scaled_product(context.operand(0), _known(context, 1), _known(context, 2), context.integer("rows"))
    return te.compute(sums.shape, lambda *index: _typed(sums[index], context))


def _known(context: Lowering, number: int) -> Tensor:
    """A known operand in memory: one number comes as a literal, and becomes a table. Raises NotLowered for what is computed."""
    tensor, known = context.operand(number), context.constant(number)
    assert known is not None, "operand() says so if it is absent"
    return tensor if isinstance(tensor, Placeholder) else te.table(known)


def _typed(value: Expr, context: Lowering) -> Expr:
    return x.cast(value, context.outputs[0].dtype)

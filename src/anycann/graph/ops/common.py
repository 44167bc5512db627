"""What several families need: broadcasting, element maps and sample operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from anycann.graph.registry import Lowering, Sample
from anycann.te import tensor as te
from anycann.te.expression import Const, Expr
from anycann.te import dtypes
from anycann.te.tensor import Tensor


def broadcast_index(tensor: Tensor, indices: Sequence[Expr]) -> tuple[Expr, ...]:
    """Where a broadcast operand is read for the output index `indices` (numpy rules)."""
    own = indices[len(indices) - tensor.rank :] if tensor.rank else ()
    return tuple(Const(0, dtypes.int64) if extent == 1 else index for extent, index in zip(tensor.shape, own, strict=True))


def elementwise(context: Lowering, function: Callable[..., Expr], *operands: Tensor) -> Tensor:
    """`function` of the operands' elements, broadcast to the first output's shape."""
    shape = context.outputs[0].shape
    return te.compute(shape, lambda *index: function(*(operand[broadcast_index(operand, index)] for operand in operands)))


def floats(rng: np.random.Generator, *shape: int, low: float = -3.0, high: float = 3.0, dtype: str = "float32") -> np.ndarray:
    """Random operand of that shape."""
    return rng.uniform(low, high, shape).astype(dtype)


SHAPES: tuple[tuple[int, ...], ...] = ((), (1,), (37,), (3, 17), (2, 3, 5, 7), (1, 16, 4, 4), (0, 3))


def unary_samples(low: float = -3.0, high: float = 3.0, attributes: dict[str, object] | None = None) -> Callable[[np.random.Generator], Iterable[Sample]]:
    """One float operand of assorted shapes."""
    return lambda rng: [Sample((floats(rng, *shape, low=low, high=high),), attributes or {}) for shape in SHAPES]


def binary_samples(low: float = -3.0, high: float = 3.0, dtype: str = "float32") -> Callable[[np.random.Generator], Iterable[Sample]]:
    """Two operands, equal and broadcast shapes."""
    pairs = (((37,), (37,)), ((2, 3, 5), (5,)), ((2, 1, 5), (3, 1)), ((), (4,)), ((1, 20, 3, 3), (20, 1, 1)), ((0, 3), (3,)))

    def draw(rng: np.random.Generator) -> Iterable[Sample]:
        return [Sample((floats(rng, *a, low=low, high=high, dtype=dtype), floats(rng, *b, low=low, high=high, dtype=dtype))) for a, b in pairs]

    return draw

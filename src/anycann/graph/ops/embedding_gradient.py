"""Backward of an embedding: rows of the gradient, added to the rows of the table that they were read from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import math
from typing import Any

import numpy as np
import onnx_ir as ir

from anycann.graph.ops.common import floats, integers, retyped
from anycann.graph.ops.device import DOMAIN
from anycann.graph.registry import Lowering, NotLowered, Sample, TensorType, operator
from anycann.te import dtypes
from anycann.te import tensor as te
from anycann.te.routines import RowSums
from anycann.te.tensor import Tensor

Array = np.ndarray[Any, Any]


def _infer(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    assert inputs[0] is not None
    return [TensorType(inputs[0].dtype, (node.attributes.get_int("num_weights", 0), inputs[0].shape[-1]))]


def _by_numpy(dy: Array, indices: Array, num_weights: int = 0, padding_idx: int = -1, scale_grad_by_freq: int = 0) -> Array:
    rows, places = dy.reshape(-1, dy.shape[-1]), indices.reshape(-1)
    if scale_grad_by_freq:
        rows = rows / np.bincount(places, minlength=num_weights)[places][:, None]
    kept = places != padding_idx
    dw = np.zeros((num_weights, dy.shape[-1]), dy.dtype)
    np.add.at(dw, places[kept], rows[kept].astype(dy.dtype))
    return dw


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, size, count in (((7,), 5, 11), ((3, 20), 33, 6), ((2, 3, 4), 16, 40), ((1,), 1, 1), ((64,), 70, 500)):
        for padding in (-1, 0):
            places = integers(rng, *shape, low=0, high=count - 1)
            yield Sample((floats(rng, *shape, size), places), {"num_weights": count, "padding_idx": padding})
    yield Sample((floats(rng, 9, 4), integers(rng, 9, low=0, high=5, dtype="int32")), {"num_weights": 6})
    yield from retyped(Sample((floats(rng, 9, 5), integers(rng, 9, low=0, high=5)), {"num_weights": 6}), ("float64",))


@operator("EmbeddingGrad", domain=DOMAIN, samples=_samples, infer=_infer, reference=_by_numpy)
def embedding_gradient(context: Lowering) -> Tensor:
    """Operands dy, indices. Those equal to padding_idx count for nothing; scale_grad_by_freq divides by how often an index is there."""
    dy, indices, type_ = context.operand(0), context.operand(1), context.outputs[0]
    if context.integer("scale_grad_by_freq") or type_.dtype not in (dtypes.float32, dtypes.float64) or indices.dtype.kind != "int":
        raise NotLowered(f"the gradient of an embedding of {type_.dtype} at {indices.dtype}, perhaps divided by frequency")
    padding = context.integer("padding_idx", -1)
    rows, size = type_.shape
    work = RowSums(0, indices, dy, rows, size, math.prod(indices.shape), None if padding < 0 else padding)
    return te.contraction(work, type_.shape, type_.dtype)

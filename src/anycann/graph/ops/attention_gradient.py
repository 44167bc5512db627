"""Backward of scaled dot-product attention. The weights are computed again, so that forward keeps nothing but its operands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import math
from typing import Any

import numpy as np
import onnx_ir as ir

from anycann.graph.ops.common import floats
from anycann.graph.ops.device import DOMAIN
from anycann.graph.registry import Lowering, NotLowered, Sample, TensorType, operator
from anycann.te import dtypes
from anycann.te import tensor as te
from anycann.te.routines import AttentionGradient
from anycann.te.tensor import Tensor

Array = np.ndarray[Any, Any]


def _infer(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    return [t for t in inputs[1:4] if t is not None][: len(node.outputs)]


def _by_numpy(
    dy: Array, query: Array, key: Array, value: Array, mask: Array | None = None, scale: float = 0.0, is_causal: int = 0
) -> tuple[Array, ...]:
    factor = scale or 1 / math.sqrt(query.shape[-1])
    wide = [a.astype(np.float64) for a in (dy, query, key, value)]
    slope, q, k, v = wide
    scores = factor * q @ k.swapaxes(-1, -2) + (0 if mask is None else mask)
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    of_weights = slope @ v.swapaxes(-1, -2)
    of_scores = weights * (of_weights - (weights * of_weights).sum(-1, keepdims=True)) * factor
    found = (of_scores @ k, of_scores.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ slope)
    return tuple(a.astype(query.dtype) for a in found)


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    sizes = ((2, 3, 5, 7, 8, 8), (1, 2, 70, 33, 20, 17), (1, 1, 130, 130, 64, 64), (2, 1, 1, 40, 16, 3))
    for batch, heads, rows, keys, depth, width in sizes:
        operands = (
            floats(rng, batch, heads, rows, width),
            floats(rng, batch, heads, rows, depth),
            floats(rng, batch, heads, keys, depth),
            floats(rng, batch, heads, keys, width),
        )
        yield Sample(operands, {"scale": 0.25}, outputs=3)
        yield Sample(operands, {"is_causal": 1}, outputs=3)
        yield Sample((*operands, floats(rng, rows, keys)), {"scale": 0.125}, outputs=3)
        hidden = np.where(rng.random((batch, 1, rows, keys)) < 0.3, -np.inf, 0).astype(np.float32)
        hidden[..., 0] = 0
        yield Sample((*operands, hidden), {"is_causal": 1}, outputs=3)
        yield Sample(operands, {"scale": 0.25}, outputs=1)


@operator("AttentionGrad", domain=DOMAIN, samples=_samples, infer=_infer, reference=_by_numpy)
def attention_gradient(context: Lowering) -> Sequence[Tensor]:
    """Operands dy, query, key, value ([N, heads, rows or keys, size]), mask? (added to the scores); results dquery, dkey, dvalue.

    scale: 1 / sqrt of the size of a query unless it is given. is_causal: row m sees the keys up to m.
    """
    operands = [context.operand(n) for n in range(4)]
    dy, query, key, value = operands
    if any(tensor.dtype is not dtypes.float32 or tensor.rank != 4 for tensor in operands):
        raise NotLowered("the gradient of attention of other types than float32, or not of four dimensions")
    mask = context.operand(4) if context.has(4) else None
    strides = None if mask is None else _mask_strides(mask, (*query.shape[:3], key.shape[2]))
    scale = context.number("scale") or 1 / math.sqrt(query.shape[-1])
    causal = context.integer("is_causal") == 1
    return [
        te.contraction(AttentionGradient(n, dy, query, key, value, mask, strides, scale, causal), type_.shape, type_.dtype)
        for n, type_ in enumerate(context.outputs)
    ]


def _mask_strides(mask: Tensor, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Elements of the mask to the next image, head and row. Raises NotLowered for one that does not have a number for each key."""
    full = (*[1] * (4 - mask.rank), *mask.shape)
    fits = mask.rank <= 4 and all(own in (1, extent) for own, extent in zip(full, shape, strict=True))
    if mask.dtype is not dtypes.float32 or not fits or full[-1] != shape[-1]:
        raise NotLowered(f"the gradient of attention with a mask of {mask.dtype} {list(mask.shape)}")
    steps = [math.prod(full[axis + 1 :]) if full[axis] > 1 else 0 for axis in range(3)]
    return steps[0], steps[1], steps[2]

"""Losses, and what comes back through them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import torch

from anycann.frontends.torch_fx.builder import Builder, meta, shape_of
from anycann.frontends.torch_fx.table import Call, NotTranslated, translation

MEAN, SUM = 1, 2


def _weights(b: Builder, call: Call, target: ir.Value, dtype: torch.dtype) -> tuple[ir.Value, ir.Value]:
    """The target with those that do not count at class 0, and the weight of each sample: 0 for those."""
    counts = b.op("Not", b.op("Equal", target, b.scalar(call.ignore_index, torch.int64)))
    safe = b.op("Where", counts, target, b.scalar(0, torch.int64))
    weight = b.scalar(1, dtype) if call.weight is None else b.op("Gather", b.value(call.weight), safe, axis=0)
    return safe, b.op("Where", counts, weight, b.scalar(0, dtype))


@translation("nll_loss_forward.default")
def _nll_loss(b: Builder, call: Call) -> Sequence[ir.Value]:
    dtype = meta(call.self).dtype
    if len(shape_of(call.self)) != 2:
        raise NotTranslated("a loss of one sample")
    safe, weight = _weights(b, call, b.value(call.target, torch.int64), dtype)
    picked = b.op("GatherElements", b.value(call.self), b.op("Unsqueeze", safe, b.integers(1)), axis=1)
    losses = b.op("Neg", b.op("Mul", b.op("Squeeze", picked, b.integers(1)), weight))
    total = b.op("ReduceSum", weight, b.integers(0), keepdims=0)
    if call.reduction not in (MEAN, SUM):
        return [losses, b.scalar(0, dtype)]
    loss = b.op("ReduceSum", losses, b.integers(0), keepdims=0)
    return [b.op("Div", loss, total) if call.reduction == MEAN else loss, total]


@translation("nll_loss_backward.default")
def _nll_loss_backward(b: Builder, call: Call) -> ir.Value:
    dtype, shape = meta(call.self).dtype, shape_of(call.self)
    if len(shape) != 2:
        raise NotTranslated("a loss of one sample")
    safe, weight = _weights(b, call, b.value(call.target, torch.int64), dtype)
    given = b.op("Mul", b.value(call.grad_output), weight)
    given = b.op("Div", given, b.value(call.total_weight)) if call.reduction == MEAN else given
    column = b.op("Neg", b.op("Unsqueeze", given, b.integers(1)))
    classes = b.array(np.arange(shape[1], dtype=np.int64)[None])
    return b.op("Where", b.op("Equal", b.op("Unsqueeze", safe, b.integers(1)), classes), column, b.scalar(0, dtype))

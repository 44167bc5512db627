"""Losses, and what comes back through them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from anycann.frontends.torch_fx.builder import Builder, shape_of
from anycann.frontends.torch_fx.table import DEVICE, Call, NotTranslated, translation

REDUCTIONS = ("none", "mean", "sum")


def _facts(call: Call) -> dict[str, Any]:
    return {"reduction": REDUCTIONS[call.reduction], "ignore_index": int(call.ignore_index)}


@translation("nll_loss_forward.default", "nll_loss2d_forward.default")
def _nll_loss(b: Builder, call: Call) -> Sequence[ir.Value]:
    if len(shape_of(call.self)) < 2:
        raise NotTranslated("a loss of one sample")
    operands = b.value(call.self), b.value(call.target, torch.int64), b.optional(call.weight)
    return b.ops("NllLoss", *operands, count=2, domain=DEVICE, **_facts(call))


@translation("nll_loss_backward.default", "nll_loss2d_backward.default")
def _nll_loss_backward(b: Builder, call: Call) -> ir.Value:
    if len(shape_of(call.self)) < 2:
        raise NotTranslated("a loss of one sample")
    operands = b.value(call.grad_output), b.value(call.self), b.value(call.target, torch.int64), b.optional(call.weight)
    return b.op("NllLossGrad", *operands, b.value(call.total_weight), domain=DEVICE, **_facts(call))

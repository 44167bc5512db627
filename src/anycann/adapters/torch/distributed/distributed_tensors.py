"""What DTensor must know of operators that exist only because the npu computes `linear` as one operator."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import DTensor


def install() -> None:
    """Teach DTensor the backward of linear: it has strategies for the products and sums that it consists of."""
    DTensor._op_dispatcher._custom_op_handlers[torch.ops.aten.linear_backward.default] = _linear_backward


def _linear_backward(op: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Gradients of x @ weight.T + bias by x (..., k), weight (n, k) and bias (n,), for a gradient (..., n); None where not asked for."""
    values, gradient, weight, (of_values, of_weight, of_bias) = args
    rows = gradient.reshape(-1, gradient.shape[-1])
    return (
        torch.matmul(gradient, weight) if of_values else None,
        torch.mm(rows.t(), values.reshape(-1, values.shape[-1])) if of_weight else None,
        rows.sum(0) if of_bias else None,
    )

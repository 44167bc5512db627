"""int32 where torch's cpu kernels take int64 only: class labels, places and numbers to encode, which Ascend accepts in both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_TARGET = 1  # position of the labels in losses; their backward has the gradient before
_OPERATORS = {
    "nll_loss_forward": _TARGET,
    "nll_loss_backward": _TARGET + 1,
    "nll_loss2d_forward": _TARGET,
    "nll_loss2d_backward": _TARGET + 1,
    "multi_margin_loss": _TARGET,
    "multi_margin_loss_backward": _TARGET + 1,
    "multilabel_margin_loss_forward": _TARGET,
    "multilabel_margin_loss_forward.output": _TARGET,
    "multi_margin_loss.out": _TARGET,
    "nll_loss_forward.output": _TARGET,
    "multilabel_margin_loss_backward": _TARGET + 1,
    "put_": 1,
    "take": 1,
    "one_hot": 0,
    "bincount": 0,
}
_OF_THE_LABELS_DTYPE = {"one_hot"}


def takes_wide_labels(op: Any) -> bool:
    """Whether the cpu kernel of a `torch._ops.OpOverload` takes no int32 and Ascend's does."""
    library, _, name = op._schema.name.partition("::")
    overload = op._schema.overload_name
    return library == "aten" and (f"{name}.{overload}" if overload else name) in _OPERATORS


def widened(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """`kernel` of the aten operator `name`; int32 labels become int64 first."""
    if name not in _OPERATORS:
        return kernel
    position = _OPERATORS[name]

    def kernel_of_wide_labels(*args: Any, **keywords: Any) -> Any:
        labels = args[position]
        if labels.dtype != torch.int32:
            return kernel(*args, **keywords)
        result = kernel(*args[:position], labels.long(), *args[position + 1 :], **keywords)
        return result.to(labels.dtype) if name in _OF_THE_LABELS_DTYPE else result

    return kernel_of_wide_labels

"""Detection of hardware that computes wrongly without saying so, by the gradients of a training: this hardware is not watched.

The names are deprecated on Ascend, where newer firmware makes them do nothing as well.
"""

from __future__ import annotations

from typing import Any


def set_asd_loss_scale(loss_scale: float = 1.0) -> None:
    """By what the loss is multiplied while gradients are watched."""


def register_asd_hook(x: Any, weight: Any) -> None:
    """Watch the gradient of `x`."""

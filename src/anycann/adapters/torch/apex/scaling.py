"""The loss scale of apex: fixed, or doubled after many steps without overflow and halved after one with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from anycann.support.records import dataclass

GROWN_AT_MOST = 2.0**24


@dataclass
class LossScaler:
    """One scale. `window` is how many steps without overflow make it grow."""

    scale: float = 2.0**16
    dynamic: bool = True
    growth: float = 2.0
    backoff: float = 0.5
    window: int = 2000
    least: float | None = None
    most: float = GROWN_AT_MOST
    unskipped: int = 0

    def loss_scale(self) -> float:
        """The scale now: the name that programs log."""
        return self.scale

    def update(self, overflow: bool) -> None:
        """Take note of one step."""
        if not self.dynamic:
            return
        if overflow:
            self.scale = max(self.least or 0.0, self.scale * self.backoff)
            self.unskipped = 0
            return
        self.unskipped += 1
        if self.unskipped == self.window:
            self.scale = min(self.most, self.scale * self.growth)
            self.unskipped = 0

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"loss_scale": self.scale, "unskipped": self.unskipped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.scale, self.unskipped = state["loss_scale"], state["unskipped"]


def unscale(parameters: Iterable[Any], scale: float) -> bool:
    """Divide the gradients by `scale` in place; answers whether one of them is not finite."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return False
    found = torch.zeros(1, device=gradients[0].device)
    inverse = torch.full((1,), 1.0 / scale, device=gradients[0].device)
    for dtype in {gradient.dtype for gradient in gradients}:
        torch._amp_foreach_non_finite_check_and_unscale_([gradient for gradient in gradients if gradient.dtype is dtype], found, inverse)
    return bool(found.item())

"""apex.parallel.LARC: the rate of each parameter limited by the norms of it and of its gradient (arXiv:1708.03888)."""

from __future__ import annotations

from typing import Any

import torch


class LARC:
    """Around an optimizer. clip: the rate is an upper limit; without, the rate is multiplied by the ratio of the norms."""

    def __init__(self, optimizer: Any, trust_coefficient: float = 0.02, clip: bool = True, eps: float = 1e-8) -> None:
        self.optim, self.trust_coefficient, self.clip, self.eps = optimizer, trust_coefficient, clip, eps

    def __getattr__(self, name: str) -> Any:
        """All else is the optimizer's."""
        return getattr(self.__dict__["optim"], name)

    def step(self, closure: Any = None) -> Any:
        """Scale the gradients, with the decay of weights in them, and step."""
        decays = [group.get("weight_decay", 0) for group in self.optim.param_groups]
        with torch.no_grad():
            for group, decay in zip(self.optim.param_groups, decays, strict=True):
                group["weight_decay"] = 0
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        self._scale(parameter, group["lr"], decay)
        result = self.optim.step() if closure is None else self.optim.step(closure)
        for group, decay in zip(self.optim.param_groups, decays, strict=True):
            group["weight_decay"] = decay
        return result

    def _scale(self, parameter: Any, rate: float, decay: float) -> None:
        of_weights, of_gradient = float(parameter.norm()), float(parameter.grad.norm())
        if of_weights == 0 or of_gradient == 0:
            return
        adapted = self.trust_coefficient * of_weights / (of_gradient + of_weights * decay + self.eps)
        if self.clip:
            adapted = 1.0 if adapted >= rate else adapted / rate  # a rate of nothing, as warm-ups begin with, limits nothing
        parameter.grad.add_(parameter, alpha=decay).mul_(adapted)

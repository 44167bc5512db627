"""What the optimizers of torch_npu have beside those of torch."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer


class NpuFusedOptimizerBase(Optimizer):
    """Base of all of them. Gradients are zeroed in place, for programs of Ascend keep references to them."""

    is_fused_optimizer = True

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Zeroes the gradients in place. Raises ValueError for set_to_none, as on Ascend."""
        if set_to_none:
            raise ValueError(f"{type(self).__name__}.zero_grad: set_to_none=True; accepted: False, gradients stay where they are")
        super().zero_grad(set_to_none=False)

    def clip_grad_norm_fused_(self, max_norm: float, norm_type: float = 2) -> torch.Tensor:
        """Scales all gradients so that their common norm is at most max_norm; returns the norm that they had."""
        norm: torch.Tensor = clip_grad_norm_(self._with_gradients(), max_norm, norm_type)
        return norm

    def _with_gradients(self) -> list[torch.Tensor]:
        return [p for group in self.param_groups for p in group["params"] if p.grad is not None]

    def _parts(self, group: dict[str, Any]) -> list[list[torch.Tensor]]:
        """The parameters of a group that have gradients, those of one dtype and device together."""
        parts: dict[Any, list[torch.Tensor]] = {}
        for p in group["params"]:
            if p.grad is None:
                continue
            if p.grad.is_sparse:
                raise RuntimeError(f"{type(self).__name__}: sparse gradient of {tuple(p.shape)}; accepted: dense gradients")
            parts.setdefault((p.dtype, p.device), []).append(p)
        return list(parts.values())

    def _states(self, parameters: list[torch.Tensor], **initial: Any) -> dict[str, list[torch.Tensor]]:
        """Lists of the states of parameters, made by `initial` (name to function of a parameter) where they are missing."""
        for p in parameters:
            state = self.state[p]
            state.setdefault("step", 0)
            for name, make in initial.items():
                if name not in state:
                    state[name] = make(p)
        return {name: [self.state[p][name] for p in parameters] for name in initial}


def check(optimizer: str, **limits: tuple[float, float, float]) -> None:
    """Raises ValueError for a number (value, least, below which it must be) outside its limits."""
    for name, (value, least, below) in limits.items():
        if not least <= value < below:
            raise ValueError(f"{optimizer}: {name} is {value}; accepted: at least {least}, below {below}")

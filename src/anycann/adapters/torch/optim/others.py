"""The optimizers that torch does not have, each step by calls for lists of parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
import math
from typing import Any

import torch

from anycann.adapters.torch.optim.base import NpuFusedOptimizerBase, check

_Tensors = list[torch.Tensor]
_LARGEST_WEIGHT_NORM = 10.0


class _Stepping(NpuFusedOptimizerBase, ABC):
    """An optimizer that steps group after group, and in a group the parameters of one dtype at a time."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; returns what the closure, computed with gradients before it, returns."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._before()
        for group in self.param_groups:
            for parameters in self._parts(group):
                for p in parameters:
                    self.state[p]["step"] = self.state[p].get("step", 0) + 1
                self._update(group, parameters, [p.grad for p in parameters if p.grad is not None])
        return loss

    def _before(self) -> None:
        """What is computed once for all groups."""

    @abstractmethod
    def _update(self, group: dict[str, Any], parameters: _Tensors, gradients: _Tensors) -> None:
        """Steps the parameters of one dtype of a group."""

    def _means(self, parameters: _Tensors, gradients: _Tensors, beta1: float, beta2: float) -> tuple[_Tensors, _Tensors]:
        """The running means of gradients and of their squares, with these gradients."""
        states = self._states(parameters, exp_avg=torch.zeros_like, exp_avg_sq=torch.zeros_like)
        first, second = states["exp_avg"], states["exp_avg_sq"]
        torch._foreach_mul_(first, beta1)
        torch._foreach_add_(first, gradients, alpha=1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)
        return first, second


def _quotients(first: _Tensors, second: _Tensors, eps: float) -> _Tensors:
    """first / (sqrt(second) + eps)."""
    roots = torch._foreach_sqrt(second)
    torch._foreach_add_(roots, eps)
    return list(torch._foreach_div(first, roots))


class NpuFusedLamb(_Stepping):
    """Layer-wise adaptive moments (arXiv:1904.00962), without correction of the first means.

    adam: the same rate for all layers. use_global_grad_norm: gradients over their common norm where it is above 1.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0,
        adam: bool = False,
        use_global_grad_norm: bool = False,
    ) -> None:
        check("NpuFusedLamb", lr=(lr, 0, math.inf), beta1=(betas[0], 0, 1), beta2=(betas[1], 0, 1), eps=(eps, 0, math.inf))
        self.adam, self.use_global_grad_norm, self.global_grad_norm = adam, use_global_grad_norm, 1.0
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def _before(self) -> None:
        if self.use_global_grad_norm:
            norms = [p.grad.float().norm() for p in self._with_gradients() if p.grad is not None]
            self.global_grad_norm = float(torch.stack(norms).norm()) if norms else 1.0

    def _update(self, group: dict[str, Any], parameters: _Tensors, gradients: _Tensors) -> None:
        if self.global_grad_norm > 1:
            gradients = list(torch._foreach_div(gradients, self.global_grad_norm))
        steps = _quotients(*self._means(parameters, gradients, *group["betas"]), group["eps"])
        if group["weight_decay"]:
            torch._foreach_add_(steps, parameters, alpha=group["weight_decay"])
        if not self.adam:
            torch._foreach_mul_(steps, self._trust(parameters, steps))
        torch._foreach_add_(parameters, steps, alpha=-group["lr"])

    @staticmethod
    def _trust(parameters: _Tensors, steps: _Tensors) -> _Tensors:
        weights, lengths = ([x.float() for x in torch._foreach_norm(tensors)] for tensors in (parameters, steps))
        ratios = []
        for weight, length, p in zip(weights, lengths, parameters, strict=True):
            known = (weight > 0) & (length > 0)
            ratio = weight.clamp(max=_LARGEST_WEIGHT_NORM) / torch.where(known, length, 1.0)
            ratios.append(torch.where(known, ratio, 1.0).to(p.dtype))
        return ratios


class NpuFusedRMSpropTF(_Stepping):
    """RMSprop as TensorFlow computes it: eps inside the root, squares that begin at one, the rate inside the momentum."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        alpha: float = 0.9,
        eps: float = 1e-10,
        weight_decay: float = 0,
        momentum: float = 0.0,
        centered: bool = False,
        decoupled_decay: bool = False,
        lr_in_momentum: bool = True,
    ) -> None:
        limits = {"lr": lr, "eps": eps, "momentum": momentum, "weight_decay": weight_decay, "alpha": alpha}
        check("NpuFusedRMSpropTF", **{name: (value, 0, math.inf) for name, value in limits.items()})
        super().__init__(params, {**limits, "centered": centered, "decoupled_decay": decoupled_decay, "lr_in_momentum": lr_in_momentum})

    def _update(self, group: dict[str, Any], parameters: _Tensors, gradients: _Tensors) -> None:
        momentum, decay, share = group["momentum"], group["weight_decay"], 1 - group["alpha"]
        initial: dict[str, Any] = {"square_avg": torch.ones_like}
        initial |= {"momentum_buffer": torch.zeros_like} if momentum > 0 else {}
        initial |= {"grad_avg": torch.zeros_like} if group["centered"] else {}
        states = self._states(parameters, **initial)
        if decay and group["decoupled_decay"]:
            torch._foreach_mul_(parameters, 1 - decay)
        elif decay:
            gradients = list(torch._foreach_add(gradients, parameters, alpha=decay))
        squares = states["square_avg"]
        torch._foreach_lerp_(squares, torch._foreach_mul(gradients, gradients), share)
        variances = list(torch._foreach_add(squares, group["eps"]))
        if group["centered"]:
            torch._foreach_lerp_(states["grad_avg"], gradients, share)
            torch._foreach_addcmul_(variances, states["grad_avg"], states["grad_avg"], -1)
        steps = list(torch._foreach_div(gradients, torch._foreach_sqrt(variances)))
        if momentum <= 0:
            torch._foreach_add_(parameters, steps, alpha=-group["lr"])
            return
        inside, outside = (group["lr"], 1.0) if group["lr_in_momentum"] else (1.0, group["lr"])
        torch._foreach_mul_(states["momentum_buffer"], momentum)
        torch._foreach_add_(states["momentum_buffer"], steps, alpha=inside)
        torch._foreach_add_(parameters, states["momentum_buffer"], alpha=-outside)


class NpuFusedAdamP(_Stepping):
    """Adam without the growth of weights that only their direction matters for (arXiv:2006.08217)."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        delta: float = 0.1,
        wd_ratio: float = 0.1,
        nesterov: bool = False,
    ) -> None:
        check("NpuFusedAdamP", lr=(lr, 0, math.inf), beta1=(betas[0], 0, 1), beta2=(betas[1], 0, 1), eps=(eps, 0, math.inf))
        numbers = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "delta": delta, "wd_ratio": wd_ratio}
        super().__init__(params, {**numbers, "nesterov": nesterov})

    def _update(self, group: dict[str, Any], parameters: _Tensors, gradients: _Tensors) -> None:
        (beta1, beta2), eps = group["betas"], group["eps"]
        first, second = self._means(parameters, gradients, beta1, beta2)
        ahead = first
        if group["nesterov"]:
            ahead = list(torch._foreach_mul(first, beta1))
            torch._foreach_add_(ahead, gradients, alpha=1 - beta1)
        taken = [self.state[p]["step"] for p in parameters]
        corrected = torch._foreach_div(second, [1 - beta2**step for step in taken])
        steps = _quotients(ahead, list(corrected), eps)
        for p, gradient, step, count in zip(parameters, gradients, steps, taken, strict=True):
            ratio = _project(p, gradient, step, group["delta"], group["wd_ratio"], eps) if p.dim() > 1 else 1.0
            if group["weight_decay"] > 0:
                p.mul_(1 - group["lr"] * group["weight_decay"] * ratio)
            p.add_(step, alpha=-group["lr"] / (1 - beta1**count))


def _project(p: torch.Tensor, gradient: torch.Tensor, step: torch.Tensor, delta: float, ratio: float, eps: float) -> float:
    """Takes from a step its part along the weights of each channel, or of the layer, whose gradient is nearly orthogonal to them.

    Returns the factor of the weight decay.
    """
    for rows in (p.shape[0], 1):
        weights, directions = p.reshape(rows, -1), gradient.reshape(rows, -1)
        products = (weights * directions).sum(1).abs()
        cosines = products / (weights.norm(dim=1) + eps) / (directions.norm(dim=1) + eps)
        if cosines.max() < delta / math.sqrt(weights.shape[1]):
            unit = weights / (weights.norm(dim=1, keepdim=True) + eps)
            flat = step.reshape(rows, -1)
            step.sub_((unit * (unit * flat).sum(1, keepdim=True)).reshape(step.shape))
            return ratio
    return 1.0


_SCHEDULES: dict[str, Callable[[float, float], float]] = {
    "warmup_cosine": lambda part, warmup: part / warmup if part < warmup else 0.5 * (1 + math.cos(math.pi * part)),
    "warmup_constant": lambda part, warmup: part / warmup if part < warmup else 1.0,
    "warmup_linear": lambda part, warmup: part / warmup if part < warmup else max((part - 1) / (warmup - 1), 0.0),
    "warmup_poly": lambda part, warmup: part / warmup if part < warmup else (1 - part) ** 0.5,
}


class NpuFusedBertAdam(_Stepping):
    """Adam as BERT was trained with: decay of weights beside the step, no correction of means, its own schedule and clipping.

    warmup: part of t_total steps (-1: none); max_grad_norm: of all gradients of a group together (-1: no clipping).
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        warmup: float = -1,
        t_total: int = -1,
        schedule: str = "warmup_linear",
        b1: float = 0.9,
        b2: float = 0.999,
        e: float = 1e-6,
        weight_decay: float = 0.01,
        max_grad_norm: float = 1.0,
    ) -> None:
        check("NpuFusedBertAdam", lr=(lr, 0, math.inf), b1=(b1, 0, 1), b2=(b2, 0, 1), e=(e, 0, math.inf), warmup=(max(warmup, 0), 0, 1))
        if schedule not in _SCHEDULES or (warmup < 0 and warmup != -1):
            raise ValueError(f"NpuFusedBertAdam: schedule {schedule!r}, warmup {warmup}; accepted: {', '.join(_SCHEDULES)}, -1 or 0 to 1")
        self.max_grad_norm = max_grad_norm
        numbers = {"lr": lr, "schedule": schedule, "warmup": warmup, "t_total": t_total, "b1": b1, "b2": b2, "e": e}
        super().__init__(params, {**numbers, "weight_decay": weight_decay, "max_grad_norm": max_grad_norm})

    def _update(self, group: dict[str, Any], parameters: _Tensors, gradients: _Tensors) -> None:
        if self.max_grad_norm > 0:
            norm = float(torch.stack([x.float() for x in torch._foreach_norm(gradients)]).norm())
            if self.max_grad_norm / (norm + 1e-6) < 1:
                torch._foreach_mul_(gradients, self.max_grad_norm / (norm + 1e-6))
        steps = _quotients(*self._means(parameters, gradients, group["b1"], group["b2"]), group["e"])
        if group["weight_decay"] > 0:
            torch._foreach_add_(steps, parameters, alpha=group["weight_decay"])
        torch._foreach_add_(parameters, steps, alpha=-self._rate(group, self.state[parameters[0]]["step"] - 1))

    @staticmethod
    def _rate(group: dict[str, Any], done: int) -> float:
        if group["t_total"] == -1:
            return float(group["lr"])
        return float(group["lr"] * _SCHEDULES[group["schedule"]](done / group["t_total"], group["warmup"]))

    def get_lr(self) -> list[float]:
        """The rate of the next step for each parameter that was trained."""
        return [self._rate(g, self.state[p]["step"]) for g in self.param_groups for p in g["params"] if p in self.state]

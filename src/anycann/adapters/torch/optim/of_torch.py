"""The optimizers that torch has too: its own, with all parameters in one call. State dicts are the same."""

from __future__ import annotations

from typing import Any

from torch import optim

from anycann.adapters.torch.optim.base import NpuFusedOptimizerBase


class NpuFusedAdam(NpuFusedOptimizerBase, optim.Adam):
    """torch.optim.Adam."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
    ) -> None:
        optim.Adam.__init__(self, params, lr, betas, eps, weight_decay, amsgrad, fused=True)


class NpuFusedAdamW(NpuFusedOptimizerBase, optim.AdamW):
    """torch.optim.AdamW."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
    ) -> None:
        optim.AdamW.__init__(self, params, lr, betas, eps, weight_decay, amsgrad, fused=True)


class NpuFusedSGD(NpuFusedOptimizerBase, optim.SGD):
    """torch.optim.SGD."""

    def __init__(
        self, params: Any, lr: float, momentum: float = 0, dampening: float = 0, weight_decay: float = 0, nesterov: bool = False
    ) -> None:
        optim.SGD.__init__(self, params, lr, momentum, dampening, weight_decay, nesterov, fused=True)


class NpuFusedAdadelta(NpuFusedOptimizerBase, optim.Adadelta):
    """torch.optim.Adadelta."""

    def __init__(self, params: Any, lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0) -> None:
        optim.Adadelta.__init__(self, params, lr, rho, eps, weight_decay, foreach=True)


class NpuFusedRMSprop(NpuFusedOptimizerBase, optim.RMSprop):
    """torch.optim.RMSprop."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
    ) -> None:
        optim.RMSprop.__init__(self, params, lr, alpha, eps, weight_decay, momentum, centered, foreach=True)

"""apex.fp16_utils.FP16_Optimizer: an optimizer around one of torch's that steps masters and scales the loss, from before apex.amp."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn.utils import clip_grad_norm_

from anycann.adapters.torch.apex.masters import Prepared
from anycann.adapters.torch.apex.scaling import LossScaler

_OVERFLOWN = -1.0  # the norm that apex gives where gradients are not finite


class FP16_Optimizer:  # noqa: N801  # apex's name
    """`backward(loss)` in the place of `loss.backward()`; float32 masters of 16-bit parameters are stepped.

    dynamic_loss_args: init_scale, scale_factor, scale_window.
    """

    def __init__(
        self,
        init_optimizer: Any,
        static_loss_scale: float = 1.0,
        dynamic_loss_scale: bool = False,
        dynamic_loss_args: Mapping[str, float] | None = None,
        verbose: bool = True,
    ) -> None:
        self.optimizer, self.verbose, self.overflow = init_optimizer, verbose, False
        self._prepared = Prepared(init_optimizer, masters=True, combine_ddp=False)
        told = dynamic_loss_args or {}
        factor = told.get("scale_factor", 2.0)
        self.loss_scaler = LossScaler(
            told.get("init_scale", 2.0**32) if dynamic_loss_scale else static_loss_scale,
            dynamic_loss_scale,
            growth=factor,
            backoff=1 / factor,
            window=int(told.get("scale_window", 1000)),
        )

    @property
    def loss_scale(self) -> float:
        """What the next loss is multiplied by."""
        return self.loss_scaler.scale

    @property
    def state(self) -> Any:
        """That of the optimizer."""
        return self.optimizer.state

    @property
    def param_groups(self) -> Any:
        """Those of the optimizer, with masters."""
        return self.optimizer.param_groups

    def zero_grad(self, set_grads_to_None: bool = False) -> None:  # apex's name
        """Forget the gradients of model and masters, or make those of masters zero."""
        self._prepared.zero_grad(set_grads_to_None)

    def backward(self, loss: torch.Tensor, update_master_grads: bool = True, retain_graph: bool = False) -> None:
        """Backward of the scaled loss; unscaled gradients lie at the masters afterwards, unless put off."""
        self._prepared.begin_backward()
        (loss.float() * self.loss_scale).backward(retain_graph=retain_graph)
        if update_master_grads:
            self.update_master_grads()
        else:
            self._prepared.put_off()

    def update_master_grads(self) -> None:
        """Bring gradients of earlier backward passes to the masters, unscaled, and see whether they overflowed."""
        scaler = self.loss_scaler
        self.overflow = self._prepared.finish_backward(scaler.scale) and scaler.dynamic
        self._prepared.skip_next = self.overflow
        before = scaler.scale
        scaler.update(self.overflow)
        if self.overflow and self.verbose:
            print(f"OVERFLOW! Skipping step. Attempted loss scale: {before}, reducing to {scaler.scale}")

    def clip_master_grads(self, max_norm: float, norm_type: float = 2) -> float:
        """Scale the masters' gradients to a common norm of at most `max_norm`; the norm before, -1 after an overflow."""
        if self.overflow:
            return _OVERFLOWN
        return float(clip_grad_norm_([p for p in self._prepared.parameters() if p.grad is not None], max_norm, norm_type))

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step the masters and write the model's parameters; nothing after an overflow."""
        return self.optimizer.step() if closure is None else self.optimizer.step(closure)

    def inspect_master_grad_data(self) -> list[list[Any]]:
        """The masters' gradients by group."""
        return [[parameter.grad for parameter in group["params"]] for group in self.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """The scale, the optimizer's state and the masters."""
        return {
            **self.loss_scaler.state_dict(),
            "overflow": self.overflow,
            "optimizer_state_dict": self.optimizer.state_dict(),
            "fp32_from_fp16": [master.detach() for _, master in self._prepared.pairs],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint, whose masters are taken as they are."""
        self.loss_scaler.load_state_dict(dict(state))
        self.overflow = state["overflow"]
        self.optimizer.load_state_dict(state["optimizer_state_dict"])
        with torch.no_grad():
            for (_, master), kept in zip(self._prepared.pairs, state["fp32_from_fp16"], strict=True):
                master.copy_(kept)

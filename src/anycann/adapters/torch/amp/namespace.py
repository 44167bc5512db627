"""`torch.npu.amp`: torch's own autocast, scaler and decorators, for the npu; the dtype is float16 unless a program says otherwise."""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any

import torch


class autocast(torch.amp.autocast):  # noqa: N801 (the name of torch)
    """`torch.autocast("npu")`."""

    def __init__(self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True) -> None:
        super().__init__("npu", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """`torch.amp.GradScaler("npu")`; with `dynamic=False` the scale stays what it is, and steps that overflow are still left out.

    As on Ascend, gradients of one optimizer that overflow leave out the steps of all others until the next `update`, too.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        dynamic: bool = True,
        enabled: bool = True,
    ) -> None:
        super().__init__("npu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        self._dynamic, self._has_overflow = dynamic, False

    def _unscale_grads_(self, *given: Any, **options: Any) -> dict[torch.device, torch.Tensor]:
        found = super()._unscale_grads_(*given, **options)
        self._has_overflow = self._has_overflow or any(bool(value.item()) for value in found.values())
        return found

    def _maybe_opt_step(self, *given: Any, **options: Any) -> float | None:
        return None if self._has_overflow else super()._maybe_opt_step(*given, **options)

    def update(self, new_scale: Any = None) -> None:
        """As torch's; a static scale changes only if `new_scale` is given."""
        super().update(self._scale if new_scale is None and not self._dynamic and self._enabled else new_scale)
        self._has_overflow = False

    def state_dict(self) -> dict[str, Any]:
        """As torch's, with whether the scale is dynamic."""
        state = super().state_dict()
        return {**state, "dynamic": self._dynamic} if state else state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Also takes the state of torch's own scaler."""
        self._dynamic = state_dict.get("dynamic", self._dynamic)
        super().load_state_dict(state_dict)


custom_fwd = functools.partial(torch.amp.custom_fwd, device_type="npu")
custom_bwd = functools.partial(torch.amp.custom_bwd, device_type="npu")


def amp_definitely_not_available() -> bool:
    """False: the npu is always there."""
    return False


def install(npu: ModuleType) -> None:
    """Make `torch.npu.amp` and its submodules, under both of their names."""
    amp = _module("amp", autocast=autocast, GradScaler=GradScaler, custom_fwd=custom_fwd, custom_bwd=custom_bwd)
    parts = {
        "autocast_mode": _module("amp.autocast_mode", autocast=autocast, custom_fwd=custom_fwd, custom_bwd=custom_bwd),
        "grad_scaler": _module("amp.grad_scaler", GradScaler=GradScaler, OptState=torch.amp.grad_scaler.OptState),
        "common": _module("amp.common", amp_definitely_not_available=amp_definitely_not_available),
        "sharded_grad_scaler": _ShardedModule("torch_npu.npu.amp.sharded_grad_scaler"),
    }
    vars(amp).update(parts, amp_definitely_not_available=amp_definitely_not_available)
    vars(npu)["amp"] = amp
    for package in ("torch_npu.npu", "torch.npu"):
        sys.modules[f"{package}.amp"] = amp
        sys.modules.update({f"{package}.amp.{name}": part for name, part in parts.items()})


def _module(name: str, **names: Any) -> ModuleType:
    module = ModuleType(f"torch_npu.npu.{name}")
    vars(module).update(names, __all__=list(names))
    return module


class _ShardedModule(ModuleType):
    """Imports torch's sharded scaler when somebody wants it: fully sharded data parallel is slow to import."""

    def __getattr__(self, name: str) -> Any:
        if name != "ShardedGradScaler":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

        return functools.partial(ShardedGradScaler, device="npu")

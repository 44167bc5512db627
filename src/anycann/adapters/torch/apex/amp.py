"""apex.amp: initialize, scale_loss, checkpoints of the scale, and the precision of a program's own functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
import functools
from typing import Any

import torch

from anycann.adapters.torch.amp.autocast import take_float32_losses
from anycann.adapters.torch.apex.levels import Level, apply_to_model, cast, describe, level
from anycann.adapters.torch.apex.masters import Prepared
from anycann.adapters.torch.apex.scaling import GROWN_AT_MOST, LossScaler

__all__ = [
    "disable_casts",
    "float_function",
    "half_function",
    "init",
    "initialize",
    "load_state_dict",
    "master_params",
    "promote_function",
    "register_float_function",
    "register_half_function",
    "register_promote_function",
    "scale_loss",
    "state_dict",
]


class _State:
    """One for the process, as in apex: amp is initialized once."""

    chosen: Level | None = None
    enabled = True
    verbosity = 1
    scalers: tuple[LossScaler, ...] = ()


_state = _State()


def initialize(
    models: Any,
    optimizers: Any = None,
    enabled: bool = True,
    opt_level: str = "O1",
    cast_model_type: Any = None,
    patch_torch_functions: bool | None = None,
    keep_batchnorm_fp32: Any = None,
    master_weights: bool | None = None,
    loss_scale: Any = None,
    cast_model_outputs: Any = None,
    num_losses: int = 1,
    verbosity: int = 1,
    dynamic_init_scale: float = 2.0**16,
    scale_growth_factor: float = 2.0,
    scale_backoff_factor: float = 0.5,
    scale_window: int = 2000,
    min_loss_scale: float | None = None,
    max_loss_scale: float = GROWN_AT_MOST,
    combine_grad: bool | None = None,
    combine_ddp: bool | None = None,
    ddp_replica_count: int = 4,
    user_cast_preferred: bool | None = None,
    check_combined_tensors: bool | None = None,
) -> Any:
    """Prepare models and optimizers for mixed precision; returns them as they came, one or a list.

    `combine_grad`, `ddp_replica_count` and `check_combined_tensors` say how Ascend lays gradients side by side, which gradients here need
    not; `combine_ddp` averages gradients over ranks without DistributedDataParallel. Raises RuntimeError for a level that does not exist.
    """
    _state.enabled, _state.verbosity = enabled, verbosity
    if not enabled:
        return models if optimizers is None else (models, optimizers)
    chosen = level(
        opt_level,
        cast_model_type=cast_model_type,
        patch_torch_functions=patch_torch_functions,
        keep_batchnorm_fp32=keep_batchnorm_fp32,
        master_weights=master_weights,
        loss_scale=loss_scale,
        cast_model_outputs=cast_model_outputs,
    )
    _say(f"Selected optimization level {opt_level}\n{describe(chosen)}")
    dynamic = chosen.loss_scale == "dynamic"
    first = dynamic_init_scale if dynamic else float(chosen.loss_scale)
    _state.chosen = chosen
    _state.scalers = tuple(
        LossScaler(first, dynamic, scale_growth_factor, scale_backoff_factor, scale_window, min_loss_scale, max_loss_scale)
        for _ in range(num_losses)
    )
    if chosen.patch_torch_functions:
        _autocast_outside_models()
    for model in _listed(models):
        apply_to_model(model, chosen)
    for optimizer in _listed(optimizers):
        Prepared(optimizer, bool(chosen.master_weights), bool(combine_ddp))
    return models if optimizers is None else (models, optimizers)


def _autocast_outside_models() -> None:
    """At O1 losses outside the model are cast as well. Weights are kept in 16 bits only within a model's forward, which ends."""
    torch.set_autocast_dtype("npu", torch.float16)
    torch.set_autocast_enabled("npu", True)
    torch.set_autocast_cache_enabled(False)
    take_float32_losses(True)


@contextmanager
def scale_loss(
    loss: Any, optimizers: Any, loss_id: int = 0, model: Any = None, delay_unscale: bool = False, delay_overflow_check: bool = False
) -> Iterator[Any]:
    """Gives the scaled loss for backward(); afterwards the gradients are unscaled, and the next step is left out if they overflowed."""
    if not _state.enabled:
        yield loss
        return
    if not _state.scalers:
        raise RuntimeError("amp.scale_loss was called before amp.initialize")
    scaler = _state.scalers[loss_id]
    prepared = [_prepared(optimizer) for optimizer in _listed(optimizers)]
    for each in prepared:
        each.begin_backward()
    yield loss.float() * scaler.scale
    if delay_unscale:
        for each in prepared:
            each.put_off()
        return
    overflows = [each.finish_backward(scaler.scale) for each in prepared]
    if any(overflows):
        for each in prepared:
            each.skip_next = scaler.dynamic
    before = scaler.scale
    scaler.update(any(overflows))
    if any(overflows) and scaler.dynamic:
        _say(f"Gradient overflow.  Skipping step, loss scaler {loss_id} reducing loss scale from {before} to {scaler.scale}")


def _prepared(optimizer: Any) -> Prepared:
    stash = getattr(optimizer, "_amp_stash", None)
    if not isinstance(stash, Prepared):
        raise RuntimeError(f"{type(optimizer).__name__} was not given to amp.initialize; scale_loss takes optimizers that were")
    return stash


def master_params(optimizer: Any) -> Iterator[Any]:
    """The parameters that the optimizer steps: what gradients are clipped of."""
    for group in optimizer.param_groups:
        yield from group["params"]


def state_dict(destination: Any = None) -> dict[str, Any]:
    """The scales, for a checkpoint."""
    state = {} if destination is None else destination
    state.update({f"loss_scaler{number}": scaler.state_dict() for number, scaler in enumerate(_state.scalers)})
    return dict(state)


def load_state_dict(state: dict[str, Any]) -> None:
    """Go on with the scales of a checkpoint. Raises RuntimeError if it has more than initialize was told of."""
    if len(state) > len(_state.scalers):
        raise RuntimeError(f"the checkpoint has {len(state)} loss scalers, amp.initialize was called with num_losses={len(_state.scalers)}")
    for number, kept in enumerate(state.values()):
        _state.scalers[number].load_state_dict(kept)


@contextmanager
def disable_casts() -> Iterator[None]:
    """Nothing is cast within."""
    with torch.autocast("npu", enabled=False):
        yield


def half_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with its tensors in float16, at O1."""
    return _casting(function, lambda values: torch.float16)


def float_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with its tensors in float32, at O1."""
    return _casting(function, lambda values: torch.float32)


def promote_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with its tensors in the widest dtype among them, at O1."""
    return _casting(function, _widest)


def register_half_function(module: Any, name: str) -> None:
    """Make `module.name` a half_function."""
    setattr(module, name, half_function(getattr(module, name)))


def register_float_function(module: Any, name: str) -> None:
    """Make `module.name` a float_function."""
    setattr(module, name, float_function(getattr(module, name)))


def register_promote_function(module: Any, name: str) -> None:
    """Make `module.name` a promote_function."""
    setattr(module, name, promote_function(getattr(module, name)))


def init(enabled: bool = True, **options: Any) -> None:
    """The older way to switch O1 on for a whole program."""
    if enabled:
        _state.chosen = level("O1")
        _state.scalers = _state.scalers or (LossScaler(),)
        _autocast_outside_models()


def _casting(function: Callable[..., Any], dtype_of: Callable[[Any], torch.dtype]) -> Callable[..., Any]:
    @functools.wraps(function)
    def casting(*args: Any, **keywords: Any) -> Any:
        if not torch.is_autocast_enabled("npu"):
            return function(*args, **keywords)
        args, keywords = cast((args, keywords), dtype_of((args, keywords)))
        with disable_casts():
            return function(*args, **keywords)

    return casting


def _widest(values: Any) -> torch.dtype:
    leaves = torch.utils._pytree.tree_leaves(values)
    dtypes = {leaf.dtype for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()}
    return functools.reduce(torch.promote_types, dtypes) if dtypes else torch.float32


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _say(text: str) -> None:
    if _state.verbosity > 0:
        print(text)

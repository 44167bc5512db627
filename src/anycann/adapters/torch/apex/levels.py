"""What the opt_levels of apex.amp mean, and what they do to a model.

| level | model          | operators      | batch norm | masters | loss scale |
| ----- | -------------- | -------------- | ---------- | ------- | ---------- |
| O0    | float32        | as given       | float32    | no      | 1          |
| O1    | as it is       | by autocast    | float32    | no      | dynamic    |
| O2    | float16        | as given       | float32    | yes     | dynamic    |
| O3    | float16        | as given       | float16    | no      | 1          |
"""

from __future__ import annotations

import copy
from dataclasses import fields, replace
import functools
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from anycann.support.records import dataclass


@dataclass(frozen=True)
class Level:
    """The properties that initialize() may change one by one; None for `cast_model_type`: parameters stay."""

    opt_level: str
    cast_model_type: Any
    patch_torch_functions: bool
    keep_batchnorm_fp32: bool
    master_weights: bool
    loss_scale: Any
    cast_model_outputs: Any = None


LEVELS = {
    "O0": Level("O0", torch.float32, False, False, False, 1.0),
    "O1": Level("O1", None, True, False, False, "dynamic"),
    "O2": Level("O2", torch.float16, False, True, True, "dynamic"),
    "O3": Level("O3", torch.float16, False, False, False, 1.0),
}


def level(name: str, **changes: Any) -> Level:
    """The level with those `changes` that are not None. Raises RuntimeError for another name, a letter o or a wrong combination."""
    if name not in LEVELS:
        raise RuntimeError(f"Unexpected optimization level {name!r}. Options are 'O0', 'O1', 'O2', 'O3' (the letter O, not a zero)")
    given = {key: _read(value) for key, value in changes.items() if value is not None}
    chosen = replace(LEVELS[name], **given)
    if name == "O1" and (given.get("cast_model_type") is not None or given.get("keep_batchnorm_fp32") or given.get("master_weights")):
        raise RuntimeError("opt_level O1 leaves the model in float32: cast_model_type, keep_batchnorm_fp32 and master_weights must be None")
    return chosen


def _read(value: Any) -> Any:
    """Arguments of command lines come as text."""
    return {"True": True, "False": False}.get(value, value) if isinstance(value, str) else value


def describe(chosen: Level) -> str:
    """One property a line, as apex prints them."""
    return "\n".join(f"{field.name:<22} : {getattr(chosen, field.name)}" for field in fields(chosen))


def apply_to_model(model: nn.Module, chosen: Level) -> nn.Module:
    """Cast parameters, and inputs and outputs at the model's forward, in place; returns the model."""
    if chosen.cast_model_type is not None:
        _cast_parameters(model, chosen.cast_model_type, chosen.keep_batchnorm_fp32)
    model.forward = _CastForward(model.forward, chosen)
    return model


class _CastForward:
    """A model's forward with the casts of its level. Copies of the model have their own; in a file there is the model's alone."""

    def __init__(self, forward: Any, chosen: Level):
        self._forward, self._chosen = forward, chosen
        self._outputs = chosen.cast_model_outputs or (torch.float32 if chosen.cast_model_type is torch.float16 else None)
        functools.update_wrapper(self, forward)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        if self._chosen.cast_model_type is not None:
            args, keywords = cast((args, keywords), self._chosen.cast_model_type)
        if self._chosen.patch_torch_functions:
            with torch.autocast("npu", dtype=torch.float16):
                result = self._forward(*args, **keywords)
        else:
            result = self._forward(*args, **keywords)
        return result if self._outputs is None else cast(result, self._outputs)

    def __deepcopy__(self, memo: dict[int, Any]) -> _CastForward:
        return _CastForward(copy.deepcopy(self._forward, memo), self._chosen)

    def __reduce__(self) -> Any:
        return self._forward.__reduce__()


def cast(values: Any, dtype: torch.dtype) -> Any:
    """`values` with every floating-point tensor in it as `dtype`."""

    def change(value: Any) -> Any:
        return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    return pytree.tree_map(change, values)


def _cast_parameters(model: nn.Module, dtype: torch.dtype, keep_norms: bool) -> None:
    kept = {
        id(tensor)
        for module in model.modules()
        if keep_norms and isinstance(module, nn.modules.batchnorm._NormBase) and module.affine
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False))
    }
    model._apply(lambda tensor: tensor if id(tensor) in kept or not tensor.is_floating_point() else tensor.to(dtype))

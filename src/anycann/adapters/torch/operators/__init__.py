"""The fused operators of torch_npu, `torch.ops.npu` and `torch.ops.atb`. They are registered when the first of them is asked for."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import torch

_NAMESPACES = ("npu", "atb")


class _Namespace(torch._ops._OpNamespace):
    """`torch.ops.npu` before its operators are registered: the first name that it lacks registers them."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            load()
        return super().__getattr__(name)


@cache
def load() -> ModuleType:
    """Registers all operators; returns the module that lists them."""
    return import_module("anycann.adapters.torch.operators.all")


def install(torch_npu: ModuleType) -> None:
    """Gives `torch_npu` the names of the operators, and torch the two namespaces."""
    for name in _NAMESPACES:
        if name not in torch.ops.__dict__:
            setattr(torch.ops, name, _Namespace(name))
    known = torch_npu.__dict__.get("__getattr__")

    def find(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module 'torch_npu' has no attribute {name!r}")
        operator = load().PACKETS.get(name)
        if operator is not None:
            found = getattr(getattr(torch.ops, operator.namespace), name)
            setattr(torch_npu, name, found)
            return found
        if known is not None:
            return known(name)
        raise AttributeError(f"module 'torch_npu' has no attribute {name!r}")

    torch_npu.__dict__["__getattr__"] = find

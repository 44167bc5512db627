"""The fused operators of torch_npu, `torch.ops.npu` and `torch.ops.atb`. They are registered when the first of them is asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import torch

_NAMESPACES = ("npu", "atb")
_SUBPACKAGES = ("optim", "contrib")  # `import torch_npu` is enough for them
_TENSOR_METHODS = ("npu_format_cast", "npu_format_cast_", "npu_dtype_cast", "npu_dtype_cast_", "npu_confusion_transpose",
                   "copy_memory_")  # fmt: skip


being_defined: set[str] = set()  # names that torch looks for while they are registered, in any order of the families


class _Namespace(torch._ops._OpNamespace):
    """`torch.ops.npu` before its operators are registered: the first name that it lacks registers them."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__") or name in being_defined:
                raise
        load()
        return super().__getattr__(name)


@cache
def load() -> ModuleType:
    """Registers all operators; returns the module that lists them."""
    return import_module("anycann.adapters.torch.operators.all")


def _method(name: str) -> Callable[..., Any]:
    def call(self: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        return _found(name)(self, *arguments, **options)

    call.__name__ = name
    return call


def _found(name: str) -> Any:
    if name == "atb":
        return load() and torch.ops.atb
    if name in load().FUNCTIONS:
        return load().FUNCTIONS[name]
    operator = load().PACKETS.get(name)
    return None if operator is None else getattr(getattr(torch.ops, operator.namespace), name)


def install(torch_npu: ModuleType) -> None:
    """Gives `torch_npu` the names of the operators, and torch the two namespaces."""
    for name in _NAMESPACES:
        if name not in torch.ops.__dict__:
            setattr(torch.ops, name, _Namespace(name))
    for name in _TENSOR_METHODS:
        setattr(torch.Tensor, name, _method(name))
    known = torch_npu.__dict__.get("__getattr__")

    def find(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module 'torch_npu' has no attribute {name!r}")
        if name in _SUBPACKAGES:
            return import_module(f"torch_npu.{name}")
        found = _found(name)
        if found is not None:
            setattr(torch_npu, name, found)
            return found
        if known is not None:
            return known(name)
        raise AttributeError(f"module 'torch_npu' has no attribute {name!r}")

    torch_npu.__dict__["__getattr__"] = find

"""torch_npu.contrib, by AnyCANN."""

from typing import Any


def __getattr__(name: str) -> Any:
    """Functions and layers, loaded when the first of them is asked for."""
    from anycann.adapters.torch import contrib

    if name in contrib.MODULES:
        return getattr(contrib.MODULES[name], name)
    if name in ("function", "module"):
        from importlib import import_module

        return import_module(f"torch_npu.contrib.{name}")
    raise AttributeError(f"module 'torch_npu.contrib' has no attribute {name!r}")

"""Automatic mixed precision on the npu: `autocast.py` has torch's lists of operators, `namespace.py` the names of torch.npu.amp."""

from __future__ import annotations

from types import ModuleType

from anycann.adapters.torch.amp import autocast, namespace


def install(torch_npu: ModuleType) -> None:
    """Make `torch.autocast("npu")` cast, and give `torch_npu.npu` its `amp`."""
    autocast.install()
    namespace.install(torch_npu.npu)

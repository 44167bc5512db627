"""Resizing stays one operator in the graphs of AOTAutograd, forward and backward.

torch's Python kernels for autograd take it apart, into the reading of four neighbours by index, whose gradient adds up in place. While a
graph is captured they are away, and torch's compiled kernels are traced instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_KEYS = (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd)
_OPERATORS = [
    getattr(getattr(torch.ops.aten, name), overload)
    for name in ("upsample_bilinear2d", "upsample_nearest2d", "_upsample_nearest_exact2d")
    for overload in ("default", "vec")
]


@contextmanager
def resizing_kept_whole() -> Iterator[None]:
    """Capture graphs in here."""
    away = [(op, {key: op.py_kernels.pop(key) for key in _KEYS if key in op.py_kernels}) for op in _OPERATORS]
    for op in _OPERATORS:
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op, kernels in away:
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()

"""`torchair.inference`: compiled functions whose code outlives the process, and sizes that come in gears."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anycann.adapters.torch.torchair.backend import get_npu_backend
from anycann.adapters.torch.torchair.compiler_config import CompilerConfig

FEWEST, MOST = 2, 100


def cache_compile(
    func: Callable[..., Any],
    *,
    config: CompilerConfig | None = None,
    dynamic: bool = True,
    cache_dir: str | None = None,
    global_rank: int | None = None,
    tp_rank: int | None = None,
    pp_rank: int | None = None,
    custom_decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    **keywords: Any,
) -> Callable[..., Any]:
    """`func` (a function or a method of a model) compiled as one graph.

    Kernels are kept in the cache folder of AnyCANN, by what they compute, for every process and rank: a known graph compiles in about a
    second. `cache_dir` and the ranks, which name files on Ascend, are therefore not needed.
    """
    import torch

    backend = get_npu_backend(compiler_config=config, custom_decompositions=custom_decompositions)
    compiled: Callable[..., Any] = torch.compile(func, backend=backend, dynamic=dynamic, fullgraph=True)
    return compiled


def set_dim_gears(t: Any, dim_gears: Mapping[int, Sequence[int]]) -> None:
    """Say which sizes the dimensions of `t` will have; each is compiled when it is met. Raises ValueError for other gears."""
    import torch

    for dim, gears in dim_gears.items():
        if type(dim) is not int or not 0 <= dim < t.dim():
            raise ValueError(f"dimension {dim!r} of a tensor with {t.dim()}; accepted: 0 to {t.dim() - 1}")
        whole = isinstance(gears, list | tuple) and all(type(gear) is int and gear > 0 for gear in gears)
        if not whole or not FEWEST <= len(gears) <= MOST:
            raise ValueError(f"gears {gears!r} of dimension {dim}; accepted: a list of {FEWEST} to {MOST} sizes above 0")
        if t.shape[dim] not in gears:
            raise ValueError(f"dimension {dim} has size {t.shape[dim]}; accepted: its gears {list(gears)}")
        torch._dynamo.mark_dynamic(t, dim)
    t.dim_gears = dict(dim_gears)

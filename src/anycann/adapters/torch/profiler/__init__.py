"""`torch_npu.profiler`: torch's records, `spans.py` finds the npu's kernels in it, `tables.py` and `timeline.py` write Ascend's files."""

from __future__ import annotations

from collections.abc import Callable
import sys
from types import ModuleType
from typing import Any

_NAMES = (
    "AiCMetrics",
    "ExportType",
    "HostSystem",
    "ProfilerAction",
    "ProfilerActivity",
    "ProfilerLevel",
    "_ExperimentalConfig",
    "schedule",
    "supported_activities",
)
_SESSION = ("profile", "tensorboard_trace_handler")


class _Profiler(ModuleType):
    """`torch_npu.profiler`, read when a program asks: most programs profile nothing."""

    __all__ = (*_NAMES, *_SESSION, "dynamic_profile")

    def __getattr__(self, name: str) -> Any:
        if name in _NAMES:
            from anycann.adapters.torch.profiler import names

            value = getattr(names, name)
        elif name in _SESSION:
            from anycann.adapters.torch.profiler import session

            value = getattr(session, name)
        elif name == "dynamic_profile":
            from anycann.adapters.torch.profiler.dynamic import dynamic_profile as value
        else:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        setattr(self, name, value)
        return value


def install(torch_npu: ModuleType) -> None:
    """Give `torch_npu` its profiler under its several names, and torch's own profiler the npu's times."""
    profiler = _Profiler("torch_npu.profiler")
    vars(torch_npu)["profiler"] = sys.modules["torch_npu.profiler"] = profiler
    vars(torch_npu.npu)["profiler"] = sys.modules["torch_npu.npu.profiler"] = sys.modules["torch.npu.profiler"] = profiler
    vars(torch_npu.npu)["profile"] = _lazily(profiler)
    from anycann.adapters.torch.profiler import torch_events

    torch_events.install()


def _lazily(profiler: ModuleType) -> Callable[..., Any]:
    """`torch.npu.profile`, the older name; older still, it takes a folder of results, whether operators are in them and what is counted."""

    def profile(profiler_result_path: str | None = None, use_e2e_profiler: bool = False, config: Any = None, **keywords: Any) -> Any:
        if profiler_result_path is not None:
            keywords.setdefault("on_trace_ready", profiler.tensorboard_trace_handler(profiler_result_path))
        return profiler.profile(**keywords)

    return profile

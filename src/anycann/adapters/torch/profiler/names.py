"""What `torch_npu.profiler` exports besides `profile`: enumerations, settings, schedules."""

from __future__ import annotations

from enum import Enum
from typing import Any

import torch

ProfilerAction = torch.profiler.ProfilerAction
ProfilerActivity = torch.profiler.ProfilerActivity


class ProfilerLevel(Enum):
    """How much of CANN is recorded; a host has one level, that of operators and kernels."""

    Level_none = "Level_none"
    Level0 = "Level0"
    Level1 = "Level1"
    Level2 = "Level2"


class AiCMetrics(Enum):
    """Counters of AI cores, which a host has not."""

    AiCoreNone = "ACL_AICORE_NONE"
    PipeUtilization = "PipeUtilization"
    ArithmeticUtilization = "ArithmeticUtilization"
    Memory = "Memory"
    MemoryL0 = "MemoryL0"
    MemoryUB = "MemoryUB"
    ResourceConflictRatio = "ResourceConflictRatio"
    L2Cache = "L2Cache"
    MemoryAccess = "MemoryAccess"


class ExportType(Enum):
    """The form of the results; text is what is written."""

    Text = "text"
    Db = "db"


class HostSystem(Enum):
    """What may be sampled of the host."""

    CPU = "cpu"
    MEM = "mem"
    DISK = "disk"
    NETWORK = "network"
    OSRT = "osrt"


class _ExperimentalConfig:
    """Ascend's settings: kept, and written to profiler_info.json."""

    def __init__(
        self,
        profiler_level: ProfilerLevel = ProfilerLevel.Level0,
        aic_metrics: AiCMetrics = AiCMetrics.AiCoreNone,
        l2_cache: bool = False,
        msprof_tx: bool = False,
        mstx: bool = False,
        data_simplification: bool = True,
        record_op_args: bool = False,
        op_attr: bool = False,
        gc_detect_threshold: float | None = None,
        export_type: Any = None,
        host_sys: list[Any] | None = None,
        mstx_domain_include: list[str] | None = None,
        mstx_domain_exclude: list[str] | None = None,
        sys_io: bool = False,
        sys_interconnection: bool = False,
    ) -> None:
        self.settings = {key: _plain(value) for key, value in locals().items() if key != "self"}


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def schedule(wait: int, active: int, warmup: int = 0, repeat: int = 0, skip_first: int = 0, **more: int) -> Any:
    """As `torch.profiler.schedule`, with the order of arguments that Ascend has."""
    return torch.profiler.schedule(wait=wait, warmup=warmup, active=active, repeat=repeat, skip_first=skip_first, **more)


def supported_activities() -> set[Any]:
    """CPU and NPU."""
    return {ProfilerActivity.CPU, ProfilerActivity.PrivateUse1}

"""The machine that numbers were measured on, in words that say nothing about whose it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
import os
from pathlib import Path
import platform

from anycann.target.target import host
from benchmarks.peak import peak_flops

FEATURES = ("avx2", "fma", "f16c", "avx512f", "avx512vnni", "avx512bf16", "avx512fp16", "amx-tile", "amx-bf16", "amx-int8", "neon", "sve")
PACKAGES = ("anycann", "numpy", "onnx", "llvmlite", "onnxruntime", "openvino")


@dataclass(frozen=True)
class Machine:
    """Processor, its features that matter here, versions, and the float32 peak (operations a second) by number of threads."""

    processor: str
    cores: int
    memory_gib: int
    features: tuple[str, ...]
    system: str
    versions: dict[str, str]
    peak: dict[int, float]


def this_machine(threads: Sequence[int]) -> Machine:
    """What this process runs on; measures the peak."""
    target = host()
    return Machine(
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        features=tuple(feature for feature in FEATURES if target.has(feature)),
        system=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        versions=_versions(),
        peak={count: peak_flops(count) for count in threads},
    )


def _processor() -> str:
    """The model name that the processor gives, with the name of its kind as LLVM knows it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor() or "unknown")
    return f"{name} ({host().cpu})"


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found

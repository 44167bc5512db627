"""The machine that numbers were measured on, in words that say nothing about whose it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
import os
from pathlib import Path
import platform
from typing import Any

from anycann.target.target import host
from benchmarks.bandwidth import Bandwidth, bandwidth
from benchmarks.peak import peak_flops, peak_rates
from benchmarks.roofline import Ceilings

FEATURES = ("avx2", "fma", "f16c", "avx512f", "avx512vnni", "avx512bf16", "avx512fp16", "amx-tile", "amx-bf16", "amx-int8", "neon", "sve")
PACKAGES = ("anycann", "numpy", "onnx", "llvmlite", "onnxruntime", "openvino", "torch")


@dataclass(frozen=True)
class Machine:
    """Processor, its features that matter here, versions, and by number of threads the float32 peak (operations a second).

    rates: by number of threads, precision and what does the arithmetic. bandwidth: by number of threads. Only if they were asked for.
    """

    processor: str
    cores: int
    memory_gib: int
    features: tuple[str, ...]
    system: str
    versions: dict[str, str]
    peak: dict[int, float]
    rates: dict[int, dict[str, dict[str, float]]] = field(default_factory=dict)
    bandwidth: dict[int, Bandwidth] = field(default_factory=dict)

    def ceilings(self, threads: int) -> Ceilings:
        """The roofline for a number of threads that was measured."""
        peaks = {precision: max(rates.values()) for precision, rates in self.rates[threads].items()}
        return Ceilings(peaks, self.bandwidth[threads])


def this_machine(threads: Sequence[int], rates: bool = False) -> Machine:
    """What this process runs on; measures the peak of float32, with `rates` those of every precision and the bandwidth."""
    target = host()
    found = {count: peak_rates(count) for count in threads} if rates else {}
    return Machine(
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        features=tuple(feature for feature in FEATURES if target.has(feature)),
        system=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        versions=_versions(),
        peak={count: max(found[count]["fp32"].values()) if rates else peak_flops(count) for count in threads},
        rates=found,
        bandwidth={count: bandwidth(count) for count in threads} if rates else {},
    )


def machine_of(facts: Mapping[str, Any]) -> Machine:
    """From JSON, whose keys are text."""
    return Machine(
        **{
            **facts,
            "features": tuple(facts["features"]),
            "peak": {int(count): rate for count, rate in facts["peak"].items()},
            "rates": {int(count): rates for count, rates in facts["rates"].items()},
            "bandwidth": {int(count): _bandwidth_of(row) for count, row in facts["bandwidth"].items()},
        }
    )


def _bandwidth_of(facts: Mapping[str, Any]) -> Bandwidth:
    return Bandwidth(tuple((nbytes, rate) for nbytes, rate in facts["levels"]))


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

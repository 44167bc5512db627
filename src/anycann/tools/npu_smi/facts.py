"""What npu-smi tells: chips, memory, processes and their load. What only a sensor knows is NA."""

from __future__ import annotations

from collections.abc import Sequence
import os
from pathlib import Path
import time

from anycann.acl.process import DEFAULT_SOC
from anycann.runtime.device import devices
from anycann.runtime.published import Use, busy_ticks, uses
from anycann.support import options as settings
from anycann.support.processors import available_processors
from anycann.support.records import dataclass
from anycann.target.soc import SocVersion, soc_version

SAMPLE_SECONDS = 0.2  # the time over which load is measured
MIB = 1 << 20


@dataclass(frozen=True)
class Process:
    """A process that takes memory of a device. `load`: percent of the processors that AnyCANN may use."""

    pid: int
    name: str
    taken_bytes: int
    load: float


@dataclass(frozen=True)
class Npu:
    """A virtual device and who uses it."""

    number: int
    chip: SocVersion
    memory_bytes: int
    processes: tuple[Process, ...]

    @property
    def name(self) -> str:
        """The chip as npu-smi writes it: 910B3, 310P3."""
        return self.chip.name.removeprefix("Ascend")

    @property
    def has_hbm(self) -> bool:
        """True for the training chips, whose memory npu-smi calls HBM."""
        return self.chip.series.startswith("910")

    @property
    def used_mib(self) -> int:
        return -(-sum(process.taken_bytes for process in self.processes) // MIB)

    @property
    def total_mib(self) -> int:
        return self.memory_bytes // MIB

    @property
    def memory_percent(self) -> int:
        return min(round(100 * self.used_mib / max(self.total_mib, 1)), 100)

    @property
    def load_percent(self) -> int:
        return min(round(sum(process.load for process in self.processes)), 100)

    @property
    def bus(self) -> str:
        """An address that no other device of this list has."""
        return f"0000:{self.number + 1:02X}:00.0"


def npus() -> list[Npu]:
    """The devices that are set, and those that a process uses beside them. Takes SAMPLE_SECONDS if there is a process."""
    found, known = uses(), devices()
    loads = _loads({use.pid for use in found})
    chip = soc_version(settings.SOC.get() or DEFAULT_SOC)
    count = max([len(known), *(use.device + 1 for use in found)])
    return [Npu(number, chip, known[0].memory_bytes, _of_device(number, found, loads)) for number in range(count)]


def _of_device(number: int, found: Sequence[Use], loads: dict[int, float]) -> tuple[Process, ...]:
    return tuple(Process(use.pid, _name(use.pid), use.taken_bytes, loads[use.pid]) for use in found if use.device == number)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "python"


def _loads(pids: set[int]) -> dict[int, float]:
    """Percent of the processors that each process used just now."""
    if not pids:
        return {}
    before, begin = {pid: busy_ticks(pid) for pid in pids}, time.monotonic()
    time.sleep(SAMPLE_SECONDS)
    possible = (time.monotonic() - begin) * os.sysconf("SC_CLK_TCK") * available_processors()
    return {pid: 100 * max((busy_ticks(pid) or 0) - (ticks or 0), 0) / possible for pid, ticks in before.items()}

"""`npu-smi info -t ... -i ...`, `-l` and `-m`: facts of one device, a line each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby
import os
from typing import TypeAlias

import anycann
from anycann.tools.npu_smi.facts import MIB, Npu
from anycann.tools.npu_smi.tables import VERSION

Fact: TypeAlias = tuple[str, object]


def line(name: str, fact: object) -> str:
    """One fact, as npu-smi writes it."""
    return f"\t{name:<31}: {fact}"


def query(npu: Npu, kind: str) -> str:
    """All facts of one kind. Raises KeyError for a kind that is not in QUERIES."""
    return "\n".join(line(name, fact) if name else str(fact) for name, fact in QUERIES[kind](npu))


def card_list(npus: Sequence[Npu]) -> str:
    """`-l`."""
    lines = [line("Card Count", len(npus))]
    for npu in npus:
        lines += ["", line("NPU ID", npu.number), line("Product Name", npu.chip.name), line("Serial Number", "NA"), line("Chip Count", 1)]
    return "\n".join(lines)


def mapping(npus: Sequence[Npu]) -> str:
    """`-m`."""
    rows = [("NPU ID", "Chip ID", "Chip Logic ID", "Chip Name"), *((npu.number, 0, npu.number, f"Ascend {npu.name}") for npu in npus)]
    return "\n".join("\t" + "".join(f"{cell!s:<31}" for cell in row[:-1]) + str(row[-1]) for row in rows)


def topology(npus: Sequence[Npu]) -> str:
    """`-t topo`: how devices reach each other, through the memory of the machine they all are in, and the processors they run on."""
    names = [f"NPU{npu.number}" for npu in npus]
    cells = [["", *names, "CPU Affinity"]]
    cells += [[name, *("X" if other == name else "SYS" for other in names), _ranges(os.sched_getaffinity(0))] for name in names]
    table = ["".join(f"{cell:<11}" for cell in row).rstrip() for row in cells]
    return "\n".join([*table, "", "Legend:", "", "  X    = Self", "  SYS  = Path traversing the memory of the machine"])


def _ranges(numbers: Collection[int]) -> str:
    """{0, 1, 2, 5} as "0-2,5"."""
    groups = groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0])
    runs = [[number for _, number in group] for _, group in groups]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _usages(npu: Npu) -> Iterator[Fact]:
    yield from (("NPU ID", npu.number), ("Chip Count", 1), ("", ""))
    yield from _capacity(npu, ("Capacity(MB)", npu.total_mib), ("Usage Rate(%)", npu.memory_percent))
    yield "Aicore Usage Rate(%)", npu.load_percent
    if npu.has_hbm:
        yield "Aivector Usage Rate(%)", npu.load_percent
    yield from (("Aicpu Usage Rate(%)", npu.load_percent), ("Ctrlcpu Usage Rate(%)", 0))
    yield from _capacity(npu, ("Bandwidth Usage Rate(%)", 0))
    yield from (("NPU Utilization(%)", npu.load_percent), ("Chip ID", 0))


def _capacity(npu: Npu, *facts: Fact) -> Iterator[Fact]:
    """Facts of the memory: HBM where the chip has it, and then no DDR."""
    if npu.has_hbm:
        yield from ((f"DDR {name}", 0) for name, _ in facts)
        yield from ((f"HBM {name}", fact) for name, fact in facts)
    else:
        yield from ((f"DDR {name}", fact) for name, fact in facts)


def _memory(npu: Npu) -> Iterator[Fact]:
    yield from (("NPU ID", npu.number), ("Chip Count", 1), ("", ""))
    yield from _capacity(npu, ("Capacity(MB)", npu.total_mib), ("Clock Speed(MHz)", "NA"))
    yield "Chip ID", 0


def _board(npu: Npu) -> Iterator[Fact]:
    yield from (("NPU ID", npu.number), ("Product Name", npu.chip.name), ("Model", f"AnyCANN {anycann.__version__}"))
    yield from (("Manufacturer", "NA"), ("Serial Number", "NA"), ("Software Version", VERSION), ("Firmware Version", "NA"))
    yield from (("Compatibility", "OK"), ("Board ID", "NA"), ("PCB ID", "NA"), ("BOM ID", "NA"), ("PCIe Bus Info", npu.bus))
    yield from (("Slot ID", npu.number), ("Chip Count", 1))


def _common(npu: Npu) -> Iterator[Fact]:
    yield from (("NPU ID", npu.number), ("Chip Count", 1), ("", ""), ("Chip ID", 0))
    yield from _capacity(npu, ("Usage Rate(%)", npu.memory_percent))
    yield from (("Memory Usage Rate(%)", npu.memory_percent), ("Aicore Usage Rate(%)", npu.load_percent), ("Aicore Freq(MHZ)", "NA"))
    yield from (("Aicore curFreq(MHZ)", "NA"), ("Aicore Count", "NA"), ("Temperature(C)", "NA"), ("NPU Real-time Power(W)", "NA"))


def _processes(npu: Npu) -> Iterator[Fact]:
    yield from (("NPU ID", npu.number), ("Chip ID", 0))
    for process in npu.processes:
        memory = -(-process.taken_bytes // MIB)
        yield "", f"\tProcess id:{process.pid}     Process name:{process.name}     Process memory(MB):{memory}"
    if not npu.processes:
        yield "", "\tNo process in device."


def _health(npu: Npu) -> Iterator[Fact]:
    yield from (("NPU ID", npu.number), ("Chip Count", 1), ("", ""), ("Health Status", "OK"), ("Error Code", "NA"), ("Chip ID", 0))


def _sensor(name: str) -> Callable[[Npu], Iterator[Fact]]:
    def facts(npu: Npu) -> Iterator[Fact]:
        yield from (("NPU ID", npu.number), ("Chip Count", 1), ("", ""), (name, "NA"), ("Chip ID", 0))

    return facts


QUERIES: dict[str, Callable[[Npu], Iterator[Fact]]] = {
    "usages": _usages,
    "memory": _memory,
    "board": _board,
    "common": _common,
    "proc-mem": _processes,
    "health": _health,
    "temp": _sensor("Temperature(C)"),
    "power": _sensor("NPU Real-time Power(W)"),
}

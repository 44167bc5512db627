"""The tables of `npu-smi info`: one layout for chips with HBM, one for the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anycann.support.records import dataclass
from anycann.tools.npu_smi.facts import MIB, Npu

VERSION = "24.1.rc1"  # of the npu-smi whose tables these are


@dataclass(frozen=True)
class _Layout:
    """Widths of the three columns between their bars."""

    first: int
    second: int
    third: int

    def rule(self, sign: str) -> str:
        return f"+{sign * self.first}+{sign * self.second}+{sign * self.third}+"

    def row(self, first: str, second: str, third: str) -> str:
        return f"|{f' {first}':<{self.first}}|{f' {second}':<{self.second}}|{f' {third}':<{self.third}}|"

    def whole(self, text: str) -> str:
        width = self.first + self.second + self.third + 2
        return f"|{f' {text}':<{width}}|"

    @property
    def edge(self) -> str:
        return "+" + "-" * (self.first + self.second + self.third + 2) + "+"


_HBM, _DDR = _Layout(27, 15, 52), _Layout(31, 17, 54)


def info_table(npus: Sequence[Npu]) -> str:
    """Both tables: devices, and processes."""
    hbm = npus[0].has_hbm
    layout = _HBM if hbm else _DDR
    lines = [layout.edge, layout.whole(f"npu-smi {VERSION:<25}Version: {VERSION}"), layout.rule("-")]
    lines += [*(_hbm_head(layout) if hbm else _ddr_head(layout)), layout.rule("=")]
    for npu in npus:
        lines += [*(_hbm_rows(layout, npu) if hbm else _ddr_rows(layout, npu)), layout.rule("=")]
    return "\n".join([*lines, *_process_table(layout, npus)])


def _hbm_head(layout: _Layout) -> Iterator[str]:
    yield layout.row("NPU   Name", "Health", "Power(W)    Temp(C)           Hugepages-Usage(page)")
    yield layout.row("Chip", "Bus-Id", "AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)")


def _hbm_rows(layout: _Layout, npu: Npu) -> Iterator[str]:
    yield layout.row(f"{npu.number:<6}{npu.name}", "OK", f"{'NA':<12}{'NA':<18}0    / 0")
    memory = f"{npu.used_mib:<5}/ {npu.total_mib}"
    yield layout.row("0", npu.bus, f"{npu.load_percent:<12}{'0    / 0':<18}{memory}")


def _ddr_head(layout: _Layout) -> Iterator[str]:
    yield layout.row("NPU     Name", "Health", "Power(W)     Temp(C)           Hugepages-Usage(page)")
    yield layout.row("Chip    Device", "Bus-Id", "AICore(%)    Memory-Usage(MB)")


def _ddr_rows(layout: _Layout, npu: Npu) -> Iterator[str]:
    yield layout.row(f"{npu.number:<8}{npu.name}", "OK", f"{'NA':<13}{'NA':<18}0     / 0")
    yield layout.row(f"{0:<8}{npu.number}", npu.bus, f"{npu.load_percent:<13}{npu.used_mib:<5}/ {npu.total_mib}")


def _process_table(layout: _Layout, npus: Sequence[Npu]) -> Iterator[str]:
    third = layout.third - 27
    yield layout.rule("-")
    yield layout.row("NPU     Chip", "Process id", f"{'Process name':<{third}}| Process memory(MB)")
    yield layout.rule("=")
    for npu in npus:
        for process in npu.processes:
            memory = -(-process.taken_bytes // MIB)
            yield layout.row(f"{npu.number:<8}0", str(process.pid), f"{process.name[: third - 1]:<{third}}| {memory}")
        if not npu.processes:
            yield layout.whole(f"No running processes found in NPU {npu.number}")
        yield layout.rule("=")

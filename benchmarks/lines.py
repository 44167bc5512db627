"""What a line of memory costs one core, by which of two cores had it before, and how far apart the two are.

python -m benchmarks.lines                 for some seconds
python -m benchmarks.lines --seconds 300   until a virtual machine has had its cores near each other and far

A host may run two virtual cores on real ones with a common third-level cache or without, and change that within seconds. It shows in the
way of a flag from one to the other; what was measured while that was short, and while it was long, stands in columns of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
import time
from typing import TypeAlias

import click

from anycann.support.errors import UsageError
from anycann.target.target import host
from benchmarks.cores import Core, Cores
from benchmarks.report import markdown

MEASURED = 4  # times that every history is measured between two looks at the flag
APART = 1.5  # ways of the flag that differ by this are two states

Steps: TypeAlias = Sequence[tuple[Core, str]]
# Who read and wrote the lines before core 0 does
HISTORIES: Mapping[str, Steps] = {
    "written here": [(0, "write")],
    "written there": [(1, "write")],
    "written here, then read there": [(0, "write"), (1, "read")],
    "written there, then read here": [(1, "write"), (0, "read")],
}


@dataclass(frozen=True)
class Sample:
    """The way of the flag and, by (history, "read" or "write"), what a line cost, all in nanoseconds."""

    way: float
    lines: Mapping[tuple[str, str], float]


def sample(cores: Cores) -> Sample:
    """Every history `MEASURED` times, between two looks at the flag; the longer way counts."""
    before, found = cores.way(), dict[tuple[str, str], list[float]]()
    for _ in range(MEASURED):
        for history, steps in HISTORIES.items():
            for name in ("read", "write"):
                for core, step in steps:
                    cores.line(core, step)
                found.setdefault((history, name), []).append(cores.line(0, name))
    return Sample(max(before, cores.way()), {key: median(times) for key, times in found.items()})


def states(samples: Sequence[Sample]) -> list[list[Sample]]:
    """The samples of a short and of a long way of the flag, or all where the ways are alike."""
    ways = sorted(each.way for each in samples)
    near, far = ways[len(ways) // 20], ways[-1 - len(ways) // 20]
    if far < APART * near:
        return [list(samples)]
    border = (near * far) ** 0.5
    return [[each for each in samples if (each.way < border) is short] for short in (True, False)]


def table(samples: Sequence[Sample]) -> list[str]:
    """A table of Markdown: nanoseconds to read and to write a line, a column for each state."""
    found = states(samples)

    def text(number: Callable[[Sample], float]) -> str:
        return " / ".join(f"{median(map(number, each)):.1f}" for each in found)

    def cost(history: str, name: str) -> str:
        return text(lambda each: each.lines[history, name])

    rows = [[history, cost(history, "read"), cost(history, "write")] for history in HISTORIES]
    counts = " / ".join(str(len(each)) for each in found)
    return [f"a flag's way from one core to the other: {text(lambda each: each.way)} ns ({counts} samples)", ""] + markdown(
        ["ns for a line", "to read", "to write"], rows
    )


@click.command
@click.option("--seconds", default=10.0, show_default=True, help="How long to measure.")
def main(seconds: float) -> None:
    """Say what a line costs a core, by which of two had it before; in two columns if their distance changed meanwhile."""
    try:
        cores = Cores(host())
    except UsageError as error:
        raise click.ClickException(str(error)) from None
    found, end = list[Sample](), time.monotonic() + seconds
    while time.monotonic() < end or not found:
        found.append(sample(cores))
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()

"""What was measured, kept as JSON: written by `benchmarks.models`, read again and joined by `benchmarks.page`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
import json
from pathlib import Path
from typing import Any

from benchmarks.machine import Machine, machine_of
from benchmarks.measuring import Compilation, Footprint, Speed, speed_of


@dataclass
class Result:
    """All that was measured of one model; `failures` say why there is not more, by what failed ("fp32", "start" ...)."""

    model: str
    speed: dict[str, dict[int, Speed]] = field(default_factory=dict)  # by precision and number of threads
    compilation: Compilation | None = None
    footprints: dict[str, Footprint] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def join(self, other: Result) -> None:
        """Take over what `other` has."""
        for precision, rows in other.speed.items():
            self.speed.setdefault(precision, {}).update(rows)
        self.compilation = other.compilation or self.compilation
        self.footprints = other.footprints or self.footprints
        self.failures |= other.failures


@dataclass(frozen=True)
class Report:
    """The results of one command, or of several on one machine."""

    commands: tuple[str, ...]
    machine: Machine
    results: tuple[Result, ...]

    @property
    def threads(self) -> list[int]:
        return sorted(self.machine.peak)


def to_json(report: Report) -> str:
    """Everything, seconds and bytes."""
    return json.dumps(asdict(report), indent=2)


def read(path: Path) -> Report:
    """What `to_json` wrote. Raises ValueError if it is something else."""
    facts = json.loads(path.read_text())
    if not isinstance(facts, dict) or "results" not in facts or "commands" not in facts:
        raise ValueError(f"{path} holds no results; accepted: what --json of benchmarks.models wrote")
    return Report(tuple(facts["commands"]), machine_of(facts["machine"]), tuple(_result(row) for row in facts["results"]))


def joined(reports: Sequence[Report]) -> Report:
    """One report of several on one machine; where two have the same result the later one counts, of the machine's rates the first."""
    results: dict[str, Result] = {}
    for result in (result for report in reports for result in report.results):
        results.setdefault(result.model, Result(result.model)).join(result)
    commands = dict.fromkeys(command for report in reports for command in report.commands)
    return Report(tuple(commands), _machine([report.machine for report in reports]), tuple(results.values()))


def _machine(machines: Sequence[Machine]) -> Machine:
    """The first, with the rates of every number of threads that any measured."""
    later_first = machines[::-1]
    return replace(
        machines[0],
        peak={count: rate for machine in later_first for count, rate in machine.peak.items()},
        rates={count: rates for machine in later_first for count, rates in machine.rates.items()},
        bandwidth={count: levels for machine in later_first for count, levels in machine.bandwidth.items()},
    )


def other_machines(reports: Iterable[Report]) -> list[str]:
    """Processors that are not the first report's; their numbers do not belong into one table."""
    first, *rest = [report.machine.processor for report in reports]
    return [processor for processor in rest if processor != first]


def _result(row: Mapping[str, Any]) -> Result:
    speed = {kind: {int(count): speed_of(facts) for count, facts in rows.items()} for kind, rows in row["speed"].items()}
    compilation = Compilation(**row["compilation"]) if row["compilation"] else None
    footprints = {name: Footprint(**facts) for name, facts in row["footprints"].items()}
    return Result(row["model"], speed, compilation, footprints, row["failures"])

"""Subgraph tuning (SGAT, job type 1): algorithms, fusion, layout and rules, decided one after the other by measuring the whole model.

A decision is turned against the default, the model compiled and, where that makes another one of it, measured in turn with the best so
far, and kept that way if it is faster in two measurements. All that was kept is measured once more beside the model as it was, and given
up where that is not faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
import filecmp
from pathlib import Path
from shutil import copyfile
import time
from typing import Any

from anycann.aoe.comparing import compare
from anycann.aoe.model_tasks import model_tasks
from anycann.aoe.operators import Job
from anycann.aoe.result_file import INTERRUPTED, SUCCEEDED, UNCHANGED, Modified, Result
from anycann.assembly import ASSEMBLY_SWITCHES, GRAPH_SWITCHES, GraphSpace
from anycann.codegen.space import Point, Space, Tuned, usable
from anycann.compiler import convert_model
from anycann.om.writer import write_offline_model
from anycann.support.logging import get_logger
from anycann.support.records import dataclass
from anycann.tuning.bank_files import Entry, keep
from anycann.tuning.identity import key_of
from anycann.tuning.journal import Journal, Line
from anycann.tuning.tuner import Progress

WORTHWHILE = 0.985
FIRST_SECONDS, SECOND_SECONDS = 1.0, 3.0


@dataclass(frozen=True)
class Decision:
    """One choice turned against what it is now."""

    space: Space[Any]
    changes: Mapping[str, int]
    name: str  # for people

    def applied(self, point: Point) -> Point:
        return {**point, **self.changes}


class _Chosen:
    """The decisions taken so far, before those of `base`."""

    def __init__(self, points: Mapping[str, Point], base: Tuned):
        self.points, self._base = dict(points), base

    def find(self, space: Space[Any]) -> Point | None:
        return self.points.get(key_of(space)) or self._base.find(space) if space.is_algorithm else self._base.find(space)


def tune_subgraphs(job: Job, progress: Progress | None = None) -> Result:
    """Decide, put what was found into the bank, and compile the model with that. Ctrl-C ends the search; what was found is kept."""
    started = time.monotonic()
    search = _Search(job, progress or (lambda text, done, total: None))
    interrupted = False
    try:
        search.run(started + job.tuning.seconds)
    except KeyboardInterrupt:
        interrupted = True
        get_logger("tuning").warning("interrupted; what was found so far is kept")
    baseline, tuned = search.confirm()
    modified = search.keep()
    status = INTERRUPTED if interrupted else SUCCEEDED if modified else UNCHANGED
    seconds = time.monotonic() - started
    return Result("SGAT", job.name, seconds, baseline, tuned, status, modified, len(search.spaces), search.tried, 0, interrupted)


class _Search:
    """Greedy: `points` is the best so far, `best` its model in a file."""

    def __init__(self, job: Job, progress: Progress):
        self._job, self._progress = job, progress
        known = job.known()
        graphs: list[GraphSpace] = []
        found = model_tasks(job.make(), job.compiling, _Noting(known, graphs))
        self.before = found.conversion.model
        self.spaces: dict[str, Space[Any]] = {**found.algorithms, **{key_of(space): space for space in graphs}}
        self.points: dict[str, Point] = {key: known.find(space) or space.point(space.default()) for key, space in self.spaces.items()}
        self._named = {switch for switch in GRAPH_SWITCHES if any(switch in line for r in found.conversion.reports for line in r.lines)}
        self._unknown = {key for key, space in self.spaces.items() if job.repeat or known.find(space) is None}
        self._journal = Journal(job.workspace.journal)
        self._best = job.workspace.folder / "tunespace" / "best.om"
        self._seconds: dict[str, tuple[float, float]] = {}
        self.tried = 0
        write_offline_model(self._best, self.before)

    def run(self, deadline: float) -> None:
        decisions = list(self._decisions())
        answered = {(line.task, str(line.point)): line for line in self._journal.lines()}
        for number, decision in enumerate(decisions):
            if time.monotonic() > deadline:
                return
            self._progress(decision.name, number, len(decisions))
            key = key_of(decision.space)
            known = answered.get((key, str(dict(decision.applied(self.points[key])))))
            if known is None or (known.ratio is not None and known.ratio < WORTHWHILE):
                self._try(key, decision)

    def _decisions(self) -> Iterator[Decision]:
        """Every algorithm the other way round, then how kernels are put together, and every rule that did something to this graph."""
        for key, space in self.spaces.items():
            if key not in self._unknown or isinstance(space, GraphSpace):
                continue
            (parameter,) = space.parameters()
            for choice in parameter.choices:
                if choice != self.points[key][parameter.name]:
                    yield Decision(space, {parameter.name: choice}, f"{space.family} {parameter.name}={choice}")
        for key, space in self.spaces.items():
            if key in self._unknown and isinstance(space, GraphSpace):
                for switch in GRAPH_SWITCHES:
                    if switch in ASSEMBLY_SWITCHES or switch in self._named:
                        yield Decision(space, {switch: 1 - self.points[key][switch]}, f"{switch} off")

    def _try(self, key: str, decision: Decision) -> None:
        """Compile and measure one decision; keep it if it is faster twice."""
        point = decision.applied(self.points[key])
        if usable(decision.space, point) is None:
            return
        trial = self._best.with_name("trial.om")
        options = replace(self._job.compiling, tuned=_Chosen({**self.points, key: point}, self._job.known()))
        write_offline_model(trial, convert_model(self._job.make(), options).model)
        if filecmp.cmp(trial, self._best, shallow=False):
            self._journal.add([Line(key, dict(point), 1.0, 0.0)])
            return
        self.tried += 1
        before, after = self._compared(trial, FIRST_SECONDS)
        if after < WORTHWHILE * before:
            before, after = self._compared(trial, SECOND_SECONDS)
        self._journal.add([Line(key, dict(point), after / before, before)])
        if after < WORTHWHILE * before:
            trial.replace(self._best)
            self.points[key] = point
            self._seconds[key] = (before, after)

    def _compared(self, trial: Path, seconds: float) -> tuple[float, float]:
        before, after = compare([self._best, trial], self._job.tuning.threads, seconds)
        return before, after

    def confirm(self) -> tuple[float, float]:
        """Write the result: all decisions if one more measurement calls them faster, else the model as it was. Seconds before and after."""
        before, result = self._best.with_name("baseline.om"), self._job.workspace.tuned_model()
        write_offline_model(before, self.before)
        baseline, *after = compare([before, self._best] if self._seconds else [before], self._job.tuning.threads, SECOND_SECONDS)
        if after and after[0] < baseline:
            before.unlink()
            copyfile(self._best, result)
            return baseline, after[0]
        self._seconds.clear()
        before.replace(result)
        return baseline, baseline

    def keep(self) -> tuple[Modified, ...]:
        """Put the decisions that were confirmed into the bank."""
        job, done = self._job, [key for key in self._unknown if key in self._seconds]
        entries = [Entry(self.spaces[key], self.points[key], *self._seconds[key], job.tuning.threads) for key in done]
        modes = keep(entries, job.bank)
        return tuple(
            Modified(e.space.family, e.space.family, "Fusion" if isinstance(e.space, GraphSpace) else "Algorithm", e.before, e.after, mode)
            for e, mode in zip(entries, modes, strict=True)
        )


class _Noting:
    """Asks `base`, and notes the spaces of graphs."""

    def __init__(self, base: Tuned, graphs: list[GraphSpace]):
        self._base, self._graphs = base, graphs

    def find(self, space: Space[Any]) -> Point | None:
        if isinstance(space, GraphSpace) and space not in self._graphs:
            self._graphs.append(space)
        return self._base.find(space)

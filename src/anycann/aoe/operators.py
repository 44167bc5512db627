"""Operator tuning (OPAT, job type 2): the schedule of each kernel of a model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
import filecmp
from pathlib import Path
import time

import onnx_ir as ir

from anycann.aoe.comparing import compare
from anycann.aoe.model_tasks import ModelTasks, model_tasks
from anycann.aoe.result_file import INTERRUPTED, SUCCEEDED, UNCHANGED, Modified, Result
from anycann.aoe.workspace import Workspace
from anycann.codegen.kernel_cache import KernelCache
from anycann.compiler import CompileOptions, convert_model
from anycann.om.model import OfflineModel
from anycann.om.writer import write_offline_model
from anycann.support.records import dataclass
from anycann.target.target import Target, host
from anycann.tuning.bank import BUILT_IN, Bank
from anycann.tuning.bank_files import Entry, keep
from anycann.tuning.cluster import on_cluster
from anycann.tuning.identity import key_of
from anycann.tuning.journal import Journal
from anycann.tuning.measuring import Measurer, Measuring
from anycann.tuning.tuner import Outcome, Progress, Tuner, TuningOptions


@dataclass(frozen=True)
class Job:
    """What is tuned, and how.

    make: the model, a new copy each time. nodes: the only ones to tune, () for all. repeat: what the bank knows is tuned again.
    cluster: address of the Ray cluster that measures, "" for this machine.
    """

    name: str
    make: Callable[[], ir.Model]
    compiling: CompileOptions
    tuning: TuningOptions
    workspace: Workspace
    bank: Path
    nodes: tuple[str, ...] = ()
    repeat: bool = False
    cluster: str = ""

    @property
    def target(self) -> Target:
        return self.compiling.target or host()

    def measuring(self) -> AbstractContextManager[Measuring]:
        """Where kernels are measured."""
        return on_cluster(self.cluster, self.target, self.tuning.threads) if self.cluster else Measurer()

    def known(self) -> Bank:
        """What was found so far, by this and earlier tunings, and what is built in."""
        return Bank([self.bank], self.target, BUILT_IN)


def tune_operators(job: Job, progress: Progress | None = None) -> Result:
    """Tune the kernels that the bank does not know, put what was found into it, and compile the model with that.

    Ctrl-C ends the search; what was found is kept. Raises as `convert_model`, and UsageError for nodes that do not exist.
    """
    started = time.monotonic()
    done = search_operators(job, progress)
    baseline, tuned = measure_model(job, done.found.conversion.model)
    status = INTERRUPTED if done.interrupted else SUCCEEDED if any(o.improved for o in done.outcomes) else UNCHANGED
    tried, lost = sum(o.tried for o in done.outcomes), sum(o.lost for o in done.outcomes)
    seconds = time.monotonic() - started
    return Result("OPAT", job.name, seconds, baseline, tuned, status, done.modified, done.tasks, tried, lost, done.interrupted)


@dataclass(frozen=True)
class Searched:
    """What searching came to. found: the model as it was. tasks: how many kernels could be tuned."""

    found: ModelTasks
    tasks: int
    outcomes: tuple[Outcome, ...]
    modified: tuple[Modified, ...]
    interrupted: bool


def search_operators(job: Job, progress: Progress | None = None) -> Searched:
    """Tune the kernels that no bank knows, or with `repeat` all of them, and put what was found into the bank.

    What the workspace's journal began goes on, also if the bank has its best so far.
    """
    known = job.known()
    found = model_tasks(job.make(), job.compiling, known)
    wanted = found.only(job.nodes) if job.nodes else found
    all_tasks = [replace(task, known=known.find(task.space)) for task in wanted.tasks.values()]
    journal = Journal(job.workspace.journal)
    begun = {line.task for line in journal.lines()}
    tasks = [task for task in all_tasks if job.repeat or task.known is None or key_of(task.space) in begun]
    tuner = Tuner(tasks, job.tuning, journal, KernelCache(job.workspace.kernels), progress, job.measuring)
    outcomes = tuner.run() if tasks else []
    done = [outcome for outcome in outcomes if outcome.improved or outcome.finished or not tuner.interrupted]
    return Searched(found, len(wanted.tasks), tuple(outcomes), _kept(job, found, done), tuner.interrupted)


def _kept(job: Job, found: ModelTasks, outcomes: list[Outcome]) -> tuple[Modified, ...]:
    """Every outcome goes into the bank, also where the default stays: it need not be measured again. What a bank knew stays where it is."""
    outcomes = [o for o in outcomes if o.improved or o.task.known is None]
    entries = [Entry(o.task.space, o.point, o.before, o.after, job.tuning.threads) for o in outcomes]
    modes = keep(entries, job.bank)
    return tuple(
        Modified(name, o.task.op_type, "Schedule", o.before, o.after, mode)
        for o, mode in zip(outcomes, modes, strict=True)
        if o.improved
        for name in dict.fromkeys(nodes[0] for nodes in found.uses[key_of(o.task.space)])
    )


def measure_model(job: Job, before: OfflineModel) -> tuple[float, float]:
    """Compile with what the bank knows now, write the result, and measure it in turn with `before`: seconds of a run of each.

    They are the same for a model that stays as it was.
    """
    after = convert_model(job.make(), replace(job.compiling, tuned=job.known())).model
    path = job.workspace.tuned_model()
    write_offline_model(path, after)
    baseline = job.workspace.folder / "tunespace" / "baseline.om"
    write_offline_model(baseline, before)
    try:
        is_same = filecmp.cmp(baseline, path, shallow=False)
        first, *others = compare([baseline] if is_same else [baseline, path], job.tuning.threads)
    finally:
        baseline.unlink()
    return first, others[0] if others else first

"""Fills the built-in knowledge bank: schedules of models' kernels that were faster than the defaults in every pass.

python -m benchmarks.built_in_bank --models resnet50,vit_b16              kernels of two models of the table, for this processor
ANYCANN_TARGET=avx2 python -m benchmarks.built_in_bank --models resnet50  for processors with AVX2
python -m benchmarks.built_in_bank --onnx densenet.onnx --bank /tmp/bank  of a file, into another folder
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
import math
from pathlib import Path
import sys
import tempfile
import time

import click
import numpy as np

from anycann.aoe.model_tasks import model_tasks
from anycann.codegen.kernel_cache import KernelCache, compile_kernels, default_cache
from anycann.codegen.space import Point
from anycann.compiler import CompileOptions
from anycann.frontends.onnx.load import load_model
from anycann.support.errors import AnyCANNError
from anycann.tuning.bank import BUILT_IN
from anycann.tuning.bank_files import OF_CORES, Entry, keep
from anycann.tuning.journal import Journal
from anycann.tuning.measuring import Job, Measurer, Timing
from anycann.tuning.operands import inputs_of, outputs_of
from anycann.tuning.study import Study
from anycann.tuning.task import TuningTask
from anycann.tuning.tuner import Tuner, TuningOptions, candidate_of
from benchmarks.zoo.models import MODELS, by_name

GAIN = 0.97  # of the default's time, in each pass
PASSES, ROUNDS, FINALISTS = 4, 41, 2
PAUSE_SECONDS = 60.0  # between passes: what disturbs one should be over in the next
LEAST_SECONDS = 20e-6  # shorter kernels are not worth an entry
SPECIFIC = "Nest"  # found by the text of a kernel, which any change of a generator makes another


def tasks_of(source: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, TuningTask]:
    """The kernels of a model whose entries outlive a change of the code."""
    found = model_tasks(load_model(source), CompileOptions(source.stem, input_shapes=dict(shapes)))
    return {OF_CORES.key(task.space): task for task in found.tasks.values() if task.space.family != SPECIFIC}


@dataclass(frozen=True)
class Finalist:
    """A point that seemed faster than the default, and lower quartiles of both in the passes so far, in seconds."""

    task: TuningTask
    point: Point
    passes: tuple[tuple[float, float], ...] = ()

    @property
    def ratio(self) -> float:
        """The time of the point over that of the default, where it gained least."""
        return max((after / before for before, after in self.passes), default=1.0)

    def entry(self) -> Entry:
        """What goes into the bank: the pass in which the point gained least."""
        before, after = max(self.passes, key=lambda each: each[1] / each[0])
        return Entry(self.task.space, self.point, before, after, 1)


def measured(task: TuningTask, point: Point, cache: KernelCache) -> tuple[float, float]:
    """Lower quartiles of the seconds of the default and of `point` on one thread, in turn; endless for a point that was lost."""
    generated = [task.generate(task.default), task.generate(point)]
    code = compile_kernels({g.kernel.symbol: g.kernel.ir for g in generated}, task.space.target, 1, cache=cache)
    job = Job(
        tuple(candidate_of(g, code) for g in generated),
        inputs_of(task.recipe, task.constants),
        outputs_of(task.recipe),
        task.space.target,
        threads=1,
        rounds=ROUNDS,
    )
    with Measurer() as measurer:
        before, after = measurer.measure(job)
    return (quartile(before), quartile(after)) if after.rounds else (1.0, math.inf)


def quartile(timing: Timing) -> float:
    """What a quarter of the rounds took less than, in seconds."""
    return float(np.quantile(timing.rounds, 0.25))


def finalists(studies: Iterable[Study]) -> list[Finalist]:
    """The best points of each kernel that is worth an entry."""
    found = []
    for study in studies:
        better = sorted((ratio, key) for key, ratio in study.measured() if ratio <= GAIN and study.seconds >= LEAST_SECONDS)
        found += [Finalist(study.task, study.point(key)) for _, key in better[:FINALISTS]]
    return found


def holding(found: Sequence[Finalist], cache: KernelCache, passes: int, pause_seconds: float) -> list[Finalist]:
    """Those that are faster in each of so many passes over all that are left, with a pause between passes."""
    left = list(found)
    for number in range(passes):
        if number and left:
            time.sleep(pause_seconds)
        again = [replace(each, passes=(*each.passes, measured(each.task, each.point, cache))) for each in left]
        for each in again:
            before, after = each.passes[-1]
            print(f"    pass {number + 1}: {after / before:.3f} of the time: {_text(each)}", flush=True)
        left = [each for each in again if each.ratio <= GAIN]
    best = {OF_CORES.key(each.task.space): each for each in sorted(left, key=lambda each: -each.ratio)}
    return list(best.values())


def shapes_of(name: str) -> tuple[Path, dict[str, tuple[int, ...]]]:
    """File and input shapes of a model of the table."""
    (model,) = by_name([name])
    return model.path(), {key: tuple(value.shape) for key, value in model.feeds()[0].items()}


def gathered(models: Sequence[str], files: Sequence[Path]) -> dict[str, TuningTask]:
    """Every kernel of these models once."""
    found: dict[str, TuningTask] = {}
    for path, shapes in [*map(shapes_of, models), *((path, {}) for path in files)]:
        try:
            found = {**tasks_of(path, shapes), **found}
        except AnyCANNError as error:
            print(f"{path}: {error}", file=sys.stderr)
    return found


@click.command
@click.option("--models", default="", help=f"Of the table, with commas: {', '.join(model.name for model in MODELS)}")
@click.option("--onnx", "files", type=click.Path(path_type=Path, exists=True), multiple=True, help="A file whose inputs have known shapes.")
@click.option("--candidates", default=24, show_default=True, help="Most candidates for each kernel.")
@click.option("--bank", type=click.Path(path_type=Path), default=BUILT_IN, help="The folder to fill; default: the built-in bank.")
@click.option("--journal", type=click.Path(path_type=Path), help="Write down every measurement here, or go on from it.")
@click.option("--seed", default=0, help="Of the search.")
def main(models: str, files: tuple[Path, ...], candidates: int, bank: Path, journal: Path | None, seed: int) -> None:
    """Tune the kernels of models, measure the best points in passes apart from each other, and keep what is faster in each."""
    tasks = gathered([name for name in models.split(",") if name], files)
    print(f"{len(tasks)} kernels", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        options = TuningOptions(candidates=candidates, threads=1, seed=seed)
        tuner = Tuner(list(tasks.values()), options, Journal(journal or Path(folder) / "journal"), default_cache(), _say)
        tuner.run()
        found = finalists(tuner.studies.values())
        count = sum(len(study.ratios) - 1 for study in tuner.studies.values())
        print(f"{count} candidates were measured; {len(found)} of them are measured again", flush=True)
        for finalist in holding(found, KernelCache(Path(folder) / "kernels"), PASSES, PAUSE_SECONDS):
            print(f"kept, {finalist.ratio:.3f} of the time: {_text(finalist)}", flush=True)
            keep([finalist.entry()], bank, OF_CORES)


def _text(finalist: Finalist) -> str:
    space, default = finalist.task.space, finalist.task.default
    changed = ", ".join(f"{name} {default[name]} -> {value}" for name, value in finalist.point.items() if default[name] != value)
    return f"{space.family} {space.problem} {finalist.passes[-1][0] * 1e6:.0f} us: {changed}"


def _say(text: str, done: int, most: int) -> None:
    print(f"{text}: {done} of at most {most} candidates", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

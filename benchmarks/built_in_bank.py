"""Fills the built-in knowledge bank: schedules of models' kernels that were faster than the defaults in every measurement.

python -m benchmarks.built_in_bank --models resnet50,vit_b16              kernels of two models of the table, for this processor
ANYCANN_TARGET=avx2 python -m benchmarks.built_in_bank --models resnet50  for processors with AVX2
python -m benchmarks.built_in_bank --onnx densenet.onnx --bank /tmp/bank  of a file, into another folder
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
import sys
import tempfile

import click

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
from anycann.tuning.task import TuningTask
from anycann.tuning.tuner import Outcome, Tuner, TuningOptions, candidate_of
from benchmarks.zoo.models import MODELS, by_name

GAIN = 0.95  # of the default's time, in each measurement
TIMES, ROUNDS = 3, 21
LEAST_SECONDS = 20e-6  # shorter kernels are not worth an entry
SPECIFIC = "Nest"  # found by the text of a kernel, which any change of a generator makes another


def tasks_of(source: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, TuningTask]:
    """The kernels of a model whose entries outlive a change of the code."""
    found = model_tasks(load_model(source), CompileOptions(source.stem, input_shapes=dict(shapes)))
    return {OF_CORES.key(task.space): task for task in found.tasks.values() if task.space.family != SPECIFIC}


def measured(task: TuningTask, point: Point, cache: KernelCache) -> Iterator[tuple[Timing, Timing]]:
    """The default and `point` on one thread, measured in turn, `TIMES` times."""
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
    for _ in range(TIMES):
        with Measurer() as measurer:
            before, after = measurer.measure(job)
        yield before, after


def holds(outcome: Outcome, cache: KernelCache) -> Entry | None:
    """The entry, if the gain is there each time."""
    task, found = outcome.task, []
    for before, after in measured(task, outcome.point, cache):
        ratio = after.ratio(before)
        print(f"    {ratio:.3f} of the time", flush=True)
        if ratio > GAIN:
            return None
        found.append((before.seconds, after.seconds))
    return Entry(task.space, outcome.point, min(before for before, _ in found), min(after for _, after in found), 1)


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
    """Tune the kernels of models, measure what was found three times more, and keep what is faster each time."""
    tasks = gathered([name for name in models.split(",") if name], files)
    print(f"{len(tasks)} kernels", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        options = TuningOptions(candidates=candidates, threads=1, seed=seed)
        tuner = Tuner(list(tasks.values()), options, Journal(journal or Path(folder) / "journal"), default_cache(), _say)
        improved = [o for o in tuner.run() if o.improved and o.before >= LEAST_SECONDS]
        for outcome in improved:
            entry = holds(outcome, KernelCache(Path(folder) / "kernels"))
            print(f"{outcome.speedup:.2f} {'kept' if entry else 'does not hold'}: {_text(outcome)}", flush=True)
            if entry:
                keep([entry], bank, OF_CORES)


def _text(outcome: Outcome) -> str:
    space, default = outcome.task.space, outcome.task.default
    changed = ", ".join(f"{name} {default[name]} -> {value}" for name, value in outcome.point.items() if default[name] != value)
    return f"{space.family} {space.problem} {outcome.before * 1e6:.0f} us: {changed}"


def _say(text: str, done: int, most: int) -> None:
    print(f"{text}: {done} of at most {most} candidates", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

"""How far the default schedules are from tuned ones, on random shapes that nobody picked: the ratio tuned / default of the times.

python -m benchmarks.tuning --shapes 5 --seed 1                    five shapes of each family
python -m benchmarks.tuning --families grouped,1-d --shapes 30     thirty of two families
python -m benchmarks.tuning --json build/tuning.json --document docs/tuning-defaults.md
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import json
from pathlib import Path
import random
import secrets
import shlex
import sys
import tempfile

import click
import numpy as np

from anycann.aoe.model_tasks import model_tasks
from anycann.codegen.kernel_cache import default_cache
from anycann.compiler import CompileOptions
from anycann.frontends.onnx.load import load_model
from anycann.passes.precision import KEEP_TYPES
from anycann.tuning.identity import key_of
from anycann.tuning.journal import Journal
from anycann.tuning.task import TuningTask
from anycann.tuning.tuner import Outcome, Tuner, TuningOptions
from benchmarks.drawn import OPERATOR
from benchmarks.machine import Machine, this_machine
from benchmarks.random_shapes import FAMILIES, draw
from benchmarks.report import markdown

FINE = 0.85  # of the tuned speed: what an unseen shape is to reach without tuning


@dataclass(frozen=True)
class Shape:
    """One kernel of a drawn shape, tuned. share: of the tuned speed that the default reaches. chosen: what tuning changed."""

    family: str
    text: str
    space: str
    seconds: float
    share: float
    default: Mapping[str, int]
    chosen: Mapping[str, int]


def random_tasks(families: Sequence[str], count: int, rng: random.Random, precision_mode: str) -> list[tuple[str, str, TuningTask]]:
    """Family, text and task of every kernel with a schedule to choose that computes one of `count` operators of each family."""
    found: dict[str, tuple[str, str, TuningTask]] = {}
    for family in families:
        for _ in range(count):
            drawn = draw(family, rng)
            options = CompileOptions(drawn.op_type, precision_mode=precision_mode)
            for task in model_tasks(load_model(drawn.model()), options).tasks.values():
                if any(name.split("/")[0] == OPERATOR for name in task.nodes):
                    found.setdefault(key_of(task.space), (family, drawn.text, task))
    return list(found.values())


def shape_of(family: str, text: str, outcome: Outcome) -> Shape:
    """What tuning a kernel came to."""
    default = dict(outcome.task.default)
    chosen = {name: value for name, value in outcome.point.items() if default[name] != value}
    return Shape(family, text, outcome.task.space.family, outcome.before, 1 / outcome.speedup, default, chosen)


def summary(shapes: Sequence[Shape]) -> list[str]:
    """Markdown: a row for each family and one for all, then the shapes that miss the aim."""
    names = list(dict.fromkeys(shape.family for shape in shapes))
    rows = [_row(name, [shape.share for shape in shapes if shape.family == name]) for name in names]
    rows.append(_row("all", [shape.share for shape in shapes]))
    lines = markdown(["family", "kernels", "median", "lowest tenth", "lowest", f"below {FINE}"], rows)
    slow = sorted((shape for shape in shapes if shape.share < FINE), key=lambda shape: shape.share)
    cells = [[f"{s.share:.2f}", f"{s.seconds * 1e6:.0f}", s.family, s.text, s.space, _changes(s)] for s in slow]
    return [*lines, "", *markdown(["share", "us", "family", "shape", "space", "what tuning changed"], cells)] if slow else lines


def _changes(shape: Shape) -> str:
    return ", ".join(f"{name} {shape.default[name]} -> {value}" for name, value in shape.chosen.items())


def _row(name: str, shares: Sequence[float]) -> list[str]:
    low, below = np.percentile(shares, 10), sum(share < FINE for share in shares)
    return [name, str(len(shares)), f"{np.median(shares):.2f}", f"{low:.2f}", f"{min(shares):.2f}", f"{below}"]


def page(machine: Machine, shapes: Sequence[Shape], command: str) -> str:
    """The document: what was run, where, and the table."""
    return "\n".join([
        "# How good the default schedules are",
        "",
        "Written by `python -m benchmarks.tuning`; do not edit. The numbers below were made by",
        "",
        "```text",
        command,
        "```",
        "",
        f"on {machine.processor}, {machine.cores} cores, {machine.memory_gib} GiB; {machine.system}. Each shape is drawn by chance from",
        "`benchmarks/random_shapes.py`, compiled as any model, and tuned by AutoTune; a share is the time with the schedule that tuning",
        "found over the time with the one that is taken without measuring: 1 where nothing was found that is 5 % faster.",
        "",
        *summary(shapes),
        "",
    ])  # fmt: skip


@click.command
@click.option("--families", default=",".join(FAMILIES), show_default=True, help="What is drawn, with commas.")
@click.option("--shapes", "count", default=5, show_default=True, help="How many of each family.")
@click.option("--seed", type=int, help="Of the shapes and the search; default: one that nobody knows.")
@click.option("--precision_mode", default=KEEP_TYPES, show_default=True, help='As atc has it; "mixed_bfloat16" where the processor can.')
@click.option("--threads", default=1, show_default=True, help="Threads that kernels are measured with.")
@click.option("--candidates", default=48, show_default=True, help="Most candidates for each kernel.")
@click.option("--mode", default="RL,GA", show_default=True, help="The searches.")
@click.option("--journal", type=click.Path(path_type=Path), help="Write down every measurement here, or go on from it.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Also write what was found to this file.")
@click.option("--document", type=click.Path(path_type=Path), help="Also write the page to this file.")
def main(
    families: str,
    count: int,
    seed: int | None,
    precision_mode: str,
    threads: int,
    candidates: int,
    mode: str,
    journal: Path | None,
    json_path: Path | None,
    document: Path | None,
) -> None:
    """Tune random shapes and say how much the defaults leave."""
    names = families.split(",")
    unknown = [name for name in names if name not in FAMILIES]
    if unknown:
        raise click.UsageError(f"family {unknown[0]!r} is unknown; accepted: {', '.join(FAMILIES)}")
    given = sys.argv[1:]
    if seed is None:
        seed = secrets.randbelow(10**6)
        given = [*given, f"--seed={seed}"]
    named = random_tasks(names, count, random.Random(seed), precision_mode)
    if not named:
        raise click.ClickException(f"none of the {count * len(names)} shapes of seed {seed} has a kernel with a schedule to choose")
    texts = {id(task): (family, text) for family, text, task in named}
    with tempfile.TemporaryDirectory() as folder:
        options = TuningOptions(mode, candidates, threads=threads, seed=seed)
        tuner = Tuner([task for *_, task in named], options, Journal(journal or Path(folder) / "journal"), default_cache(), _say)
        shapes = [shape_of(*texts[id(outcome.task)], outcome) for outcome in tuner.run()]
    print(f"seed {seed}", *summary(shapes), sep="\n")
    if json_path:
        json_path.parent.mkdir(parents=True, exist_ok=True)
        json_path.write_text(json.dumps([vars(shape) for shape in shapes], indent=1))
    if document:
        command = shlex.join(["python", "-m", "benchmarks.tuning", *given])
        document.write_text(page(this_machine([threads]), shapes, command), encoding="utf-8")


def _say(text: str, done: int, most: int) -> None:
    print(f"{text}: {done} of at most {most} candidates", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

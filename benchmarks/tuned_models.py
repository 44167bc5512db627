"""Published models with the schedules that are taken without measuring, beside the same models tuned.

python -m benchmarks.tuned_models --models resnet50,vit_b16 --threads 1          tune and compare two models
python -m benchmarks.tuned_models --models mnist --bank /tmp/bank                keep what tuning found, or go on from it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
import tempfile

import click

from anycann.aoe.comparing import compare
from anycann.aoe.model_tasks import Unasked
from anycann.aoe.operators import Job, search_operators
from anycann.aoe.workspace import Workspace
from anycann.codegen.space import Tuned
from anycann.compiler import CompileOptions, convert_model
from anycann.frontends.onnx.load import load_model
from anycann.om.writer import write_offline_model
from anycann.target.target import host
from anycann.tuning.bank import BUILT_IN, Bank
from anycann.tuning.tuner import TuningOptions
from benchmarks.report import markdown
from benchmarks.zoo.models import MODELS, by_name


@dataclass(frozen=True)
class Row:
    """One model. Seconds of a run: by the estimates alone, with what is built in, and tuned."""

    name: str
    estimated: float
    built_in: float
    tuned: float

    def cells(self) -> list[str]:
        """A row of the table; shares are of the tuned speed."""
        times = [f"{seconds * 1e3:.3f}" for seconds in (self.estimated, self.built_in, self.tuned)]
        return [self.name, *times, f"{self.tuned / self.estimated:.2f}", f"{self.tuned / self.built_in:.2f}"]


def tuned_row(name: str, tuning: TuningOptions, folder: Path, bank: Path, seconds: float) -> Row:
    """Tune one model into `bank`, and run it in turn as it is without tuning."""
    (model,) = by_name([name])
    shapes: Mapping[str, tuple[int, ...]] = {key: value.shape for key, value in model.feeds()[0].items()}
    compiling = CompileOptions(name, input_shapes=dict(shapes))
    workspace = Workspace(folder, name, "0")
    workspace.kernels.mkdir(parents=True, mode=0o700)
    job = Job(name, lambda: load_model(model.path()), compiling, tuning, workspace, bank)
    search_operators(job)
    banks: dict[str, Tuned] = {"estimated": Unasked(), "built_in": Bank([], host(), BUILT_IN), "tuned": Bank([bank], host(), BUILT_IN)}
    paths = []
    for kind, tuned in banks.items():
        paths.append(folder / f"{name}_{kind}.om")
        offline = convert_model(job.make(), CompileOptions(name, input_shapes=dict(shapes), tuned=tuned)).model
        write_offline_model(paths[-1], offline)
    return Row(name, *compare(paths, tuning.threads, seconds))


@click.command
@click.option("--models", required=True, help=f"With commas: {', '.join(model.name for model in MODELS)}")
@click.option("--threads", default=1, show_default=True, help="Threads that kernels and models are measured with.")
@click.option("--candidates", default=48, show_default=True, help="Most candidates for each kernel.")
@click.option("--seconds", default=5.0, show_default=True, help="Of running each form of a model.")
@click.option("--bank", type=click.Path(path_type=Path), help="Keep results here, or go on from what is there.")
def main(models: str, threads: int, candidates: int, seconds: float, bank: Path | None) -> None:
    """Say how much tuning leaves to gain on whole models."""
    rows = []
    for name in models.split(","):
        with tempfile.TemporaryDirectory() as folder:
            tuning = TuningOptions(candidates=candidates, threads=threads)
            rows.append(tuned_row(name, tuning, Path(folder), bank or Path(folder) / "bank", seconds).cells())
        print(*rows[-1], flush=True)
    head = ["model", "estimates, ms", "built in, ms", "tuned, ms", "estimates / tuned speed", "built in / tuned speed"]
    print(*markdown(head, rows), sep="\n")


if __name__ == "__main__":
    main()

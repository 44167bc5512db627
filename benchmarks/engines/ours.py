"""AnyCANN: the model compiled to an offline model as `anycann atc` does, then run from that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
import tempfile

from anycann.compiler import CompileOptions, compile_model
from anycann.om.model import OfflineModel
from anycann.om.plan import NativeStep
from anycann.om.writer import write_offline_model
from anycann.session import InferenceSession
from anycann.tools.engines import SessionEngine
from benchmarks.engines.job import Job, Precision

MODES: Mapping[Precision, str] = {"fp32": "must_keep_origin_dtype", "bf16": "mixed_bfloat16", "int8": "must_keep_origin_dtype"}


def compile_job(job: Job) -> OfflineModel:
    """The offline model for the shapes and the precision of a job."""
    options = CompileOptions(job.model.name, dict(job.shapes), precision_mode=MODES[job.precision])
    return compile_model(job.path, options)


def flops(model: OfflineModel) -> int:
    """Operations of one run, without what regions do."""
    steps = [step for program in model.programs.values() for step in program.steps if isinstance(step, NativeStep)]
    return sum(task.flops for step in steps for task in step.tasks)


@dataclass(frozen=True)
class Ours(SessionEngine):
    """A session of an offline model, which knows how many operations a run takes."""

    flops: int = 0


def open_ours(job: Job) -> Ours:
    """Compile and open. The file is gone afterwards; its pages stay mapped."""
    model = compile_job(job)
    with tempfile.TemporaryDirectory(prefix="anycann-benchmark-") as folder:
        path = Path(folder) / f"{job.model.name}.om"
        write_offline_model(path, model)
        session = InferenceSession(path, num_threads=job.threads)
    return Ours("anycann", session, flops(model))

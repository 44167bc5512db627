"""`atc --auto_tune_mode`: the kernels of the model are tuned into the knowledge bank before it is compiled."""

from __future__ import annotations

import math
from pathlib import Path
import shutil

from anycann.aoe.operators import Job, search_operators
from anycann.aoe.workspace import open_workspace
from anycann.support import options as settings
from anycann.support.interruption import interrupted_by_signals
from anycann.support.processors import available_processors
from anycann.tools.atc_convert import compile_options, prepared_model, switched_off_rules
from anycann.tools.atc_parse import CommandLine
from anycann.tools.atc_request import ConvertRequest
from anycann.tools.output import progress
from anycann.tuning.bank import custom_folder
from anycann.tuning.search import searches
from anycann.tuning.tuner import TuningOptions


def tune(request: ConvertRequest, line: CommandLine, as_json: bool) -> None:
    """Search with what `--auto_tune_mode` names. Raises UsageError for another name, or a model whose shapes are open."""
    searches(line["auto_tune_mode"])
    job = tuning_job(request, line, _tuning_options(line))
    with progress(f"tuning {job.name}", enabled=not as_json) as report, interrupted_by_signals():
        search_operators(job, lambda text, done, total: report(done, total))
    shutil.rmtree(job.workspace.kernels, ignore_errors=True)


def tuning_job(request: ConvertRequest, line: CommandLine, tuning: TuningOptions, nodes: tuple[str, ...] = (), reload: bool = False) -> Job:
    """What is to be tuned for a command line of atc."""
    _, changed, _ = prepared_model(request)
    switched_off, _ = switched_off_rules(request)
    name = Path(request.model).stem
    return Job(
        name,
        lambda: prepared_model(request)[0],
        compile_options(changed, line, switched_off),
        tuning,
        open_workspace(name, reload),
        knowledge_bank(line),
        nodes,
        bool(settings.REPEAT_TUNE.get()),
    )


def knowledge_bank(line: CommandLine) -> Path:
    """The folder that is filled."""
    return Path(line["op_bank_path"]) if line["op_bank_path"] else custom_folder()


def _tuning_options(line: CommandLine) -> TuningOptions:
    threads = settings.NUM_THREADS.get() or available_processors()
    return TuningOptions(line["auto_tune_mode"], settings.TUNING_NUM.get() or 48, settings.TUNE_TIMEOUT.get() or math.inf, threads)

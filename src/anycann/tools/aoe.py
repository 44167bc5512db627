"""The command `aoe`: tune a model on this machine, with Ascend's options, files and last lines."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
import shutil
import time
from typing import Any

import click

from anycann.aoe.operators import Job, tune_operators
from anycann.aoe.result_file import Result, write_result
from anycann.aoe.subgraphs import tune_subgraphs
from anycann.aoe.workspace import Workspace
from anycann.support.files import file_error
from anycann.support.interruption import interrupted_by_signals
from anycann.tools.aoe_jobs import jobs, output_file
from anycann.tools.aoe_options import aoe_options, refuse_what_is_not_there
from anycann.tools.output import json_option, print_json, progress
from anycann.tools.report import INTERRUPTED
from anycann.tuning.search import searches


@click.command("aoe", context_settings={"help_option_names": ["-h", "--help"]})
@aoe_options
@json_option
@click.pass_context
def aoe_command(ctx: click.Context, /, atc_words: list[str], as_json: bool, **own: Any) -> None:
    """Tune a model on this machine: kernels (--job_type=2), or algorithms, fusion and layout (--job_type=1).

    Results go into the knowledge bank (TUNE_BANK_PATH, else the cache folder), which atc and InferenceSession ask from then on.
    """
    refuse_what_is_not_there(own)
    searches(own["auto_tune_mode"])
    started, finished = time.monotonic(), []
    with interrupted_by_signals():
        for job in jobs(atc_words, own):
            finished.append((job, _tuned(job, own, as_json)))
            if finished[-1][1].interrupted:
                break
    if as_json:
        print_json([_facts(job, result, own["job_type"]) for job, result in finished])
    else:
        click.echo(f"[Aoe]Aoe process finished,cost time {time.monotonic() - started:.0f}s.")
    if any(result.interrupted for _, result in finished):
        ctx.exit(INTERRUPTED)


def _tuned(job: Job, own: dict[str, Any], as_json: bool) -> Result:
    """Tune one model, write its files, and say how it ended."""
    tune = tune_operators if own["job_type"] == "2" else tune_subgraphs
    with progress(f"tuning {job.name}", enabled=own["progress_bar"] == "on" and not as_json) as report:
        result = tune(job, lambda text, done, total: report(done, total))
    path = job.workspace.report(result.kind.lower())
    write_result(path, [result])
    if not result.interrupted:
        shutil.rmtree(job.workspace.kernels, ignore_errors=True)
    place = output_file(job)
    if place is not None:
        _copy_output(job.workspace, place)
    if not as_json:
        for text in _lines(job, result, path):
            click.echo(text)
    return result


def _copy_output(workspace: Workspace, place: Path) -> None:
    """The tuned model under the name that --output asks for."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(workspace.tuned_model(), place)
    except OSError as error:
        raise file_error(place, "write", error) from error


def _lines(job: Job, result: Result, path: Path) -> list[str]:
    found = [
        f"[Aoe]{m.name} ({m.op_type}): {m.before * 1e6:.1f} -> {m.after * 1e6:.1f} us"
        for m in sorted(result.modified, key=lambda m: m.after)
    ]
    return [
        *found,
        f"[Aoe]{result.candidates} candidates of {result.operators} tasks were measured, {result.lost} were lost; {result.status}.",
        f"[Aoe]{job.workspace.tuned_model()}",
        f"[Aoe]{path}",
        f"[Aoe]{job.name} Tuning process finished. Performance improved by {result.improvement}"
        f" ({result.baseline * 1e3:.3f} -> {result.tuned * 1e3:.3f} ms).",
    ]


def _facts(job: Job, result: Result, job_type: str) -> dict[str, object]:
    return {**asdict(replace(result)), "job_type": job_type, "output": str(job.workspace.tuned_model()), "bank": str(job.bank)}

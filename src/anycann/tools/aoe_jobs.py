"""What a command line of `aoe` asks to be tuned: a model, the models of a folder, or each operator of a list (--singleop)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
import math
import os
from pathlib import Path
from typing import Any

import click

from anycann.aoe.operators import Job
from anycann.aoe.workspace import open_workspace
from anycann.om.operator_spec import OperatorSpec
from anycann.single_operator import operator_notes, operator_source
from anycann.support import options as settings
from anycann.support.errors import UsageError
from anycann.support.processors import available_processors
from anycann.tools.atc_convert import switched_off_rules
from anycann.tools.atc_parse import CommandLine, parse_command_line
from anycann.tools.atc_request import convert_request
from anycann.tools.atc_singleop import file_stem, operator_options, read_operators
from anycann.tools.atc_tune import knowledge_bank, tuning_job
from anycann.tuning.tuner import TuningOptions

DEFAULT_OUTPUT = "aoe"  # what atc's parser is given where no --output was asked for


def jobs(atc_words: Sequence[str], own: dict[str, Any]) -> list[Job]:
    """One for each model, in order. Raises UsageError, UnsupportedError for options that do not fit."""
    lines = [_line(words) for words in _models(list(atc_words), own["model_path"])]
    return [job for line in lines for job in (_operator_jobs(line, own) if line["singleop"] else [_model_job(line, own)])]


def output_file(job: Job) -> Path | None:
    """Where --output wants the tuned model; None without it."""
    arguments = job.compiling.arguments
    output = arguments.get("output", "")
    if not output or output == DEFAULT_OUTPUT:
        return None
    return Path(output) / f"{job.name}.om" if "singleop" in arguments else Path(f"{output}.om")


def _models(words: list[str], folder: str | None) -> list[list[str]]:
    """The words for each model. Raises UsageError if there is none."""
    if folder is None:
        return [words]
    found = sorted(Path(folder).glob("*.onnx"))
    if not found or any(word.startswith(("--model=", "--singleop=")) for word in words):
        raise UsageError(f"--model_path {folder!r}: accepted: a folder with .onnx files, and no --model or --singleop beside it")
    return [[*words, f"--model={path}"] for path in found]


def _line(words: Sequence[str]) -> CommandLine:
    output = [] if any(word.startswith("--output=") for word in words) else [f"--output={DEFAULT_OUTPUT}"]
    line = parse_command_line([*words, *output])
    for warning in line.warnings:
        click.echo(f"[WARNING] {warning}", err=True)
    return line


def _model_job(line: CommandLine, own: dict[str, Any]) -> Job:
    request = convert_request(line)
    for text in switched_off_rules(request)[1]:
        click.echo(text, err=True)
    job = tuning_job(request, line, _tuning_options(own), _nodes(own["tune_ops_file"]), own["reload"])
    return replace(job, cluster=own["cluster"] or "")


def _operator_jobs(line: CommandLine, own: dict[str, Any]) -> list[Job]:
    """One for each operator of the list, named as atc names its model."""
    if own["job_type"] != "2":
        raise UsageError("--singleop: an operator has kernels to tune and no graph; accepted with --job_type=2")
    listed = read_operators(line["singleop"])
    return [_operator_job(name or file_stem(number, spec), spec, line, own) for number, (name, spec) in enumerate(listed)]


def _operator_job(name: str, spec: OperatorSpec, line: CommandLine, own: dict[str, Any]) -> Job:
    return Job(
        name,
        lambda: operator_source(spec),
        replace(operator_options(line), name=spec.op, notes=operator_notes(spec)),
        _tuning_options(own),
        open_workspace(name, own["reload"]),
        knowledge_bank(line),
        (),
        bool(settings.REPEAT_TUNE.get()),
        own["cluster"] or "",
    )


def _tuning_options(own: dict[str, Any]) -> TuningOptions:
    candidates = settings.TUNING_NUM.get() or 48
    candidates = candidates * 3 if own["fdeeper_opat"] else -(-candidates // 3) if own["tune_optimization_level"] == "O1" else candidates
    seconds = own["seconds"] or settings.TUNE_TIMEOUT.get() or math.inf
    threads = own["threads"] or settings.NUM_THREADS.get() or available_processors()
    return TuningOptions(own["auto_tune_mode"], candidates, seconds, threads)


def _nodes(file: str | os.PathLike[str] | None) -> tuple[str, ...]:
    """Names of the nodes to tune: a file with one a line, else TUNE_OPS_NAME."""
    if file is None:
        names = (settings.TUNE_OPS_NAME.get() or "").split(",")
    else:
        try:
            names = Path(file).read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--tune_ops_file {file}: {error}; accepted: a text file with a node name a line") from error
    return tuple(name.strip() for name in names if name.strip())

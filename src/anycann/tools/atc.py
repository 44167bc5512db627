"""The command `atc`: Ascend's command line in, an offline model (or JSON, or a report) out, with Ascend's first and last lines."""

from __future__ import annotations

from collections.abc import Sequence
import importlib
import logging
import os
import sys
import time

import click

from anycann.support.logging import get_logger
from anycann.tools.atc_errors import STARTED, AtcUnsupportedError
from anycann.tools.atc_outcome import Outcome, fail, finish
from anycann.tools.atc_parse import CommandLine, parse_command_line
from anycann.tools.report import wants_traceback

# --mode -> (module, function) that takes the command line and its words, or the reason why there is none
_MODES = {
    "0": ("atc_convert", "convert"),
    "singleop": ("atc_singleop", "convert_single_operators"),  # what mode 0 does with --singleop
    "1": ("atc_inspect", "write_model_json"),
    "3": ("atc_inspect", "check_model"),
    "6": ("atc_inspect", "display_model_info"),
}
_NO_MODES = {"5": "graph dumps of GE are not read", "30": "execute-om models exist for small Ascend chips only"}
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR, "null": logging.ERROR}


def run_atc(words: Sequence[str], with_traceback: bool = False) -> int:
    """Do what the command line says, print Ascend's lines, and return the exit status: 0 done, 1 failed, 2 wrong use."""
    if any(word in ("-h", "--h", "--help", "-help") for word in words):
        from anycann.tools.atc_help import help_text

        click.echo(help_text())
        return 0
    _take_one_blas_thread()
    as_json = _wants_json(words)
    if not as_json:
        click.echo(STARTED)
    started = time.perf_counter()
    try:
        line = parse_command_line(words)
        with_traceback = with_traceback or line.switch("traceback")
        if line.given.get("log"):
            get_logger().setLevel(_LEVELS[line["log"]])
        for warning in line.warnings:
            click.echo(f"[WARNING] {warning}", err=True)
        outcome = _run_mode(line, words)
    except Exception as error:
        return fail(error, as_json, with_traceback)
    return finish(outcome, line.warnings, as_json, time.perf_counter() - started)


def _take_one_blas_thread() -> None:
    """Before numpy is imported: OpenBLAS starts a thread a processor, which look for work in a loop; products of constants are small."""
    if "numpy" not in sys.modules:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _run_mode(line: CommandLine, words: Sequence[str]) -> Outcome:
    mode = line["mode"]
    if mode in _NO_MODES:
        raise AtcUnsupportedError(f"--mode={mode}: {_NO_MODES[mode]}")
    module, function = _MODES["singleop" if mode == "0" and line["singleop"] else mode]
    outcome = getattr(importlib.import_module(f"anycann.tools.{module}"), function)(line, words)
    assert isinstance(outcome, Outcome)
    return outcome


def _wants_json(words: Sequence[str]) -> bool:
    """Known before parsing, so that errors of parsing are JSON too."""
    return "--message_format json" in " ".join(words).replace("=", " ")


@click.command(
    "atc",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    help="Turn a trained model into an offline model; `anycann atc --help` lists Ascend's options.",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--OPTION=VALUE]...")
@click.pass_context
def atc_command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Run `atc` and end with its status."""
    ctx.exit(run_atc(words, wants_traceback(ctx)))

"""How a command fails: the error block, its JSON form and the exit status (1 failed, 2 wrong use, 130 interrupted)."""

from __future__ import annotations

import json
import os
import traceback

import click

from anycann.support import options
from anycann.support.errors import AnyCANNError, DeviceError, InternalError, UsageError

FAILED, WRONG_USE, INTERRUPTED = 1, 2, 130
REPORT = "this is a fault of AnyCANN; please report it with the model and the text that --traceback prints"
_BROKEN_PIPE = 141


def exit_status_of(error: BaseException, ctx: click.Context) -> int:
    """Print what `error` says and return the exit status that stands for it."""
    if isinstance(error, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        _silence_stdout()
        return _BROKEN_PIPE
    known = as_anycann_error(error)
    if ctx.meta.get("anycann.json"):
        click.echo(json.dumps({"error": error_facts(known)}, indent=2))
    else:
        _print_block(known)
    if wants_traceback(ctx):
        click.echo("".join(traceback.format_exception(error)).rstrip(), err=True)
    return WRONG_USE if isinstance(known, UsageError) else FAILED


def wants_traceback(ctx: click.Context) -> bool:
    """True with --traceback or ANYCANN_DEBUG=1."""
    try:
        return bool(ctx.meta.get("anycann.traceback") or options.DEBUG.get())
    except UsageError:
        return True


def as_anycann_error(error: BaseException) -> AnyCANNError:
    """`error` itself, or an InternalError with its text and notes that asks for a report."""
    if isinstance(error, AnyCANNError):
        return error
    if isinstance(error, MemoryError):
        return DeviceError("the memory of this machine is used up")
    wrapped = InternalError(f"{type(error).__name__}: {error}")
    wrapped.__notes__ = [*getattr(error, "__notes__", ()), REPORT]
    return wrapped


def error_facts(error: AnyCANNError) -> dict[str, object]:
    """Class, text and notes, for `--json`."""
    return {"class": type(error).__name__, "text": str(error), "notes": list(getattr(error, "__notes__", ()))}


def _print_block(error: AnyCANNError) -> None:
    click.secho(type(error).__name__, fg="red", bold=True, err=True, nl=False)
    click.echo(f": {error}", err=True)
    for note in getattr(error, "__notes__", ()):
        click.secho(f"  {note}", dim=True, err=True)


def _silence_stdout() -> None:
    """The reader of standard output is gone: nothing may be written to it again, not even by the interpreter when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

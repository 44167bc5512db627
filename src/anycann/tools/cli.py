"""The command `anycann`: a group whose subcommands are imported when they are called, so that `--help` stays fast."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import contextmanager, suppress
import difflib
import gc
import importlib
import os
import sys
import threading
from typing import Any

import click

import anycann
from anycann.support.deferred import defer

# Half of what `import onnx` takes is for other formats, archives and texts. A program that imports `anycann` gets all of onnx.
_RARE = "compose gen_proto helper numpy_helper parser printer serialization shape_inference utils version_converter"
defer("onnx", *(f"onnx.{name}" for name in _RARE.split()), "google.protobuf.internal.python_message")
defer("onnx_ir", "onnx_ir.schemas")
defer("numpy", "numpy._core._add_newdocs", "numpy._core._add_newdocs_scalars")  # the texts of numpy's help

# name -> (module under anycann.tools, the line in `anycann --help`); the module holds the command under the same name
COMMANDS = {
    "atc": ("atc", "Turn a trained model into an offline model, with Ascend's options."),
    "aoe": ("aoe", "Tune a model on this machine, with Ascend's options."),
    "show": ("show", "Say what is in an .om or .onnx file."),
    "infer": ("infer", "Run a model on arrays, images or raw files."),
    "bench": ("bench", "Measure latency, throughput and memory."),
    "env": ("env", "Print the lines that make this shell an Ascend shell."),
    "run": ("run", "Run one program as if in such a shell."),
    "explain": ("explain", "Say what a return code or an error word of Ascend means."),
    "doctor": ("doctor", "Check the processor, the cache and the installation."),
}

# Python looks for cycles each time 700 objects have come, and twice through everything when it ends: a tenth of the time of `atc`, and a
# sixth with many regions. A command makes few cycles, and what is left at the end goes with the process. Most models compile with fewer
# objects than this: two looks at a tenth of it were 3 % of the time of ResNet-50.
_OBJECTS = 1_000_000
atexit.register(gc.freeze)


@contextmanager
def _rare_collections() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


class LazyGroup(click.Group):
    """Imports a subcommand when it is called, and turns every exception into an error block and an exit status."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"anycann.tools.{COMMANDS[cmd_name][0]}")
        command = getattr(module, f"{cmd_name}_command")
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else f" Commands: {', '.join(COMMANDS)}."
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        from anycann.tools.report import exit_status_of

        try:
            with _rare_collections():
                return super().invoke(ctx)
        except (click.exceptions.Exit, click.ClickException):
            raise
        except (Exception, KeyboardInterrupt) as error:
            ctx.exit(exit_status_of(error, ctx))


def _print_version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"anycann {anycann.__version__}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version.")
@click.option("--traceback", is_flag=True, help="Show where an error was raised (as ANYCANN_DEBUG=1 does).")
@click.pass_context
def main(ctx: click.Context, traceback: bool) -> None:
    """CANN for machines without an Ascend: compile, run and measure models on the processor that is there."""
    ctx.meta["anycann.traceback"] = traceback


def run() -> None:
    """The program `anycann`. When a command is done the process ends at once: taking modules and objects apart one by one, as Python does,
    takes a fifth of the time of importing them. Until then nobody looks for cycles: with Python's own threshold back, one look through all
    that was made takes 40 ms."""
    gc.set_threshold(_OBJECTS, *gc.get_threshold()[1:])
    try:
        main(prog_name="anycann")
    except SystemExit as end:
        if isinstance(end.code, int) and _nobody_waits():
            atexit._run_exitfuncs()
            with suppress(OSError, ValueError):  # a pipe that nobody reads any more: Python's own end says so
                for stream in filter(None, (sys.stdout, sys.stderr)):  # None where the caller closed it
                    stream.flush()
                os._exit(end.code)
        raise


def _nobody_waits() -> bool:
    """Whether there is no other thread that the process waits for, and no debugger or profiler that goes on when the command is done."""
    monitoring = getattr(sys, "monitoring", None)  # of Python 3.12
    watched = sys.gettrace() or sys.getprofile() or (monitoring and any(map(monitoring.get_tool, range(6))))
    return not watched and all(thread.daemon or thread is threading.current_thread() for thread in threading.enumerate())


if __name__ == "__main__":
    run()

"""`anycann run script.py args...`: one program with the shims, its exit status passed through."""

from __future__ import annotations

from collections.abc import Sequence
import os
import shutil
import sys

import click

from anycann.support.errors import UsageError
from anycann.tools.env import shim_variables


def program_words(words: Sequence[str], path: str) -> list[str]:
    """The command line of the program: a Python file or `-m module` runs in this interpreter, anything else is looked up on `path`.

    Raises UsageError if there is no such file or command.
    """
    first = words[0]
    if first == "-m":
        if len(words) < 2:
            raise UsageError("run -m needs the name of a module")
        return [sys.executable, *words]
    if first.endswith(".py"):
        if not os.path.isfile(first):
            raise UsageError(f"run: the script {first} does not exist")
        return [sys.executable, *words]
    command = shutil.which(first, path=path)
    if command is None:
        raise UsageError(f"run: {first} is neither a Python script (*.py) nor a command on PATH")
    return [command, *words[1:]]


@click.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="SCRIPT.py|-m MODULE|COMMAND [ARGS]...")
def run_command(words: tuple[str, ...]) -> None:
    """Run one program with Ascend's command and module names resolving to AnyCANN."""
    environment = {**os.environ, **shim_variables(os.environ)}
    program = program_words(words, environment["PATH"])
    sys.stdout.flush()
    os.execve(program[0], program, environment)

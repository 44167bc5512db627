"""`anycann run script.py args...`: one program with the shims, its exit status passed through."""

from __future__ import annotations

from collections.abc import Sequence
import json
import os
import shutil
import subprocess
import sys
import tempfile

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
@click.option("--sanitize", is_flag=True, help="Report misuse of AscendCL with the lines that made it (ANYCANN_SANITIZE=1).")
@click.option("--sanitize-json", metavar="FILE", help="Write the findings to FILE too.")
@click.option(
    "--sanitize-exitcode", type=click.IntRange(1, 255), metavar="N", help="End with status N if there are errors among the findings."
)
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="SCRIPT.py|-m MODULE|COMMAND [ARGS]...")
@click.pass_context
def run_command(
    context: click.Context, sanitize: bool, sanitize_json: str | None, sanitize_exitcode: int | None, words: tuple[str, ...]
) -> None:
    """Run one program with Ascend's command and module names resolving to AnyCANN."""
    environment = {**os.environ, **shim_variables(os.environ)}
    if sanitize or sanitize_json or sanitize_exitcode:
        environment["ANYCANN_SANITIZE"] = "1"
    if sanitize_json:
        environment["ANYCANN_SANITIZE_JSON"] = os.path.abspath(sanitize_json)
    program = program_words(words, environment["PATH"])
    sys.stdout.flush()
    if sanitize_exitcode is None:
        os.execve(program[0], program, environment)
    context.exit(_status_with_findings(program, environment, sanitize_exitcode))


def _status_with_findings(program: list[str], environment: dict[str, str], status: int) -> int:
    """The program's exit status, or `status` if the sanitizer found errors."""
    with tempfile.TemporaryDirectory() as folder:
        report = environment.setdefault("ANYCANN_SANITIZE_JSON", os.path.join(folder, "findings.json"))
        if os.path.exists(report):
            os.unlink(report)  # of an earlier run
        ended = subprocess.run(program, env=environment, check=False).returncode
        try:
            with open(report, encoding="utf-8") as file:
                errors = json.load(file)["errors"]
        except FileNotFoundError:  # the program did not import acl, or was killed
            errors = 0
    return status if errors else ended if ended >= 0 else 128 - ended

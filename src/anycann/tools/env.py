"""`anycann env`: the lines that put Ascend's command and module names on PATH and PYTHONPATH, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
import os
from pathlib import Path
import shlex
import sys

import click

import anycann
from anycann.tools.output import json_option, print_json

SHELLS = ("sh", "fish", "csh")


def package_folder() -> Path:
    """The folder of the package `anycann`."""
    return Path(next(iter(anycann.__path__))).resolve()


def shim_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of an Ascend shell, derived from those of `environment`: PATH and PYTHONPATH with the shims in front,
    and ANYCANN_PYTHON, the interpreter the commands run with. Doing it twice changes nothing more."""
    shims = package_folder() / "shims"
    return {
        "PATH": _in_front(str(shims / "bin"), environment.get("PATH", os.defpath)),
        "PYTHONPATH": _in_front(str(shims / "python"), environment.get("PYTHONPATH", "")),
        "ANYCANN_PYTHON": sys.executable,
    }


def child_environment() -> dict[str, str]:
    """This process's environment, in which a Python process finds this package even if only `sys.path` led to it."""
    return {**os.environ, "PYTHONPATH": _in_front(str(package_folder().parent), os.environ.get("PYTHONPATH", ""))}


def _in_front(folder: str, path: str) -> str:
    rest = [part for part in path.split(os.pathsep) if part and part != folder]
    return os.pathsep.join([folder, *rest])


def export_lines(variables: Mapping[str, str], shell: str) -> list[str]:
    """One line a variable, quoted for `shell` (sh, fish or csh)."""
    if shell == "fish":
        return [_fish_line(name, value) for name, value in variables.items()]
    form = "setenv {} {}" if shell == "csh" else "export {}={}"
    return [form.format(name, shlex.quote(value)) for name, value in variables.items()]


def _fish_line(name: str, value: str) -> str:
    """fish keeps PATH as a list: one word for each part."""
    words = value.split(os.pathsep) if name == "PATH" else [value]
    quoted = ["'" + word.replace("\\", "\\\\").replace("'", "\\'") + "'" for word in words]
    return f"set -gx {name} {' '.join(quoted)};"


@click.command("env")
@click.option("--shell", type=click.Choice(SHELLS), default="sh", show_default=True, help="The shell the lines are for.")
@json_option
def env_command(shell: str, as_json: bool) -> None:
    """Print the lines that make this shell an Ascend shell: `eval "$(anycann env)"`."""
    variables = shim_variables(os.environ)
    if as_json:
        print_json(variables)
        return
    for line in export_lines(variables, shell):
        click.echo(line)

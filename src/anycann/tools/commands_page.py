"""`python -m anycann.tools.commands_page > docs/commands.md`: the reference of every command, from the tables that define them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import click

from anycann.support.options import all_options
from anycann.target.soc import SOC_VERSIONS
from anycann.tools.atc_help import values_text
from anycann.tools.atc_option import Option, State
from anycann.tools.atc_options import OPTIONS
from anycann.tools.cli import COMMANDS, main

_HEAD = """# Commands

This page is written by `python -m anycann.tools.commands_page`; a test fails when it is stale.

Every command ends with status 0 (done), 1 (failed), 2 (wrong use) or 130 (interrupted). `--json` prints one JSON object on standard
output, also for errors (`atc` has `--message_format=json` instead, because Ascend's `--json` is a file). `anycann --traceback COMMAND`
or `ANYCANN_DEBUG=1` shows where an error was raised.
"""
_ATC = """
The options, values and defaults are Ascend's; write `--option=value` or `--option value`. An unknown option is refused with the nearest
name. What is marked *no effect* is accepted with a warning, what is marked *not yet* is refused with the reason.
"""


def page() -> str:
    """The whole page as Markdown."""
    lines = [_HEAD]
    context = click.Context(main, info_name="anycann")
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        lines += _atc_section(command) if name == "atc" else _section(name, command)
    lines += _environment()
    return "\n".join(lines) + "\n"


def _section(name: str, command: click.Command) -> Iterator[str]:
    arguments = [parameter for parameter in command.params if isinstance(parameter, click.Argument)]
    usage = " ".join(["anycann", name, *(argument.make_metavar(click.Context(command)) for argument in arguments), "[OPTIONS]"])
    yield f"## anycann {name}\n"
    yield f"{command.help}\n\n`{usage}`\n"
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    if options:
        yield "| option | what it does |\n| --- | --- |"
        yield from (_click_row(option) for option in options)
        yield ""


def _click_row(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    accepted = f" One of {', '.join(f'`{choice}`' for choice in option.type.choices)}." if isinstance(option.type, click.Choice) else ""
    shown = option.show_default and not isinstance(option.default, bool)
    default = f" Default: `{option.default}`." if shown else f" Default: `{option.opts[0]}`." if option.secondary_opts else ""
    return f"| {names} | {_cell(option.help or '')}{accepted}{default} |"


def _atc_section(command: click.Command) -> Iterator[str]:
    yield f"## anycann atc\n\n{command.help}\n{_ATC}"
    for group, options in groupby(OPTIONS.values(), key=lambda option: option.group):
        yield f"### {group}\n\n| option | what it does | state |\n| --- | --- | --- |"
        yield from (_atc_row(option) for option in options)
        yield ""
    yield "### Names of `--soc_version`\n"
    yield ", ".join(f"`{name}`" for name in SOC_VERSIONS) + "\n"


def _atc_row(option: Option) -> str:
    states = {State.IMPLEMENTED: "", State.NO_EFFECT: f"no effect: {option.reason}", State.NOT_YET: f"not yet: {option.reason}"}
    return f"| `--{option.name}` | {_cell(f'{option.help} {values_text(option)}'.strip())} | {states[option.state]} |"


def _environment() -> Iterator[str]:
    yield "## Environment variables\n\n| variable | what it is | accepted |\n| --- | --- | --- |"
    for option in all_options():
        yield f"| `{option.name}` | {_cell(option.help)} | {_cell(option.kind.accepted)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    click.echo(page(), nl=False)

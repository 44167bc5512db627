"""The text of `atc --help`, from the table of options."""

from __future__ import annotations

from itertools import groupby
import textwrap

from anycann.tools.atc_option import Kind, Option, State
from anycann.tools.atc_options import OPTIONS

WIDTH = 120
_COLUMN = 30
_USAGE = """usage: atc <args>
generate offline model example:
  atc --model=./resnet50.onnx --framework=5 --output=./resnet50 --soc_version=Ascend310P3
with the dtypes of the model, for this machine:
  atc --model=./resnet50.onnx --framework=5 --output=./resnet50 --soc_version=host
"""
_TITLES = {State.NO_EFFECT: " (accepted with a warning)", State.NOT_YET: " (refused for now)"}


def help_text() -> str:
    """Usage and one entry an option, by group in the order of the table."""
    lines = [_USAGE]
    for group, options in groupby(OPTIONS.values(), key=lambda option: option.group):
        lines += [f"[{group}]", *(_entry(option) for option in options), ""]
    return "\n".join(lines)


def _entry(option: Option) -> str:
    text = f"{option.help} {values_text(option)}".strip() + _TITLES.get(option.state, "")
    indent = " " * _COLUMN
    wrapped = textwrap.wrap(text, WIDTH - _COLUMN, break_on_hyphens=False)
    name = f"  --{option.name}"
    first = f"{name:<{_COLUMN}}{wrapped[0]}" if len(name) < _COLUMN else f"{name}\n{indent}{wrapped[0]}"
    return "\n".join([first, *(indent + line for line in wrapped[1:])])


def values_text(option: Option) -> str:
    """What is accepted and the default, in words; "" where the help says it all."""
    parts = []
    if option.choices or option.kind in (Kind.TRUE_FALSE, Kind.ZERO_ONE, Kind.LEVEL):
        parts.append(f"Values: {option.accepted}.")
    if option.default and option.kind is not Kind.SWITCH:
        parts.append(f"Default: {option.default}.")
    return " ".join(parts)

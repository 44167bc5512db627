"""docs/commands.md is what the tables say."""

from __future__ import annotations

from pathlib import Path

from anycann.tools.atc_options import OPTIONS
from anycann.tools.cli import COMMANDS
from anycann.tools.commands_page import page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "commands.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it again: python -m anycann.tools.commands_page > docs/commands.md"


def test_the_page_names_every_command_and_every_option_of_atc() -> None:
    text = page()
    assert all(f"## anycann {name}\n" in text for name in COMMANDS)
    assert all(f"| `--{name}` |" in text for name in OPTIONS)

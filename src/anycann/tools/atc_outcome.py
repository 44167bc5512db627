"""How an `atc` run ends: Ascend's last line or error block, or one JSON object."""

from __future__ import annotations

from dataclasses import field
import json
import traceback

import click

from anycann.support.errors import UsageError
from anycann.support.records import dataclass
from anycann.tools.atc_errors import FAILED, SUCCEEDED, error_block
from anycann.tools.report import FAILED as FAILED_STATUS
from anycann.tools.report import WRONG_USE, as_anycann_error, error_facts


@dataclass(frozen=True)
class Outcome:
    """What a mode did: lines for people, facts for `--message_format=json`, and whether it succeeded."""

    lines: tuple[str, ...] = ()
    facts: dict[str, object] = field(default_factory=dict)
    ok: bool = True


def finish(outcome: Outcome, warnings: tuple[str, ...], as_json: bool, seconds: float) -> int:
    """Print the outcome and return the exit status."""
    if as_json:
        facts = {"ok": outcome.ok, "seconds": round(seconds, 3), "warnings": list(warnings), **outcome.facts}
        click.echo(json.dumps(facts, indent=2, ensure_ascii=False, default=str))
    else:
        for text in outcome.lines:
            click.echo(text)
        click.echo(SUCCEEDED if outcome.ok else FAILED)
    return 0 if outcome.ok else FAILED_STATUS


def fail(error: Exception, as_json: bool, with_traceback: bool) -> int:
    """Print what `error` says and return the exit status."""
    known = as_anycann_error(error)
    if as_json:
        click.echo(json.dumps({"ok": False, "error": error_facts(known)}, indent=2, ensure_ascii=False))
    else:
        click.echo(FAILED)
        click.echo(error_block(known))
    if with_traceback:
        click.echo("".join(traceback.format_exception(error)).rstrip(), err=True)
    return WRONG_USE if isinstance(known, UsageError) else FAILED_STATUS

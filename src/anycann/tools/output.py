"""What every command prints with: JSON for machines, tables for people, progress on the terminal only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
import json
import sys
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

if TYPE_CHECKING:  # commands that draw nothing don't import it
    from rich.console import Console
    from rich.table import Table

PLAIN_WIDTH = 1000  # characters of a line where standard output is no terminal: nothing is wrapped
_Command = TypeVar("_Command", bound=Callable[..., Any])


def json_option(command: _Command) -> _Command:
    """Add `--json`; errors are then JSON too."""

    def remember(ctx: click.Context, parameter: click.Parameter, value: bool) -> bool:
        ctx.meta["anycann.json"] = value
        return value

    option = click.option("--json", "as_json", is_flag=True, is_eager=True, callback=remember, help="Print one JSON object.")
    return option(command)


def print_json(facts: object) -> None:
    """`facts` as indented JSON on standard output."""
    click.echo(json.dumps(facts, indent=2, ensure_ascii=False, default=str))


def console() -> Console:
    """Where tables go: standard output, as wide as the terminal, or `PLAIN_WIDTH` for a file or pipe."""
    from rich.console import Console

    return Console(file=sys.stdout, width=None if _is_terminal(sys.stdout) else PLAIN_WIDTH, highlight=False, soft_wrap=False)


def table(columns: Iterable[str], rows: Iterable[Iterable[object]], numbers: Iterable[str] = ()) -> Table:
    """A table of cells that print as they are; `numbers` names the right-aligned columns."""
    from rich.table import Table
    from rich.text import Text

    right = set(numbers)
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    return made


@contextmanager
def progress(description: str, enabled: bool = True) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error; call the value with (done, total). Without a terminal nothing is drawn."""
    if not (enabled and _is_terminal(sys.stderr)):
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _is_terminal(stream: TextIO | None) -> bool:
    """Not if the caller closed it: Python has None for it then."""
    return stream is not None and stream.isatty()


def format_bytes(nbytes: float) -> str:
    """`1.5 MiB`: three digits, binary units."""
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.3g} {unit}" if nbytes < 1000 else f"{nbytes:.0f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.3g} GiB" if nbytes < 1000 else f"{nbytes:.0f} GiB"


def format_count(count: float) -> str:
    """`1.23 G`: three digits, decimal units."""
    for unit in ("", " k", " M", " G"):
        if count < 1000:
            return f"{count:.3g}{unit}"
        count /= 1000
    return f"{count:.3g} T"


def format_seconds(seconds: float) -> str:
    """`1.23 ms`: three digits."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale or unit == "us":
            return f"{seconds / scale:.3g} {unit}" if seconds / scale < 1000 else f"{seconds / scale:.0f} {unit}"
    raise AssertionError


def format_dims(shape: Iterable[object]) -> str:
    """`[N, 3, 224, 224]`; `?` for a size without a name."""
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]"

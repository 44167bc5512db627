"""`python -m anycann.acl.reference_page > docs/ascendcl.md`: every function of AscendCL that is known here, from its declaration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from anycann.acl.entries import BORDER, Entry
from anycann.acl.namespace import declared

_HEAD = """# AscendCL for Python

This page is written by `python -m anycann.acl.reference_page`; a test fails when it is stale.

`import acl` works in a program that runs with `anycann run` or after `eval "$(anycann env)"`. Arguments are positional. A function returns
its code last, 0 for success (`anycann explain CODE` says what another one means); every failure leaves a sentence for
`acl.get_recent_err_msg()`. Constants are not part of the interface: programs write the numbers themselves.

*State*: nothing means all of it is done; *partly* says what is missing; *refused* always returns the code and says why.
"""


def page() -> str:
    """The whole page as Markdown."""
    declared()
    entries = sorted(BORDER.entries.values(), key=lambda entry: (_module(entry) != "acl", _module(entry), entry.name))
    lines = [_HEAD, *_counts(entries)]
    for module, group in groupby(entries, key=_module):
        lines += [f"## `{module}`\n", "| function | returns | what it does | state |", "| --- | --- | --- | --- |"]
        lines += [_row(entry) for entry in group]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _module(entry: Entry) -> str:
    return entry.name.rpartition(".")[0]


def _counts(entries: list[Entry]) -> Iterator[str]:
    yield "| module | done | partly | refused |\n| --- | --- | --- | --- |"
    for module, group in groupby(entries, key=_module):
        states = Counter("refused" if entry.refusal is not None else "partly" if entry.limits else "done" for entry in group)
        yield f"| `{module}` | {states['done']} | {states['partly']} | {states['refused']} |"
    yield ""


def _row(entry: Entry) -> str:
    short = entry.name.rpartition(".")[2]
    text = " ".join((entry.call.__doc__ or "").split()) if entry.refusal is None else ""
    cells = (f"`{short}({', '.join(entry.parameters)})`", f"`{entry.returns}`", text, _state(entry))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _state(entry: Entry) -> str:
    if entry.refusal is not None:
        return f"refused: {int(entry.refusal)}, {entry.limits}"
    return f"partly: {entry.limits}" if entry.limits else ""


if __name__ == "__main__":
    print(page(), end="")

"""The command `anycann explain`: what a return code or an error word of Ascend means, what causes it here, and what to do."""

from __future__ import annotations

import difflib
import json

import click

from anycann.acl.code_help import BLOCKS, CODE_HELP, NEVER
from anycann.acl.codes import Code
from anycann.acl.far_codes import FAR_CODES
from anycann.support.errors import UsageError
from anycann.support.records import dataclass
from anycann.tools.atc_errors import CLASS_CODES, CODES

ELSEWHERE = "Look it up in Ascend's own documentation."


@dataclass(frozen=True)
class Explanation:
    """One code: how programs see it, its name in Ascend's headers (or where it comes from), and the texts."""

    code: str
    name: str
    means: str
    cause: str
    action: str

    def lines(self) -> list[str]:
        """For people."""
        return [f"{self.code} ({self.name})", f"  means:      {self.means}", f"  cause:      {self.cause}", f"  what to do: {self.action}"]


def explain(asked: str) -> Explanation:
    """Explain a number, a name of the headers, or a word such as EZ9999 or E10001. Raises UsageError with what is nearest."""
    word = asked.strip()
    found = _by_number(word) or _by_name(word.upper()) or _by_word(word.upper())
    if found is None:
        raise UsageError(f"{asked!r} is no code of Ascend that is known here; {_nearest(word)}")
    return found


def _by_number(word: str) -> Explanation | None:
    try:
        number = int(word, 0)
    except ValueError:
        return None
    if number in FAR_CODES:
        return _of_far(number)
    return _of_code(Code(number)) if number in Code.__members__.values() else None


def _by_name(word: str) -> Explanation | None:
    known = {code.header_name: code for code in Code} | {code.name: code for code in Code}
    far = next((number for number, code in FAR_CODES.items() if code.name == word), None)
    if far is not None:
        return _of_far(far)
    return _of_code(known[word]) if word in known else None


def _by_word(word: str) -> Explanation | None:
    if word in BLOCKS:
        block = BLOCKS[word]
        return Explanation(word, "error message", block.means, block.cause or NEVER, block.action or ELSEWHERE)
    if word in CODES:
        row = CODES[word]
        return Explanation(word, "atc error", row.text, "A wrong command line of atc.", row.solution)
    for kind, (code, solution) in CLASS_CODES.items():
        if word == code:
            return Explanation(word, "atc error", " ".join((kind.__doc__ or "").split()), f"atc ended with {kind.__name__}.", solution)
    return None


def _of_far(number: int) -> Explanation:
    code = FAR_CODES[number]
    return Explanation(str(number), code.name, code.means, NEVER, ELSEWHERE)


def _of_code(code: Code) -> Explanation:
    row = CODE_HELP[code]
    return Explanation(str(int(code)), code.header_name, row.means, row.cause or NEVER, row.action or ELSEWHERE)


def _nearest(word: str) -> str:
    try:
        number = int(word, 0)
    except ValueError:
        names = [
            *CODES,
            *BLOCKS,
            *(code for code, _ in CLASS_CODES.values()),
            *(code.header_name for code in Code),
            *(code.name for code in FAR_CODES.values()),
        ]
        near = difflib.get_close_matches(word.upper(), names, n=1, cutoff=0.3)
        return f"did you mean {near[0]}?" if near else f"accepted: a number, a name such as {Code.RT_PARAM_INVALID.header_name}, EZ9999"
    alike = difflib.get_close_matches(str(number), [str(int(code)) for code in Code], n=1, cutoff=0.7)
    nearest = Code(int(alike[0])) if alike else min(Code, key=lambda code: abs(code - number))
    return f"the nearest is {int(nearest)} ({nearest.header_name})"


@click.command("explain", help="Say what a code of Ascend means: 507011, ACL_ERROR_RT_PARAM_INVALID, EZ9999, E10001.")
@click.argument("code")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def explain_command(code: str, as_json: bool) -> None:
    """Explain one code."""
    found = explain(code)
    if as_json:
        click.echo(json.dumps(found.__dict__, indent=2, ensure_ascii=False))
    else:
        click.echo("\n".join(found.lines()))

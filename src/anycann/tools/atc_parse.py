"""The words of an `atc` command line -> checked values of its options, by name."""

from __future__ import annotations

from collections.abc import Sequence
import difflib
import os

from anycann.support.records import dataclass
from anycann.tools.atc_errors import AtcUnsupportedError, AtcUsageError
from anycann.tools.atc_option import LOG_LEVELS, Kind, Option, State
from anycann.tools.atc_options import OPTIONS


@dataclass(frozen=True)
class CommandLine:
    """What was asked for. `given` holds the options on the command line, as text; `warnings` what has no effect here."""

    given: dict[str, str]
    warnings: tuple[str, ...]

    def __getitem__(self, name: str) -> str:
        """The text of option `name`, its default if it was not given."""
        return self.given.get(name, OPTIONS[name].default)

    def switch(self, name: str) -> bool:
        """True if a switch, true/false or 0/1 option is on."""
        return self[name] in ("true", "1")


def parse_command_line(words: Sequence[str]) -> CommandLine:
    """Read `--opt=value` and `--opt value`, hyphens in a name as underscores; the last one of a repeated option counts.

    Raises UsageError for an unknown option, a missing or wrong value, and UnsupportedError for an option that is not there yet.
    """
    given = _split(words)
    if "help" in given:
        return CommandLine(given, ())
    warnings = []
    for name, value in given.items():
        option = OPTIONS[name]
        check_value(option, value)
        if value == option.default or not value:
            continue
        if option.state is State.NOT_YET:
            raise AtcUnsupportedError(f"--{name}={value}: {option.reason}")
        if option.state is State.NO_EFFECT:
            warnings.append(f"--{name} has no effect: {option.reason}")
    return CommandLine(given, tuple(warnings))


def _split(words: Sequence[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in ("-h", "--h"):
            word = "--help"
        if not word.startswith("-"):
            reason = "it does not belong to an option; a value with spaces or semicolons needs quotation marks"
            raise AtcUsageError("E10001", value=word, parameter="atc", reason=reason)
        name, equals, value = word.lstrip("-").partition("=")
        option = _known(name, word)
        if not equals:
            value = _following(option, rest)
        given[option.name] = value
    return given


def _following(option: Option, rest: list[str]) -> str:
    """The value of an option written without `=`: the next word, which a switch does not need."""
    takes_word = bool(rest) and (not rest[0].startswith("-") or rest[0][1:2].isdigit())
    if option.kind is Kind.SWITCH:
        return rest.pop(0) if rest and rest[0] in ("true", "false") else "true"
    if not takes_word:
        raise AtcUsageError("E10004", parameter=option.name)
    return rest.pop(0)


def _known(name: str, word: str) -> Option:
    """The option of that name, in which hyphens may stand for underscores."""
    option = OPTIONS.get(name.replace("-", "_"))
    if option is not None:
        return option
    near = nearest_option(name)
    hint = f"did you mean --{near}?" if near else "`atc --help` lists the options."
    raise AtcUsageError("E10001", value=word.partition("=")[0], parameter="atc", reason=f"there is no such option; {hint}")


def nearest_option(name: str) -> str | None:
    """The known option whose name looks most like `name`; one with the same letters in another order comes first."""
    close = difflib.get_close_matches(name.replace("-", "_").lower(), OPTIONS, n=5)
    return next((known for known in close if sorted(known) == sorted(name)), close[0] if close else None)


def check_value(option: Option, value: str) -> None:
    """Raise UsageError unless `value` is one that `option` accepts. An empty value is the same as leaving the option out."""
    if not value:
        return
    if option.kind is Kind.TRUE_FALSE and value not in ("true", "false"):
        raise AtcUsageError("E10005", value=value, parameter=option.name)
    if option.kind is Kind.ZERO_ONE and value not in ("0", "1"):
        raise AtcUsageError("E10006", value=value, parameter=option.name)
    if option.kind is Kind.SWITCH and value not in ("true", "false"):
        raise AtcUsageError("E10005", value=value, parameter=option.name)
    if option.kind is Kind.LEVEL and value not in LOG_LEVELS:
        raise AtcUsageError("E10010", loglevel=value)
    if option.kind is Kind.CHOICE and value not in option.choices:
        raise _wrong(option, value, f"accepted: {option.accepted}.")
    if option.kind is Kind.NUMBER and not (value.isdigit() and int(value) > 0):
        raise _wrong(option, value, "it must be a positive integer.")
    if option.kind is Kind.INPUT_FILE and not os.path.isfile(value):
        raise _wrong(option, value, "the file does not exist or can not be read.")


def _wrong(option: Option, value: str, reason: str) -> AtcUsageError:
    return AtcUsageError("E10001", value=value, parameter=f"--{option.name}", reason=reason)

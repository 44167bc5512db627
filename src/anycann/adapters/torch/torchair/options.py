"""Options that check what they are set to, in groups that refuse options they do not have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
import os
import re
from typing import Any

Check = Callable[[Any], str | None]  # None, or what is accepted


class OptionValue:
    """One option. `value` is as TorchAir gives it: None, or text, "1" and "0" for True and False; `raw` is what it was set to."""

    def __init__(self, default: Any = None, accepted: Sequence[Any] | None = None, check: Check | None = None, plain: bool = False):
        self.default, self.optional = default, accepted
        self._check, self._plain, self.raw = check, plain, default

    def __bool__(self) -> bool:
        return bool(self.raw)

    @property
    def value(self) -> Any:
        """The value as text; lists, tables and functions as they are."""
        if self.raw is None or self._plain:
            return self.raw
        return {True: "1", False: "0"}[self.raw] if isinstance(self.raw, bool) else str(self.raw)

    @value.setter
    def value(self, value: Any) -> None:
        if self.optional is not None and value not in self.optional:
            raise ValueError(f"value {value!r} ({type(value).__name__}); accepted: {', '.join(map(repr, self.optional))}")
        complaint = self._check(value) if self._check is not None else None
        if complaint:
            raise ValueError(f"value {value!r} ({type(value).__name__}); accepted: {complaint}")
        self.raw = value


class Group:
    """Options by name. Setting one sets its value; a name that is not there raises ValueError."""

    def __init__(self, **options: Any):
        object.__setattr__(self, "_options", options)

    def __getattr__(self, name: str) -> Any:
        options = object.__getattribute__(self, "_options")
        if name not in options:
            raise AttributeError(f"no option {name!r}; accepted: {', '.join(options)}")
        return options[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._options:
            raise ValueError(f"no option {name!r}; accepted: {', '.join(self._options)}")
        option = self._options[name]
        if not isinstance(option, OptionValue):
            self._options[name] = value
            return
        try:
            option.value = value
        except ValueError as error:
            raise ValueError(f"option {name!r}: {error}") from None

    def leaves(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """Every option with its value, by its path."""
        for name, option in self._options.items():
            if isinstance(option, Group):
                yield from option.leaves(f"{prefix}{name}.")
            else:
                yield prefix + name, option.value if isinstance(option, OptionValue) else option


# ---- kinds
def choice(default: Any, *accepted: Any) -> OptionValue:
    """One of some values."""
    return OptionValue(default, accepted)


def flag(default: bool = False) -> OptionValue:
    """Yes or no."""
    return OptionValue(default, (True, False))


def number(default: int | None, low: int, high: int = (1 << 63) - 1) -> OptionValue:
    """An integer within bounds, both included."""
    return OptionValue(default, check=lambda v: None if type(v) is int and low <= v <= high else f"integers from {low} to {high}")


def of_type(kind: type, default: Any = None) -> OptionValue:
    """A value of a type, or None."""
    return OptionValue(default, check=lambda v: None if v is None or isinstance(v, kind) else f"{kind.__name__} or None", plain=True)


def file() -> OptionValue:
    """The path of a file that is there."""
    return OptionValue(check=lambda v: None if v is None or os.path.isfile(v) else "the path of a file")


def folder(default: str = "./") -> OptionValue:
    """The path of a folder that is there."""
    return OptionValue(default, check=lambda v: None if v is not None and os.path.isdir(v) else "the path of a folder")


def text(pattern: str, default: str = "") -> OptionValue:
    """Text of a pattern."""
    return OptionValue(default, check=lambda v: None if isinstance(v, str) and re.match(pattern, v) else f"text that matches {pattern}")


def anything(default: Any = None) -> OptionValue:
    """Any value."""
    return OptionValue(default)

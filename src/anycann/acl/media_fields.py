"""Functions that set and get the fields of a description: one table instead of two functions a field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anycann.acl.codes import Code
from anycann.acl.entries import status, value
from anycann.acl.errors import AclError
from anycann.acl.process import PROCESS
from anycann.support.records import dataclass

Check = Callable[[int], bool]


@dataclass(frozen=True)
class Field:
    """One field: its attribute, and which numbers it takes (`accepted` in words)."""

    attribute: str
    check: Check = lambda number: number >= 0
    accepted: str = "0 and more"

    def put(self, described: object, number: object) -> None:
        """Raises AclError for what the field does not take."""
        if not isinstance(number, int) or not self.check(number):
            raise AclError(Code.INVALID_PARAM, f"{self.attribute.replace('_', ' ')} is {number!r:.60}; accepted: {self.accepted}")
        setattr(described, self.attribute, number)


def declare_fields(kind: type, stem: str, fields: Mapping[str, Field], gets: bool = True, sets: bool = True) -> None:
    """Declare `acl.media.{stem}` for every field, with `{}` of the stem being "set" or "get": dvpp_{}_pic_desc_width."""
    for name, field in fields.items():
        if sets:
            _declare_set(kind, f"acl.media.{stem.format('set')}_{name}", field)
        if gets:
            _declare_get(kind, f"acl.media.{stem.format('get')}_{name}", field)


def _declare_set(kind: type, name: str, field: Field) -> None:
    def put(desc: int, number: int) -> None:
        field.put(PROCESS.handles.get(desc, kind), number)

    put.__name__ = name.rpartition(".")[2]
    put.__doc__ = f"Set the {field.attribute.replace('_', ' ')}: {field.accepted}."
    status(name)(put)


def _declare_get(kind: type, name: str, field: Field) -> None:
    def get(desc: int) -> int:
        return int(getattr(PROCESS.handles.get(desc, kind), field.attribute))

    get.__name__ = name.rpartition(".")[2]
    get.__doc__ = f"The {field.attribute.replace('_', ' ')}."
    value(name)(get)


def declare_life(kind: type[Any], create: str, destroy: str, release: Callable[[Any], None] | None = None) -> None:
    """Declare the two functions that make a description without arguments and that end it; `release` gives back what it owns."""

    def make() -> int:
        return PROCESS.handles.add(kind())

    def end(desc: int) -> None:
        gone = PROCESS.handles.remove(desc, kind)
        if release is not None:
            release(gone)

    make.__name__, end.__name__ = create, destroy
    make.__doc__, end.__doc__ = "An empty description.", "Forget the description; memory that it speaks of stays."
    value(f"acl.media.{create}", returns="handle")(make)
    status(f"acl.media.{destroy}")(end)


def one_of(numbers: Mapping[int, object]) -> tuple[Check, str]:
    """A check for a few numbers, and the words that list them."""
    return numbers.__contains__, ", ".join(f"{number} ({word})" for number, word in numbers.items())

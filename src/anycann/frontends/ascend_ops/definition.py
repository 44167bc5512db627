"""What a row of the operator tables says: the inputs, outputs and attributes of an operator of Ascend, and how ONNX says it.

Operands are written as words: "x1:T x2:T bias?:T index:index x*". `?` marks an input that may be left out, `*` one that stands for any
number of them (at most one a row). Behind the colon is which dtypes are accepted: a name of GROUPS, a dtype, or a capital letter, which
stands for one dtype that all its operands share, out of the group that the row gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

from anycann.support.records import dataclass

if TYPE_CHECKING:
    from anycann.frontends.ascend_ops.builder import Builder

_FLOATS = ("float32", "float16", "bfloat16", "float64")
_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
GROUPS: dict[str, tuple[str, ...]] = {
    "float": _FLOATS,
    "integer": _INTEGERS,
    "number": (*_FLOATS, *_INTEGERS),
    "bool": ("bool",),
    "index": ("int32", "int64"),
    "any": (*_FLOATS, *_INTEGERS, "bool"),
}
Build: TypeAlias = "Callable[[Builder], str | list[str]]"


@dataclass(frozen=True)
class Operand:
    """One word of a row."""

    name: str
    dtypes: tuple[str, ...]
    shared: str = ""  # the letter of a dtype that several operands share
    optional: bool = False
    many: bool = False


@dataclass(frozen=True)
class Required:
    """In place of a default: the attribute must be given. kind: "int", "float", "bool", "string", "ints", "floats", "lists", "dtype"."""

    kind: str


@dataclass(frozen=True)
class OperatorType:
    """An operator of Ascend. attributes: name -> default or `Required`. casts: results may be declared in another dtype than computed.

    formats: which an input may have beside those whose sizes are the tensor's own.
    """

    name: str
    inputs: tuple[Operand, ...]
    outputs: int  # how many there are at least
    build: Build
    attributes: Mapping[str, object] = field(default_factory=dict)
    casts: bool = False
    formats: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def defaults(self) -> dict[str, object]:
        """The attributes that need not be given."""
        return {name: value for name, value in self.attributes.items() if not isinstance(value, Required)}


TABLE: dict[str, OperatorType] = {}


def operator(
    names: str,
    inputs: str,
    build: Build,
    outputs: int = 1,
    group: str = "number",
    casts: bool = False,
    formats: Mapping[str, tuple[str, ...]] | None = None,
    **attributes: Any,
) -> None:
    """Add a row for each of `names`."""
    operands = tuple(_operand(word, group) for word in inputs.split())
    for name in names.split():
        TABLE[name] = OperatorType(name, operands, outputs, build, attributes, casts, formats or {})


def _operand(word: str, group: str) -> Operand:
    name, _, kind = word.partition(":")
    shared = kind if kind.isupper() else ""
    dtypes = GROUPS[group] if shared or not kind else GROUPS.get(kind, (kind,))
    return Operand(name.rstrip("?*"), dtypes, shared, name.endswith("?"), name.endswith("*"))

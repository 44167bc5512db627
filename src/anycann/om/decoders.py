"""Functions that turn parsed JSON into dataclasses and check it on the way, one for each type. `codec` says how the JSON looks."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import lru_cache
import math
import types
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from anycann.support.errors import InternalError

Json: TypeAlias = Any
Decoder: TypeAlias = Callable[[Json], Any]
CLASS = "class"
_LARGEST = (1 << 63) - 1


class Refused(Exception):
    """A value that does not fit; `path` grows from the inside out."""

    def __init__(self, got: str, accepted: str) -> None:
        super().__init__(got)
        self.text = f"is {got}; accepted: {accepted}"
        self.path: list[str] = []


@lru_cache(maxsize=256)
def fields_of(kind: Any) -> tuple[tuple[Field[Any], Any], ...]:
    """The fields of a dataclass with their types resolved."""
    hints = get_type_hints(kind)
    return tuple((field, hints[field.name]) for field in fields(kind))


def is_union(kind: Any) -> bool:
    """True for `A | B`."""
    return get_origin(kind) in (Union, types.UnionType)


@lru_cache(maxsize=256)
def decoder(kind: Any) -> Decoder:
    """The function that turns JSON into a `kind`."""
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and is_dataclass(kind):
        return _dataclass_decoder(kind)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _tuple_decoder(decoder(arguments[0]))
    if origin is dict and arguments[0] is str:
        return _dict_decoder(decoder(arguments[1]))
    if origin is Literal:
        return _literal_decoder(arguments)
    if is_union(kind):
        return _union_decoder(arguments)
    if kind in _LEAVES:
        return _LEAVES[kind]
    raise InternalError(f"fields of type {kind} can't be read from JSON; add them to om/decoders.py")


def _dataclass_decoder(kind: type) -> Decoder:
    table = {field.name: decoder(hint) for field, hint in fields_of(kind)}
    required = {f.name for f, _ in fields_of(kind) if f.default is MISSING and f.default_factory is MISSING}

    def read(value: Json) -> Any:
        if type(value) is not dict:
            raise Refused(_show(value), f"an object ({kind.__name__})")
        if not required <= value.keys():
            raise Refused(f"without {', '.join(sorted(required - value.keys()))}", f"an object with {', '.join(table)}")
        found = {}
        for name, item in value.items():
            if name not in table:
                raise Refused(f"an object with {_show(name)}", ", ".join(table))
            try:
                found[name] = table[name](item)
            except Refused as refused:
                refused.path.append(f".{name}")
                raise
        return kind(**found)

    return read


def _tuple_decoder(of_item: Decoder) -> Decoder:
    def read(value: Json) -> tuple[Any, ...]:
        if type(value) is not list:
            raise Refused(_show(value), "an array")
        found = []
        for index, item in enumerate(value):
            try:
                found.append(of_item(item))
            except Refused as refused:
                refused.path.append(f"[{index}]")
                raise
        return tuple(found)

    return read


def _dict_decoder(of_item: Decoder) -> Decoder:
    def read(value: Json) -> dict[str, Any]:
        if type(value) is not dict:
            raise Refused(_show(value), "an object")
        found = {}
        for key, item in value.items():
            try:
                found[key] = of_item(item)
            except Refused as refused:
                refused.path.append(f"[{key!r}]")
                raise
        return found

    return read


def _literal_decoder(words: tuple[Any, ...]) -> Decoder:
    def read(value: Json) -> Any:
        if not isinstance(value, str) or value not in words:
            raise Refused(_show(value), ", ".join(map(str, words)))
        return value

    return read


def _union_decoder(kinds: Any) -> Decoder:
    """One of several dataclasses, told apart by "class", or one of several plain types, told apart by themselves."""
    classes: dict[str, Decoder] = {}
    for kind in kinds:
        if kind not in _LEAVES:
            classes[kind.__name__] = decoder(kind)
    leaves = {kind: _LEAVES[kind] for kind in kinds if kind in _LEAVES}

    def read(value: Json) -> Any:
        if type(value) in leaves:
            return leaves[type(value)](value)
        name = value.get(CLASS) if type(value) is dict else None
        if not isinstance(name, str) or name not in classes:
            got = f"an object of class {_show(name)}" if type(value) is dict else _show(value)
            raise Refused(got, ", ".join([*classes, *(kind.__name__ for kind in leaves)]))
        return classes[name]({key: item for key, item in value.items() if key != CLASS})

    return read


def _int(value: Json) -> int:
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise Refused(_show(value), f"a whole number from 0 to {_LARGEST}")
    return value


def _float(value: Json) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise Refused(_show(value), "a finite number")
    return float(value)


def _of_type(kind: type, accepted: str) -> Decoder:
    def read(value: Json) -> Any:
        if type(value) is not kind:
            raise Refused(_show(value), accepted)
        return value

    return read


def _bytes(value: Json) -> bytes:
    try:
        return b64decode(value if type(value) is str else "?", validate=True)
    except ValueError:
        raise Refused(_show(value), "bytes in base64") from None


def _any(value: Json) -> object:
    if isinstance(value, list):
        return tuple(_any(item) for item in value)
    if not isinstance(value, dict):
        return value
    ((tag, item),) = value.items() if len(value) == 1 else ((None, None),)
    if tag == "bytes":
        return _bytes(item)
    if tag == "float" and item in ("nan", "inf", "-inf"):
        return float(item)
    if tag == "dict" and isinstance(item, dict):
        return {key: _any(inner) for key, inner in item.items()}
    raise Refused(_show(value), 'one of "bytes", "float", "dict" with its value')


def _show(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_LEAVES: dict[Any, Decoder] = {
    int: _int,
    float: _float,
    bool: _of_type(bool, "true or false"),
    str: _of_type(str, "text"),
    types.NoneType: _of_type(types.NoneType, "null"),
    bytes: _bytes,
    object: _any,
}

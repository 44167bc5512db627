"""Frozen dataclasses <-> JSON. A dataclass is an object of its fields (defaults left out), a tuple is an array, bytes are base64.

Where a type is one of several dataclasses, the object says which under "class". Whole numbers must lie in 0 .. 2**63-1: nothing in a plan
is negative. In `object` fields (attributes) every JSON value may stand; arrays come back as tuples, and what JSON lacks is {"bytes": ...},
{"float": "nan"} or {"dict": ...}. Decoding checks everything and raises ModelError with the path to the value and what is accepted.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import MISSING, Field, is_dataclass
from functools import lru_cache
import json
import math
from typing import Any, TypeVar, get_args, get_origin

from anycann.om.decoders import CLASS, Json, Refused, decoder, fields_of, is_union
from anycann.support.errors import InternalError, ModelError

T = TypeVar("T")


def to_json(value: object) -> bytes:
    """`value`, a dataclass or JSON data, as compact ASCII JSON: equal values give equal bytes."""
    return json.dumps(encode(value), separators=(",", ":"), allow_nan=False).encode()


def from_json(kind: type[T], data: bytes | memoryview, where: str) -> T:
    """The `kind` (a dataclass) that `data` describes. `where` ("model.om, section programs") begins every message."""
    return decode(kind, parse_json(data, where), where)


def decode(kind: type[T], value: Json, where: str) -> T:
    """The `kind` (a dataclass) that parsed JSON describes. Raises ModelError."""
    try:
        result: T = decoder(_plain(kind))(value)
    except Refused as refused:
        raise ModelError(f"{where}: {kind.__name__}{''.join(reversed(refused.path))} {refused.text}") from None
    except RecursionError:
        raise ModelError(f"{where} is nested too deep") from None
    return result


def parse_json(data: bytes | memoryview, where: str) -> Json:
    """The JSON value in `data`. Raises ModelError for anything else, for a key given twice and for nesting that is too deep."""
    try:
        return json.loads(bytes(data), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{where} is no JSON: {error}") from None


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(f"an object has a key twice among {[key for key, _ in pairs][:8]}")
    return found


def _no_constant(text: str) -> Json:
    raise ValueError(f"{text} is no JSON number")


def encode(value: object) -> Json:
    """Dataclasses, mappings, sequences, numbers, text and bytes as JSON data. Raises InternalError for anything else."""
    if is_dataclass(value) and not isinstance(value, type):
        return _encode_dataclass(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: encode(item) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise InternalError(f"{value!r} can't be written as JSON; accepted: dataclasses, lists, dictionaries, numbers, text, bytes")


def _encode_dataclass(value: Any) -> Json:
    result: dict[str, Json] = {}
    for field, kind in fields_of(_plain(type(value))):
        item = getattr(value, field.name)
        if item == _default(field):
            continue
        result[field.name] = _encoder(kind)(item)
    return result


@lru_cache(maxsize=256)
def _encoder(kind: Any) -> Callable[[Any], Json]:
    """How values of a field of type `kind` are written."""
    if kind is object:
        return _encode_any
    arguments = get_args(kind)
    if get_origin(kind) is dict:
        of_item = _encoder(arguments[1])
        return lambda value: {key: of_item(item) for key, item in value.items()}
    if get_origin(kind) is tuple:
        of_item = _encoder(arguments[0])
        return lambda value: [of_item(item) for item in value]
    if is_union(kind) and any(is_dataclass(option) for option in arguments):
        return lambda value: {CLASS: type(value).__name__, **encode(value)}
    return encode


def _encode_any(value: object) -> Json:
    """An attribute: like `encode`, and reversible without knowing the type."""
    if isinstance(value, bytes):
        return {"bytes": encode(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, dict):
        return {"dict": {key: _encode_any(item) for key, item in value.items()}}
    if isinstance(value, (list, tuple)):
        return [_encode_any(item) for item in value]
    return encode(value)


def _plain(kind: Any) -> Any:
    """`kind` for functions whose results are kept: the type checker takes a type[T] for unhashable."""
    return kind


def _default(field: Field[Any]) -> object:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default

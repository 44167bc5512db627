"""What was decided and written before, kept on disk by all that it depends on, so that a known model writes no kernel again.

A key is the digest of what was asked, of the sources that answer (`support/sources.py`), and of the versions of Python and numpy. What
can't be told from its parts for certain, a function or an object that is itself alone, has no key and is not kept.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import numpy as np

from anycann.codegen.kernel_cache import default_cache
from anycann.support import sources
from anycann.support.records import field_names

ANSWERING = ("codegen", "te", "target", "support", "tuning")  # the folders whose code decides and writes


class Indistinct(Exception):
    """Something may look like another thing that it is not."""


def key_of(what: str, *parts: object) -> str | None:
    """Where the answer to `what`, asked about `parts`, is kept: 64 hex digits; None if it can't be."""
    code = sources.digest(*ANSWERING)
    if code is None:
        return None
    try:
        told = "\0".join(("kept", what, code, np.__version__, *map(_told, parts)))
    except Indistinct:
        return None
    return sha256(told.encode()).hexdigest()


def find(key: str | None) -> bytes | None:
    """What is kept there; None if nothing is, or it is damaged."""
    return None if key is None else default_cache().get(key)


def keep(key: str | None, data: bytes) -> None:
    """Keep what was found out since `key` was made, unless sources were changed meanwhile."""
    if key is not None and sources.are_those_that_run(*ANSWERING):
        default_cache().put(key, data)


def _told(value: object) -> str:
    """A text that only equal values have, of equal types."""
    if type(value) in _PLAIN:
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, int | float | str | bytes):
        raise Indistinct(type(value).__name__)
    if isinstance(value, tuple):
        return f"({','.join(map(_told, value))})"
    if isinstance(value, frozenset):
        return f"{{{','.join(sorted(map(_told, value)))}}}"
    if isinstance(value, type):
        return f"<{value.__module__}.{value.__qualname__}>"
    return _told_of_fields(value)


_PLAIN = frozenset({type(None), bool, int, float, str, bytes})


def _told_of_fields(value: Any) -> str:
    """Of a dataclass that equals another one if its fields do."""
    equals: object = type(value).__hash__  # None, or that of any object, where only itself is equal
    if not hasattr(type(value), "__dataclass_fields__") or equals is None or equals is object.__hash__:
        raise Indistinct(type(value).__name__)
    return f"{_told(type(value))}({','.join(_told(getattr(value, name)) for name in field_names(type(value)))})"

"""Handles: the numbers that programs hold for objects of ours. A number is never used twice, so that an old one is always noticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
import itertools
import threading
from typing import Any, TypeVar

from anycann.acl.codes import Code
from anycann.acl.errors import AclError

T = TypeVar("T")


class StrayHandle(AclError):
    """A number that is no handle, or the handle of a thing of another kind."""


_FIRST, _STEP = 0x5AC1_0000_0000, 0x40  # looks like a pointer, and is none that a process has


class Handles:
    """Every object that programs hold, of all kinds. Thread-safe. `created` and `destroyed` are told to whoever asks (the sanitizer)."""

    def __init__(self) -> None:
        self.version = 0  # changes with every object that comes, goes or is changed
        self._objects: dict[int, object] = {}
        self._gone: dict[int, str] = {}  # handle -> what it was
        self._counts: Counter[type] = Counter()
        self._numbers = itertools.count(_FIRST, _STEP)
        self._lock = threading.RLock()  # garbage that goes meanwhile may say that something changed
        self.created: list[Callable[[int, object], None]] = []
        self.destroyed: list[Callable[[int, object], None]] = []

    def add(self, thing: object) -> int:
        """A handle for `thing`."""
        with self._lock:
            handle = next(self._numbers)
            self.version += 1
            self._objects[handle] = thing
            self._counts[type(thing)] += 1
        for tell in self.created:
            tell(handle, thing)
        return handle

    def get(self, handle: int, kind: type[T], code: Code = Code.INVALID_PARAM) -> T:
        """The object of class `kind` behind `handle`. Raises AclError with `code` for null, another kind, a destroyed or an unknown one."""
        thing = self._objects.get(handle)
        if isinstance(thing, kind):
            return thing
        known = handle == 0 or handle in self._gone
        raise (AclError if known else StrayHandle)(code, f"{handle:#x} {self._instead(handle)}; accepted: {a_word_for(kind)}")

    def remove(self, handle: int, kind: type[T], code: Code = Code.INVALID_PARAM) -> T:
        """As `get`, and the handle is invalid from now on."""
        thing = self.get(handle, kind, code)
        with self._lock:
            if self._objects.pop(handle, None) is not None:
                self._counts[type(thing)] -= 1
            self.version += 1
            self._gone[handle] = word_for(kind)
        for tell in self.destroyed:
            tell(handle, thing)
        return thing

    def changed(self) -> None:
        """Say that an object is not as it was; what was derived from it is derived anew."""
        with self._lock:
            self.version += 1

    def live(self, kind: type[T]) -> dict[int, T]:
        """All of one kind."""
        with self._lock:
            return {handle: thing for handle, thing in self._objects.items() if isinstance(thing, kind)}

    def count(self, kind: type) -> int:
        """How many there are of exactly this class."""
        return self._counts[kind]

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._objects.clear()
            self._counts.clear()
            self.version += 1
            self._gone.clear()

    def _instead(self, handle: int) -> str:
        if handle == 0:
            return "is null"
        if handle in self._gone:
            return f"is a {self._gone[handle]} that was destroyed"
        other: Any = self._objects.get(handle)
        return "is no handle" if other is None else f"is a {word_for(type(other))}"


def word_for(kind: type) -> str:
    """What a user calls objects of this class: its `acl_word`, else its name."""
    return str(getattr(kind, "acl_word", kind.__name__.lower()))


def a_word_for(kind: type) -> str:
    """`word_for` with its article."""
    word = word_for(kind)
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"

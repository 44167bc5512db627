"""When two computations are the same but for the names of what they read and write: their forms are equal."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeAlias

from anycann.support.records import field_names
from anycann.te.expression import Const, Expr, Var
from anycann.te.tensor import Constant, Placeholder

Form: TypeAlias = tuple[Hashable, ...]


class Former:
    """The form of some tensors: everything below them, each once, as its type, its fields, and where the objects in these stand.

    Names of memory become the order of their first mention, which `names` holds. A table's name says what is in it, and is kept.
    """

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self._found: dict[int, tuple[int, object]] = {}  # the object too, so that its id stays its own
        self._parts: list[Hashable] = []
        self._serials: list[tuple[int, int]] = []

    def form(self, *roots: object) -> Form:
        """The form of all that was added, with these."""
        ends = tuple(self._add(root) for root in roots)
        order = {serial: place for place, (serial, _) in enumerate(sorted(self._serials))}
        variables = tuple((where, order[serial]) for serial, where in self._serials)
        return (*self._parts, variables, ends)

    def number(self, name: str) -> int:
        """The place of a name among those met."""
        return self.names.setdefault(name, len(self.names))

    def _add(self, root: object) -> Hashable:
        """What stands for `root` where it is used; what it consists of is added first. No recursion: chains of operators may be long."""
        stack: list[tuple[object, bool]] = [(root, False)]
        while stack:
            item, ready = stack.pop()
            if id(item) in self._found or not _has_parts(item):
                continue
            if not ready:
                stack.append((item, True))
                stack.extend((part, False) for part in reversed(list(_parts(item))))
                continue
            self._parts.append(self._described(item))
            self._found[id(item)] = (len(self._parts) - 1, item)
            if isinstance(item, Var):
                self._serials.append((item.serial, len(self._parts) - 1))
        return self._reference(root)

    def _described(self, item: object) -> Hashable:
        if isinstance(item, Var):
            return ("variable", item.extent, item.dtype)
        if isinstance(item, Const):
            return ("literal", repr(item.value), item.dtype)
        if isinstance(item, Constant):
            return ("table", item.name, self.number(item.name), item.shape, item.dtype)
        if isinstance(item, Placeholder):
            return ("memory", self.number(item.name), item.shape, item.dtype)
        return (type(item), *(self._reference(getattr(item, name)) for name in field_names(type(item))))

    def _reference(self, item: object) -> Hashable:
        if isinstance(item, tuple):
            return tuple(self._reference(part) for part in item)
        if _has_parts(item):
            return ("part", self._found[id(item)][0])
        return (type(item), repr(item)) if isinstance(item, float) else (type(item), item)  # 0.0 is not -0.0, and 1 not True


def _has_parts(item: object) -> bool:
    """Whether it is one of the dataclasses that are compared by identity: an expression, a tensor, what a contraction computes."""
    kind = type(item)
    known = _HAVE_PARTS.get(kind)
    if known is None:
        known = isinstance(item, Expr) or (hasattr(kind, "__dataclass_fields__") and kind.__hash__ is object.__hash__)
        _HAVE_PARTS[kind] = known
    return known


_HAVE_PARTS: dict[type, bool] = {}


def _parts(item: object) -> Iterable[object]:
    """The objects in the fields of an item, those in tuples too."""
    if isinstance(item, Placeholder | Const | Var):
        return
    waiting = [getattr(item, name) for name in reversed(field_names(type(item)))]
    while waiting:
        value = waiting.pop()
        if isinstance(value, tuple):
            waiting.extend(reversed(value))
        elif _has_parts(value):
            yield value

"""The text of a function for one open program: what is known of its values while it is written, and the lines so far.

Sizes are literals where they are known, else local names ("n7"), so that `n7 == n7` needs no test and `1 * n7` no product.
"""

from __future__ import annotations

from collections.abc import Sequence
import re
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from anycann.support.records import dataclass

PLAIN = 0x0101  # NPY_ARRAY_C_CONTIGUOUS and NPY_ARRAY_ALIGNED of numpy's C interface
INT64, FLOAT32 = np.dtype(np.int64), np.dtype(np.float32)

Array: TypeAlias = NDArray[Any]
Sizes: TypeAlias = tuple[str, ...]


_NAMES = re.compile(r"\b[nx]\d+")
_COUNTS = re.compile(r"n\d+(, n\d+)*,? = ")


class UnplannedError(Exception):
    """There is no way to write what a part does."""


@dataclass(frozen=True)
class Known:
    """An array that the function has, by its local name. plain: it is row-major and aligned; fresh: made in this run, and no view."""

    name: str
    sizes: Sizes
    dtype: np.dtype[Any]
    plain: bool = False
    fresh: bool = False


@dataclass(frozen=True)
class Numbers:
    """What an int64 array has in it, of rank 0 or 1."""

    items: Sizes
    rank: int


@dataclass(frozen=True)
class Example:
    """What an array was in one run."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    plain: bool

    @classmethod
    def of(cls, value: object) -> Example | None:
        """None for what is no array."""
        return cls(value.dtype, value.shape, value.flags.num & PLAIN == PLAIN) if isinstance(value, np.ndarray) else None


Value: TypeAlias = Known | Numbers


class Text:
    """A function's lines. objects: what they name beside local names. One that returns None says that the function is not for this run."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.objects: dict[str, object] = {
            "ndarray": np.ndarray,
            "empty": np.empty,
            "array": np.array,
            "as_plain": as_plain,
        }
        self._count = 0
        self._found: dict[str, str] = {}  # names by what they are
        self._same: dict[str, str] = {}  # a size that was seen to be another one
        self.scattered: set[str] = set()  # arrays that were not row-major in the run that is known
        self._ones: set[str] = set()  # sizes that were 1 in the run that is known

    def fresh(self, letter: str) -> str:
        """A name that is used for nothing else."""
        self._count += 1
        return f"{letter}{self._count}"

    def bind(self, value: object) -> str:
        """A name for an object."""
        name = self.fresh("o")
        self.objects[name] = value
        return name

    def line(self, text: str) -> None:
        """One more."""
        self.lines.append(text)

    def refuse_if(self, condition: str) -> None:
        """Go no further where this holds."""
        self.lines.append(f"if {condition}: return None")

    def ordered(self) -> list[str]:
        """The lines, those that test and count as soon as they can: what is refused has computed nothing."""
        made: dict[str, int] = {}  # the line behind which a name is there
        places = []
        for number, line in enumerate(self.lines):
            place = number
            if line.startswith("if ") or _COUNTS.match(line):
                used = _NAMES.findall(line if line.startswith("if ") else line.split("=", 1)[1])
                place = max([made.get(name, -1) for name in used], default=-1)
            if not line.startswith("if ") and " = " in line:
                for name in _NAMES.findall(line.split(" = ", 1)[0]):
                    made.setdefault(name, place)
            places.append(place)
        return [self.lines[number] for number in sorted(range(len(places)), key=lambda number: (places[number], number))]

    # ---- numbers
    def let(self, expression: str) -> str:
        """A local name of what an expression of local names and literals gives; a literal if it has no names."""
        if not any(letter.isalpha() for letter in expression):
            number = int(eval(expression))
            if abs(number) >= 1 << 63:
                raise UnplannedError
            return str(number)
        if expression.isalnum():
            return expression
        if expression not in self._found:
            self._found[expression] = name = self.fresh("n")
            self.lines.append(f"{name} = {expression}")
        return self._found[expression]

    def known(self, size: str) -> str:
        """The same size, by its literal if there is one."""
        while size in self._same:
            size = self._same[size]
        return size

    def sum(self, *items: str) -> str:
        """Of sizes."""
        items = tuple(map(self.known, items))
        known = sum([int(item) for item in items if is_literal(item)])
        others = [item for item in items if not is_literal(item)]
        return self.let(" + ".join([*others, *([str(known)] if known or not others else [])]))

    def product(self, *items: str) -> str:
        """Of sizes."""
        items = tuple(map(self.known, items))
        known, others = 1, [item for item in items if not is_literal(item)]
        for item in items:
            known *= int(item) if is_literal(item) else 1
        return "0" if known == 0 else self.let(" * ".join([*([str(known)] if known != 1 or not others else []), *sorted(others)]))

    def same(self, one: str, other: str) -> None:
        """Go no further where two sizes differ."""
        one, other = self.known(one), self.known(other)
        if is_literal(one) and is_literal(other) and int(one) != int(other):
            raise UnplannedError
        if one != other:
            self.refuse_if(f"{one} != {other}")
            self._same[other if is_literal(one) else one] = one if is_literal(one) else other

    def same_sizes(self, ones: Sequence[str], others: Sequence[str]) -> None:
        """Go no further where two shapes differ."""
        if len(ones) != len(others):
            raise UnplannedError
        for one, other in zip(ones, others, strict=True):
            self.same(one, other)

    # ---- arrays
    def was_one(self, size: str) -> bool:
        """Whether a size is 1, or was in the run that is known."""
        return self.known(size) == "1" or size in self._ones

    def seen(self, name: str, like: Example) -> Known:
        """An array of which nothing is known but what it was like in one run; what is told here is checked when the function runs."""
        dtype = self.bind(like.dtype)  # of which other processes have objects of their own
        self.refuse_if(f"type({name}) is not ndarray or ({name}.dtype is not {dtype} and {name}.dtype != {dtype})")
        self.refuse_if(f"{name}.ndim != {len(like.shape)}")
        sizes = tuple(self.fresh("n") for _ in like.shape)
        self._ones.update(size for size, seen in zip(sizes, like.shape, strict=True) if seen == 1)
        if sizes:
            self.line(f"{', '.join(sizes)}, = {name}.shape")
        return Known(name, sizes, like.dtype)

    def plain(self, value: Known) -> Known:
        """The same; go no further where it is not row-major. Raises UnplannedError for one that was not."""
        if value.name in self.scattered:
            raise UnplannedError
        if not value.plain:
            self.refuse_if(f"{value.name}.flags.num & {PLAIN} != {PLAIN}")
        return Known(value.name, value.sizes, value.dtype, True, value.fresh)

    def made(self, sizes: Sizes, dtype: np.dtype[Any]) -> Known:
        """A new array of any content."""
        sizes = tuple(map(self.known, sizes))
        name = self.fresh("x")
        self.line(f"{name} = empty({tuple_of(sizes)}, {self.bind(dtype)})")
        return Known(name, sizes, dtype, True, True)

    def view(self, expression: str, sizes: Sizes, dtype: np.dtype[Any], plain: bool = False) -> Known:
        """Part of another array."""
        name = self.fresh("x")
        self.line(f"{name} = {expression}")
        return Known(name, sizes, dtype, plain)

    def written(self, value: Value) -> Known:
        """As an array."""
        if isinstance(value, Known):
            return value
        content = tuple_of(value.items) if value.rank else value.items[0]
        return self.view(f"array({content}, {self.bind(INT64)})", (str(len(value.items)),) * value.rank, INT64, True)


def as_plain(array: Array) -> Array:
    """The same, or a copy that is row-major and aligned."""
    return array if array.flags.num & PLAIN == PLAIN else np.array(array, order="C")


def is_literal(size: str) -> bool:
    """Whether it is known while the function is written."""
    return not size[0].isalpha()


def tuple_of(items: Sequence[str]) -> str:
    """As text."""
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def ints_of(value: Value | None, constant: Array | None) -> Numbers | None:
    """What an int64 value has in it, if that is known."""
    if isinstance(value, Numbers):
        return value
    if constant is None or constant.dtype != INT64 or constant.ndim > 1 or constant.size > 16:
        return None
    return Numbers(tuple(map(str, constant.reshape(-1).tolist())), constant.ndim)

"""What may be chosen about a kernel, as data: parameters and their choices, what rules a combination out, and what is chosen unasked.

A generator is given a `tile`, a dataclass of whole numbers. Its space says which tiles there are for one problem on one target; a knowledge
bank (tuning/bank.py) says which was measured to be the best. What a bank says is checked against the space, so that a wrong entry can cost
time, but never make a wrong kernel.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import asdict, fields
from functools import lru_cache
import json
import time
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

from anycann.codegen import kept
from anycann.support import options as settings
from anycann.support.errors import InternalError
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te.dtypes import DType

Point: TypeAlias = Mapping[str, int]  # a value for every parameter
Tile = TypeVar("Tile")
KEPT_FROM_SECONDS = 0.0005  # reading a file takes a tenth of it


@dataclass(frozen=True)
class Parameter:
    """One decision: a field of the tile, and the values it may have (1 and 0 for yes and no)."""

    name: str
    choices: tuple[int, ...]


@dataclass(frozen=True)
class Space(ABC, Generic[Tile]):
    """The tiles of one generator for one problem (its sizes and element types, a dataclass) on one target.

    family: the generator, as knowledge banks name it. version: counts up when tiles mean something else, or when the generator changed so
    much that what was measured before says nothing; entries of other versions are not used.
    """

    family: ClassVar[str]
    version: ClassVar[int]
    tile_type: ClassVar[type[Any]]
    is_algorithm: ClassVar[bool] = False  # a choice between generators, which the layout of the graph depends on

    problem: Any
    target: Target

    @abstractmethod
    def parameters(self) -> tuple[Parameter, ...]:
        """The decisions, those that matter most first."""

    @abstractmethod
    def refusal(self, tile: Tile) -> str | None:
        """Why the generator cannot compute the problem with `tile`, or not with profit in any case; None if it can."""

    @abstractmethod
    def default(self) -> Tile:
        """The tile to take without measuring."""

    def estimate(self, tile: Tile) -> float:
        """About how many cycles of one core it takes, 0 where nothing is known; only to compare tiles of this space."""
        return 0.0

    def context(self) -> Mapping[str, int]:
        """What else tells this problem from others, beside its sizes: how operands are stored."""
        return {}

    def tile(self, point: Point) -> Tile:
        """The tile of a point. Raises TypeError or KeyError if the point lacks a parameter, or has one more."""
        if set(point) != {field.name for field in fields(self.tile_type)}:
            raise KeyError(f"parameters {sorted(point)}")
        tile: Tile = self.tile_type(
            **{f.name: bool(point[f.name]) if f.type == "bool" else int(point[f.name]) for f in fields(self.tile_type)}
        )
        return tile

    def point(self, tile: Tile) -> Point:
        """The values of a tile."""
        return {name: int(value) for name, value in asdict(tile).items()}  # type: ignore[call-overload]

    def signature(self) -> dict[str, object]:
        """What an entry of a knowledge bank is found by, but for the target; plain values, as JSON has them."""
        sizes = {field.name: _plain(getattr(self.problem, field.name)) for field in fields(self.problem)}
        return {"op_type": self.family, **sizes, **self.context()}


def _plain(value: object) -> object:
    """A size, nothing, a tuple of them, a type or a nested dataclass as JSON has it."""
    if isinstance(value, DType):
        return value.name
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}  # type: ignore[arg-type]


class Tuned(Protocol):
    """A source of measured choices: a knowledge bank, or the tuner that tries one."""

    def find(self, space: Space[Any]) -> Point | None:
        """What to choose for this problem; None if it does not know."""


@runtime_checkable
class Settled(Tuned, Protocol):
    """A source that will always say the same."""

    def digest(self) -> str:
        """Text that differs if what it says may differ."""


WINOGRAD, STRASSEN, ROUNDED = "winograd", "strassen", "rounded_rows"  # algorithms that lose digits, by the names that switch them off


@dataclass(frozen=True)
class Choices:
    """How generators choose.

    winograd: whether convolutions may lose about two digits. tuned: measured choices, which go before estimates. strassen: whether
    products may lose about a bit, those of convolutions where `winograd` allows it too. rounded: whether rows of products are rounded to
    bytes where the model allows it. held: the weights of all layers wait in the third-level cache for the next run.
    """

    winograd: bool = True
    tuned: Tuned | None = None
    strassen: bool = True
    rounded: bool = True
    held: bool = False

    @classmethod
    def without(cls, switched_off: Collection[str], tuned: Tuned | None = None) -> Choices:
        """All but the algorithms that are switched off by name: WINOGRAD, STRASSEN, ROUNDED."""
        return cls(WINOGRAD not in switched_off, tuned, STRASSEN not in switched_off, ROUNDED not in switched_off)

    def tile(self, space: Space[Tile]) -> Tile:
        """The measured tile of a problem if there is one that the generator can use, else its default."""
        found = None if self.tuned is None else self.tuned.find(space)
        tile = None if found is None else usable(space, found)
        return _default(space) if tile is None else tile

    def digest(self) -> str | None:
        """Text that differs if what is chosen may differ; None if that can't be told."""
        algorithms = f"winograd {self.winograd}, strassen {self.strassen}, rounded {self.rounded}, held {self.held}"
        if self.tuned is None:
            return algorithms
        return f"{algorithms}, {self.tuned.digest()}" if isinstance(self.tuned, Settled) else None


@lru_cache(maxsize=1024)  # layers repeat, and passes ask before the generator does
def _default(space: Space[Tile]) -> Tile:
    """The default, from the disk where it took long to find."""
    place = kept.key_of("default", space)
    known = kept.find(place)
    if known is not None and not settings.VERIFY.get():
        return space.tile(json.loads(known))
    started = time.perf_counter()
    tile = space.default()
    point = space.point(tile) if time.perf_counter() - started > KEPT_FROM_SECONDS or known else {}
    if known is None and point and space.tile(point) == tile:
        kept.keep(place, json.dumps(point).encode())
    elif known is not None and json.loads(known) != point:
        raise InternalError(f"{known.decode()} was taken for the default of {space}, which is {point}")
    return tile


def usable(space: Space[Tile], point: Point) -> Tile | None:
    """The tile of a point that comes from outside; None if it is none of this space."""
    try:
        tile = space.tile(point)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return None if space.refusal(tile) else tile

"""One kernel to tune: the space that is searched, and how a kernel is made of one of its points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from anycann.codegen.recipe import Recipe
from anycann.codegen.space import Choices, Point, Space, Tuned
from anycann.codegen.tail import Constants, Generated
from anycann.support.records import dataclass
from anycann.tuning.operands import Known, known_constants


@dataclass(frozen=True)
class TuningTask:
    """A kernel of a model (or alone), to be tuned within `space`. nodes: the graph's nodes it computes. base: what is chosen beside.

    known: the point of the space that a knowledge bank has, which then stands for the default.
    """

    space: Space[Any]
    recipe: Recipe
    constants: Mapping[str, Known]
    nodes: tuple[str, ...] = ()
    op_type: str = ""
    base: Choices = field(default_factory=Choices)
    known: Point | None = None

    def generate(self, point: Point) -> Generated:
        """The kernel with this point of the space chosen."""
        fixed = replace(self.base, tuned=Fixed(self.space.family, point, self.base.tuned))

        def value(name: str) -> Any:
            return self.constants[name].array() if name in self.constants else None

        return self.recipe.generate(value, fixed)

    @property
    def default(self) -> Point:
        """What is chosen without tuning; candidates have to be faster."""
        return self.known or self.space.point(self.space.default())


@dataclass(frozen=True)
class Fixed:
    """Chooses `point` for one family of kernels, and what `base` says for the others."""

    family: str
    point: Point
    base: Tuned | None = None

    def find(self, space: Space[Any]) -> Point | None:
        if space.family == self.family:
            return self.point
        return None if self.base is None else self.base.find(space)


class _Asked:
    """Remembers which spaces a generator asks about."""

    def __init__(self, base: Tuned | None):
        self.spaces: list[Space[Any]] = []
        self._base = base

    def find(self, space: Space[Any]) -> Point | None:
        self.spaces.append(space)
        return None if self._base is None else self._base.find(space)


def spaces_of(recipe: Recipe, constants: Constants, choices: Choices) -> list[Space[Any]]:
    """The spaces from which the kernel of a recipe is chosen, in the order of asking; none if it cannot run without another kernel."""
    asked = _Asked(choices.tuned)
    generated = recipe.generate(constants, replace(choices, tuned=asked))
    return asked.spaces if generated.before is None else []


def task_of(recipe: Recipe, constants: Constants, choices: Choices, nodes: tuple[str, ...] = (), op_type: str = "") -> TuningTask | None:
    """The task of tuning the schedule of a recipe; None for a kernel that has nothing to choose."""
    spaces = [space for space in spaces_of(recipe, constants, choices) if not space.is_algorithm]
    if not spaces:
        return None
    return TuningTask(spaces[-1], recipe, known_constants(recipe, constants), nodes, op_type, choices)

"""The choices for a nest of loops: which loop runs over the lanes, how many partial sums a long row has, and how finely tasks are cut."""

from __future__ import annotations

from typing import ClassVar

from anycann.codegen.accesses import FlatNest
from anycann.codegen.kernel import Kernel
from anycann.codegen.nest_stages import UNROLL
from anycann.codegen.nest_writer import PARALLEL_PARTS
from anycann.codegen.space import Parameter, Space
from anycann.codegen.turning import turning
from anycann.codegen.vector_loop import outer_vector
from anycann.support.records import dataclass
from anycann.target.target import Target


@dataclass(frozen=True)
class NestTile:
    """vector: the outer loop that runs over the lanes, -1 if each stage has one of its own. unroll: partial sums side by side.

    parts: about how many tasks there are at least, if there is enough work.
    """

    vector: int
    unroll: int
    parts: int


@dataclass(frozen=True)
class NestProblem:
    """A nest by the text of the kernel it gives unasked, and the extents of its loops."""

    digest: str
    outer: tuple[int, ...]
    over: tuple[tuple[int, ...], ...]  # of each stage


@dataclass(frozen=True)
class NestSpace(Space[NestTile]):
    """vectors: the outer loops that may run over the lanes. Nests that are turned in registers have no choice there."""

    family: ClassVar[str] = "Nest"
    version: ClassVar[int] = 1
    tile_type: ClassVar[type[NestTile]] = NestTile

    problem: NestProblem
    target: Target
    vectors: tuple[int, ...]
    unasked: NestTile

    def parameters(self) -> tuple[Parameter, ...]:
        has_rows = any(self.problem.over)
        return (
            Parameter("vector", self.vectors),
            Parameter("unroll", (1, 2, 4, 8) if has_rows else (self.unasked.unroll,)),
            Parameter("parts", (8, 16, 64, 256)),
        )

    def refusal(self, tile: NestTile) -> str | None:
        if tile.vector not in self.vectors:
            return f"loop {tile.vector} can't run over the lanes"
        if tile.unroll not in (1, 2, 4, 8) or (tile.unroll != self.unasked.unroll and not any(self.problem.over)):
            return f"{tile.unroll} partial sums"
        return None if 1 <= tile.parts <= 4096 else f"{tile.parts} tasks"

    def default(self) -> NestTile:
        return self.unasked


def default_nest_tile(nest: FlatNest, target: Target) -> NestTile:
    """What is chosen unasked: the loop along which most memory is read and written in order."""
    vector = outer_vector(nest, target)
    return NestTile(-1 if vector is None else nest.outer.index(vector), UNROLL, PARALLEL_PARTS)


def nest_space(nest: FlatNest, kernel: Kernel, target: Target) -> NestSpace:
    """The space of a nest; `kernel` is what it gives unasked."""
    unasked = default_nest_tile(nest, target)
    problem = NestProblem(
        kernel.symbol.rsplit("_", 1)[-1], tuple(v.extent for v in nest.outer), tuple(tuple(v.extent for v in s.over) for s in nest.stages)
    )
    # the innermost loop may be a short run that lies together (vector_loop.py: _run_cycles)
    loops = [number for number, loop in enumerate(nest.outer) if loop.extent >= target.lanes or loop is nest.outer[-1]]
    own = [-1] if any(stage.over for stage in nest.stages) else []
    free = turning(nest, target.lanes) is None
    vectors = {unasked.vector, *loops, *own} if free else {unasked.vector}
    return NestSpace(problem, target, tuple(sorted(vectors)), unasked)

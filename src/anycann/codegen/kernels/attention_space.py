"""The choices for attention: the register tiles of its two products, and how many keys are weighed before their values are added up."""

from __future__ import annotations

from typing import ClassVar

from anycann.codegen.kernels.attention_default import default_attention_tile
from anycann.codegen.kernels.attention_few import is_few
from anycann.codegen.kernels.attention_shape import AttentionShape, AttentionTile, Memory, keeps_copies
from anycann.codegen.kernels.attention_tile_plan import is_tiled
from anycann.codegen.space import Parameter, Space
from anycann.support.records import dataclass
from anycann.target.target import Target

MOST_SCRATCH_BYTES = 16 << 20  # for each thread
_WEIGH = 12.0  # cycles to turn a vector of scores into weights
_AROUND = 30.0  # cycles around each register tile
# Cycles to copy a vector of keys or values side by side, and to read one that lies apart for each register tile of rows (Zen 3).
_COPY, _READ_APART = 4.0, 1.7


@dataclass(frozen=True)
class AttentionSpace(Space[AttentionTile]):
    """Tiles of `emit_attention`; of few rows, and of bfloat16 by matrix tiles or pairs, there is one, which means nothing."""

    family: ClassVar[str] = "Attention"
    version: ClassVar[int] = 2
    tile_type: ClassVar[type[AttentionTile]] = AttentionTile

    problem: AttentionShape
    target: Target

    def parameters(self) -> tuple[Parameter, ...]:
        if is_few(self.problem, self.target) or is_tiled(self.problem, self.target):
            return tuple(Parameter(name, (value,)) for name, value in self.point(self.default()).items())
        vectors = range(1, min(4, self._row_vectors) + 1)
        return (
            Parameter("vectors", tuple(vectors)),
            Parameter("keys", tuple(range(1, min(self.target.registers, max(1, self.problem.keys)) + 1))),
            Parameter("block", self._blocks()),
            Parameter("rows", tuple(n for n in (1, 2, 4, 6, 8, 16) if n <= self.target.lanes)),
            Parameter("columns", tuple(range(1, min(8, self._columns) + 1))),
            Parameter("group", self._groups()),
        )

    def refusal(self, tile: AttentionTile) -> str | None:
        registers = self.target.registers
        if min(tile.vectors, tile.keys, tile.block, tile.rows, tile.columns, tile.group) < 1:
            return "a size below 1"
        if tile.vectors > self._row_vectors or tile.columns > self._columns:
            return f"{tile.vectors} x {tile.columns} registers; there are {self._row_vectors} x {self._columns}"
        if tile.vectors * (tile.keys + 1) > registers or tile.columns * (tile.rows + 1) > registers:
            return f"{tile.keys} keys of {tile.vectors}, {tile.rows} rows of {tile.columns} registers; there are {registers}"
        if tile.block % tile.keys:
            return f"a block of {tile.block} keys in tiles of {tile.keys}"
        if tile.rows > tile.vectors * self.target.lanes:
            return f"{tile.rows} rows at once of {tile.vectors * self.target.lanes}"
        if Memory.of(self.problem, tile, self.target.lanes).nbytes > MOST_SCRATCH_BYTES:
            return "too much scratch memory"
        return None

    def default(self) -> AttentionTile:
        return default_attention_tile(self.problem, self.target)

    def estimate(self, tile: AttentionTile) -> float:
        """Multiply-adds at two a cycle or loads at two a cycle, whichever is more, for both products; weighing; loops; gathering."""
        shape, lanes = self.problem, self.target.lanes
        tasks = shape.batches * -(-shape.rows // (tile.vectors * lanes))
        tiles = -(-shape.keys // tile.keys)
        scores = tiles * (shape.depth * max(tile.keys * tile.vectors, tile.keys + tile.vectors) / 2 + _AROUND)
        parts = -(-tile.vectors * lanes // tile.rows) * -(-self._columns // tile.columns)
        one = max(tile.rows * tile.columns, tile.rows + tile.columns) / 2
        sums = parts * (shape.keys * one + -(-shape.keys // tile.block) * (_AROUND + tile.rows * tile.columns))
        return tasks * (scores + sums + shape.keys * tile.vectors * _WEIGH) + self._gathering(tile, tasks)

    def _gathering(self, tile: AttentionTile, tiles: int) -> float:
        """Keys and values that lie apart: copied by each task, or by the first that needs them, or read by all `tiles` of rows."""
        shape, lanes = self.problem, self.target.lanes
        if len(self._groups()) == 1:
            return 0.0
        vectors = shape.keys * (-(-shape.depth // lanes) + -(-shape.width // lanes))
        if tile.group == 1:
            return tiles * vectors * _READ_APART
        tasks = 1 if keeps_copies(shape, tile, lanes) else -(-shape.rows // (tile.group * tile.vectors * lanes))
        return shape.batches * tasks * vectors * _COPY

    @property
    def _row_vectors(self) -> int:
        return max(1, -(-self.problem.rows // self.target.lanes))

    @property
    def _columns(self) -> int:
        return max(1, -(-self.problem.width // self.target.lanes))

    def _groups(self) -> tuple[int, ...]:
        """Register tiles of rows that share copies; one where nothing is copied, or where that was never seen to gain."""
        default = self.default().group
        return (1,) if default == 1 else tuple(sorted({1, 2, 4, 8, 16, default}))

    def _blocks(self) -> tuple[int, ...]:
        """Multiples of every tile of keys, up to all keys."""
        keys = max(1, self.problem.keys)
        found = {self.default().block}
        for tile in range(1, min(self.target.registers, keys) + 1):
            found |= {-(-keys // (parts * tile)) * tile for parts in (1, 2, 3, 4, 8)}
        return tuple(sorted(found))

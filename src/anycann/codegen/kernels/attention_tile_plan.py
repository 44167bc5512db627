"""How attention of bfloat16 by matrix tiles or by pairs is cut, where it can be, and its scratch memory."""

from __future__ import annotations

import math

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.arithmetic_rate import multiplies_bfloat
from anycann.codegen.kernels.attention_few import is_few
from anycann.codegen.kernels.attention_shape import AttentionShape, lie_side_by_side
from anycann.codegen.kernels.dot_tiles import ROW_BYTES, TILE_GROUPS, TILE_ROWS
from anycann.codegen.values import Value
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te import dtypes

TILE_DEPTH = 2 * TILE_GROUPS  # elements along k of one tile
LANES = 16
STEP = 2 * LANES  # scores that become one register of weights
VECTOR = "<16 x float>"
# Rows that share a copy of keys and values, tasks that are enough for any number of threads, and keys whose scores wait in scratch.
_MOST_ROWS, _ENOUGH_TASKS, _LEAST_ROWS, _BLOCK = 256, 8, 64, 256


def is_tiled(shape: AttentionShape, target: Target) -> bool:
    """True if the target gains by multiplying bfloat16, by tiles or by pairs, and the operands lie as their copies read them."""
    if shape.dtype is not dtypes.bfloat16 or not multiplies_bfloat(target) or target.lanes != LANES or not target.has("avx512bf16"):
        return False
    if is_few(shape, target) or 0 in (shape.keys, shape.depth, shape.width):
        return False
    keys = any(lie_side_by_side(axis) for axis in shape.key.axes[-2:])
    return keys and lie_side_by_side(shape.query.axes[-1]) and all(score.key in (0, 1) for score in shape.scores)


def _whole(count: int, size: int) -> int:
    return -(-count // size) * size


@dataclass(frozen=True)
class TiledAttention:
    """How one attention is cut, and its scratch memory: rows of a task, keys of a block, tiles of rows that are computed together."""

    shape: AttentionShape

    @property
    def row_tiles(self) -> int:
        return 1 if self.shape.rows <= TILE_ROWS else 2

    @property
    def group(self) -> int:
        """Rows that are computed together."""
        return self.row_tiles * TILE_ROWS

    @property
    def rows(self) -> int:
        wanted = min(-(-_ENOUGH_TASKS // self.shape.batches), -(-self.shape.rows // _LEAST_ROWS))
        blocks = max(wanted, -(-self.shape.rows // _MOST_ROWS))
        return _whole(-(-self.shape.rows // blocks), self.group)

    @property
    def blocks(self) -> int:
        """Tasks of a head."""
        return -(-self.shape.rows // self.rows)

    @property
    def tasks(self) -> int:
        return self.shape.batches * self.blocks

    @property
    def block(self) -> int:
        keys = self.shape.keys
        return _whole(-(-keys // -(-keys // _BLOCK)), TILE_DEPTH)

    @property
    def once(self) -> bool:
        """True if every row sees one block of keys, and every one the same: then nothing is kept from block to block."""
        return self.shape.keys <= self.block and self.shape.reach is None

    @property
    def all_seen(self) -> bool:
        """True if every row sees all keys of every block, and blocks are full."""
        return self.shape.keys % TILE_DEPTH == 0 and self.shape.reach is None

    @property
    def exponent_scale(self) -> float:
        """What scores in scratch are multiplied by before they are exponents of two."""
        return math.log2(math.e) * self.shape.exponent_scale

    @property
    def depth(self) -> int:
        return _whole(self.shape.depth, TILE_DEPTH)

    @property
    def columns(self) -> int:
        """Tiles of columns of the results."""
        return -(-self.shape.width // LANES)

    @property
    def width(self) -> int:
        return self.columns * LANES

    @property
    def score_row(self) -> int:
        """Floats from row to row of scores: a power of two would put the rows of a tile into few cache sets."""
        return self.block + LANES

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each part of the scratch memory, whole cache lines."""
        parts = {
            "queries": 2 * self.rows * self.depth,
            "keys": 2 * self.block * self.depth,
            "values": 2 * self.block * self.width,
            "scores": 4 * self.group * self.score_row,
            "results": 4 * self.rows * self.width,
            "most": 4 * self.rows,
            "total": 4 * self.rows,
        }
        return {name: _whole(nbytes, ROW_BYTES) for name, nbytes in parts.items()}

    @property
    def nbytes(self) -> int:
        return sum(self.sizes.values())

    def at(self, e: Emitter, name: str) -> Value:
        """Where a part begins."""
        sizes = self.sizes
        return e.gep(e.scratch, sum(sizes[n] for n in list(sizes)[: list(sizes).index(name)]), "i8")

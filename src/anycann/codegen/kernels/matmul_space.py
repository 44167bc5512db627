"""The choices for a matrix product: register tile, depth, and how tasks are cut and ordered."""

from __future__ import annotations

from typing import ClassVar

from anycann.codegen.kernels.matmul import scratch_bytes
from anycann.codegen.kernels.matmul_default import default_tile, most_rows, tile_estimate
from anycann.codegen.kernels.matmul_shape import MatmulShape, folded, lanes_of
from anycann.codegen.kernels.matmul_tile import MatmulTile, method, must_copy
from anycann.codegen.space import Parameter, Space
from anycann.support.records import dataclass
from anycann.target.target import Target

MOST_SCRATCH_BYTES = 16 << 20  # for each thread


@dataclass(frozen=True)
class MatmulSpace(Space[MatmulTile]):
    """Tiles of the panel kernel, or of the kernel whose lanes run along k where that one is used."""

    family: ClassVar[str] = "MatMul"
    version: ClassVar[int] = 1
    tile_type: ClassVar[type[MatmulTile]] = MatmulTile

    problem: MatmulShape
    target: Target

    def parameters(self) -> tuple[Parameter, ...]:
        return self._dot_parameters() if self._is_dot else self._panel_parameters()

    def refusal(self, tile: MatmulTile) -> str | None:
        if min(tile.rows, tile.vectors, tile.depth, tile.row_blocks) < 1:
            return "a size below 1"
        refusal = self._refused_dot(tile) if self._is_dot else self._refused_panel(tile)
        if refusal is None and scratch_bytes(self.problem, self.target, tile) > MOST_SCRATCH_BYTES:
            return "too much scratch memory"
        return refusal

    def default(self) -> MatmulTile:
        return default_tile(self.problem, self.target)

    def estimate(self, tile: MatmulTile) -> float:
        return 0.0 if self._is_dot else tile_estimate(self.problem, self.target, tile)

    @property
    def _shape(self) -> MatmulShape:
        return folded(self.problem)

    @property
    def _is_dot(self) -> bool:
        return method(self._shape) == "dot"

    @property
    def _most_vectors(self) -> int:
        """Registers along a row of a panel; few columns, whose neighbours of k lie side by side, are one."""
        return min(8, max(1, -(-self._shape.n // lanes_of(self._shape.accumulator, self.target.lanes))))

    def _panel_parameters(self) -> tuple[Parameter, ...]:
        shape = self._shape
        rows = range(1, max(1, min(shape.m, most_rows(shape, self.target, 1))) + 1)
        copies = (1,) if must_copy(shape) else (0,) if shape.packed else (0, 1)
        return (
            Parameter("vectors", tuple(range(1, self._most_vectors + 1))),
            Parameter("rows", tuple(rows)),
            Parameter("row_blocks", _sizes(-(-max(1, shape.m) // rows[-1]), max(1, shape.m))),
            Parameter("panels_inner", (0, 1)),
            Parameter("depth", (max(1, shape.k),) if shape.grouped else _depths(shape.k)),
            Parameter("copy", copies),
        )

    def _refused_panel(self, tile: MatmulTile) -> str | None:
        shape = self._shape
        if tile.vectors > self._most_vectors:
            return f"{tile.vectors} vectors of {shape.n} columns; up to {self._most_vectors} are computed together"
        most = min(shape.m, most_rows(shape, self.target, tile.vectors))
        if tile.rows > most and (tile.rows, tile.vectors) != (1, 1):
            return f"{tile.rows} rows of {tile.vectors} vectors; up to {most} fit the registers and the matrix"
        if tile.row_blocks > max(1, -(-shape.m // tile.rows)):
            return f"{tile.row_blocks} blocks of {tile.rows} rows are more than there are"
        if (shape.grouped and tile.depth < shape.k) or (tile.depth < shape.k and tile.depth % 16) or tile.depth > max(1, shape.k):
            return f"depth {tile.depth} of {shape.k}"
        if (tile.copy and shape.packed and not must_copy(shape)) or (must_copy(shape) and not tile.copy):
            return "B is copied if its rows do not lie in order or have scales, never if it is packed without"
        return None

    def _dot_parameters(self) -> tuple[Parameter, ...]:
        shape, unasked = self._shape, self.default()
        rows = (1,) if shape.n == 1 else tuple(range(1, min(shape.m, self.target.registers // 4) + 1))
        results = shape.m if shape.n == 1 else shape.n
        groups = max(1, -(-results // lanes_of(shape.accumulator, self.target.lanes)))
        return (
            Parameter("rows", rows or (1,)),
            Parameter("vectors", (1, 2, 3, 4, 6, 8)),
            Parameter("row_blocks", _sizes(1, groups)),
            *(Parameter(name, (int(getattr(unasked, name)),)) for name in ("depth", "panels_inner", "copy")),
        )

    def _refused_dot(self, tile: MatmulTile) -> str | None:
        shape, unasked = self._shape, self.default()
        if (tile.depth, tile.panels_inner, tile.copy) != (unasked.depth, unasked.panels_inner, unasked.copy):
            return "a product along the lanes has no depth, order or copy to choose"
        if tile.rows > max(1, 1 if shape.n == 1 else min(shape.m, self.target.registers // 4)):
            return f"{tile.rows} rows"
        if tile.rows * tile.vectors > max(1, self.target.registers // 4):
            return f"{tile.rows} rows of {tile.vectors} vectors do not fit the registers"
        results = shape.m if shape.n == 1 else shape.n
        groups = max(1, -(-results // lanes_of(shape.accumulator, self.target.lanes)))
        return f"{tile.row_blocks} groups of {groups}" if tile.row_blocks > groups else None


def _sizes(least: int, most: int) -> tuple[int, ...]:
    """1, powers of two, and even parts of `most` and `least`."""
    powers = {1 << bit for bit in range(most.bit_length())}
    parts = {-(-least // n) for n in (1, 2, 3, 4, 6, 8)} | {-(-most // n) for n in (1, 2, 3, 4, 6, 8)}
    return tuple(sorted(n for n in powers | parts if 1 <= n <= most))


def _depths(k: int) -> tuple[int, ...]:
    """All of k, or equal parts of it in multiples of 16."""
    parts = {-(-k // n // 16) * 16 for n in (2, 3, 4, 6, 8, 12, 16, 32)}
    return tuple(sorted({n for n in parts if 48 <= n < k} | {max(1, k)}))

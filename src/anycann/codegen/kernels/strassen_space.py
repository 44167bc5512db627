"""The choices for Strassen's algorithm: whether a matrix product takes it, and its register tile."""

from __future__ import annotations

from typing import ClassVar

from anycann.codegen.kernels.matmul_default import estimate
from anycann.codegen.kernels.matmul_shape import MatmulShape, folded
from anycann.codegen.kernels.strassen_tile import StrassenTile, strassen_gains, strassen_refusal, strassen_tiles
from anycann.codegen.space import Parameter, Space
from anycann.support.records import dataclass
from anycann.target.target import Target


@dataclass(frozen=True)
class ProductAlgorithm:
    """Whether Strassen's algorithm is taken."""

    strassen: bool


@dataclass(frozen=True)
class ProductAlgorithmSpace(Space[ProductAlgorithm]):
    """With seven products of quarters or with eight."""

    family: ClassVar[str] = "MatMulAlgorithm"
    version: ClassVar[int] = 1
    tile_type: ClassVar[type[ProductAlgorithm]] = ProductAlgorithm
    is_algorithm: ClassVar[bool] = True

    problem: MatmulShape
    target: Target

    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("strassen", (0, 1) if strassen_refusal(self.problem, self.target) is None else (0,)),)

    def refusal(self, tile: ProductAlgorithm) -> str | None:
        return strassen_refusal(self.problem, self.target) if tile.strassen else None

    def default(self) -> ProductAlgorithm:
        return ProductAlgorithm(strassen_gains(self.problem, self.target))


# Products of quarters for each whole one, and what sums of quarters take beside them.
_SHARE = 7 / 8 * 1.04


@dataclass(frozen=True)
class StrassenSpace(Space[StrassenTile]):
    """Register tiles of Strassen's algorithm. `problem` must be one that it computes."""

    family: ClassVar[str] = "MatMulStrassen"
    version: ClassVar[int] = 1
    tile_type: ClassVar[type[StrassenTile]] = StrassenTile

    problem: MatmulShape
    target: Target

    def parameters(self) -> tuple[Parameter, ...]:
        tiles = strassen_tiles(self.problem, self.target)
        rows = max((tile.rows for tile in tiles), default=1)
        return (
            Parameter("rows", tuple(range(1, rows + 1))),
            Parameter("vectors", tuple(sorted({tile.vectors for tile in tiles}))),
            Parameter("depth", tuple(sorted({tile.depth for tile in tiles}))),
        )

    def refusal(self, tile: StrassenTile) -> str | None:
        if strassen_refusal(self.problem, self.target):
            return strassen_refusal(self.problem, self.target)
        fitting = [each for each in strassen_tiles(self.problem, self.target) if (each.vectors, each.depth) == (tile.vectors, tile.depth)]
        if not fitting or not 1 <= tile.rows <= fitting[0].rows:
            return f"{tile.rows} rows of {tile.vectors} vectors and a depth of {tile.depth} do not fit the registers or the halves"
        return None

    def default(self) -> StrassenTile:
        return strassen_tiles(self.problem, self.target)[0]

    def estimate(self, tile: StrassenTile) -> float:
        return _SHARE * estimate(folded(self.problem), self.target, tile.rows, tile.vectors)

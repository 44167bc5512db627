"""The choices for Strassen's algorithm: whether a product takes it, and its register tile. Of matrices, and of the pixels of images."""

from __future__ import annotations

from typing import ClassVar, TypeAlias

from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.matmul_default import estimate
from anycann.codegen.kernels.matmul_shape import MatmulShape, folded
from anycann.codegen.kernels.strassen_images import image_gains, image_product, image_refusal
from anycann.codegen.kernels.strassen_tile import StrassenTile, strassen_gains, strassen_refusal, strassen_tiles
from anycann.codegen.space import Parameter, Space
from anycann.support.records import dataclass
from anycann.target.target import Target


@dataclass(frozen=True)
class ProductAlgorithm:
    """Whether Strassen's algorithm is taken."""

    strassen: bool


Problem: TypeAlias = MatmulShape | ConvolutionShape  # a product of matrices, or a pointwise convolution of images in NC1HWC0


def _refusal(problem: Problem, target: Target) -> str | None:
    """Why the algorithm does not compute the problem; None if it does."""
    return image_refusal(problem, target) if isinstance(problem, ConvolutionShape) else strassen_refusal(problem, target)


def _tiles(problem: Problem, target: Target) -> list[StrassenTile]:
    return strassen_tiles(_product(problem, target), target)


def _product(problem: Problem, target: Target) -> MatmulShape:
    """The product that is computed."""
    return image_product(problem, target.lanes) if isinstance(problem, ConvolutionShape) else problem


class ProductAlgorithmSpace(Space[ProductAlgorithm]):
    """With seven products of quarters or with eight."""

    family: ClassVar[str] = "MatMulAlgorithm"
    version: ClassVar[int] = 1
    tile_type: ClassVar[type[ProductAlgorithm]] = ProductAlgorithm
    is_algorithm: ClassVar[bool] = True

    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("strassen", (0, 1) if _refusal(self.problem, self.target) is None else (0,)),)

    def refusal(self, tile: ProductAlgorithm) -> str | None:
        return _refusal(self.problem, self.target) if tile.strassen else None

    def default(self) -> ProductAlgorithm:
        gains = image_gains if isinstance(self.problem, ConvolutionShape) else strassen_gains
        return ProductAlgorithm(gains(self.problem, self.target))


class ImageAlgorithmSpace(ProductAlgorithmSpace):
    """The same for a pointwise convolution."""

    family: ClassVar[str] = "ConvProductAlgorithm"


# Products of quarters for each whole one, and what sums of quarters take beside them.
_SHARE = 7 / 8 * 1.04


class StrassenSpace(Space[StrassenTile]):
    """Register tiles of Strassen's algorithm. `problem` must be one that it computes."""

    family: ClassVar[str] = "MatMulStrassen"
    version: ClassVar[int] = 1
    tile_type: ClassVar[type[StrassenTile]] = StrassenTile

    def parameters(self) -> tuple[Parameter, ...]:
        tiles = _tiles(self.problem, self.target)
        rows = max((tile.rows for tile in tiles), default=1)
        return (
            Parameter("rows", tuple(range(1, rows + 1))),
            Parameter("vectors", tuple(sorted({tile.vectors for tile in tiles}))),
            Parameter("depth", tuple(sorted({tile.depth for tile in tiles}))),
        )

    def refusal(self, tile: StrassenTile) -> str | None:
        why = _refusal(self.problem, self.target)
        if why is not None:
            return why
        fitting = [each for each in _tiles(self.problem, self.target) if (each.vectors, each.depth) == (tile.vectors, tile.depth)]
        if not fitting or not 1 <= tile.rows <= fitting[0].rows:
            return f"{tile.rows} rows of {tile.vectors} vectors and a depth of {tile.depth} do not fit the registers or the halves"
        return None

    def default(self) -> StrassenTile:
        return _tiles(self.problem, self.target)[0]

    def estimate(self, tile: StrassenTile) -> float:
        return _SHARE * estimate(folded(_product(self.problem, self.target)), self.target, tile.rows, tile.vectors)


class ImageStrassenSpace(StrassenSpace):
    """The same for a pointwise convolution."""

    family: ClassVar[str] = "ConvStrassen"

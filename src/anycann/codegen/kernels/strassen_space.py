"""The choices for Strassen's algorithm: whether a product takes it, and its register tile. Of matrices, and of the pixels of images."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

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


@dataclass(frozen=True)
class StrassenChoice(Space[ProductAlgorithm]):
    """With seven products of quarters or with eight."""

    version: ClassVar[int] = 1
    tile_type: ClassVar[type[ProductAlgorithm]] = ProductAlgorithm
    is_algorithm: ClassVar[bool] = True

    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("strassen", (0, 1) if self.why_not() is None else (0,)),)

    def refusal(self, tile: ProductAlgorithm) -> str | None:
        return self.why_not() if tile.strassen else None

    @abstractmethod
    def why_not(self) -> str | None:
        """Why the algorithm does not compute the problem; None if it does."""


@dataclass(frozen=True)
class ProductAlgorithmSpace(StrassenChoice):
    """Of a product of matrices."""

    family: ClassVar[str] = "MatMulAlgorithm"

    problem: MatmulShape
    target: Target

    def default(self) -> ProductAlgorithm:
        return ProductAlgorithm(strassen_gains(self.problem, self.target))

    def why_not(self) -> str | None:
        return strassen_refusal(self.problem, self.target)


@dataclass(frozen=True)
class ImageAlgorithmSpace(StrassenChoice):
    """Of a pointwise convolution of images in NC1HWC0."""

    family: ClassVar[str] = "ConvProductAlgorithm"

    problem: ConvolutionShape
    target: Target

    def default(self) -> ProductAlgorithm:
        return ProductAlgorithm(image_gains(self.problem, self.target))

    def why_not(self) -> str | None:
        return image_refusal(self.problem, self.target)


# Products of quarters for each whole one, and what sums of quarters take beside them.
_SHARE = 7 / 8 * 1.04


@dataclass(frozen=True)
class StrassenTiles(Space[StrassenTile]):
    """Register tiles of Strassen's algorithm. `problem` must be one that it computes."""

    tile_type: ClassVar[type[StrassenTile]] = StrassenTile

    @property
    @abstractmethod
    def product(self) -> MatmulShape:
        """The product that is computed."""

    def parameters(self) -> tuple[Parameter, ...]:
        tiles = strassen_tiles(self.product, self.target)
        rows = max((tile.rows for tile in tiles), default=1)
        return (
            Parameter("rows", tuple(range(1, rows + 1))),
            Parameter("vectors", tuple(sorted({tile.vectors for tile in tiles}))),
            Parameter("depth", tuple(sorted({tile.depth for tile in tiles}))),
        )

    def refusal(self, tile: StrassenTile) -> str | None:
        if strassen_refusal(self.product, self.target):
            return strassen_refusal(self.product, self.target)
        fitting = [each for each in strassen_tiles(self.product, self.target) if (each.vectors, each.depth) == (tile.vectors, tile.depth)]
        if not fitting or not 1 <= tile.rows <= fitting[0].rows:
            return f"{tile.rows} rows of {tile.vectors} vectors and a depth of {tile.depth} do not fit the registers or the halves"
        return None

    def default(self) -> StrassenTile:
        return strassen_tiles(self.product, self.target)[0]

    def estimate(self, tile: StrassenTile) -> float:
        return _SHARE * estimate(folded(self.product), self.target, tile.rows, tile.vectors)


@dataclass(frozen=True)
class StrassenSpace(StrassenTiles):
    """For a product of matrices."""

    family: ClassVar[str] = "MatMulStrassen"
    version: ClassVar[int] = 1

    problem: MatmulShape
    target: Target

    @property
    def product(self) -> MatmulShape:
        return self.problem


@dataclass(frozen=True)
class ImageStrassenSpace(StrassenTiles):
    """For a pointwise convolution of images in NC1HWC0."""

    family: ClassVar[str] = "ConvStrassen"
    version: ClassVar[int] = 1

    problem: ConvolutionShape
    target: Target

    @property
    def product(self) -> MatmulShape:
        return image_product(self.problem, self.target.lanes)

    def refusal(self, tile: StrassenTile) -> str | None:
        return image_refusal(self.problem, self.target) or super().refusal(tile)

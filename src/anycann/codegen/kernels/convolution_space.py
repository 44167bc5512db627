"""The choices for a convolution: direct or Winograd, and how each is cut into tiles."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from anycann.codegen.kernels.arithmetic_rate import multiplies_bfloat
from anycann.codegen.kernels.convolution_estimate import ConvolutionTile, estimate
from anycann.codegen.kernels.convolution_method import method
from anycann.codegen.kernels.convolution_shape import ConvolutionShape, axes
from anycann.codegen.kernels.convolution_tile import (
    MOST_FMAS,
    block_choices,
    default_tile,
    depth_choices,
    may_take_images,
    most_columns,
    most_images,
    unroll_choices,
)
from anycann.codegen.kernels.dot_plane import as_plane
from anycann.codegen.kernels.dot_space import DotSpace
from anycann.codegen.kernels.planes_tile import (
    PlanesTile,
    default_planes_tile,
    most_outputs,
    most_vectors,
    planes_estimate,
    planes_refusal,
)
from anycann.codegen.kernels.winograd_blocking import (
    default_winograd_tile,
    most_winograd_columns,
    most_winograd_tiles,
    plane_choices,
    winograd_fits,
    winograd_profitable,
    winograd_unrolls,
)
from anycann.codegen.kernels.winograd_bundles import bundled, most_blocks
from anycann.codegen.kernels.winograd_estimate import winograd_estimate
from anycann.codegen.kernels.winograd_tile import WinogradTile, all_tiles, tile_sizes, winograd_refusal
from anycann.codegen.space import Parameter, Space
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te import dtypes


@dataclass(frozen=True)
class ConvolutionSpace(Space[ConvolutionTile]):
    """Tiles of the direct kernel, depthwise and grouped ones included."""

    family: ClassVar[str] = "Conv"
    version: ClassVar[int] = 4
    tile_type: ClassVar[type[ConvolutionTile]] = ConvolutionTile

    problem: ConvolutionShape
    target: Target
    blocked_input: bool = True

    def context(self) -> Mapping[str, int]:
        return {"blocked_input": int(self.blocked_input)}

    def parameters(self) -> tuple[Parameter, ...]:
        shape, target = self.problem, self.target
        how = method(shape, target.lanes, self.blocked_input)
        blocks = tuple(block_choices(shape, target.lanes, how))
        most = max(most_columns(shape, target, block, how) for block in blocks)
        widest = max(axis.out_size for merge in (False, True) for axis in axes(shape, merge)[-1:])
        widest = max(widest, min(shape.batch, most_images(shape)) if may_take_images(shape, how) else 0)
        merges = (0, 1) if axes(shape, True) != axes(shape, False) else (0,)
        return (
            Parameter("merge", merges),
            Parameter("blocks", blocks),
            Parameter("columns", tuple(range(1, max(1, min(most, widest)) + 1))),
            Parameter("unroll", unroll_choices(shape, target, self.blocked_input)),
            Parameter("blocks_inner", (0, 1)),
            Parameter("depth", depth_choices(shape, target, self.blocked_input, 1)),
            Parameter("images", (0, 1) if may_take_images(shape, how) else (0,)),
        )

    def refusal(self, tile: ConvolutionTile) -> str | None:
        shape, target = self.problem, self.target
        how = method(shape, target.lanes, self.blocked_input)
        if tile.merge and axes(shape, True) == axes(shape, False):
            return "no axes can be merged"
        if tile.blocks not in block_choices(shape, target.lanes, how):
            return f"{tile.blocks} channel blocks"
        if tile.images and (tile.depth or not may_take_images(shape, how)):
            return "a tile of several images needs images, with short rows and all input channels"
        extent = min(shape.batch, most_images(shape)) if tile.images else axes(shape, tile.merge)[-1].out_size
        most = min(most_columns(shape, target, tile.blocks, how), max(1, extent))
        if not 1 <= tile.columns <= most:
            return f"{tile.columns} columns; 1 to {most} fit the registers and the image"
        unrolls = unroll_choices(shape, target, self.blocked_input)
        if tile.unroll not in unrolls:
            return f"{tile.unroll} input channels do not divide a channel block"
        if tile.depth not in depth_choices(shape, target, self.blocked_input, tile.blocks):
            return f"{tile.depth} input channel blocks at a time; the sums of all pixels have to fit the cache"
        if tile.depth and tile.blocks_inner:
            return "a task of all pixels has no rows whose channel blocks could go first"
        much = tile.unroll > unrolls[0] and tile.unroll * tile.columns * tile.blocks > MOST_FMAS
        return f"{tile.unroll} input channels written out are too much code" if much else None

    def default(self) -> ConvolutionTile:
        return default_tile(self.problem, self.target, self.blocked_input)

    def estimate(self, tile: ConvolutionTile) -> float:
        return estimate(self.problem, self.target, tile, self.blocked_input)


@dataclass(frozen=True)
class WinogradSpace(Space[WinogradTile]):
    """Blockings of Winograd's algorithm. `problem` must be one that it can compute. held: as `winograd_estimate`."""

    family: ClassVar[str] = "ConvWinograd"
    version: ClassVar[int] = 3
    tile_type: ClassVar[type[WinogradTile]] = WinogradTile

    problem: ConvolutionShape
    target: Target
    held: bool = False

    def parameters(self) -> tuple[Parameter, ...]:
        bundle = bundled(self.problem, self.target.lanes)
        totals = {max(1, all_tiles(self.problem, size)) for size in tile_sizes(self.problem)}
        out_blocks = bundle.out_blocks(self.target.lanes)
        blocks = tuple(range(1, most_blocks(bundle, self.target.lanes) + 1))
        planes = plane_choices(self.problem)
        columns = range(1, min(max(totals) * planes[-1], most_winograd_columns(self.target, 1)) + 1)
        sizes = tile_sizes(self.problem)
        ones = [WinogradTile(1, 1, 1, 1, 1, 1, *size, by_point) for size in sizes for by_point in (False, True)]
        most = max(most_winograd_tiles(bundle, self.target, one) for one in ones)
        cuts = {-(-total // parts) for total in totals for parts in range(1, total + 1)}
        heights, widths = (tuple(sorted(set(along))) for along in zip(*sizes, strict=True))
        return (
            Parameter("blocks", blocks),
            Parameter("tiles", tuple(sorted(n for n in cuts if n <= most))),
            Parameter("columns", tuple(columns)),
            Parameter("unroll", winograd_unrolls(self.target)),
            Parameter("splits", tuple(n for n in (1, 2, 4, 8) if n <= out_blocks)),
            Parameter("planes", planes),
            Parameter("height", heights),
            Parameter("width", widths),
            Parameter("by_point", (0, 1)),
        )

    def refusal(self, tile: WinogradTile) -> str | None:
        shape, target = self.problem, self.target
        if winograd_refusal(shape, target):
            return winograd_refusal(shape, target)
        bundle = bundled(shape, target.lanes)
        if not 1 <= tile.blocks <= most_blocks(bundle, target.lanes):
            return f"{tile.blocks} channel blocks"
        if not 1 <= tile.columns <= min(tile.positions, most_winograd_columns(target, tile.blocks)):
            return f"{tile.columns} columns do not fit {tile.tiles} tiles of {tile.planes} planes and the registers"
        if tile.size not in tile_sizes(shape):
            return f"tiles of {tile.height} x {tile.width} results"
        if tile.planes not in plane_choices(shape):
            return f"{tile.planes} planes"
        if tile.tiles > max(1, all_tiles(shape, tile.size)) or (tile.positions > 1 and not winograd_fits(bundle, target, tile)):
            return f"{tile.tiles} tiles of {tile.planes} planes do not fit the image or the cache"
        if tile.unroll not in winograd_unrolls(target) or target.lanes % tile.unroll or shape.group_inputs % tile.unroll:
            return f"{tile.unroll} input channels do not divide a channel block"
        if tile.unroll > 1 and tile.unroll * tile.columns * tile.blocks > MOST_FMAS:
            return f"{tile.unroll} input channels written out are too much code"
        groups = -(-bundle.out_blocks(target.lanes) // tile.blocks)
        return None if 1 <= tile.splits <= groups else f"{tile.splits} parts of {groups} groups"

    def default(self) -> WinogradTile:
        return default_winograd_tile(self.problem, self.target, self.held)

    def estimate(self, tile: WinogradTile) -> float:
        return winograd_estimate(self.problem, self.target, tile, self.held)


@dataclass(frozen=True)
class PlanesSpace(Space[PlanesTile]):
    """Register tiles of pixels and output channels, for row-major planes. `problem` must be one that they can compute."""

    family: ClassVar[str] = "ConvPlanes"
    version: ClassVar[int] = 1
    tile_type: ClassVar[type[PlanesTile]] = PlanesTile

    problem: ConvolutionShape
    target: Target

    def parameters(self) -> tuple[Parameter, ...]:
        vectors = range(1, most_vectors(self.problem, self.target) + 1)
        outputs = range(1, min(self.problem.out_channels, most_outputs(self.target, 1)) + 1)
        return (Parameter("vectors", tuple(vectors)), Parameter("outputs", tuple(outputs)))

    def refusal(self, tile: PlanesTile) -> str | None:
        if planes_refusal(self.problem, self.target):
            return planes_refusal(self.problem, self.target)
        if not 1 <= tile.vectors <= most_vectors(self.problem, self.target):
            return f"{tile.vectors} vectors of a row"
        most = min(self.problem.out_channels, most_outputs(self.target, tile.vectors))
        return None if 1 <= tile.outputs <= most else f"{tile.outputs} output channels; 1 to {most} fit the registers"

    def default(self) -> PlanesTile:
        return default_planes_tile(self.problem, self.target)

    def estimate(self, tile: PlanesTile) -> float:
        return planes_estimate(self.problem, self.target, tile)


@dataclass(frozen=True)
class ConvolutionAlgorithm:
    """Whether Winograd's algorithm is taken."""

    winograd: bool


# Products of bfloat16 by pairs take half as long as those of float32, Winograd's are a quarter as many, and more exact. With Zen 4's rates
# (117 and 225 GFLOP/s) the estimate is 0.54 to 0.66 of that of pairs for 64 to 256 channels of ResNet-50. Tiles are always faster.
_PAIRS_GAIN = 0.85


@dataclass(frozen=True)
class WinogradChoice(Space[ConvolutionAlgorithm]):
    """With Winograd's algorithm or without it: the choice that also decides in which layout the input is wanted."""

    version: ClassVar[int] = 1
    tile_type: ClassVar[type[ConvolutionAlgorithm]] = ConvolutionAlgorithm
    is_algorithm: ClassVar[bool] = True

    problem: ConvolutionShape
    target: Target

    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("winograd", (0, 1) if self._refusal() is None else (0,)),)

    def refusal(self, tile: ConvolutionAlgorithm) -> str | None:
        return self._refusal() if tile.winograd else None

    def default(self) -> ConvolutionAlgorithm:
        return ConvolutionAlgorithm(self._refusal() is None and self._gains())

    @abstractmethod
    def _gains(self) -> bool:
        """True if the estimate of Winograd's algorithm is clearly below that of what is taken else."""

    @abstractmethod
    def _refusal(self) -> str | None:
        """Why Winograd's algorithm cannot compute the problem; None if it can."""


@dataclass(frozen=True)
class AlgorithmSpace(WinogradChoice):
    """Of floating-point numbers: direct, by pairs, or Winograd's. held: as `winograd_estimate`."""

    family: ClassVar[str] = "ConvAlgorithm"

    held: bool = False

    def _gains(self) -> bool:
        shape, target = self.problem, self.target
        if shape.dtype is not dtypes.bfloat16 or not multiplies_bfloat(target):
            return winograd_profitable(shape, target, self.held)
        dots = DotSpace(as_plane(shape), target)
        tile = default_winograd_tile(shape, target, self.held)
        return winograd_estimate(shape, target, tile, self.held) < _PAIRS_GAIN * dots.estimate(dots.default())

    def _refusal(self) -> str | None:
        if self.problem.dtype not in (dtypes.float32, dtypes.bfloat16):
            return f"the input is stored as {self.problem.dtype}"
        if self.problem.batch * self.problem.out_pixels == 0:
            return "there is nothing to compute"
        return winograd_refusal(self.problem, self.target)

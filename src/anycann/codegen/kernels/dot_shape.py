"""What a convolution by dot products computes, and in which order its operands lie: pixels first, the channels of a pixel together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.dot_products import GROUP_BYTES
from anycann.codegen.kernels.dot_tiles import TILE_GROUPS, has_tiles
from anycann.target.target import Target
from anycann.te import dtypes


@dataclass(frozen=True)
class DotTile:
    """How a convolution is cut.

    A register tile is `rows` pixels and `vectors` vectors of output channels; with matrix tiles, `row_tiles` of `rows` pixels. A task is
    `image_rows` rows of output pixels and `panels` panels of `vectors`. With `merge`, the rows of a task are one long row.
    """

    rows: int
    vectors: int
    row_tiles: int
    image_rows: int
    panels: int
    merge: bool = False

    @property
    def pixels(self) -> int:
        """Pixels that are computed together."""
        return self.rows * self.row_tiles


def as_plane(shape: ConvolutionShape) -> ConvolutionShape:
    """The same convolution over two spatial dimensions; a 1x1 one with stride 1 over one column of all pixels of all images."""
    if len(shape.in_size) == 1:
        shape = replace(
            shape,
            in_size=(*shape.in_size, 1),
            kernel=(*shape.kernel, 1),
            strides=(*shape.strides, 1),
            dilations=(*shape.dilations, 1),
            pads_begin=(*shape.pads_begin, 0),
            out_size=(*shape.out_size, 1),
        )
    pointwise = shape.kernel == (1, 1) and shape.strides == (1, 1) and shape.pads_begin == (0, 0) and shape.out_size == shape.in_size
    if not pointwise:
        return shape
    pixels = shape.batch * prod(shape.in_size)
    return replace(shape, batch=1, in_size=(pixels, 1), out_size=(pixels, 1))


@dataclass(frozen=True)
class DotPlan:
    """A convolution over two dimensions and its tile, and everything that follows from them. Strides are in elements.

    planar: the input is row-major [N, C, H, W]. centred: the weights have no zero point.
    """

    shape: ConvolutionShape
    target: Target
    tile: DotTile
    planar: bool = False
    centred: bool = True

    @property
    def group(self) -> int:
        return GROUP_BYTES // self.shape.dtype.nbytes

    @property
    def uses_tiles(self) -> bool:
        return has_tiles(self.target, self.shape.dtype)

    @property
    def copied(self) -> bool:
        """True if a task makes a padded copy of the rows that it reads, in its scratch memory."""
        return self.planar or needs_copy(self.shape, self.target)

    @property
    def channels(self) -> int:
        """Channels of a pixel as they are multiplied: those of the input, or those of its copy."""
        return copied_channels(self.shape, self.target) if self.copied else self.shape.in_channels

    @property
    def pitch(self) -> int:
        """Pixels from one row of the input to the next, as it is read."""
        if not self.copied:
            return self.shape.in_size[1]
        return (self.shape.out_size[1] - 1) * self.shape.strides[1] + (self.shape.kernel[1] - 1) * self.shape.dilations[1] + 1

    @property
    def copied_rows(self) -> int:
        """Rows of the input that one task reads."""
        shape = self.shape
        return (self.tile.image_rows - 1) * shape.strides[0] + (shape.kernel[0] - 1) * shape.dilations[0] + 1

    @property
    def runs(self) -> tuple[int, int, int]:
        """(kernel rows, parts of a row, groups in a part): a part lies in one piece."""
        return runs(self.shape, self.channels)

    @property
    def steps(self) -> int:
        """Groups of a part that matrix tiles take at a time; it divides the part."""
        return tile_groups(self.runs[2])

    @property
    def depth(self) -> int:
        """Groups along k of one column of weights."""
        return prod(self.runs)

    @property
    def width(self) -> int:
        """Output channels of a panel."""
        return self.tile.vectors * self.target.lanes

    @property
    def all_panels(self) -> int:
        return -(-self.shape.out_channels // self.width)

    @property
    def head(self) -> int:
        """Rows of a panel before its weights: integers begin with what zero points add, for each column and times the sum of its input."""
        if self.shape.dtype is dtypes.bfloat16:
            return 0
        return 1 if self.centred else 2

    @property
    def panel_bytes(self) -> int:
        return (self.head + self.depth) * self.width * GROUP_BYTES

    @property
    def pixel_stride(self) -> int:
        """Elements from what one output pixel reads to what the next one does; in a column, that is the next row."""
        return self.row_stride if is_column(self.shape) else self.shape.strides[1] * self.channels

    @property
    def row_stride(self) -> int:
        return self.shape.strides[0] * self.pitch * self.channels

    @property
    def sums_bytes(self) -> int:
        return self.tile.pixels * self.width * GROUP_BYTES

    @property
    def scratch_bytes(self) -> int:
        """The sums of a register tile, then the copy, behind which a last register tile may read on."""
        if not self.copied:
            return self.sums_bytes
        elements = (self.copied_rows * self.pitch + 1) * self.channels + self.tile.pixels * self.pixel_stride
        return self.sums_bytes + elements * self.shape.dtype.nbytes + 2 * self.target.lanes * GROUP_BYTES

    @property
    def tasks(self) -> int:
        return self.shape.batch * self.row_chunks * self.panel_chunks

    @property
    def row_chunks(self) -> int:
        return -(-self.shape.out_size[0] // self.tile.image_rows)

    @property
    def panel_chunks(self) -> int:
        return -(-self.all_panels // self.tile.panels)


def is_column(shape: ConvolutionShape) -> bool:
    """True if a row is one pixel: then rows lie one behind the other as pixels do."""
    return shape.in_size[1] == 1 and shape.out_size[1] == 1 and shape.kernel[1] == 1 and shape.pads_begin[1] == 0


def _cut_window(shape: ConvolutionShape) -> tuple[int, int, int]:
    """(kernel rows, parts of a row, pixels in a part): a part lies in one piece."""
    rows, columns = shape.kernel
    if is_column(shape) and shape.dilations[0] == 1:
        return 1, 1, rows
    return (rows, 1, columns) if shape.dilations[1] == 1 else (rows, columns, 1)


def runs(shape: ConvolutionShape, channels: int) -> tuple[int, int, int]:
    """(kernel rows, parts of a row, groups in a part) with so many channels a pixel."""
    rows, parts, pixels = _cut_window(shape)
    return rows, parts, pixels * channels * shape.dtype.nbytes // GROUP_BYTES


def _makes_groups(shape: ConvolutionShape) -> bool:
    """True if the channels of the input, as they are, make each part whole groups."""
    return _cut_window(shape)[2] * shape.in_channels * shape.dtype.nbytes % GROUP_BYTES == 0


def tile_groups(groups: int) -> int:
    """The most groups, up to what a matrix tile holds, that cut a part evenly."""
    return max((n for n in range(1, TILE_GROUPS + 1) if groups % n == 0), default=1)


def needs_copy(shape: ConvolutionShape, target: Target) -> bool:
    """True if the input cannot be read where it is: it has padding, signed bytes, or channels that make no whole groups."""
    if shape.dtype is dtypes.int8 or not _makes_groups(shape) or not all(_inside(shape, axis) for axis in (0, 1)):
        return True
    return has_tiles(target, shape.dtype) and _wastes_tiles(runs(shape, shape.in_channels)[2])


def copied_channels(shape: ConvolutionShape, target: Target) -> int:
    """Channels of a pixel of the copy: whole groups, and whole matrix tiles where groups would fill them badly."""
    group = GROUP_BYTES // shape.dtype.nbytes
    channels = shape.in_channels if _makes_groups(shape) else -(-shape.in_channels // group) * group
    if has_tiles(target, shape.dtype) and _wastes_tiles(runs(shape, channels)[2]):
        return -(-channels // (group * TILE_GROUPS)) * group * TILE_GROUPS
    return channels


def _wastes_tiles(groups: int) -> bool:
    return groups > TILE_GROUPS and tile_groups(groups) <= TILE_GROUPS // 2 - 2


def _inside(shape: ConvolutionShape, axis: int) -> bool:
    last = (shape.out_size[axis] - 1) * shape.strides[axis] - shape.pads_begin[axis] + (shape.kernel[axis] - 1) * shape.dilations[axis]
    return shape.pads_begin[axis] <= 0 and last < shape.in_size[axis]


def may_merge(shape: ConvolutionShape, target: Target, planar: bool) -> bool:
    """True if the pixels of all rows of a task lie in one line, those between two rows (which nobody wants) included."""
    if is_column(shape):
        return True
    if shape.strides != (1, 1):
        return False
    return planar or needs_copy(shape, target) or (shape.kernel[1] == 1 and shape.out_size[1] == shape.in_size[1])

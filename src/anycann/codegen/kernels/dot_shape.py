"""What a convolution by dot products computes, and in which order its operands lie: pixels first, the channels of a pixel together."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from anycann.codegen.kernel import RowTasks
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.dot_products import GROUP_BYTES, DotProducts
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


@dataclass(frozen=True)
class DotPlan:
    """A convolution over two or three dimensions and its tile, and everything that follows from them. Strides are in elements.

    planar: the input is row-major [N, C, (D,) H, W]. centred: the weights have no zero point. window: so many rows of an image are there
    at a time (te/layout.py); 0: all images are.
    """

    shape: ConvolutionShape
    target: Target
    tile: DotTile
    planar: bool = False
    centred: bool = True
    window: int = 0

    @property
    def channel_stride(self) -> int:
        """From one channel of a planar input to the next one."""
        return self.window * self.shape.in_size[-1] if self.window else self.shape.in_pixels

    @property
    def image_stride(self) -> int:
        """From one image of the input to the next one; all lie in the same place in a window."""
        return 0 if self.window else self.shape.in_channels * self.shape.in_pixels

    @property
    def dots(self) -> DotProducts:
        return DotProducts(self.shape.dtype, self.target)

    @property
    def group(self) -> int:
        """Elements that are multiplied together."""
        return self.dots.group

    @property
    def nbytes(self) -> int:
        """Bytes of an element of the input as it is multiplied."""
        return self.dots.nbytes

    @property
    def uses_tiles(self) -> bool:
        return has_tiles(self.target, self.shape.dtype)

    @property
    def copied(self) -> bool:
        """True if a task makes a padded copy of the rows that it reads, in its scratch memory."""
        return self.planar or self.dots.widens or needs_copy(self.shape, self.target)

    @property
    def channels(self) -> int:
        """Channels of a pixel as they lie in memory: those of the input, or those of its copy."""
        return copied_channels(self.shape, self.target) if self.copied else self.shape.in_channels

    @property
    def multiplied(self) -> int:
        """Channels of a pixel that a panel multiplies: all, or those of the groups that its output channels belong to."""
        return min(_panel_channels(self.shape, self.width, self.target), self.channels) if self.shape.group > 1 else self.channels

    def first_channel(self, panel: int) -> int:
        """The first channel of a pixel that a panel multiplies."""
        return min(panel * self.width // self.shape.group_outputs * self.shape.group_inputs, self.channels - self.multiplied)

    @property
    def images(self) -> int:
        """Planes of output pixels: the images, times the positions along the first of three dimensions."""
        return self.shape.batch * prod(self.shape.out_size[:-2])

    @property
    def pitch(self) -> int:
        """Pixels from one row of the input to the next, as it is read."""
        if not self.copied:
            return self.shape.in_size[-1]
        return (self.shape.out_size[-1] - 1) * self.shape.strides[-1] + (self.shape.kernel[-1] - 1) * self.shape.dilations[-1] + 1

    @property
    def band(self) -> int:
        """Neighbouring rows of the input that one row of the kernel reads in a task."""
        return (self.tile.image_rows - 1) * self.shape.strides[-2] + 1

    @property
    def row_step(self) -> int:
        """Rows from what one row of the kernel reads to what the next does. A copy leaves out those between them, which none reads."""
        dilation = self.shape.dilations[-2]
        return min(dilation, self.band) if self.copied else dilation

    @property
    def copied_rows(self) -> int:
        """Rows of one plane of the input that one task copies."""
        return (self.shape.kernel[-2] - 1) * self.row_step + self.band

    @property
    def planes(self) -> int:
        """Planes of the input that one task reads."""
        return prod(self.shape.kernel[:-2])

    @property
    def plane_pixels(self) -> int:
        """Pixels from one plane that a task reads to the next, as they are read."""
        if self.copied:
            return self.copied_rows * self.pitch
        return prod(self.shape.dilations[:-2]) * self.shape.in_size[-2] * self.pitch

    @property
    def runs(self) -> tuple[int, int, int, int]:
        """(kernel planes, kernel rows, parts of a row, groups in a part): a part lies in one piece."""
        rows, parts, pixels = _cut_window(self.shape, self.multiplied == self.channels)
        return self.planes, rows, parts, pixels * self.multiplied // self.group

    @property
    def steps(self) -> int:
        """Groups of a part that matrix tiles take at a time; it divides the part."""
        return tile_groups(self.runs[-1])

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
        return self.row_stride if is_column(self.shape) else self.shape.strides[-1] * self.channels

    @property
    def row_stride(self) -> int:
        return self.shape.strides[-2] * self.pitch * self.channels

    @property
    def sums_bytes(self) -> int:
        return self.tile.pixels * self.width * GROUP_BYTES

    @property
    def scratch_bytes(self) -> int:
        """The sums of a register tile, then the copy, behind which a last register tile may read on."""
        if not self.copied:
            return self.sums_bytes
        elements = (self.planes * self.plane_pixels + 1) * self.channels + self.tile.pixels * self.pixel_stride
        return self.sums_bytes + elements * self.nbytes + 2 * self.target.lanes * GROUP_BYTES

    @property
    def tasks(self) -> int:
        return self.images * self.row_chunks * self.panel_chunks

    @property
    def row_tasks(self) -> RowTasks:
        """How the tasks lie along the rows of images, for two dimensions: a row is what a task computes of them."""
        (step, _), (pad, _), (dilation, _) = self.shape.strides, self.shape.pads_begin, self.shape.dilations
        last = (self.tile.image_rows - 1) * step + (self.shape.kernel[0] - 1) * dilation - pad
        rows = self.tile.image_rows * step
        return RowTasks(1, self.row_chunks, self.panel_chunks, self.shape.in_size[0], rows, -pad, last, self.images)

    @property
    def row_chunks(self) -> int:
        return -(-self.shape.out_size[-2] // self.tile.image_rows)

    @property
    def panel_chunks(self) -> int:
        return -(-self.all_panels // self.tile.panels)


def is_column(shape: ConvolutionShape) -> bool:
    """True if a row is one pixel: then rows lie one behind the other as pixels do."""
    return shape.in_size[-1] == 1 and shape.out_size[-1] == 1 and shape.kernel[-1] == 1 and shape.pads_begin[-1] == 0


def _cut_window(shape: ConvolutionShape, whole: bool) -> tuple[int, int, int]:
    """(kernel rows, parts of a row, pixels in a part): a part lies in one piece, of several pixels if they are read whole."""
    rows, columns = shape.kernel[-2:]
    if not whole:
        return rows, columns, 1
    if is_column(shape) and shape.dilations[-2] == 1:
        return 1, 1, rows
    return (rows, 1, columns) if shape.dilations[-1] == 1 else (rows, columns, 1)


def _part_groups(shape: ConvolutionShape, channels: int) -> int:
    """Groups of four bytes in a part of the window, with so many channels a pixel, all read."""
    return _cut_window(shape, True)[2] * channels * shape.dtype.nbytes // GROUP_BYTES


def _makes_groups(shape: ConvolutionShape) -> bool:
    """True if the channels of the input, as they are, make each part whole groups."""
    return _cut_window(shape, shape.group == 1)[2] * shape.in_channels * shape.dtype.nbytes % GROUP_BYTES == 0


def tile_groups(groups: int) -> int:
    """The most groups, up to what a matrix tile holds, that cut a part evenly."""
    return max((n for n in range(1, TILE_GROUPS + 1) if groups % n == 0), default=1)


def needs_copy(shape: ConvolutionShape, target: Target) -> bool:
    """True if the input cannot be read where it is: it has padding, signed bytes, or channels that make no whole groups."""
    if shape.dtype is dtypes.int8 or not _makes_groups(shape) or not all(_inside(shape, axis) for axis in range(len(shape.in_size))):
        return True
    return shape.group == 1 and has_tiles(target, shape.dtype) and _wastes_tiles(_part_groups(shape, shape.in_channels))


def copied_channels(shape: ConvolutionShape, target: Target) -> int:
    """Channels of a pixel of the copy: whole groups, and whole matrix tiles where groups would fill them badly."""
    channels = shape.in_channels if _makes_groups(shape) else _whole(shape.in_channels, GROUP_BYTES // shape.dtype.nbytes)
    if shape.group == 1 and has_tiles(target, shape.dtype) and _wastes_tiles(_part_groups(shape, channels)):
        return _whole(channels, TILE_GROUPS * GROUP_BYTES // shape.dtype.nbytes)
    return channels


def _panel_channels(shape: ConvolutionShape, width: int, target: Target) -> int:
    """Input channels of all groups that a panel of so many output channels belongs to, in whole groups of bytes."""
    outputs, together = shape.group_outputs, GROUP_BYTES // shape.dtype.nbytes
    starts = range(0, shape.out_channels, width)
    most = max(min(start + width, shape.out_channels) - 1 - start // outputs * outputs for start in starts) // outputs + 1
    channels = _whole(most * shape.group_inputs, together)
    if has_tiles(target, shape.dtype) and _wastes_tiles(channels // together):
        return _whole(channels, TILE_GROUPS * together)
    return channels


def _whole(count: int, size: int) -> int:
    """`count`, or the next multiple of `size`."""
    return -(-count // size) * size


def _wastes_tiles(groups: int) -> bool:
    return groups > TILE_GROUPS and tile_groups(groups) <= TILE_GROUPS // 2 - 2


def _inside(shape: ConvolutionShape, axis: int) -> bool:
    last = (shape.out_size[axis] - 1) * shape.strides[axis] - shape.pads_begin[axis] + (shape.kernel[axis] - 1) * shape.dilations[axis]
    return shape.pads_begin[axis] <= 0 and last < shape.in_size[axis]


def may_merge(shape: ConvolutionShape, target: Target, planar: bool) -> bool:
    """True if the pixels of all rows of a task lie in one line, those between two rows (which nobody wants) included."""
    if is_column(shape):
        return True
    if shape.strides[-2:] != (1, 1):
        return False
    return planar or needs_copy(shape, target) or (shape.kernel[-1] == 1 and shape.out_size[-1] == shape.in_size[-1])

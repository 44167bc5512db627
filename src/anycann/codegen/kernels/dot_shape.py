"""What a convolution by dot products computes, and in which order its operands lie: pixels first, the channels of a pixel together."""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import TypeAlias

from anycann.codegen.kernel import RowTasks
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.dot_lists import list_bytes
from anycann.codegen.kernels.dot_products import GROUP_BYTES, DotProducts
from anycann.codegen.kernels.dot_reading import (
    copied_channels,
    cut_window,
    inner_share,
    is_column,
    needs_copy,
    panel_channels,
    skips_copied_rows,
    skips_rows,
    tile_groups,
)
from anycann.codegen.kernels.dot_tiles import TILE_GROUPS, has_tiles
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te import dtypes

Windows: TypeAlias = tuple[tuple[int, int], ...]
ORDER_COUNTS = 3  # numbers before the offsets of `order_bytes`: groups in pairs, groups that are multiplied as they are, and groups at all

_LINE_BYTES, _FEW_SETS_BYTES = 64, 256  # pixels so far apart have a quarter of the sets of a cache, or less
_FEW_CHUNKS = 2
_FAR_WINDOWS = 3  # first-level caches that are filled by what a register tile reads
_FEW_PIXELS, _FAR = 4, 16  # pixels, and second-level caches that are filled, of weights that mostly come from memory


@dataclass(frozen=True)
class DotTile:
    """How a convolution is cut.

    A register tile is `rows` pixels and `vectors` vectors of output channels; with matrix tiles, `row_tiles` of `rows` pixels. A task is
    `image_rows` rows of output pixels and `panels` panels of `vectors`. With `merge`, the rows of a task are one long row; where there are
    strides, the copy of its input is split for that (`DotPlan.split`).
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
    at a time (te/layout.py); 0: all images are. magnitudes: of `DotProducts`, for centred weights and a known zero point.
    windows: where, by rows and columns of a plane, begins what each equal part of the output channels reads; none: all begin alike.
    direct: groups of weights that are small enough are multiplied without them (`dot_direct.py`). around: groups of the input are
    sorted by their size (`dot_sorted.py`), less this number, which most of it lies around; 0: it is small itself; None: they are not.
    """

    shape: ConvolutionShape
    target: Target
    tile: DotTile
    planar: bool = False
    centred: bool = True
    window: int = 0
    magnitudes: bool = False
    direct: bool = False
    around: int | None = None
    windows: Windows = ()

    @property
    def channel_stride(self) -> int:
        """From one channel of a planar input to the next one."""
        return self.window * self.shape.in_size[-1] if self.window else self.shape.in_pixels

    @property
    def image_stride(self) -> int:
        """From one image of the input to the next one; all lie in the same place in a window."""
        return 0 if self.window else self.shape.in_channels * self.shape.in_pixels

    @property
    def fetched_bytes(self) -> int:
        """Bytes of the next panel that a register tile fetches for each group of channels; 0 where all weights stay in a near cache.

        All tiles of a line fetch it from memory while words or magnitudes are multiplied: 2048 -> 512 channels on 7 x 7 by words take
        720 us where they took 831 (AVX2). One tile alone has no time for it: a row of 1280 x 1000 takes 52 us instead of 39. All of a task
        do with matrix tiles, unless later rows find all weights in half of the second-level cache.
        """
        if self.uses_tiles:
            if self.images * self.row_chunks > _FEW_CHUNKS and self.all_panels * self.panel_bytes <= self.target.l2_bytes // 2:
                return 0
            return -(-self.width * self.dots.weight_bytes // self.task_tiles) if self.all_panels > 1 < self.task_tiles else 0
        if not self.dots.takes_two_steps or self.all_panels * self.panel_bytes <= self.target.l2_bytes // 2:
            return 0
        tiles = self.line_tiles
        return -(-self.width * self.dots.weight_bytes // tiles) if tiles > 1 else 0

    @property
    def length(self) -> int:
        """Pixels of the lines that are computed at once; the last one of an image may be shorter where rows follow each other."""
        return (self.tile.image_rows - 1) * self.pitch + self.shape.out_size[-1] if self.tile.merge else self.shape.out_size[-1]

    @property
    def rest(self) -> int:
        """Pixels of a smaller register tile at the end of each line; 0 where whole tiles do it, the last of which begins earlier.

        197 pixels by fives are 39 tiles and one of two, where 40 compute three pixels again: 197 x 768 x 768 take 0.94 of the time, with
        k = 3072 0.995 (Zen 3). It is a third more of a kernel's text, and of the time to compile it, so for what saves 1 % of the pixels.
        """
        alike = not self.tile.merge or self.shape.out_size[-2] % self.tile.image_rows == 0
        tiles, rest = divmod(self.length, self.tile.pixels)
        if not (alike and tiles and rest and self.dots.takes_two_steps):
            return 0
        return rest if (self.tile.pixels - rest) * 100 >= self.length else 0

    @cached_property
    def dots(self) -> DotProducts:
        return DotProducts(self.shape.dtype, self.target, self.magnitudes, self.is_narrow or self.sorts)

    @property
    def sorts(self) -> bool:
        """True if a task sorts the groups of its input by their size."""
        return self.around is not None

    @property
    def is_narrow(self) -> bool:
        """True if magnitudes and signs are found where weights are read, half as many bytes: few pixels wait for these.

        One row of k = 768 to 3072 and 768 to 3072 columns takes 0.62 to 0.82 of the time, one, two and four with k = 4096 and 11008
        columns 0.6; two with weights of up to 5 MB would take 1.05 to 1.14, eight with the large ones 1.08 (Zen 3).
        """
        shape, pixels = self.shape, self.images * prod(self.shape.out_size[-2:])
        nbytes = 2 * shape.out_channels * shape.group_inputs * shape.taps
        return self.magnitudes and (pixels <= 1 or (pixels <= _FEW_PIXELS and nbytes >= _FAR * self.target.l2_bytes))

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

    @cached_property
    def copied(self) -> bool:
        """True if a task makes a padded copy of the rows that it reads, in its scratch memory."""
        return bool(self.windows) or self.planar or self.dots.widens or self.is_split or bool(self.around) or needs_copy(self.shape)

    @property
    def beyond(self) -> tuple[int, int]:
        """Rows and columns behind what the first window reads that others do."""
        return max((row for row, _ in self.windows), default=0), max((column for _, column in self.windows), default=0)

    @property
    def split(self) -> tuple[int, int]:
        """Parts that the rows and the columns of a copy are sorted into, by their remainder divided by the stride.

        What neighbouring output pixels read are neighbours in a part, so that output rows follow each other as if there were no strides.
        """
        if not self.tile.merge or is_column(self.shape):
            return 1, 1
        strides, dilations = self.shape.strides[-2:], self.shape.dilations[-2:]
        parts = [max(tap * d % s for tap in range(taps)) + 1 for taps, s, d in zip(self.shape.kernel[-2:], strides, dilations, strict=True)]
        return parts[0], parts[1]

    @property
    def is_split(self) -> bool:
        """True if the copy is sorted into `split` parts: rows with strides are one long row."""
        return self.tile.merge and not is_column(self.shape) and self.shape.strides[-2:] != (1, 1)

    @cached_property
    def skips_rows(self) -> bool:
        """True if taps in rows of padding are left out: of rows that are read where they are, or of many that one line does not join."""
        if not self.copied:
            return skips_rows(self.shape)
        return not self.tile.merge and not self.windows and skips_copied_rows(self.shape)

    @property
    def mean_depth(self) -> float:
        """Of `depth`, what is multiplied in the mean of all rows."""
        return self.depth * (inner_share(self.shape) if self.skips_rows else 1.0)

    @property
    def steps_of_pixels(self) -> tuple[int, int]:
        """Rows and columns of the copy, in one of its parts, from one output pixel to the next."""
        return (1, 1) if self.is_split else self.shape.strides[-2:]  # type: ignore[return-value]

    @cached_property
    def channels(self) -> int:
        """Channels of a pixel as they lie in memory: those of the input, or those of its copy, whose pixels need not share cache sets."""
        apart = _LINE_BYTES // self.shape.dtype.nbytes if self.copied and self.by_chunks and self._shares_sets else 0
        return self._own_channels + apart

    @cached_property
    def _own_channels(self) -> int:
        """Channels of a pixel that there are, or that groups and matrix tiles need."""
        return copied_channels(self.shape) if self.copied and not self.is_dense else self.shape.in_channels

    @property
    def _shares_sets(self) -> bool:
        return self._own_channels * self.shape.dtype.nbytes % _FEW_SETS_BYTES == 0

    @cached_property
    def by_chunks(self) -> bool:
        """True if matrix tiles take some channels through all taps before the next, for all channels of what they read are far too many.

        Then a tap finds in the first-level cache what its neighbour has read, and pixels are copied so far apart that it stays there. A
        network with 3 x 3 of 2048 to 512 channels on 28 x 28 (FCN-ResNet-50) takes 0.92 of the time, one of 256 to 1024 (Darknet-53) took
        1.02 when it began with those.
        """
        size = self._own_channels * self.shape.dtype.nbytes
        if not self.uses_tiles or self.skips_rows or self.shape.group > 1 or size % (TILE_GROUPS * GROUP_BYTES) or self.shape.taps == 1:
            return False
        pixels = self.tile.pixels * (self.split[1] if self.is_split else self.steps_of_pixels[1]) + self.shape.kernel[-1]
        return prod(self.shape.kernel[:-1]) * pixels * size > _FAR_WINDOWS * self.target.l1_bytes

    @property
    def is_dense(self) -> bool:
        """True if few channels are copied as they are: the last group of each part of the window reads on, and multiplies that by zero.

        7x7 of 3 channels multiplies 77 groups of two where 98 would have whole pixels. Sums of the input would count what is read on.
        """
        return (
            self.dots.widens and self.centred and self.shape.group == 1 and not self.is_split and self.shape.in_channels % GROUP_BYTES > 0
        )

    @property
    def multiplied(self) -> int:
        """Channels of a pixel that a panel multiplies: all, or those of the groups that its output channels belong to."""
        return min(panel_channels(self.shape, self.width), self.channels) if self.shape.group > 1 else self._own_channels

    def first_channel(self, panel: int) -> int:
        """The first channel of a pixel that a panel multiplies."""
        return min(panel * self.width // self.shape.group_outputs * self.shape.group_inputs, self.channels - self.multiplied)

    @property
    def images(self) -> int:
        """Planes of output pixels: the images, times the positions along the first of three dimensions."""
        return self.shape.batch * prod(self.shape.out_size[:-2])

    @cached_property
    def pitch(self) -> int:
        """Pixels from one row of the input to the next, as it is read."""
        if not self.copied:
            return self.shape.in_size[-1]
        reach = (self.shape.kernel[-1] - 1) * self.shape.dilations[-1]
        if self.is_split:
            return self.shape.out_size[-1] + reach // self.shape.strides[-1]
        return (self.shape.out_size[-1] - 1) * self.shape.strides[-1] + reach + 1 + self.beyond[1]

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
    def part_rows(self) -> int:
        """Rows of one part of a copy that is split."""
        return self.tile.image_rows + (self.shape.kernel[-2] - 1) * self.shape.dilations[-2] // self.shape.strides[-2]

    @property
    def copied_rows(self) -> int:
        """Rows of one plane of the input that one task copies."""
        if self.is_split:
            return self.split[0] * self.part_rows
        return (self.shape.kernel[-2] - 1) * self.row_step + self.band + self.beyond[0]

    @property
    def planes(self) -> int:
        """Planes of the input that one task reads."""
        return prod(self.shape.kernel[:-2])

    @property
    def plane_pixels(self) -> int:
        """Pixels from one plane that a task reads to the next, as they are read."""
        if self.copied:
            return self.split[1] * self.copied_rows * self.pitch
        return prod(self.shape.dilations[:-2]) * self.shape.in_size[-2] * self.pitch

    @cached_property
    def runs(self) -> tuple[int, int, int, int]:
        """(kernel planes, kernel rows, parts of a row, groups in a part): a part lies in one piece."""
        rows, parts, pixels = cut_window(self.shape, self.multiplied == self.channels and not (self.is_split or self.by_chunks))
        return self.planes, rows, parts, -(-pixels * self.multiplied // self.group)

    @property
    def steps(self) -> int:
        """Groups of a part that matrix tiles take at a time; the last step of a part may take some again (`part_groups`)."""
        return tile_groups(self.runs[-1])

    @property
    def part_groups(self) -> int:
        """Groups of the weights of a part: with matrix tiles whole steps, so that those which are taken twice are there twice."""
        return -(-self.runs[-1] // self.steps) * self.steps if self.uses_tiles else self.runs[-1]

    @cached_property
    def depth(self) -> int:
        """Groups along k of one column of weights."""
        return prod(self.runs[:-1]) * self.part_groups

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

    @cached_property
    def panel_bytes(self) -> int:
        return self.width * (self.head * GROUP_BYTES + self.depth * self.dots.weight_bytes) + self.order_bytes

    @property
    def order_bytes(self) -> int:
        """Bytes between the head of a panel and its weights, in whole rows: how many groups are direct, and where each is read."""
        return -(-(ORDER_COUNTS + self.depth) // self.width) * self.width * GROUP_BYTES if self.direct else 0

    @property
    def pixel_stride(self) -> int:
        """Elements from what one output pixel reads to what the next one does; in a column, that is the next row."""
        return self.row_stride if is_column(self.shape) else self.steps_of_pixels[1] * self.channels

    @property
    def row_stride(self) -> int:
        return self.steps_of_pixels[0] * self.pitch * self.channels

    @property
    def tile_bytes(self) -> int:
        """Bytes of the sums of one register tile."""
        return self.tile.pixels * self.width * GROUP_BYTES

    @property
    def sums_bytes(self) -> int:
        """Scratch memory for sums: those of matrix tiles wait while the next ones are multiplied."""
        return self.tile_bytes * (2 if self.uses_tiles else 1)

    @property
    def line_tiles(self) -> int:
        """Register tiles of a line."""
        return -(-self.length // self.tile.pixels)

    @property
    def task_tiles(self) -> int:
        """Register tiles of a task, for each panel."""
        return self.line_tiles * (1 if self.tile.merge else self.tile.image_rows)

    @property
    def lists_bytes(self) -> int:
        """Bytes of the lists of sorted groups of all register tiles of a task (`dot_sorted.py`)."""
        return self.task_tiles * list_bytes(self.depth, self.is_one_run, self.tile.pixels) if self.sorts else 0

    @property
    def is_one_run(self) -> bool:
        """True if a pixel reads one piece of memory."""
        return self.depth == self.runs[-1]

    @property
    def copy_offset(self) -> int:
        """Where in scratch memory the copy begins."""
        return self.sums_bytes + self.lists_bytes

    @property
    def scratch_bytes(self) -> int:
        """The sums of a register tile, lists, then the copy, behind which a last register tile may read on."""
        if not self.copied:
            return self.copy_offset
        elements = (self.planes * self.plane_pixels + 1) * self.channels + self.tile.pixels * self.pixel_stride
        return self.copy_offset + elements * self.nbytes + 2 * self.target.lanes * GROUP_BYTES

    @property
    def tasks(self) -> int:
        return self.images * self.row_chunks * self.panel_chunks

    @property
    def resumes(self) -> bool:
        """True if a task leaves what it copied or sorted to the next one, of other panels, if that is the same thread's next."""
        return self.sorts or (self.copied and self.panel_chunks > 1)

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

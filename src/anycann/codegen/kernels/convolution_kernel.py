"""What a direct convolution kernel consists of: sizes, operands, and how its work is divided into tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

from anycann.codegen.emitter import Emitter
from anycann.codegen.halves import LEAST_PIXELS
from anycann.codegen.kernels.convolution_columns import TapSpan, tile_count
from anycann.codegen.kernels.convolution_estimate import ConvolutionTile
from anycann.codegen.kernels.convolution_inputs import InputLayout, Source, input_layout
from anycann.codegen.kernels.convolution_method import Method, last_lanes, method, packed_size
from anycann.codegen.kernels.convolution_shape import Axis, ConvolutionShape, axes, images_axis
from anycann.codegen.values import Value, vector_type
from anycann.support.records import dataclass
from anycann.target.target import Target

Write: TypeAlias = Callable[[Emitter, Sequence[Value], Value], None]
Initial: TypeAlias = Callable[[Emitter, Value], Value]


# Work that is not worth waking a second thread for, and that a part of a row should have; in vector FMAs.
INLINE_CYCLES, _PART_CYCLES = 20_000, 8_192
# Weights that more pixels than this share are not waited for long.
FETCH_PIXELS = 1024
# A tile of fewer pixels that reads its weights alone multiplies them faster than they come: nothing hides a fetch, it only takes its place
# beside the loads. Without any, 1 x 1 of one pixel takes 0.57 to 0.8 of the time, one and 3 taps on 2 to 5 pixels 0.64 to 0.92, wherever
# the weights come from; 6 pixels as long as before (Zen 3). Not measured with 32 registers.
_FETCH_LEAST_PIXELS = 6
# Tasks that are enough for any number of threads; long rows are cut into parts to have that many.
_ENOUGH_TASKS = 64


@dataclass(frozen=True)
class DirectKernel:
    """A convolution to write: its sizes, its operands and what follows from them."""

    shape: ConvolutionShape
    target: Target
    tile: ConvolutionTile
    source: Source
    weights: Value
    write: Write
    initial: Initial | None
    blocked_input: bool
    channels_last: bool = False
    window: int = 0

    @property
    def multiplies_words(self) -> bool:
        """True where both factors are integers of at most 16 bits, of which x86 multiplies and adds two pairs a lane at once."""
        return self.how == "lanes" and self.shape.dtype.kind in ("int", "uint") and self.shape.dtype.nbytes == 1 and self.target.is_x86

    @property
    def how(self) -> Method:
        return method(self.shape, self.lanes, self.blocked_input)

    @property
    def blocks(self) -> int:
        """Output channel blocks of a task."""
        return 1 if self.how == "inner" else self.tile.blocks

    @property
    def last_lanes(self) -> int:
        """Lanes to compute of the last output channel block."""
        last_size = self.group_blocks - (-(-self.group_blocks // self.blocks) - 1) * self.blocks
        return last_lanes(self.shape, self.target, self.how, last_size)

    @property
    def lanes(self) -> int:
        return self.target.lanes

    @property
    def vector(self) -> str:
        """The type of a vector of sums."""
        return vector_type(self.shape.accumulator.register, self.lanes)

    @property
    def alignment(self) -> int:
        """Bytes that vectors of sums and of weights are aligned to; buffers are to 64."""
        return min(64, self.shape.accumulator.nbytes * self.lanes)

    @property
    def layout(self) -> InputLayout:
        return input_layout(self.shape, self.lanes, self.blocked_input, self.channels_last, self.window)

    @property
    def axes(self) -> tuple[Axis, ...]:
        found = axes(self.shape, self.tile.merge)
        return (*found, images_axis(self.shape, self.layout.image // self.layout.pixel)) if self.tile.images else found

    @property
    def image_tasks(self) -> int:
        """Images that tasks are apart for: one stands for all of them where they are an axis."""
        return 1 if self.tile.images else self.shape.batch

    def order(self, span: TapSpan, unroll: int) -> list[tuple[int, int]]:
        """(one of `unroll` channels, pixel) in the order of computing: by channel, to hold few weights; by pixel if its input is shared."""
        channels, pixels = range(unroll), range(span.first_pixel, span.stop_pixel)
        if self.how == "inner":
            return [(0, pixel) for pixel in pixels]
        if self.how == "lanes":
            return [(i, pixel) for pixel in pixels for i in channels]
        return [(i, pixel) for i in channels for pixel in pixels]

    @property
    def groups(self) -> int:
        """Convolution groups that are computed apart: those that share no output vector."""
        return self.shape.group if self.how == "dense" else 1

    @property
    def group_blocks(self) -> int:
        """Output channel blocks of one of these groups."""
        return -(-(self.shape.out_channels // self.groups) // self.lanes)

    @property
    def block_groups(self) -> int:
        """Groups of output channel blocks, of one task each."""
        return -(-self.group_blocks // self.blocks)

    @property
    def parts(self) -> int:
        """Tasks that a row is cut into."""
        if self.tile.depth:
            return 1
        others = self.tasks_of_whole_rows
        tile_cycles = self.tile.columns * self.tile.blocks * self.shape.group_inputs * max(1, self.shape.taps)
        tiles = tile_count(self.axes[-1], self.tile.columns)
        most = max(1, tiles * tile_cycles // _PART_CYCLES)
        return min(tiles, most, max(-(-_ENOUGH_TASKS // others), self._parts_that_stay))

    @property
    def _parts_that_stay(self) -> int:
        """Parts of a row whose input stays in the second-level cache while all channel blocks of it are computed; 1 if rows go first."""
        if not self.tile.blocks_inner or self.group_blocks <= self.blocks:
            return 1
        shape, cache = self.shape, self.target.l2_bytes
        weights = shape.accumulator.nbytes * packed_size(shape, self.lanes) // self.groups
        room = cache * 3 // 4 - weights if weights <= cache // 2 else cache // 2
        row = shape.dtype.nbytes * shape.group_inputs * self.axes[-1].in_size * prod(axis.kernel for axis in self.axes[:-1])
        return -(-row // room)

    @property
    def halves(self) -> tuple[int, ...]:
        """Rows of each part of an image: tasks pass all channel blocks of one part before the next."""
        apart = self.how in ("dense", "lanes") and self.image_tasks * self.groups == 1 and self.group_blocks > self.blocks
        by_blocks = not self.tile.blocks_inner and not self.tile.depth and not self.window
        is_halved = apart and by_blocks and self.rows > 1 and self.shape.out_pixels >= LEAST_PIXELS
        return (self.rows - self.rows // 2, self.rows // 2) if is_halved else (self.rows,)

    @property
    def tasks_of_whole_rows(self) -> int:
        rows = 1 if self.tile.depth else self.rows
        return self.image_tasks * self.groups * self.block_groups * rows

    @property
    def rows(self) -> int:
        """Rows of output pixels of an image."""
        return prod(axis.out_size for axis in self.axes[:-1])

    @property
    def tasks(self) -> int:
        return self.tasks_of_whole_rows * self.parts

    @property
    def tiles_of_weights(self) -> int:
        """Register tiles that one after the other read the weights of the same channel blocks."""
        tiles = tile_count(self.axes[-1], self.tile.columns)
        if self.tile.blocks_inner and not self.tile.depth:
            return -(-tiles // self.parts)
        return tiles * self.halves[0]

    @property
    def fetches_ahead(self) -> bool:
        """True if the weights of the next channel blocks are fetched meanwhile: there are some, and few pixels to wait for them."""
        several = self.how == "dense" and self.group_blocks > self.blocks
        return several and not self.only_loads and self.tiles_of_weights * self.tile.columns <= FETCH_PIXELS

    @property
    def only_loads(self) -> bool:
        """True if a task reads its weights once, for so few pixels that loading them is all that takes time."""
        few = self.tile.columns < _FETCH_LEAST_PIXELS and self.target.has_few_registers
        return few and self.tiles_of_weights == 1

    @property
    def in_one_task(self) -> bool:
        """True if the work is not worth a second thread. Rows of a window are asked for a few at a time."""
        return self.cycles < INLINE_CYCLES and not self.window

    @property
    def cycles(self) -> int:
        """Vector FMAs of the whole convolution."""
        shape = self.shape
        return shape.batch * shape.out_pixels * shape.out_blocks(self.lanes) * shape.group_inputs * max(1, shape.taps)


@dataclass(frozen=True)
class Place:
    """Where a task works: image, first output channel block, row position on each axis but the last, part of the row.

    before: rows in front of the part of the image that it is of (`DirectKernel.halves`).
    """

    batch: Value
    block: Value
    origin: Value
    rows: tuple[Value, ...]
    part: Value
    before: Value

"""The choices for a convolution by dot products, and the one to take without measuring."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from math import gcd, prod
from typing import ClassVar

from anycann.codegen.kernels.arithmetic_rate import is_halved
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_tile import even_cuts
from anycann.codegen.kernels.dot_products import GROUP_BYTES, DotProducts, may_take_magnitudes, multiplies_words_at_once
from anycann.codegen.kernels.dot_reading import is_column, may_merge
from anycann.codegen.kernels.dot_shape import DotPlan, DotTile, Windows
from anycann.codegen.kernels.dot_tile_cycles import of_two_threads, tile_cycles
from anycann.codegen.kernels.dot_tiles import MOST_SUMS, TILE_ROWS, has_tiles
from anycann.codegen.space import Parameter, Space
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te import dtypes

# Cycles to hand a vector of sums to the writer, around each register tile, and around each part of a window that lies in one piece, and to
# copy a pixel of its own; a task is worth so many.
_WRITE, _AROUND, _SORT = 5.0, 24.0, 3.0
_FEW_PARTS, _LIKELY = (2, 4, 8), 8  # of the panels are tried, of so many tiles
_TASK_CYCLES, _TILE_TASK_CYCLES, _TASKS, _ENOUGH_TASKS = 20_000, 30_000, 16, 8
_UNSHARED = 0.3  # of the time is what a task alone may take more than several that threads share
# Less than this is not worth a task of its own, for each fetches its weights: 16 to 240 channels, 3x3 onto a column of 14 pixels (AVX2)
# take 12.8 us in 14 tasks, 9.9 in 5, 8.9 in one.
_LEAST_CYCLES, _FEW_TASKS = 5_000, 4
_LATENCY = 5.0  # four on most processors, and a little for what is not scheduled perfectly
_HALVED_LOAD = 0.1  # cycles that a load adds where one such instruction a cycle leaves time for it
# Where groups are multiplied by one instruction: cycles around a register tile, more for several pixels, whose sums a loop hands on, and
# for each of them; and around a task. Of short sums a processor that looks so many instructions ahead, of which so many write a vector,
# begins the next tile meanwhile: 704 x 112 x 8 bytes take 0.51 of the time by 7 vectors of a pixel that they take by one of 30, from 24 to
# 96 channels of 56 x 56 0.79 by 6 vectors of a pixel for 3 of 9, 400 x 256 x 32 0.83 for 4 of 6 (Zen 4).
_BEGIN, _SEVERAL_PIXELS, _PIXEL, _TASK = 4.0, 16.0, 2.0, 100.0
_FAR_COPY = 2.0  # times as long takes a copy that does not stay in the first-level cache
_AHEAD, _WRITE_INSTRUCTIONS = 300, 12
_LINE_BYTES, _SETS, _CROWDED = 64, 64, 2.0  # 28 pixels of 2 KiB in two sets take twice as long, or more
_SHORT_DEPTH, _SHORT_ROWS, _SHORT_VECTORS = 36, (1, 2, 4), 7
# Pixels of a line that take more vectors as well, for sums that do not wait: 66 -> 152 channels, 3 x 3 with stride 2 onto 7 x 2 pixels,
# takes 0.70 of the time by 5 vectors, 28 drawn ones of pairs and bytes 0.85 to 1.02 (Zen 4).
_NARROW = 4
_FAR_BYTES_PER_CYCLE, _NEAR_BYTES_PER_CYCLE = 16.0, 32.0  # from behind the second-level cache, and from it
# Products of 16-bit integers: cycles for what a register tile computes of a pair of channels, around each pixel of it, and bytes of weights
# a cycle from the second-level cache. 1x1 from 128 to 256 channels on 56 x 56 pixels with AVX2: tiles of 6 x 2, 5 x 2, 4 x 2 and 3 x 3
# pixels and vectors take 0.75 of the time of 12 x 1, from 256 to 128 0.87.
# What comes from behind that cache mostly comes while they are multiplied: 1x1 from 2048 to 512 channels on 7 x 7 pixels take 0.85 of the
# time in two parts with all weights, instead of one with all rows and 11 of the weights, each with a copy of the rows.
_WIDE_PIXEL, _WIDE_BYTES_PER_CYCLE, _WIDE_FAR_BYTES_PER_CYCLE = 4.0, 16.0, 64.0

# Sorting a group of all pixels of a register tile takes so many cycles, and so many registers hold no sums: two groups of a pixel, what
# becomes of them, and ones. 5 x 2 sums are 125 GMAC/s, 3 x 3 122, 3 x 4 and 6 x 2, for which registers do not do, 107 to 111 (Zen 3).
# Of a window of several pieces so many bytes of its lists are read for each pixel and group; what a task lists stays beside its copy.
_SORTED_GROUP, _SORTED_OTHERS, _LISTED_BYTES = 5.0, 6, 2


def word_pair_cycles(target: Target, rows: int, vectors: int) -> float:
    """Cycles of `rows` x `vectors` products of pairs of 16-bit integers, added by an instruction of its own, with their loads.

    With AVX2 by its instructions, four a cycle: a Zen 3 takes 7.5 cycles and one around them for 6 x 2, 5.6 and one for 3 x 3.
    """
    if waits_for_words(target):
        return (2 * rows * vectors + rows + vectors + 3) / 4
    spread = 0.0 if target.has("avx2") else rows * 1.0  # a pair to all lanes: with AVX2 that is a load
    return rows * vectors * (1.0 if target.lanes == 16 else 0.65) + 0.3 * (rows + vectors) + spread


def magnitude_cycles(rows: int, vectors: int) -> float:
    """Cycles of `rows` x `vectors` products of four bytes by magnitudes, by their instructions, four a cycle, as Zen 3 takes them."""
    return (4 * rows * vectors + rows + 2 * vectors + 3) / 4


def sorted_cycles(rows: int, vectors: int) -> float:
    """Cycles of `rows` x `vectors` products of four small bytes, half of those of a pair of groups (`dot_sorted.py`), as Zen 3 takes them.

    Two multiplications a cycle, two loads, and six instructions, for weights are read by those that multiply them.
    """
    sums = rows * vectors
    return max(1.5 * sums, sums + rows, (5 * sums + 2 * rows + 6) / 6) / 2


def gains_by_magnitudes(shape: ConvolutionShape, target: Target) -> bool:
    """True if a convolution should multiply bytes by magnitudes: channels that make no whole groups lie densely as words."""
    return shape.dtype is not dtypes.bfloat16 and shape.in_channels % GROUP_BYTES == 0 and may_take_magnitudes(target)


def waits_for_words(target: Target) -> bool:
    """True if products of 16-bit integers take so long that what they read comes meanwhile: by two instructions for 8 lanes."""
    one = (target.has("avx512vnni") and target.has("avx512vl")) or target.has("avxvnni")
    return target.has("avx2") and target.lanes == 8 and not one


def gains_by_words(target: Target) -> bool:
    """True if words multiply two computed matrices of bytes faster than floats do: by one instruction, or where floats have 8 lanes.

    12 products of 197 x 64 x 197 for a Xeon with VNNI: 610 thousand cycles by LLVM's model of it, 1137 as floats with what makes them.
    """
    return waits_for_words(target) or multiplies_words_at_once(target)


@dataclass(frozen=True)
class DotSpace(Space[DotTile]):
    """Tiles of `dot_convolution`. `problem` has two or three spatial dimensions (`dot_plane.as_plane`)."""

    family: ClassVar[str] = "ConvDots"
    version: ClassVar[int] = 1
    tile_type: ClassVar[type[DotTile]] = DotTile

    problem: ConvolutionShape
    target: Target
    planar: bool = False
    magnitudes: bool = False
    around: int | None = None
    windows: Windows = ()

    def context(self) -> Mapping[str, int]:
        sorts = {} if self.around is None else {"sorted": 2 if self.around else 1}
        places = {"windows": len(self.windows)} if self.windows else {}
        return {"planar": int(self.planar), **({"magnitudes": 1} if self.magnitudes else {}), **sorts, **places}

    def plan(self, tile: DotTile) -> DotPlan:
        """With a tile; what depends on the numbers of the weights is not known here."""
        return DotPlan(self.problem, self.target, tile, self.planar, magnitudes=self.magnitudes, around=self.around, windows=self.windows)

    def parameters(self) -> tuple[Parameter, ...]:
        panels = -(-self.problem.out_channels // self.target.lanes)
        high = self.problem.out_size[-2]
        return (
            Parameter("merge", (0, 1) if may_merge(self.problem, self.planar) else (0,)),
            Parameter("vectors", tuple(range(1, min(panels, MOST_SUMS if self._tiles else 8) + 1))),
            Parameter("row_tiles", tuple(range(1, MOST_SUMS + 1)) if self._tiles else (1,)),
            Parameter("rows", tuple(range(1, (TILE_ROWS if self._tiles else self.target.registers) + 1))),
            Parameter("image_rows", tuple(even_cuts(high, high)) if high else (1,)),
            Parameter("panels", tuple(range(1, panels + 1))),
        )

    def refusal(self, tile: DotTile) -> str | None:
        if tile.merge and not may_merge(self.problem, self.planar):
            return "the rows of a task do not make one long row"
        if min(tile.rows, tile.vectors, tile.row_tiles, tile.image_rows, tile.panels) < 1:
            return "a size below 1"
        if self.windows and self.problem.out_channels // len(self.windows) % (tile.vectors * self.target.lanes):
            return f"{tile.vectors} vectors have channels of two windows"
        if not self._fits(tile):
            return f"{tile.row_tiles} x {tile.rows} pixels of {tile.vectors} vectors do not fit the registers"
        most = self._line(tile) if not self.plan(tile).copied else tile.pixels
        return f"{tile.pixels} pixels; a row has {most}" if tile.pixels > max(1, most) else None

    def default(self) -> DotTile:
        return _best(self)

    def estimate(self, tile: DotTile) -> float:
        plan = self.plan(tile)
        if self._tiles:
            return tile_cycles(plan)
        shape = self.problem
        lines = plan.row_chunks if tile.merge else shape.out_size[-2]
        length = (tile.image_rows - 1) * plan.pitch + shape.out_size[-1] if tile.merge else shape.out_size[-1]
        blocks = lines * -(-length // tile.pixels) * plan.images
        vectors = -(-shape.out_channels // self.target.lanes)
        full, rest = divmod(vectors, tile.vectors)
        cycles = full * self._block_cycles(plan, tile.vectors) + (self._block_cycles(plan, rest) if rest else 0.0)
        chunks = plan.images * plan.row_chunks
        pixels = plan.copied * chunks * plan.planes * plan.plane_pixels
        copy = pixels * (plan.channels * plan.nbytes / 16 + _SORT * plan.is_split)
        if self.takes_one_instruction and plan.scratch_bytes > self.target.l1_bytes // 4:
            copy *= _FAR_COPY
        far = self._far_bytes(plan) / (_WIDE_FAR_BYTES_PER_CYCLE if self._waits else _FAR_BYTES_PER_CYCLE)
        sort = _SORTED_GROUP * blocks * plan.depth if plan.sorts else 0.0
        begin = _TASK * plan.tasks if self.takes_one_instruction else 0.0
        return blocks * cycles + _WRITE * vectors * shape.out_pixels * shape.batch + copy + far + sort + begin

    def _far_bytes(self, plan: DotPlan) -> float:
        """What does not stay in the second-level cache comes again: weights for each part of the rows, rows of a part for each panel."""
        weights, room, parts = plan.all_panels * plan.panel_bytes, self.target.l2_bytes, plan.images * plan.row_chunks
        rows = self.problem.batch * self.problem.in_pixels * self.problem.in_channels * self.problem.dtype.nbytes
        stays = self._keeps_rows(plan.copied) or rows // max(1, parts) + plan.panel_bytes <= room
        return float(weights * (parts if weights > room // 2 else 1) + (0 if stays else rows * (plan.all_panels - 1)))

    def _keeps_rows(self, copied: bool) -> bool:
        """True if what a task reads has to stay in half of the second-level cache: a copy, and rows of matrix tiles.

        Elsewhere it may be all rows, for each part fetches the weights again: with pairs of bfloat16, 197 and 128 rows of 3072 take 0.92 of
        the time in two parts and one instead of three and two. With matrix tiles the same made 0.76 to 1.34 of it.
        """
        return copied or self._tiles

    @property
    def takes_one_instruction(self) -> bool:
        """True if vectors of groups are multiplied and added up by one instruction."""
        return not self._tiles and DotProducts(self.problem.dtype, self.target, self.magnitudes).is_one_instruction

    @property
    def _tiles(self) -> bool:
        return has_tiles(self.target, self.problem.dtype)

    @property
    def _waits(self) -> bool:
        return DotProducts(self.problem.dtype, self.target, self.magnitudes).takes_two_steps and waits_for_words(self.target)

    def _fits(self, tile: DotTile) -> bool:
        if self._tiles:
            return tile.rows <= TILE_ROWS and tile.row_tiles * tile.vectors <= MOST_SUMS
        return tile.row_tiles == 1 and tile.rows * tile.vectors <= self._most_sums(tile.vectors)

    def _most_sums(self, vectors: int) -> int:
        """Registers left for sums beside a group of every vector and of one pixel, which are two each where they are taken apart.

        Magnitudes and signs of every vector are, beside a group of a pixel and what becomes of it. Sorted, weights are read from memory.
        """
        dots = DotProducts(self.problem.dtype, self.target, self.magnitudes)
        if self.around is not None:
            return self.target.registers - _SORTED_OTHERS
        if self.magnitudes:
            return max(1, self.target.registers - 2 * vectors - 2)
        parts = 1 if dots.is_one_instruction or dots.widens else 2
        return max(1, self.target.registers - parts * (vectors + 1) - (0 if dots.is_one_instruction else 1))

    def _block_cycles(self, plan: DotPlan, vectors: int) -> float:
        """One register tile."""
        tile = plan.tile
        if plan.dots.takes_two_steps:
            row_bytes = vectors * self.target.lanes * plan.dots.weight_bytes
            far = row_bytes / _WIDE_BYTES_PER_CYCLE if plan.panel_bytes > self.target.l1_bytes // 2 else 0.0
            if plan.sorts:
                step = sorted_cycles(tile.rows, vectors)
            else:
                step = magnitude_cycles(tile.rows, vectors) if plan.magnitudes else word_pair_cycles(self.target, tile.rows, vectors)
            return _AROUND + _WIDE_PIXEL * tile.rows + plan.depth * max(step, far, float(plan.group))
        apart = 0 if plan.dots.is_one_instruction else 3
        work = tile.rows * vectors * (1 + apart) + apart * (tile.rows + vectors)
        loads = tile.rows + vectors
        cycles = work + _HALVED_LOAD * loads if is_halved(self.target) else work / 2
        far = plan.width * plan.dots.weight_bytes / _NEAR_BYTES_PER_CYCLE if plan.panel_bytes > self.target.l1_bytes else 0.0
        arithmetic = plan.mean_depth * max(cycles, loads / 2, far, _LATENCY)
        if self.takes_one_instruction and _crowd(plan):
            arithmetic *= _CROWDED
        return arithmetic + (_around_cycles(plan, vectors, arithmetic) if self.takes_one_instruction else _AROUND)

    def _line(self, tile: DotTile) -> int:
        """Pixels of a line that is computed at once: what may be read in place. A shorter last one has rows of its image before it."""
        high, width = self.problem.out_size[-2:]
        return min(tile.image_rows, high) * width if tile.merge else width

    def candidates(self) -> Iterator[DotTile]:
        """Register tiles that fit, each with the tasks that suit it."""
        shape, lanes = self.problem, self.target.lanes
        all_vectors = -(-shape.out_channels // lanes)
        for merge in self._merges():
            for vectors in self._vectors(min(all_vectors, self._vector_choices(merge))):
                for row_tiles in self._row_tiles(vectors):
                    for image_rows in self._image_rows(merge):
                        for rows in self._row_choices(merge, image_rows, vectors, row_tiles):
                            tile = DotTile(rows, vectors, row_tiles, image_rows, -(-all_vectors // vectors), merge)
                            yield tile
                            yield self._with_panels(tile)
                            if is_column(shape) and (self._waits or row_tiles > 1):  # whole register tiles
                                rounded = -(-image_rows // tile.pixels) * tile.pixels
                                whole = replace(tile, image_rows=max(1, min(shape.out_size[-2], rounded)))
                                yield from (whole,) if self._waits else (whole, self._with_panels(whole))

    def _vectors(self, most: int) -> list[int]:
        """Vectors of a panel, at most so many: of channels that read the same window."""
        alike = self.problem.out_channels // max(1, len(self.windows))
        return [count for count in range(1, most + 1) if not self.windows or alike % (count * self.target.lanes) == 0]

    def _row_tiles(self, vectors: int) -> range:
        return range(1, MOST_SUMS // vectors + 1 if self._tiles else 2)

    def _vector_choices(self, merge: bool) -> int:
        if self._tiles:
            return MOST_SUMS
        if self.around is not None:
            return 2
        return _SHORT_VECTORS if self._is_short(merge) or self._is_narrow(merge) else 4

    def _is_short(self, merge: bool) -> bool:
        """True if a register tile takes so few groups that what is around it counts."""
        return self.takes_one_instruction and self.plan(DotTile(1, 1, 1, 1, 1, merge)).depth <= _SHORT_DEPTH

    def _is_narrow(self, merge: bool) -> bool:
        """True if lines have so few pixels that their sums wait for themselves."""
        return self.takes_one_instruction and not merge and self.problem.out_size[-1] <= _NARROW

    def _merges(self) -> tuple[bool, ...]:
        """A column of pixels is one long row, or nothing; one pixel of each plane need not be."""
        if not may_merge(self.problem, self.planar):
            return (False,)
        high, wide = self.problem.out_size[-2:]
        return (True,) if wide == 1 < high else (False, True)

    def _row_choices(self, merge: bool, image_rows: int, vectors: int, row_tiles: int) -> list[int]:
        shape = self.problem
        pitch = self.plan(DotTile(1, 1, 1, 1, 1, merge)).pitch
        length = (image_rows - 1) * pitch + shape.out_size[-1] if merge else shape.out_size[-1]
        most = min(max(1, length), TILE_ROWS if self._tiles else max(1, self._most_sums(vectors) // vectors))
        few = [rows for rows in _SHORT_ROWS if rows < most] if self._is_short(merge) else []
        return few + even_cuts(-(-length // row_tiles), most)

    def _image_rows(self, merge: bool) -> list[int]:
        """Rows of a task: all of them, or so many parts that `_keeps_rows`."""
        shape, high = self.problem, max(1, self.problem.out_size[-2])
        nbytes = DotProducts(shape.dtype, self.target, self.magnitudes).nbytes
        row_bytes = shape.in_size[-1] * shape.in_channels * nbytes * shape.strides[-2] * prod(shape.kernel[:-2])
        plan = self.plan(DotTile(1, 1, 1, 1, 1, merge))
        if plan.is_split and self._waits:  # what no output pixel reads is not copied
            row_bytes = row_bytes * prod(plan.split) // prod(shape.strides[-2:])
        if plan.sorts and not plan.is_one_run:
            row_bytes += shape.out_size[-1] * plan.depth * _LISTED_BYTES
        least = max(1, -(-high * row_bytes // (self.target.l2_bytes // 2))) if self._keeps_rows(plan.copied) else 1
        return sorted({-(-high // min(high, parts)) for parts in (least, 2 * least, 4, 7, 8, 14, 16, 28, high) if parts >= least})

    def _with_panels(self, tile: DotTile) -> DotTile:
        """All panels in a task, or parts of them where there are few rows to share out."""
        panels = -(-self.problem.out_channels // (tile.vectors * self.target.lanes))
        plan = self.plan(tile)
        chunks = max(1, plan.images * plan.row_chunks)
        weights = self.problem.out_channels * self.problem.group_inputs * self.problem.taps * self.problem.dtype.nbytes
        work = max(self.problem.flops / 2 / (512 if self._tiles else self.target.lanes * 8), weights / _FAR_BYTES_PER_CYCLE)
        if self.takes_one_instruction and chunks < _ENOUGH_TASKS:
            work = max(work, self.estimate(tile))
        wanted = min(_TASKS, max(1, int(work // _TASK_CYCLES)))
        parts = min(panels, max(1, -(-wanted // chunks)))
        return DotTile(tile.rows, tile.vectors, tile.row_tiles, tile.image_rows, max(1, -(-panels // parts)), tile.merge)


def _crowd(plan: DotPlan) -> bool:
    """True if what the pixels of a register tile read falls into so few sets of the first-level cache that they evict each other."""
    lines = plan.pixel_stride * plan.nbytes // _LINE_BYTES
    sets = _SETS // gcd(lines, _SETS) if lines else _SETS
    return -(-plan.tile.rows // sets) > plan.target.l1_bytes // (_SETS * _LINE_BYTES)


def _around_cycles(plan: DotPlan, vectors: int, arithmetic: float) -> float:
    """Cycles around the products of a register tile, less those of writing that pass while the next one's are computed."""
    rows = plan.tile.rows
    sums = rows * vectors
    instructions = plan.depth * (sums + vectors) + _WRITE_INSTRUCTIONS * sums
    hidden = min(arithmetic, _WRITE * sums) * max(0.0, 1 - instructions / _AHEAD)
    return _BEGIN + (_SEVERAL_PIXELS if rows > 1 else 0.0) + _PIXEL * rows - hidden


@lru_cache(maxsize=1024)
def _best(space: DotSpace) -> DotTile:
    """The lowest estimate; with matrix tiles those that come near it are also tried in some parts."""
    usable = [tile for tile in dict.fromkeys(space.candidates()) if space.refusal(tile) is None]
    ranked = sorted((_shared(space, tile), number) for number, tile in enumerate(usable))
    if not ranked:
        return DotTile(1, 1, 1, max(1, space.problem.out_size[-2]), 1)
    best = usable[ranked[0][1]]
    if not space._tiles:
        return best
    likely = [usable[number] for _, number in ranked[:_LIKELY]]
    parted = [replace(tile, panels=-(-space.plan(tile).all_panels // parts)) for tile in likely for parts in _FEW_PARTS]
    return min([best, *dict.fromkeys(parted)], key=lambda tile: _shared(space, tile))


def _shared(space: DotSpace, tile: DotTile) -> tuple[float, float]:
    """The estimate, more for less tasks than threads could use; of those alike, tasks where they are more than the work is worth."""
    cycles = space.estimate(tile)  # weights are in it once, so that matrices of one row have tasks too
    enough = min(_ENOUGH_TASKS, cycles // (_TILE_TASK_CYCLES if space._tiles else _TASK_CYCLES))
    plan = space.plan(tile)
    tasks = plan.tasks
    many = max(tasks, _FEW_TASKS, cycles // _LEAST_CYCLES) if space._waits else 0.0
    if space._tiles and enough > 1:
        cycles = of_two_threads(plan, cycles)
    lacking = 0.0
    if tasks < enough:
        lacking = (enough - tasks) / (enough - 1) if space.takes_one_instruction or space._tiles else 1.0
    return cycles * (1 + _UNSHARED * lacking), many

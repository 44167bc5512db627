"""What a convolution by matrix tiles takes: the estimate that `dot_space.py` chooses tiles by.

Its constants were fitted to 3800 measured kernels of 196 shapes drawn by chance (1 x 1 to 5 x 5, 16 to 1440 channels, 4 x 4 to 56 x 56
pixels, bfloat16 and bytes; products of 16 to 1024 rows) on a Xeon of the fifth generation, so that the fastest of a shape have the lowest
estimates. The lowest takes 1.06 to 1.12 times as long as the fastest that was measured.
"""

from __future__ import annotations

from math import gcd

from anycann.codegen.kernels.dot_products import GROUP_BYTES
from anycann.codegen.kernels.dot_shape import DotPlan
from anycann.support.records import dataclass
from anycann.te import dtypes


@dataclass(frozen=True)
class _Core:
    """Cycles of a product, and of each of its rows; of a line from the first-level cache, and of one more that a row crosses into."""

    product: float
    row: float
    line: float
    crossing: float


# A core that nothing else runs on, and one that another program does; and how often it does, on a host that shares its cores.
_ALONE, _SHARED, _IS_SHARED = _Core(5.1, 1.33, 0.63, 0.83), _Core(23.4, 1.63, 0.03, 1.25), 0.35
# Cycles to store a tile of sums, and to hand on a vector of them, of bytes more, and the pixel that it belongs to.
_STORE, _VECTOR, _VECTOR_OF_BYTES, _PIXEL = 18.0, 3.9, 7.9, 0.8
# Cycles for a line from the second-level cache: of a panel, of rows that lie apart, and of windows whose taps do not find there what their
# neighbours read (else they wait for nothing); from behind that cache; and of a panel that comes nearer once for each task.
_PANEL, _ROWS, _WINDOW, _FAR, _ONCE = 1.4, 2.0, 0.75, 5.2, 0.6
# Cycles for a line of results of a task that fill half of the first-level cache, and more for those that fill half of the second; and for a
# byte that is copied.
_RESULT, _FAR_RESULT, _COPY = 1.06, 0.53, 0.33
# Of the first-level cache: what a panel may take, or pixels of a window, and what a panel and the rows of a task may.
_STAYS, _TASK_STAYS = 0.64, 0.86
# What three tiles of rows take longer where each reads rows of its own: 1 x 1 onto at most 16 channels, 1.02 to 1.2 times as long as two
# (8 shapes of bfloat16 and bytes; of 3 x 3 0.9 to 1.05).
_THREE_APART = 1.07
_LINE = 64


def tile_cycles(plan: DotPlan) -> float:
    """Cycles of all tasks, on one thread."""
    tile, chunks = plan.tile, plan.images * plan.row_chunks
    full, rest = divmod(-(-plan.shape.out_channels // plan.target.lanes), tile.vectors)
    panels = full * _register_tile(plan, tile.vectors) + (_register_tile(plan, rest) if rest else 0.0)
    last = plan.tasks * _hand_on(plan, tile.vectors)  # when no products are left
    return _register_tiles(plan) * panels + last + _copies(plan) + _weights(plan, chunks) + _results(plan, chunks)


def of_two_threads(plan: DotPlan, cycles: float) -> float:
    """Cycles of one thread, and twice those of two, each of which copies what its own tasks read: half of both."""
    tile, copies, chunks, tasks = plan.tile, _copies(plan), max(1, plan.images * plan.row_chunks), max(1, plan.tasks)
    largest = min(1.0, tile.panels / plan.all_panels) * min(1.0, tile.image_rows / max(1, plan.shape.out_size[-2])) / max(1, plan.images)
    share = max(-(-tasks // 2) / tasks, largest)
    return cycles / 2 + share * (cycles - copies) + -(-chunks // 2) / chunks * copies


def _copies(plan: DotPlan) -> float:
    return plan.images * plan.row_chunks * _task_bytes(plan) * _COPY if plan.copied else 0.0


def _register_tiles(plan: DotPlan) -> int:
    """Of each panel."""
    high, wide = plan.shape.out_size[-2:]
    pixels = plan.tile.pixels
    if not plan.tile.merge:
        return plan.images * high * -(-wide // pixels)
    full, rest = divmod(high, plan.tile.image_rows)
    last = -(-((rest - 1) * plan.pitch + wide) // pixels) if rest else 0
    return plan.images * (full * plan.line_tiles + last)


def _register_tile(plan: DotPlan, vectors: int) -> float:
    """Products, loads and what is written beside them hide each other in part."""
    tile, steps = plan.tile, plan.depth // plan.steps
    second = _PANEL * _panel_bytes(plan, vectors) / _LINE * _is_far(plan) + _window(plan)
    beside = second**2 + _hand_on(plan, vectors) ** 2

    def on(core: _Core) -> float:
        products = steps * tile.row_tiles * vectors * (core.product + core.row * tile.rows)
        row = core.line + core.crossing * _crossings(plan)
        loads = steps * (row * tile.rows * tile.row_tiles + core.line * plan.steps * vectors)
        return float((products**2 + loads**2 + beside) ** 0.5)

    apart = _THREE_APART if tile.row_tiles == 3 and plan.shape.taps == 1 else 1.0
    return _STORE * tile.row_tiles * vectors + apart * ((1 - _IS_SHARED) * on(_ALONE) + _IS_SHARED * on(_SHARED))


def _hand_on(plan: DotPlan, vectors: int) -> float:
    """The sums of a register tile."""
    vector = _VECTOR if plan.shape.dtype is dtypes.bfloat16 else _VECTOR_OF_BYTES
    return plan.tile.pixels * (vector * vectors + _PIXEL)


def _crossings(plan: DotPlan) -> float:
    """How often a row of a tile of the input lies in two cache lines."""
    size = plan.steps * GROUP_BYTES
    return (size - gcd(size, plan.pixel_stride * plan.nbytes, _LINE)) / _LINE


def _panel_bytes(plan: DotPlan, vectors: int) -> int:
    return vectors * plan.target.lanes * plan.depth * GROUP_BYTES


def _is_far(plan: DotPlan) -> bool:
    """True if a panel does not stay in the first-level cache from one register tile to the next."""
    return plan.panel_bytes > _STAYS * plan.target.l1_bytes


def _passes(plan: DotPlan) -> bool:
    """True if the rows of a task do not stay there from one panel to the next."""
    return plan.all_panels > 1 and _task_bytes(plan) + plan.panel_bytes > _TASK_STAYS * plan.target.l1_bytes


def _task_bytes(plan: DotPlan) -> int:
    """What a task reads of the input."""
    shape = plan.shape
    if plan.copied:
        return plan.planes * plan.plane_pixels * plan.channels * plan.nbytes
    rows = min(plan.tile.image_rows, shape.out_size[-2]) * shape.strides[-2] + shape.kernel[-2] - 1
    return rows * shape.in_size[-1] * plan.channels * plan.nbytes


def _window(plan: DotPlan) -> float:
    """Of the input, what a register tile waits for from the second-level cache."""
    pixels, nbytes = plan.tile.pixels, plan.multiplied * plan.nbytes
    lines = pixels * plan.shape.taps * nbytes / _LINE
    if plan.shape.kernel[-1] == 1:
        return _ROWS * lines * _passes(plan)
    return _WINDOW * lines * (pixels * plan.pixel_stride * plan.nbytes > _STAYS * plan.target.l1_bytes and not plan.by_chunks)


def _weights(plan: DotPlan, chunks: int) -> float:
    """They come from behind the second-level cache once, or for each part of the rows if they fill half of it."""
    lines = plan.all_panels * plan.panel_bytes / _LINE
    again = chunks if lines * _LINE > plan.target.l2_bytes // 2 else 1
    return lines * (_FAR * again + (0.0 if _is_far(plan) else _ONCE * chunks))


def _results(plan: DotPlan, chunks: int) -> float:
    """Lines of them, of which each panel writes a piece."""
    shape, nbytes = plan.shape, plan.shape.dtype.nbytes
    pixels, pixel = min(plan.tile.image_rows, shape.out_size[-2]) * shape.out_size[-1], shape.out_channels * nbytes
    piece = min(plan.width * nbytes, pixel)
    lines = pixels * chunks * plan.all_panels * (-(-piece // _LINE) + (0.5 if piece % _LINE else 0.0))
    near, far = (pixels * pixel > cache // 2 for cache in (plan.target.l1_bytes, plan.target.l2_bytes))
    return lines * (_RESULT * near + _FAR_RESULT * far)

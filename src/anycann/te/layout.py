"""Storage layouts: a layout is how a logical index becomes an address, so any kernel can read any layout.

"ND" is row-major. "NC1HWC0" keeps a logical [N, C, *spatial] tensor as [N, ceil(C / C0), *spatial, C0], C0 = lanes of the target; the
lanes beyond C in the last block are unspecified, and no kernel may let them reach a real element. "NHWC" keeps it as [N, *spatial, C],
whatever the number of spatial dimensions: 8-bit activations, whose kernels multiply neighbouring channels together.

A window, "ROWS24", keeps so many rows of one image of a row-major [N, C, H, W], as [C, 24, W]: one kernel makes them, the next one reads
them while they are in the cache. Its address is that of row 0, whether or not that is among the rows that are there.
"""

from __future__ import annotations

from collections.abc import Sequence
import math

from anycann.support.records import dataclass
from anycann.te import dtypes
from anycann.te.expression import Const, Expr

ND = "ND"
NC1HWC0 = "NC1HWC0"
NHWC = "NHWC"
WINDOW = "ROWS"  # and how many


def window(rows: int) -> str:
    """The layout that keeps so many rows of an image."""
    return f"{WINDOW}{rows}"


def window_rows(layout: str) -> int | None:
    """How many rows a window keeps; None for another layout."""
    return int(layout.removeprefix(WINDOW)) if layout.startswith(WINDOW) else None


def physical_shape(layout: str, shape: Sequence[int], lanes: int) -> tuple[int, ...]:
    """Extents in memory order."""
    if layout == ND:
        return tuple(shape)
    batch, channels, *spatial = shape
    rows = window_rows(layout)
    if rows is not None:
        return (channels, rows, *spatial[1:])
    if layout == NHWC:
        return (batch, *spatial, channels)
    return (batch, -(-channels // lanes), *spatial, lanes)


def memory_order(layout: str, rank: int) -> tuple[int, ...]:
    """The axes of a value in memory order, the one that runs fastest last; of a layout that divides none."""
    return (0, *range(2, rank), 1) if layout == NHWC else tuple(range(rank))


def element_count(layout: str, shape: Sequence[int], lanes: int) -> int:
    """Elements the buffer holds, padding lanes included."""
    return math.prod(physical_shape(layout, shape, lanes))


def physical_index(layout: str, indices: Sequence[Expr], lanes: int) -> tuple[Expr, ...]:
    """The index in memory order of a logical index."""
    if layout == ND:
        return tuple(indices)
    batch, channel, *spatial = indices
    if window_rows(layout) is not None:
        return (channel, *spatial)
    if layout == NHWC:
        return (batch, *spatial, channel)
    block = Const(lanes, dtypes.int64)
    return (batch, channel // block, *spatial, channel % block)


@dataclass(frozen=True)
class Place:
    """Where a tensor is stored: at `offset` (elements of each dimension) of a buffer of `shape` in `layout`."""

    shape: tuple[int, ...]
    layout: str = ND
    offset: tuple[int, ...] | None = None

    def address(self, indices: Sequence[Expr], lanes: int) -> Expr:
        """Elements from the start of the buffer."""
        moved = indices if self.offset is None else [index + start for index, start in zip(indices, self.offset, strict=True)]
        return flat_index(self.layout, self.shape, moved, lanes)


def flat_index(layout: str, shape: Sequence[int], indices: Sequence[Expr], lanes: int) -> Expr:
    """Elements from the start of the buffer."""
    result: Expr = Const(0, dtypes.int64)
    for extent, index in zip(physical_shape(layout, shape, lanes), physical_index(layout, indices, lanes), strict=True):
        result = result * extent + index
    return result

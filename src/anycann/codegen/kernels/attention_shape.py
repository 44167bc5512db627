"""What an attention kernel computes and how it is cut: sizes, where operands lie, the tile, and its scratch memory."""

from __future__ import annotations

from collections.abc import Callable
import math
from typing import TypeAlias

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.matmul_shape import Operand
from anycann.codegen.values import Value
from anycann.support.records import dataclass
from anycann.te import dtypes
from anycann.te.dtypes import DType
from anycann.te.strided import Axis, Strided

Write: TypeAlias = "Callable[[Emitter, tuple[Value, ...], Value, Value | None], None]"  # (e, (*batch, row, first column), vector, mask)


@dataclass(frozen=True)
class Pointers:
    """Where the operands' buffers begin; `scores` in the order of the shape's."""

    query: Value
    key: Value
    value: Value
    scores: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Score:
    """What is done to scores: float32 read through `view` [*batch, rows, keys] is added, or takes their place where it is not zero."""

    view: Strided
    replaces: bool

    @property
    def row(self) -> int:
        return self.view.axes[-2].step or 0

    @property
    def key(self) -> int:
        return self.view.axes[-1].step or 0


@dataclass(frozen=True)
class AttentionShape:
    """As te.contractions.Attention says it. query, key, value: views [*batch, rows or keys, depth or width] of one step an axis.

    batch: extents of the leading axes, of which heads are one.
    """

    batch: tuple[int, ...]
    rows: int
    keys: int
    depth: int
    width: int
    query: Strided
    key: Strided
    value: Strided
    scores: tuple[Score, ...] = ()
    scale: float = 1.0
    softcap: float = 0.0
    reach: int | None = None
    empty_is_zero: bool = False
    dtype: DType = dtypes.float32

    @property
    def batches(self) -> int:
        return math.prod(self.batch)

    @property
    def is_plain(self) -> bool:
        """True if the order of scores is that of the products: then the scale is left to the exponential."""
        return not self.scores and not self.softcap and self.scale > 0

    @property
    def exponent_scale(self) -> float:
        """What scores are multiplied by in the exponential."""
        return self.scale if self.is_plain else 1.0

    @property
    def flops(self) -> int:
        """Of all keys, whatever is masked."""
        return 2 * self.batches * self.rows * self.keys * (self.depth + self.width)


@dataclass(frozen=True)
class AttentionTile:
    """Scores are computed for `vectors` registers of rows and `keys` keys together, results for `rows` rows and `columns` registers.

    block: keys whose weights wait in scratch until their values are added up; a multiple of `keys`.
    group: so many times `vectors` registers of rows are a task and share copies of a block's keys and values.
    """

    vectors: int
    keys: int
    block: int
    rows: int
    columns: int
    group: int = 1


# Register tiles of rows that repay a copy of a block of values, and keys whose values crowd the caches if they lie apart: 12 heads side by
# side took 0.95 of the time with 1024 keys, 0.98 with 256, but 1.02 to 1.05 with 128 and 197. Half as many where they are widened.
_TILES_PER_COPY, _CROWDED_KEYS = 8, 256


def copies_values(shape: AttentionShape, tile: AttentionTile, lanes: int) -> bool:
    """True if a task copies its values block by block: they lie apart, in few cache sets, or would be widened for each register tile."""
    apart = (shape.keys >= _CROWDED_KEYS or tile.group > 1) and shape.value.axes[-2].step != shape.width
    narrow = shape.dtype is not dtypes.float32
    least = _TILES_PER_COPY // 2 if narrow else _TILES_PER_COPY
    return (apart or narrow) and shape.value.axes[-1].step == 1 and tile.group * tile.vectors * lanes >= least * tile.rows


def lie_apart(shape: AttentionShape) -> bool:
    """True if keys or values have others between them, as heads that lie side by side do."""
    return any(
        view.axes[-1].step == 1 and view.axes[-2].step != columns
        for view, columns in ((shape.key, shape.depth), (shape.value, shape.width))
    )


def copies_keys(shape: AttentionShape, tile: AttentionTile) -> bool:
    """True if a task copies its keys block by block: they lie apart, and several times `vectors` registers of rows read them."""
    return tile.group > 1 and shape.key.axes[-1].step == 1 and shape.key.axes[-2].step != shape.depth


def keeps_copies(shape: AttentionShape, tile: AttentionTile, lanes: int) -> bool:
    """True if a task finds the copies of the one before: those of all keys, and several tasks read the same."""
    shared = tile.group * tile.vectors * lanes < shape.rows or any(f.step == 0 for axis in shape.key.axes[:-2] for f in axis.factors)
    return tile.group > 1 and tile.block >= shape.keys and shared


@dataclass(frozen=True)
class Memory:
    """Scratch of one task, in float32: the places of its arrays, and their row lengths."""

    lanes: int
    rows: int  # rows of a task: the length of a row of queries, weights and masks
    width: int  # columns of a row of results, whole registers
    depth: int
    block: int
    masks: int  # that vary with the rows
    values: int  # keys whose values are copied
    keys: int  # keys that are copied
    strip: int  # columns of copied values that lie together
    group: int  # rows of which the task has several
    is_direct: bool  # there is one block of keys

    @classmethod
    def of(cls, shape: AttentionShape, tile: AttentionTile, lanes: int) -> Memory:
        masks = sum(score.row != 0 for score in shape.scores)
        width = -(-shape.width // (lanes * tile.columns)) * lanes * tile.columns
        values = tile.block if copies_values(shape, tile, lanes) else 0
        keys = tile.block if copies_keys(shape, tile) else 0
        is_direct = tile.block >= shape.keys
        group = 1 if is_direct else tile.group
        strip = lanes * tile.columns if tile.group > 1 else width
        return cls(lanes, tile.vectors * lanes, width, shape.depth, tile.block, masks, values, keys, strip, group, is_direct)

    @property
    def row_arrays(self) -> tuple[str, ...]:
        """The arrays of one number a row."""
        return ("most", "total") if self.is_direct else ("most", "before", "total", "factor")

    @property
    def _sizes(self) -> dict[str, int]:
        block, results = self.block * self.rows, 0 if self.is_direct else self.rows * self.width
        operands = {"queries": self.depth * self.rows, "values": self.values * self.width, "keys": self.keys * self.key}
        return {**dict.fromkeys(self.row_arrays, self.rows), **operands, "weights": block, "results": results, "mask": block * self.masks}

    @property
    def key(self) -> int:
        """Elements from one copied key to the next: whole registers."""
        return -(-self.depth // self.lanes) * self.lanes

    @property
    def nbytes(self) -> int:
        return 4 * sum(size * self._times(name) for name, size in self._sizes.items())

    def at(self, e: Emitter, name: str, number: Value | None = None) -> Value:
        """Address of most, before, total, factor [rows], queries, weights, mask [.., rows], keys, values or results [.., width].

        number: of the rows in their group, for what each keeps.
        """
        names = list(self._sizes)
        first = e.gep(e.scratch, sum(self._sizes[n] * self._times(n) for n in names[: names.index(name)]), "float")
        return first if number is None or self._times(name) == 1 else e.gep(first, e.mul(number, self._sizes[name]), "float")

    def _times(self, name: str) -> int:
        """How many there are of an array: one for all, or what rows keep from block to block."""
        return self.group if name in _KEPT else 1


_KEPT = frozenset({"most", "before", "total", "queries", "results"})


def lie_side_by_side(axis: Axis) -> bool:
    """True if neighbours along the axis are neighbours in memory; those of a broadcast axis are not."""
    return axis.extent == 1 or axis.step == 1


def address(e: Emitter, view: Strided, indices: tuple[Value, ...]) -> Value:
    """Elements from the start of the buffer to view[indices]."""
    total = e.const(view.offset)
    for axis, index in zip(view.axes, indices, strict=True):
        inner = axis.extent
        for number, factor in enumerate(axis.factors):
            inner //= factor.extent
            part = e.udiv(index, inner)
            part = e.urem(part, factor.extent) if number else part
            total = e.add(total, e.mul(part, factor.step))
    return total


def seen_keys(e: Emitter, shape: AttentionShape, first: Value, count: int) -> Value:
    """Keys that the last of `count` rows from `first` on sees."""
    if shape.reach is None:
        return e.const(shape.keys)
    return e.smin(e.smax(e.add(first, count + shape.reach), e.const(0)), e.const(shape.keys))


_LINE_BYTES = 64


def fetch_row(e: Emitter, operand: Operand, pointer: Value, view: Strided, indices: tuple[Value, ...], elements: int = 0) -> None:
    """Ask for `elements` elements (0: a whole row) from view[indices] on, into the second-level cache; indices may lie outside."""
    start = operand.step(e, pointer, address(e, view, indices))
    for place in range(0, (elements or view.axes[-1].extent) * operand.dtype.nbytes, _LINE_BYTES):
        e.prefetch(e.gep(start, place, "i8"), level=2)

"""Nests to kernels: the kernel that computes some outputs in one nest, by the writer that suits it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
import math

from anycann.codegen.accesses import FlatNest, flatten
from anycann.codegen.emitter import Emitter
from anycann.codegen.halves import LEAST_PIXELS
from anycann.codegen.interior import interior
from anycann.codegen.interleaving import InterleavingWriter
from anycann.codegen.invariant import invariant
from anycann.codegen.kernel import Kernel
from anycann.codegen.lanes import Flat
from anycann.codegen.nest_space import NestTile, default_nest_tile, nest_space
from anycann.codegen.nest_writer import NestWriter
from anycann.codegen.rows import keep_rows
from anycann.codegen.side_by_side import MOST_SUMS, columns_side_by_side, side_by_side
from anycann.codegen.space import Choices
from anycann.codegen.transposing import TransposingWriter, Transposition, transposition
from anycann.codegen.turning import Turning, turning
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te.dtypes import DType
from anycann.te.expression import Load, Var
from anycann.te.layout import NC1HWC0, ND, Place, window_rows
from anycann.te.nest import Nest, WriteStage, build_nest
from anycann.te.simplify import linear
from anycann.te.tensor import Placeholder, Tensor
from anycann.te.traversal import walk


@dataclass(frozen=True)
class Output:
    """A tensor to compute and how it is stored."""

    name: str
    tensor: Tensor
    layout: str = ND
    within: Place | None = None  # set for a piece of a larger buffer

    @property
    def place(self) -> Place:
        """Where its elements are stored."""
        return self.within or Place(self.tensor.shape, self.layout)


def generate(
    outputs: Sequence[Output], layouts: Mapping[str, str], target: Target, family: str = "te", choices: Choices | None = None
) -> Kernel:
    """The kernel that computes all outputs in one nest. `layouts`: storage of the placeholders by name. Raises CannotFuse."""
    names = [o.name for o in outputs]
    if not any(o.tensor.size for o in outputs):
        symbol, text = Emitter().finish("nothing")
        return Kernel(symbol, text, tuple(names), 1)
    nest = build_nest([o.tensor for o in outputs])
    if any(window_rows(o.layout) for o in outputs):
        return _in_rows(nest, outputs, layouts, target, family)
    flat = flatten(nest, [o.place for o in outputs], layouts, target.lanes)
    unasked = default_nest_tile(flat, target)
    kernel = _kernel(flat, outputs, target, family, unasked)
    if choices is None or choices.tuned is None:
        return kernel
    tile = choices.tile(nest_space(flat, kernel, target))
    return kernel if tile == unasked else _kernel(flat, outputs, target, family, tile)


def _kernel(flat: FlatNest, outputs: Sequence[Output], target: Target, family: str, tile: NestTile) -> Kernel:
    inputs = placeholders(flat)
    vector = None if tile.vector < 0 else flat.outer[tile.vector]  # keeping rows takes loads away, so it is decided before
    flat, rows = keep_rows(flat, target.lanes) if vector is None else (flat, ())
    types = [o.tensor.dtype for o in outputs]
    turned = turning(flat, target.lanes)
    shared = invariant(flat, vector) if turned is None and vector is not None else None
    flat = flat if shared is None else shared.nest
    writer = NestWriter(flat, types, target, vector) if turned is None else _turning_writer(turned, types, target)
    writer.unroll, writer.parts, writer.halved = tile.unroll, tile.parts, _halved(flat, outputs, target.lanes)
    if shared is not None:
        writer.once = shared.values
    elif turned is None and vector is not None:
        writer.interior = interior(flat, vector, target)
        if writer.interior is None:
            columns = columns_side_by_side(flat, vector, target)
            writer.wide = columns if columns > 1 or writer.e.masks else side_by_side(flat, types, vector, target.lanes)
            writer.unroll = min(tile.unroll, max(1, MOST_SUMS // columns))
    kernel = writer.write(family, inputs, [o.name for o in outputs], rows)
    return replace(kernel, scratch_bytes=sum(row.size * row.dtype.nbytes for row in rows))


def _turning_writer(turned: Turning, types: Sequence[DType], target: Target) -> NestWriter:
    if isinstance(turned.plan, Transposition):
        return TransposingWriter(turned.nest, types, target, turned.plan)
    return InterleavingWriter(turned.nest, types, target, turned.plan)


def _halved(nest: FlatNest, outputs: Sequence[Output], lanes: int) -> Var | None:
    """The loop over rows that threads share out: where each result is one blocked image of many pixels, and rows are a loop of their own.

    They are none where pixels are only scaled by channels: squeezing and exciting, which also reads all pixels of a channel, takes two
    threads 3 to 4 times as long in halves.
    """
    places = [output.place for output in outputs]
    size = places[0].shape[2:]
    if any(place.layout != NC1HWC0 or place.shape[0] > 1 or place.shape[2:] != size for place in places) or math.prod(size) < LEAST_PIXELS:
        return None
    stores, row = [linear(stage.address) for stage in nest.stages if stage.address is not None], lanes * math.prod(size[1:])
    loops = (loop for loop in nest.outer if loop.extent == size[0])
    return next((loop for loop in loops if all(store.coefficient(loop) == row for store in stores)), None)


def rows_of(nest: Nest) -> Var | None:
    """The loop over the rows of the [N, C, H, W] that a nest without reductions computes; None if it has none."""
    stage = nest.stages[0]
    if len(nest.stages) != 1 or not isinstance(stage, WriteStage) or stage.over or len(stage.index) != 4:
        return None
    row = stage.index[2]
    return row if isinstance(row, Var) and row in nest.outer and row.extent > 1 else None


def _in_rows(nest: Nest, outputs: Sequence[Output], layouts: Mapping[str, str], target: Target, family: str) -> Kernel:
    """The kernel whose tasks are rows of its only result, which is a window."""
    (output,), rows = outputs, rows_of(nest)
    assert rows is not None, f"{output.name} has no rows"
    flat = flatten(nest, [output.place], layouts, target.lanes, rows)
    turned = transposition(flat, target.lanes)
    images = output.tensor.shape[0]
    apart = (rows,) if images == 1 else (rows, flat.outer[0])  # loops that tasks are counted by
    if turned is not None and turned.read not in apart and turned.written not in apart:
        writer: NestWriter = TransposingWriter(flat, [output.tensor.dtype], target, turned)
    else:
        inside = flat.outer[flat.outer.index(rows) + 1 :]
        writer = NestWriter(flat, [output.tensor.dtype], target, inside[-1] if inside else None)
    writer.rows = rows
    kernel = writer.write(family, placeholders(flat), [output.name])
    return replace(kernel, rows=writer.row_tasks(images))


def placeholders(nest: FlatNest) -> list[str]:
    """Names of the tensors a nest reads, in order of first use."""
    names: dict[str, None] = {}
    for stage in nest.stages:
        roots = (stage.body,) if stage.address is None else (stage.body, stage.address)
        for expr in walk(*roots):
            if isinstance(expr, Load) and isinstance(expr.tensor, Flat):
                names[expr.tensor.source.name] = None
            assert not (isinstance(expr, Load) and isinstance(expr.tensor, Placeholder))
    return list(names)

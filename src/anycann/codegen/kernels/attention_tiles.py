"""Attention of bfloat16, by matrix tiles or dot products of pairs (attention_products.py); the softmax between is in float32, row by row.

a task: some rows of one head. For each block of keys, the keys and values as tiles read them (tile_packing.py), then for 16 or 32 rows
  scores[m, t] = sum over d of query[m, d] key[t, d]              from the rows of queries as they lie in scratch
  most = max(before, scores * scale, masked), weights[m, t] = exp(scores - most), written as bfloat16 over the scores
  results[m, d] = results[m, d] * exp(before - most) + sum over t of weights[m, t] value[t, d]
y[m, d] = results[m, d] / total[m], where total is the float32 sum of the weights before they are rounded
"""

from __future__ import annotations

from collections.abc import Iterator
import math

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.attention_products import Columns, Products, Rows, products_of
from anycann.codegen.kernels.attention_results import emit_quotients
from anycann.codegen.kernels.attention_shape import AttentionShape, Pointers, Write, address, seen_keys
from anycann.codegen.kernels.attention_tile_plan import LANES, TILE_DEPTH, VECTOR, TiledAttention
from anycann.codegen.kernels.attention_tile_weights import Part, Weights
from anycann.codegen.kernels.matmul_writer import batch_index
from anycann.codegen.kernels.tile_packing import TileSource, emit_column_tiles, emit_row
from anycann.codegen.values import Value
from anycann.support.records import dataclass
from anycann.target.target import Target


def emit_tiled(e: Emitter, shape: AttentionShape, target: Target, pointers: Pointers, write: Write) -> int:
    """Write the kernel's loop over its tasks, in the entry block, and return how many there are: heads x blocks of rows."""
    plan = TiledAttention(shape)
    products = products_of(plan, target)
    kernel = _Kernel(plan, pointers, write, products, Weights(plan, pointers))
    products.begin(e)
    with e.loop(e.begin, e.end) as task:
        kernel.task(e, batch_index(e, e.udiv(task.index, plan.blocks), shape.batch), e.urem(task.index, plan.blocks))
    products.end(e)
    return plan.tasks


@dataclass(frozen=True)
class _Kernel:
    """What all tasks share."""

    plan: TiledAttention
    pointers: Pointers
    write: Write
    products: Products
    weights: Weights

    def task(self, e: Emitter, batch: tuple[Value, ...], block: Value) -> None:
        plan, shape = self.plan, self.plan.shape
        first = e.mul(block, plan.rows)
        count = e.smin(e.const(plan.rows), e.sub(e.const(shape.rows), first))
        self._start(e, batch, first, count)
        with e.loop(0, seen_keys(e, shape, first, plan.rows), plan.block) as key:
            left = e.sub(e.const(shape.keys), key.index)
            for name, source in self._columns(e, batch, key.index, left):
                extent = plan.block if name == "keys" else shape.width
                depth = plan.depth if name == "keys" else plan.block
                emit_column_tiles(e, source, extent, depth, plan.at(e, name))
            with e.loop(0, count, plan.group) as group:
                seen = e.sub(seen_keys(e, shape, e.add(first, group.index), plan.group), key.index)
                part = Part(batch, e.add(first, group.index), group.index, e.sub(count, group.index), key.index, seen)
                with e.when(e.compare("sgt", seen, e.const(0))):
                    self._part(e, part)
        results = (plan.at(e, "results"), plan.width)
        emit_quotients(e, shape, LANES, self.write, (batch, first, count), plan.at(e, "total"), results)

    def _start(self, e: Emitter, batch: tuple[Value, ...], first: Value, count: Value) -> None:
        """Queries in rows of whole tiles; no key has been seen."""
        plan, view = self.plan, self.plan.shape.query
        source = e.gep(self.pointers.query, address(e, view, (*batch, first, e.const(0))), "i16")
        with e.loop(0, count) as row:
            at = e.gep(source, e.mul(row.index, view.axes[-2].step or 0), "i16")
            emit_row(e, at, plan.shape.depth, e.gep(plan.at(e, "queries"), e.mul(row.index, plan.depth), "i16"))
        if plan.once:
            return
        with e.loop(0, plan.rows, LANES) as row:
            e.store(e.const(-math.inf, VECTOR), e.gep(plan.at(e, "most"), row.index, "float"), 4)
            e.store(e.zero(VECTOR), e.gep(plan.at(e, "total"), row.index, "float"), 4)
        with e.loop(0, plan.rows * plan.width, LANES) as place:
            e.store(e.zero(VECTOR), e.gep(plan.at(e, "results"), place.index, "float"), 4)

    def _columns(self, e: Emitter, batch: tuple[Value, ...], key: Value, left: Value) -> Iterator[tuple[str, TileSource]]:
        """Keys [d, t] and values [t, d] from the key `key` on, as second operands of a product."""
        shape, zero = self.plan.shape, e.const(0)
        known = None if shape.keys % self.plan.block == 0 else left
        at = e.gep(self.pointers.key, address(e, shape.key, (*batch, key, zero)), "i16")
        steps = [axis.step or (1 if axis.extent == 1 else 0) for axis in (*shape.key.axes[-2:], *shape.value.axes[-2:])]
        yield "keys", TileSource(at, steps[1], steps[0], e.const(shape.depth) if shape.depth % TILE_DEPTH else None, known)
        at = e.gep(self.pointers.value, address(e, shape.value, (*batch, key, zero)), "i16")
        yield "values", TileSource(at, steps[2], 1, known, e.const(shape.width) if shape.width % LANES else None)

    def _part(self, e: Emitter, part: Part) -> None:
        """What a group of rows gets from a block of keys."""
        plan = self.plan
        seen, count = e.smin(part.seen, e.const(plan.block)), e.smin(e.const(plan.group), part.left)
        queries = e.gep(plan.at(e, "queries"), e.mul(part.row, plan.depth), "i16")
        scores, line = plan.at(e, "scores"), plan.score_row * 4
        keys = _whole(e, seen, self.products.columns_step)
        for tiles, start, stop in _by_twos(e, e.udiv(keys, LANES), self.products.columns_step == LANES):
            with e.loop(start, stop, tiles) as tile:
                key = e.mul(tile.index, LANES)
                b = Columns(e.gep(plan.at(e, "keys"), e.mul(key, plan.depth), "i16"), 2 * plan.depth * LANES)
                c = Rows(e.gep(scores, key, "float"), line)
                self.products.emit(e, Rows(queries, 2 * plan.depth), b, tiles, e.const(plan.depth), c, count, adds=False)
        with e.loop(0, count) as row:
            self.weights.weigh(e, part, row.index, _whole(e, seen, TILE_DEPTH))
        results = e.gep(plan.at(e, "results"), e.mul(part.row, plan.width), "float")
        depth = _whole(e, seen, self.products.depth_step)
        for tiles, start, stop in _by_twos(e, e.const(plan.columns), plan.columns % 2 == 1):
            with e.loop(start, stop, tiles) as column:
                b = Columns(e.gep(plan.at(e, "values"), e.mul(column.index, plan.block * LANES), "i16"), 2 * plan.block * LANES)
                c = Rows(e.gep(results, e.mul(column.index, LANES), "float"), 4 * plan.width)
                self.products.emit(e, Rows(scores, line), b, tiles, depth, c, count, adds=not plan.once)


def _whole(e: Emitter, count: Value, size: int) -> Value:
    """`count`, rounded up to a multiple of `size`."""
    return e.mul(e.udiv(e.add(count, size - 1), size), size)


def _by_twos(e: Emitter, count: Value, may_be_odd: bool) -> Iterator[tuple[int, Value, Value]]:
    """(tiles at a time, first, end): `count` tiles, two at a time, and the last alone."""
    even = e.sub(count, e.urem(count, 2))
    yield 2, e.const(0), even
    if may_be_odd:
        yield 1, even, count

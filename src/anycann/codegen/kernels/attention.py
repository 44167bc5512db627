"""Attention in one kernel: scores, softmax and the weighted sum of values, block after block of keys.

Online softmax (Milakov and Gimelshein, 2018) as in FlashAttention (Dao et al., 2022), laid out for vector registers: the lanes of scores
and weights run along the rows (queries), so that the softmax needs no sum across lanes, and those of the results along their columns.

a task: some rows of one head.  queries' = transposed queries
  for each block of keys:    weights[t, m] = sum over d of key[t, d] queries'[d, m], scaled, masked     K read as it lies
                             most, total over t lane by lane; weights = exp(weights - most)
                             results[m, d] = results[m, d] * exp(before - most) + sum over t of weights[t, m] value[t, d]
  y[m, d] = results[m, d] / total[m]

Where one block has all keys, nothing is kept from block to block, and results are divided and written as they are summed. Where heads lie
side by side, several register tiles of rows may be one task: they take turns with each block, whose keys and values are copied once.
Where one block has all keys, the next task of a thread finds them copied if it reads the same.
"""

from __future__ import annotations

from collections.abc import Callable
import math

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.attention_few import emit_few, few_scratch_bytes, is_few
from anycann.codegen.kernels.attention_kernel import Kernel, Rows
from anycann.codegen.kernels.attention_results import copy_values, emit_results, emit_sums
from anycann.codegen.kernels.attention_scores import copy_keys, emit_scores
from anycann.codegen.kernels.attention_shape import (
    AttentionShape,
    AttentionTile,
    Memory,
    Pointers,
    Write,
    address,
    keeps_copies,
    lie_side_by_side,
    seen_keys,
)
from anycann.codegen.kernels.attention_softmax import emit_weights
from anycann.codegen.kernels.attention_tile_plan import TiledAttention, is_tiled
from anycann.codegen.kernels.attention_tiles import emit_tiled
from anycann.codegen.kernels.matmul_packing import PanelCopy, emit_copy
from anycann.codegen.kernels.matmul_writer import batch_index
from anycann.codegen.resuming import resumed
from anycann.codegen.values import Value
from anycann.target.target import Target


def attention_scratch_bytes(shape: AttentionShape, target: Target, tile: AttentionTile) -> int:
    """Bytes of a thread's scratch memory that the kernel uses."""
    if is_few(shape, target):
        return few_scratch_bytes(shape, target)
    return TiledAttention(shape).nbytes if is_tiled(shape, target) else Memory.of(shape, tile, target.lanes).nbytes


def attention_resumes(shape: AttentionShape, target: Target, tile: AttentionTile) -> bool:
    """True if the kernel leaves copies in scratch for a call that goes on where it ended (`codegen/resuming.py`)."""
    return not is_few(shape, target) and not is_tiled(shape, target) and keeps_copies(shape, tile, target.lanes)


def emit_attention(e: Emitter, shape: AttentionShape, target: Target, tile: AttentionTile, pointers: Pointers, write: Write) -> int:
    """Write the kernel's loop over its tasks and return how many there are: heads x groups of register tiles of rows.

    Few rows, and bfloat16 by tiles or pairs, take no `tile`.
    """
    if is_few(shape, target):
        return emit_few(e, shape, target, pointers, write)
    if is_tiled(shape, target):
        return emit_tiled(e, shape, target, pointers, write)
    kernel = Kernel(shape, tile, target, Memory.of(shape, tile, target.lanes), pointers, write)
    blocks = -(-shape.rows // kernel.memory.rows)
    groups = -(-blocks // tile.group)
    goes_on = resumed(e) if keeps_copies(shape, tile, target.lanes) else None
    with e.loop(e.begin, e.end) as task:
        number, group = e.udiv(task.index, groups), e.urem(task.index, groups)
        head, following = (batch_index(e, n, shape.batch) for n in (number, e.add(number, 1)))
        if tile.group == 1:
            _with_rows(e, kernel, head, following, group, None, lambda rows: _emit_rows(e, kernel, rows))
        else:
            first = e.mul(group, tile.group)
            copied = e.const(0) if goes_on is None else _copied_before(e, kernel, task.index, goes_on, head, groups)
            _emit_group(e, kernel, head, following, (first, e.smin(e.add(first, tile.group), e.const(blocks))), copied)
    return shape.batches * groups


def _with_rows(
    e: Emitter,
    kernel: Kernel,
    head: tuple[Value, ...],
    following: tuple[Value, ...],
    block: Value,
    number: Value | None,
    emit: Callable[[Rows], None],
) -> None:
    """`emit` for the rows of a block: as many as fill the registers, or those that are left."""
    full, rest = divmod(kernel.shape.rows, kernel.memory.rows)
    for count, present in ((kernel.memory.rows, full > 0), (rest, rest > 0)):
        if not present:
            continue
        first = e.mul(block, kernel.memory.rows)
        seen = seen_keys(e, kernel.shape, first, count)
        rows = Rows(head, first, count, -(-count // kernel.lanes), seen, block, following, number)
        if full and rest:
            with e.when(e.compare("slt" if count == kernel.memory.rows else "eq", block, e.const(full))):
                emit(rows)
        else:
            emit(rows)


def _copied_before(e: Emitter, kernel: Kernel, task: Value, goes_on: Value, head: tuple[Value, ...], groups: int) -> Value:
    """How many keys of this task, and their values, the one before has copied if it was the thread's last."""
    shape, zero = kernel.shape, e.const(0)
    before = e.smax(e.sub(task, 1), zero)
    other = batch_index(e, e.udiv(before, groups), shape.batch)
    same = e.binary("or", e.compare("sgt", task, e.begin), goes_on)
    for view in (shape.key, shape.value):
        places = [address(e, view, (*batch, zero, zero)) for batch in (head, other)]
        same = e.binary("and", same, e.compare("eq", *places))
    rows = kernel.tile.group * kernel.memory.rows
    return e.select(same, seen_keys(e, shape, e.mul(e.urem(before, groups), rows), rows), zero)


def _emit_group(
    e: Emitter, kernel: Kernel, head: tuple[Value, ...], following: tuple[Value, ...], blocks: tuple[Value, Value], copied: Value
) -> None:
    """Rows of the blocks of this range, which share each copy of keys and values; those of the first `copied` keys are there."""
    first, last = blocks

    def each(emit: Callable[[Rows], None]) -> None:
        with e.loop(first, last) as block:
            _with_rows(e, kernel, head, following, block.index, e.sub(block.index, first), emit)

    def all_keys(rows: Rows) -> None:
        _start(e, kernel, rows)
        _emit_block(e, kernel, rows, e.const(0), rows.seen)

    seen = seen_keys(e, kernel.shape, e.mul(first, kernel.memory.rows), kernel.tile.group * kernel.memory.rows)
    if kernel.is_direct:
        _copy_block(e, kernel, head, e.const(0), copied, seen)
        each(all_keys)
        return
    each(lambda rows: _start(e, kernel, rows))
    with e.loop(0, seen, kernel.tile.block) as keys:
        _copy_block(e, kernel, head, keys.index, keys.index, e.smin(e.add(keys.index, kernel.tile.block), seen))

        def some_keys(rows: Rows) -> None:
            with e.when(e.compare("slt", keys.index, rows.seen)):
                _emit_block(e, kernel, rows, keys.index, e.smin(e.add(keys.index, kernel.tile.block), rows.seen))

        each(some_keys)
    each(lambda rows: emit_results(e, kernel, rows))


def _copy_block(e: Emitter, kernel: Kernel, head: tuple[Value, ...], block: Value, first: Value, last: Value) -> None:
    """keys[t - block, d] and values[t - block, d] for t from `first` to `last` where they lie apart: side by side, and in float32."""
    if kernel.copies_keys:
        copy_keys(e, kernel, head, block, first, last)
    if kernel.copies_values:
        copy_values(e, kernel, head, block, first, last)


def _emit_rows(e: Emitter, kernel: Kernel, rows: Rows) -> None:
    _start(e, kernel, rows)
    if kernel.is_direct:
        _emit_block(e, kernel, rows, e.const(0), rows.seen)  # rows that see no key are written too
        return
    with e.loop(0, rows.seen, kernel.tile.block) as block:
        _emit_block(e, kernel, rows, block.index, e.smin(e.add(block.index, kernel.tile.block), rows.seen))
    emit_results(e, kernel, rows)


def _emit_block(e: Emitter, kernel: Kernel, rows: Rows, first: Value, last: Value) -> None:
    emit_scores(e, kernel, rows, first, last)
    emit_weights(e, kernel, rows, e.sub(last, first))
    emit_sums(e, kernel, rows, first, last)


def _start(e: Emitter, kernel: Kernel, rows: Rows) -> None:
    """Queries transposed into scratch; no key has been seen."""
    shape, memory, lanes = kernel.shape, kernel.memory, kernel.lanes
    queries, view = memory.at(e, "queries", rows.number), shape.query
    source = kernel.operand.step(e, kernel.pointers.query, address(e, view, (*rows.batch, rows.first, e.const(0))))
    row, column = 1 if lie_side_by_side(view.axes[-1]) else view.axes[-1].step or 0, view.axes[-2].step or 0
    copy = PanelCopy(kernel.operand, row, column, rows.count, memory.rows, lanes, shape.depth % lanes or None)
    emit_copy(e, copy, source, e.const(shape.depth), queries)
    names = ("most",) if kernel.is_direct else ("most", "before", "total")
    for name in names:
        none = e.const(0.0 if name == "total" else -math.inf, kernel.vector)
        for j in range(rows.vectors):
            e.store(none, e.gep(memory.at(e, name, rows.number), j * lanes, "float"), 4)
    if kernel.is_direct:
        return
    results = memory.at(e, "results", rows.number)
    with e.loop(0, memory.rows * memory.width, lanes) as i:
        e.store(e.zero(kernel.vector), e.gep(results, i.index, "float"), 4)

"""LSTM, GRU and RNN: the loop over time with the recurrent product, the gates and the state update in one kernel.

The caller first computes gates = X projection + bias for all steps by one matrix product (`recurrent_packing`); this kernel adds the
previous hidden state times R, block of cells by block, and applies the cell to each block while its sums are in the cache. A step needs all
cells of the one before, so that a task is one direction of a few sequences, from the first step to the last; the tasks that one thread has
run together, as many as the tile says. Every other step takes the blocks from the last to the first: what the step before read last is
still in the cache, where the weights as a whole are larger than that.
"""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.recurrent_kernel import RecurrentKernel
from anycann.codegen.kernels.recurrent_pairs import emit_halves
from anycann.codegen.kernels.recurrent_shape import RecurrentShape, RecurrentTile
from anycann.codegen.kernels.recurrent_state import Pointers, Sequences, emit_final_states, emit_initial_states, memory_of
from anycann.codegen.kernels.recurrent_sums import add_first_sums, emit_sums, emit_sums_in_turns
from anycann.codegen.kernels.recurrent_tiles import emit_factors, emit_tile_sums, tiles_of
from anycann.codegen.kernels.recurrent_update import emit_cells
from anycann.codegen.kernels.recurrent_words import emit_words
from anycann.codegen.values import Value
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te.dtypes import DType

__all__ = ["Pointers", "emit_recurrent", "recurrent_scratch_bytes", "recurrent_tasks"]


def recurrent_tasks(shape: RecurrentShape, tile: RecurrentTile) -> int:
    """Extent of the parallel range: directions x groups of `tile.task_rows` sequences."""
    return shape.directions * -(-shape.batch // tile.task_rows)


def recurrent_scratch_bytes(shape: RecurrentShape, target: Target, tile: RecurrentTile) -> int:
    """Bytes of a thread's scratch memory: both hidden states, the memory, and the sums of a block."""
    return memory_of(shape, tile, target.lanes).nbytes


def emit_recurrent(
    e: Emitter, shape: RecurrentShape, target: Target, tile: RecurrentTile, pointers: Pointers, panels: DType = dtypes.float32
) -> int:
    """Write the kernel's loop over its tasks `e.begin..e.end` and return how many tasks there are.

    All operands are float32, but for the panels of weights, which may be bfloat16 or int8 (`RecurrentWeights`).
    """
    kernel = RecurrentKernel(shape, tile, target, pointers, memory_of(shape, tile, target.lanes), panels)
    if 0 in (shape.batch, shape.hidden):
        return 0
    if tile.by_tiles:
        tiles_of(tile).configure(e)
    groups = -(-shape.batch // tile.task_rows)
    with e.loop(e.udiv(e.begin, groups), e.udiv(e.add(e.end, groups - 1), groups)) as direction:
        before = e.mul(direction.index, groups)
        last = e.smin(e.sub(e.end, before), e.const(groups))
        together = tile.rows // tile.task_rows
        with e.loop(e.smax(e.sub(e.begin, before), e.const(0)), last, together) as task:
            first, rest = e.mul(task.index, tile.task_rows), e.mul(e.sub(last, task.index), tile.task_rows)
            count = e.smin(e.smin(e.const(together * tile.task_rows), rest), e.sub(e.const(shape.batch), first))
            _emit_steps(e, kernel, Sequences(shape, pointers, target.lanes, kernel.padded, direction.index, first, count))
    if tile.by_tiles:
        tiles_of(tile).release(e)
    return recurrent_tasks(shape, tile)


def _emit_steps(e: Emitter, kernel: RecurrentKernel, sequences: Sequences) -> None:
    """Some sequences from the first step to the last."""
    emit_initial_states(e, sequences, kernel.memory)
    states = [kernel.memory.at(e, "hidden"), kernel.memory.at(e, "next")]
    with e.loop(0, kernel.shape.steps, carried=states) as step:
        for phase in range(len(kernel.shape.phases)):
            _emit_phase(e, kernel, sequences, phase, step.index, step.values)
        step.carry([step.values[1], step.values[0]])
    emit_final_states(e, sequences, kernel.memory, step.values[0])


def _emit_phase(e: Emitter, kernel: RecurrentKernel, sequences: Sequences, phase: int, step: Value, states: list[Value]) -> None:
    """The gates of one phase, for every block of cells."""
    source = emit_source(e, kernel, sequences, phase, states)
    with e.loop(0, kernel.blocks) as turn:
        emit_block(e, kernel, sequences, phase, step, _there_and_back(e, kernel.blocks, step, turn.index), source, states)


def emit_source(e: Emitter, kernel: RecurrentKernel, sequences: Sequences, phase: int, states: list[Value]) -> Value:
    """What a phase multiplies, as it is multiplied."""
    source = states[0] if phase == 0 else kernel.memory.at(e, "reset")
    if kernel.tile.by_tiles:
        emit_factors(e, kernel, sequences, source)
    elif kernel.in_words:
        return emit_words(e, kernel, sequences, source)
    elif kernel.tile.by_pairs:
        return emit_halves(e, kernel, sequences, source)
    return source


def emit_block(
    e: Emitter, kernel: RecurrentKernel, sequences: Sequences, phase: int, step: Value, block: Value, source: Value, states: list[Value]
) -> None:
    """The gates of one phase and block of cells: their sums, then the cell's equations row by row."""
    if kernel.tile.by_tiles:
        emit_tile_sums(e, kernel, sequences, phase, block)
        with e.loop(0, sequences.count) as row:
            add_first_sums(e, kernel, sequences, phase, step, block, row.index)
    elif kernel.tile.takes_turns:
        emit_sums_in_turns(e, kernel, sequences, phase, step, block, source)
    else:
        emit_sums(e, kernel, sequences, phase, step, block, source)
    with e.loop(0, sequences.count) as row:
        for vector in range(kernel.tile.vectors):
            emit_cells(e, kernel, sequences, phase, step, block, row.index, vector, states)


def _there_and_back(e: Emitter, count: int, step: Value, turn: Value) -> Value:
    """0 to count - 1 in even steps, and the other way in odd ones."""
    if count == 1:
        return turn
    even = e.compare("eq", e.urem(step, 2), e.const(0))
    return e.select(even, turn, e.sub(e.const(count - 1), turn))

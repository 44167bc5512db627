"""LSTM, GRU and RNN: the loop over time with the recurrent product, the gates and the state update in one kernel.

The caller first computes gates = X projection + bias for all steps by one matrix product (`recurrent_packing`); this kernel adds the
previous hidden state times R, block of cells by block, and applies the cell to each block while its sums are in the cache. A step needs all
cells of the one before, so that a task is one direction of a few sequences, from the first step to the last. Every other step takes the
blocks from the last to the first: what the step before read last is still in the cache, where the weights as a whole are larger than that.
"""

from __future__ import annotations

from anycann.codegen.conversions import from_storage
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.matmul_shape import multiply_add
from anycann.codegen.kernels.recurrent_kernel import RecurrentKernel, only_if, panel_offset, projected_gates
from anycann.codegen.kernels.recurrent_shape import RecurrentShape, RecurrentTile
from anycann.codegen.kernels.recurrent_state import Pointers, Sequences, emit_final_states, emit_initial_states, memory_of
from anycann.codegen.kernels.recurrent_tiles import emit_factors, emit_tile_sums, tiles_of
from anycann.codegen.kernels.recurrent_update import emit_cells
from anycann.codegen.values import Value, vector_type
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te.dtypes import DType

__all__ = ["Pointers", "emit_recurrent", "recurrent_scratch_bytes", "recurrent_tasks"]


def recurrent_tasks(shape: RecurrentShape, tile: RecurrentTile) -> int:
    """Extent of the parallel range: directions x groups of `tile.rows` sequences."""
    return shape.directions * -(-shape.batch // tile.rows)


def recurrent_scratch_bytes(shape: RecurrentShape, target: Target, tile: RecurrentTile) -> int:
    """Bytes of a thread's scratch memory: both hidden states, the memory, and the sums of a block."""
    return memory_of(shape, tile, target.lanes).nbytes


def emit_recurrent(
    e: Emitter, shape: RecurrentShape, target: Target, tile: RecurrentTile, pointers: Pointers, panels: DType = dtypes.float32
) -> int:
    """Write the kernel's loop over its tasks `e.begin..e.end` and return how many tasks there are.

    All operands are float32, but for the panels of weights, which may be bfloat16 or int8 (`RecurrentWeights`).
    """
    kernel = RecurrentKernel(shape, tile, target.lanes, pointers, memory_of(shape, tile, target.lanes), panels)
    groups = -(-shape.batch // tile.rows)
    if 0 in (shape.batch, shape.hidden):
        return 0
    if tile.by_tiles:
        tiles_of(tile).configure(e)
    with e.loop(e.begin, e.end) as task:
        direction, first = e.udiv(task.index, groups), e.mul(e.urem(task.index, groups), tile.rows)
        count = e.smin(e.const(tile.rows), e.sub(e.const(shape.batch), first))
        sequences = Sequences(shape, pointers, target.lanes, kernel.padded, direction, first, count)
        emit_initial_states(e, sequences, kernel.memory)
        states = [kernel.memory.at(e, "hidden"), kernel.memory.at(e, "next")]
        with e.loop(0, shape.steps, carried=states) as step:
            for phase in range(len(shape.phases)):
                _emit_phase(e, kernel, sequences, phase, step.index, step.values)
            step.carry([step.values[1], step.values[0]])
        emit_final_states(e, sequences, kernel.memory, step.values[0])
    if tile.by_tiles:
        tiles_of(tile).release(e)
    return recurrent_tasks(shape, tile)


def _emit_phase(e: Emitter, kernel: RecurrentKernel, sequences: Sequences, phase: int, step: Value, states: list[Value]) -> None:
    """The gates of one phase, for every block of cells: their sums, then the cell's equations row by row."""
    source = states[0] if phase == 0 else kernel.memory.at(e, "reset")
    if kernel.tile.by_tiles:
        emit_factors(e, kernel, sequences, source)
    with e.loop(0, kernel.blocks) as turn:
        block = _there_and_back(e, kernel.blocks, step, turn.index)
        if kernel.tile.by_tiles:
            emit_tile_sums(e, kernel, sequences, phase, block)
            with e.loop(0, sequences.count) as row:
                _add_first_sums(e, kernel, sequences, phase, step, block, row.index)
        for rows, condition in () if kernel.tile.by_tiles else _heights(e, kernel, sequences):
            with only_if(e, condition):
                _emit_sums(e, kernel, sequences, phase, step, block, source, rows)
        with e.loop(0, sequences.count) as row:
            for vector in range(kernel.tile.vectors):
                emit_cells(e, kernel, sequences, phase, step, block, row.index, vector, states)


def _there_and_back(e: Emitter, count: int, step: Value, turn: Value) -> Value:
    """0 to count - 1 in even steps, and the other way in odd ones."""
    if count == 1:
        return turn
    even = e.compare("eq", e.urem(step, 2), e.const(0))
    return e.select(even, turn, e.sub(e.const(count - 1), turn))


def _heights(e: Emitter, kernel: RecurrentKernel, sequences: Sequences) -> list[tuple[int, Value | None]]:
    """The numbers of sequences a task may have, with the condition under which it has them."""
    rest = kernel.shape.batch % kernel.tile.rows
    if not rest:
        return [(kernel.tile.rows, None)]
    if kernel.shape.batch < kernel.tile.rows:
        return [(rest, None)]
    return [(rows, e.compare("eq", sequences.count, e.const(rows))) for rows in (kernel.tile.rows, rest)]


def _emit_sums(
    e: Emitter, kernel: RecurrentKernel, sequences: Sequences, phase: int, step: Value, block: Value, source: Value, rows: int
) -> None:
    """sums[row, gate, vector] = gates + source R of one block, into scratch."""
    shape, lanes = kernel.shape, kernel.lanes
    gates = len(shape.phases[phase])
    offsets = [gate * kernel.width + v * lanes for gate in range(gates) for v in range(kernel.tile.vectors)]
    stored = kernel.panels
    head = e.gep(kernel.pointers.panels, panel_offset(e, kernel, sequences, phase, block), stored.storage)
    panel = e.gep(head, kernel.head_rows * gates * kernel.width, stored.storage)
    first = [total for i in range(rows) for total in _first_sums(e, kernel, sequences, phase, step, block, e.const(i))]
    sums = [e.zero(kernel.vector)] * len(first) if kernel.head_rows else first
    with e.loop(0, shape.hidden, carried=sums) as k:
        row_of_r = e.gep(panel, e.mul(k.index, gates * kernel.width), stored.storage)
        loaded = [e.load(e.gep(row_of_r, offset, stored.storage), vector_type(stored.storage, lanes), stored.nbytes) for offset in offsets]
        weights = [e.cast("sitofp", raw, "float") if kernel.head_rows else from_storage(e, raw, stored) for raw in loaded]
        totals = []
        for i in range(rows):
            state = e.load(e.gep(source, e.add(k.index, i * kernel.padded), "float"), "float", 4)
            factor = e.splat(state, lanes)
            totals += [multiply_add(e, factor, weight, k.values[i * len(offsets) + j]) for j, weight in enumerate(weights)]
        k.carry(totals)
    tile = kernel.memory.at(e, "sums")
    for number, total in enumerate(k.values):
        line, column = divmod(number, len(offsets))
        if kernel.head_rows:
            step_of = e.load(e.gep(head, offsets[column], "float"), kernel.vector, 4)
            total = multiply_add(e, total, step_of, first[number])
        e.store(total, e.gep(tile, line * kernel.memory.sums_per_row + offsets[column], "float"), 4)


def _first_sums(
    e: Emitter, kernel: RecurrentKernel, sequences: Sequences, phase: int, step: Value, block: Value, row: Value
) -> list[Value]:
    """What the products of one sequence are added to: its projected gates, or zero where these are added after the reset gate."""
    shape = kernel.shape
    start = projected_gates(e, kernel, sequences, step, block, row)
    sums = []
    for gate in shape.phases[phase]:
        is_separate = shape.cell == "GRU" and shape.linear_before_reset and gate == 2
        for v in range(kernel.tile.vectors):
            place = e.gep(start, gate * kernel.width + v * kernel.lanes, "float")
            sums.append(e.zero(kernel.vector) if is_separate else e.load(place, kernel.vector, 4))
    return sums


def _add_first_sums(e: Emitter, kernel: RecurrentKernel, sequences: Sequences, phase: int, step: Value, block: Value, row: Value) -> None:
    """What the products of one sequence are added to, added to them."""
    line = e.gep(kernel.memory.at(e, "sums"), e.mul(row, kernel.memory.sums_per_row), "float")
    for number, first in enumerate(_first_sums(e, kernel, sequences, phase, step, block, row)):
        place = e.gep(line, number * kernel.lanes, "float")
        e.store(e.binary("fadd", e.load(place, kernel.vector, 4), first), place, 4)

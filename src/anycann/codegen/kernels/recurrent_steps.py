"""A recurrent layer whose steps are launches of their own, so that threads share the cells of a step, and the weights of these.

Few sequences in one direction are one task of the loop over time, and one thread's. Here a launch is a phase of a step, and its tasks are
blocks of cells; the one before all of them loads the initial states, the last one stores the final ones. States lie in memory that threads
share. Which launch it is the kernel reads from memory, so all have one text. A thread that has half of the cells reads half of the weights,
which then may stay in its second-level cache.
"""

from __future__ import annotations

from dataclasses import replace

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.recurrent import emit_block, emit_source
from anycann.codegen.kernels.recurrent_kernel import RecurrentKernel
from anycann.codegen.kernels.recurrent_packing import blocks_of
from anycann.codegen.kernels.recurrent_shape import RecurrentShape, RecurrentTile
from anycann.codegen.kernels.recurrent_state import Pointers, Sequences, emit_final_states, emit_initial_states, memory_of
from anycann.codegen.values import Value
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te.dtypes import DType

_MOST_STEPS, _MOST_SEQUENCES = 256, 16
# Weights and arithmetic of a step that repay a launch, which costs about a microsecond where threads share it.
_LEAST_BYTES, _LEAST_FLOPS = 1 << 17, 500_000


def stepped(shape: RecurrentShape, target: Target, tile: RecurrentTile) -> RecurrentTile:
    """The tile by steps, if threads gain by it: there is one task, or each of several reads weights from behind the second-level cache."""
    weights, tasks = shape.gates * shape.hidden * shape.hidden, -(-shape.batch // tile.task_rows)
    is_long = 2 * weights * shape.batch >= _LEAST_FLOPS or tile.weight_bytes * weights >= _LEAST_BYTES
    is_far = tile.weight_bytes * weights > target.l2_bytes
    if tile.by_tiles or shape.directions > 1 or not 2 <= shape.steps <= _MOST_STEPS or not 1 <= shape.batch <= _MOST_SEQUENCES:
        return tile
    return replace(tile, rows=tile.task_rows * tasks, by_steps=True) if is_long and (tasks == 1 or is_far) else tile


def state_bytes(shape: RecurrentShape, target: Target, tile: RecurrentTile) -> int:
    """Bytes of the states that threads share."""
    return 4 * memory_of(shape, tile, target.lanes).state_elements


def launch_tasks(shape: RecurrentShape, target: Target, tile: RecurrentTile) -> tuple[int, ...]:
    """The tasks of each launch, in order."""
    return (1, *[blocks_of(shape, tile, target.lanes)] * (shape.steps * len(shape.phases)), 1)


def emit_recurrent_step(
    e: Emitter,
    shape: RecurrentShape,
    target: Target,
    tile: RecurrentTile,
    pointers: Pointers,
    states: Value,
    number: Value,
    panels: DType = dtypes.float32,
) -> None:
    """Write the kernel of all launches. states: the memory that threads share; number: the address of the number of the launch, int64."""
    memory = replace(memory_of(shape, tile, target.lanes), shared=states)
    kernel = RecurrentKernel(shape, tile, target, pointers, memory, panels)
    sequences = Sequences(shape, pointers, target.lanes, kernel.padded, e.const(0), e.const(0), e.const(shape.batch))
    launch, phases = e.load(number, "i64", 8), len(shape.phases)
    hidden = [memory.at(e, "hidden"), memory.at(e, "next")]
    with e.when(e.compare("eq", launch, e.const(0))):
        emit_initial_states(e, sequences, memory)
    with e.when(e.compare("eq", launch, e.const(1 + shape.steps * phases))):
        emit_final_states(e, sequences, memory, hidden[shape.steps % 2])
    for phase in range(phases):
        is_step = e.binary("and", e.compare("sgt", launch, e.const(0)), e.compare("sle", launch, e.const(shape.steps * phases)))
        is_phase = e.compare("eq", e.urem(e.sub(launch, 1), phases), e.const(phase))
        with e.when(e.binary("and", is_step, is_phase)):
            _emit_blocks(e, kernel, sequences, phase, e.udiv(e.sub(launch, 1), phases), hidden)


def _emit_blocks(e: Emitter, kernel: RecurrentKernel, sequences: Sequences, phase: int, step: Value, hidden: list[Value]) -> None:
    """The blocks of a launch, in every other step from the last to the first: what was read last is still in the cache."""
    even = e.compare("eq", e.urem(step, 2), e.const(0))
    states = [e.select(even, hidden[0], hidden[1]), e.select(even, hidden[1], hidden[0])]
    source, last = emit_source(e, kernel, sequences, phase, states), e.sub(e.add(e.begin, e.end), 1)
    with e.loop(e.begin, e.end) as turn:
        block = e.select(even, turn.index, e.sub(last, turn.index))
        emit_block(e, kernel, sequences, phase, step, block, source, states)

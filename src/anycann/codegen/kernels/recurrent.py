"""LSTM, GRU and RNN: the loop over time with the recurrent product, the gates and the state update in one kernel.

The caller first computes gates = X projection + bias for all steps by one matrix product (`recurrent_packing`); this kernel adds the
previous hidden state times R, block of cells by block, and applies the cell to each block while its sums are in the cache. A step needs all
cells of the one before, so that a task is one direction of a few sequences, from the first step to the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels import recurrent_cells as cells
from anycann.codegen.kernels.matmul_shape import multiply_add
from anycann.codegen.kernels.recurrent_packing import blocks_of, gate_columns, padded_hidden
from anycann.codegen.kernels.recurrent_shape import Activation, RecurrentShape, RecurrentTile
from anycann.codegen.kernels.recurrent_state import Memory, Pointers, Sequences, emit_final_states, emit_initial_states, memory_of
from anycann.codegen.values import Value, vector_type
from anycann.target.target import Target

__all__ = ["Pointers", "emit_recurrent", "recurrent_scratch_bytes", "recurrent_tasks"]


@dataclass(frozen=True)
class _Kernel:
    shape: RecurrentShape
    tile: RecurrentTile
    lanes: int
    pointers: Pointers
    memory: Memory

    @property
    def width(self) -> int:
        return self.tile.width(self.lanes)

    @property
    def blocks(self) -> int:
        return blocks_of(self.shape, self.tile, self.lanes)

    @property
    def padded(self) -> int:
        return padded_hidden(self.shape, self.tile, self.lanes)

    @property
    def vector(self) -> str:
        return vector_type("float", self.lanes)


def recurrent_tasks(shape: RecurrentShape, tile: RecurrentTile) -> int:
    """Extent of the parallel range: directions x groups of `tile.rows` sequences."""
    return shape.directions * -(-shape.batch // tile.rows)


def recurrent_scratch_bytes(shape: RecurrentShape, target: Target, tile: RecurrentTile) -> int:
    """Bytes of a thread's scratch memory: both hidden states, the memory, and the sums of a block."""
    return memory_of(shape, tile, target.lanes).nbytes


def emit_recurrent(e: Emitter, shape: RecurrentShape, target: Target, tile: RecurrentTile, pointers: Pointers) -> int:
    """Write the kernel's loop over its tasks `e.begin..e.end` and return how many tasks there are. All operands are float32."""
    kernel = _Kernel(shape, tile, target.lanes, pointers, memory_of(shape, tile, target.lanes))
    groups = -(-shape.batch // tile.rows)
    if 0 in (shape.batch, shape.hidden):
        return 0
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
    return recurrent_tasks(shape, tile)


def _emit_phase(e: Emitter, kernel: _Kernel, sequences: Sequences, phase: int, step: Value, states: list[Value]) -> None:
    """The gates of one phase, for every block of cells: their sums, then the cell's equations row by row."""
    source = states[0] if phase == 0 else kernel.memory.at(e, "reset")
    with e.loop(0, kernel.blocks) as block:
        for rows, condition in _heights(e, kernel, sequences):
            with _maybe(e, condition):
                _emit_sums(e, kernel, sequences, phase, step, block.index, source, rows)
        with e.loop(0, sequences.count) as row:
            for vector in range(kernel.tile.vectors):
                _emit_cells(e, kernel, sequences, phase, step, block.index, row.index, vector, states)


def _heights(e: Emitter, kernel: _Kernel, sequences: Sequences) -> list[tuple[int, Value | None]]:
    """The numbers of sequences a task may have, with the condition under which it has them."""
    rest = kernel.shape.batch % kernel.tile.rows
    if not rest:
        return [(kernel.tile.rows, None)]
    if kernel.shape.batch < kernel.tile.rows:
        return [(rest, None)]
    return [(rows, e.compare("eq", sequences.count, e.const(rows))) for rows in (kernel.tile.rows, rest)]


@contextmanager
def _maybe(e: Emitter, condition: Value | None) -> Iterator[None]:
    if condition is None:
        yield
        return
    with e.when(condition):
        yield


def _emit_sums(e: Emitter, kernel: _Kernel, sequences: Sequences, phase: int, step: Value, block: Value, source: Value, rows: int) -> None:
    """sums[row, gate, vector] = gates + source R of one block, into scratch."""
    shape, lanes, vectors = kernel.shape, kernel.lanes, kernel.tile.vectors
    gates = shape.phases[phase]
    offsets = [gate * kernel.width + v * lanes for gate in range(len(gates)) for v in range(vectors)]
    panel = e.gep(kernel.pointers.panels, _panel_offset(e, kernel, sequences, phase, block), "float")
    sums: list[Value] = []
    for i in range(rows):
        start = _gates_of(e, kernel, sequences, step, block, e.const(i))
        for gate in gates:
            is_separate = shape.cell == "GRU" and shape.linear_before_reset and gate == 2
            for v in range(vectors):
                place = e.gep(start, gate * kernel.width + v * lanes, "float")
                sums.append(e.zero(kernel.vector) if is_separate else e.load(place, kernel.vector, 4))
    with e.loop(0, shape.hidden, carried=sums) as k:
        row_of_r = e.gep(panel, e.mul(k.index, len(gates) * kernel.width), "float")
        weights = [e.load(e.gep(row_of_r, offset, "float"), kernel.vector, 4) for offset in offsets]
        totals = []
        for i in range(rows):
            state = e.load(e.gep(source, e.add(k.index, i * kernel.padded), "float"), "float", 4)
            factor = e.splat(state, lanes)
            totals += [multiply_add(e, factor, weight, k.values[i * len(offsets) + j]) for j, weight in enumerate(weights)]
        k.carry(totals)
    tile = kernel.memory.at(e, "sums")
    for number, total in enumerate(k.values):
        line, column = divmod(number, len(offsets))
        e.store(total, e.gep(tile, line * kernel.memory.sums_per_row + offsets[column], "float"), 4)


def _panel_offset(e: Emitter, kernel: _Kernel, sequences: Sequences, phase: int, block: Value) -> Value:
    """Where the rows of R of one block begin in `RecurrentWeights.panels`."""
    shape = kernel.shape
    before = sum(len(p) for p in shape.phases[:phase]) * shape.directions * shape.hidden * kernel.padded
    number = e.add(e.mul(sequences.direction, kernel.blocks), block)
    return e.add(e.mul(number, shape.hidden * len(shape.phases[phase]) * kernel.width), before)


def _gates_of(e: Emitter, kernel: _Kernel, sequences: Sequences, step: Value, block: Value, row: Value) -> Value:
    """Address of the projected gates of one sequence at this step, from `block` on."""
    shape = kernel.shape
    columns = gate_columns(shape, kernel.tile, kernel.lanes)
    time, _ = sequences.time(e, step, row)
    b = e.add(sequences.first, row)
    line = e.add(e.mul(time, shape.batch), b) if shape.layout == 0 else e.add(e.mul(b, shape.steps), time)
    within = e.add(e.mul(sequences.direction, shape.gates * kernel.padded), e.mul(block, shape.gates * kernel.width))
    return e.gep(kernel.pointers.gates, e.add(e.mul(line, columns), within), "float")


def _emit_cells(
    e: Emitter,
    kernel: _Kernel,
    sequences: Sequences,
    phase: int,
    step: Value,
    block: Value,
    row: Value,
    vector: int,
    states: list[Value],
) -> None:
    """The equations of one vector of cells, from sums in scratch to the new states and the output."""
    count = kernel.shape.directions
    same = count == 1 or kernel.shape.activations_of(0) == kernel.shape.activations_of(1)
    for direction in range(1 if same else count):
        condition = None if same else e.compare("eq", sequences.direction, e.const(direction))
        with _maybe(e, condition):
            _Cells(e, kernel, sequences, step, block, row, vector, states, kernel.shape.activations_of(direction)).emit(phase)


@dataclass(frozen=True)
class _Cells:
    """One vector of cells of one sequence at one step."""

    e: Emitter
    kernel: _Kernel
    sequences: Sequences
    step: Value
    block: Value
    row: Value
    vector: int
    states: list[Value]
    functions: tuple[Activation, ...]

    def emit(self, phase: int) -> None:
        shape = self.kernel.shape
        if shape.cell == "LSTM":
            memory = self._state("memory")
            inputs = cells.CellInputs(self._load(self._at(self.states[0])), self._load(memory), self._vectors())
            hidden, updated = cells.lstm(self.e, shape, self.functions, self._gates(phase), inputs)
            assert inputs.memory is not None
            self._store(self._while_active(updated, inputs.memory), memory)
            self._finish(hidden, inputs.hidden)
            return
        before = self._load(self._at(self.states[0]))
        if shape.cell == "RNN":
            self._finish(cells.rnn(self.e, shape, self.functions, self._gates(phase)), before)
        elif shape.linear_before_reset:
            projected = self._load(self._projected(2))
            inputs = cells.CellInputs(before, None, self._vectors(), projected)
            self._finish(cells.gru_after(self.e, shape, self.functions, self._gates(phase), inputs), before)
        elif phase == 0:
            update, reset = cells.gru_gates(self.e, shape, self.functions, self._gates(phase))
            self._store(update, self._state("update"))
            self._store(self.e.binary("fmul", reset, before), self._state("reset"))
        else:
            update, inputs = self._load(self._state("update")), cells.CellInputs(before, None, ())
            candidate = self._gates(phase)[0]
            self._finish(cells.gru_output(self.e, shape, self.functions, candidate, update, inputs), before)

    def _finish(self, hidden: Value, before: Value) -> None:
        """Store the new hidden state, and the output of this step: zero for a sequence that has ended."""
        self._store(self._while_active(hidden, before), self._at(self.states[1]))
        if self.kernel.pointers.y is None:
            return
        time, active = self.sequences.time(self.e, self.step, self.row)
        output = hidden if active is None else self.e.select(active, hidden, self.e.zero(hidden.type))
        self.sequences.store_step(self.e, self.kernel.pointers.y, output, time, self.row, self._cell())

    def _while_active(self, new: Value, old: Value) -> Value:
        _, active = self.sequences.time(self.e, self.step, self.row)
        return new if active is None else self.e.select(active, new, old)

    def _cell(self) -> Value:
        """Number of the first hidden cell."""
        return self.e.add(self.e.mul(self.block, self.kernel.width), self.vector * self.kernel.lanes)

    def _at(self, state: Value) -> Value:
        return self.e.gep(state, self.e.add(self.e.mul(self.row, self.kernel.padded), self._cell()), "float")

    def _state(self, name: str) -> Value:
        return self._at(self.kernel.memory.at(self.e, name))

    def _load(self, place: Value) -> Value:
        return self.e.load(place, self.kernel.vector, 4)

    def _store(self, value: Value, place: Value) -> None:
        self.e.store(value, place, 4)

    def _gates(self, phase: int) -> list[Value]:
        e, kernel = self.e, self.kernel
        tile = e.gep(kernel.memory.at(e, "sums"), e.mul(self.row, kernel.memory.sums_per_row), "float")
        count = len(kernel.shape.phases[phase])
        return [self._load(e.gep(tile, gate * kernel.width + self.vector * kernel.lanes, "float")) for gate in range(count)]

    def _projected(self, gate: int) -> Value:
        start = _gates_of(self.e, self.kernel, self.sequences, self.step, self.block, self.row)
        return self.e.gep(start, gate * self.kernel.width + self.vector * self.kernel.lanes, "float")

    def _vectors(self) -> tuple[Value, ...]:
        """Peepholes or the candidate's recurrent bias at these cells."""
        shape, e = self.kernel.shape, self.e
        count = 3 if shape.cell == "LSTM" and shape.has_peepholes else 1 if shape.cell == "GRU" and shape.linear_before_reset else 0
        if not count:
            return ()
        assert self.kernel.pointers.vectors is not None
        base = e.add(e.mul(self.sequences.direction, count * self.kernel.padded), self._cell())
        return tuple(self._load(e.gep(self.kernel.pointers.vectors, e.add(base, i * self.kernel.padded), "float")) for i in range(count))

"""The update of one vector of cells: from the sums of its gates to its new states and the output of the step."""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels import recurrent_cells as cells
from anycann.codegen.kernels.recurrent_kernel import RecurrentKernel, only_if, projected_gates
from anycann.codegen.kernels.recurrent_shape import Activation
from anycann.codegen.kernels.recurrent_state import Sequences
from anycann.codegen.values import Value
from anycann.support.records import dataclass


def emit_cells(
    e: Emitter,
    kernel: RecurrentKernel,
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
        with only_if(e, condition):
            _Cells(e, kernel, sequences, step, block, row, vector, states, kernel.shape.activations_of(direction)).emit(phase)


@dataclass(frozen=True)
class _Cells:
    """One vector of cells of one sequence at one step."""

    e: Emitter
    kernel: RecurrentKernel
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
        start = projected_gates(self.e, self.kernel, self.sequences, self.step, self.block, self.row)
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

"""What a recurrent kernel keeps while time runs: its pointers, its scratch memory, and which step of which sequence is meant."""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.recurrent_packing import padded_hidden, panel_depth
from anycann.codegen.kernels.recurrent_shape import RecurrentShape, RecurrentTile
from anycann.codegen.values import Value, vector_type
from anycann.support.records import dataclass


@dataclass(frozen=True)
class Pointers:
    """The kernel's operands; None for those the node does not have.

    gates: the input projection with its bias, rows in the order of X. panels, vectors: of `RecurrentWeights`. initial_h, initial_c, y, y_h,
    y_c: as ONNX lays them out for `shape.layout`. lengths: int32, clamped to 0..steps by the kernel.
    """

    gates: Value
    panels: Value
    vectors: Value | None = None
    initial_h: Value | None = None
    initial_c: Value | None = None
    lengths: Value | None = None
    y: Value | None = None
    y_h: Value | None = None
    y_c: Value | None = None


@dataclass(frozen=True)
class Memory:
    """Offsets in elements of the states, each [rows][padded hidden], and of what a block needs, behind each other.

    elements: of a thread's scratch memory, where the states are too, unless threads share them at `shared`. state_elements: of all states.
    """

    states: tuple[tuple[str, int], ...]
    others: tuple[tuple[str, int], ...]
    elements: int
    state_elements: int
    sums_per_row: int
    shared: Value | None = None

    @property
    def nbytes(self) -> int:
        return 4 * self.elements

    def has(self, name: str) -> bool:
        """True if there is a state of this name."""
        return name in dict(self.states)

    def at(self, e: Emitter, name: str) -> Value:
        """The address of a state, or of what a block needs."""
        base = self.shared if self.shared is not None and self.has(name) else e.scratch
        return e.gep(base, dict((*self.states, *self.others))[name], "float")


def memory_of(shape: RecurrentShape, tile: RecurrentTile, lanes: int) -> Memory:
    """The states a kernel needs: the hidden state twice, an LSTM's memory, a GRU's update gate and reset hidden state, a block's sums.

    For products of bfloat16 also what is multiplied; for states that are rounded to words these, and their steps.
    """
    state = tile.rows * padded_hidden(shape, tile, lanes)
    names = ["hidden", "next"] + (["memory"] if shape.cell == "LSTM" else ["update", "reset"] if len(shape.phases) == 2 else [])
    sums = max(len(phase) for phase in shape.phases) * tile.width(lanes)
    sizes = {"sums": tile.rows * sums}
    if tile.by_pairs or tile.by_tiles:
        sizes["factors"] = state // 2 if tile.by_pairs else tile.rows * panel_depth(shape, tile) // 2
    elif shape.rounds_states:
        sizes |= {"words": state // 2, "steps": tile.rows}
    others, end = [], 0 if tile.by_steps else len(names) * state
    for name, size in sizes.items():
        others.append((name, end))
        end += size
    states = tuple((name, i * state) for i, name in enumerate(names))
    return Memory(states, tuple(others), end, len(names) * state, sums)


@dataclass(frozen=True)
class Sequences:
    """The `count` sequences from `first` on that a task runs in one `direction`."""

    shape: RecurrentShape
    pointers: Pointers
    lanes: int
    padded: int
    direction: Value
    first: Value
    count: Value

    def time(self, e: Emitter, step: Value, row: Value) -> tuple[Value, Value | None]:
        """(time index of the kernel's `step` for a sequence, whether it still runs); None: it always does.

        A sequence of n steps in reverse starts at n - 1. After its end, step and time are the same, so that each time is met once.
        """
        shape = self.shape
        if self.pointers.lengths is None:
            return self._reversed(e, e.const(shape.steps), step), None
        raw = e.load(e.gep(self.pointers.lengths, e.add(self.first, row), "i32"), "i32", 4)
        length = e.smin(e.smax(e.cast("sext", raw, "i64"), e.const(0)), e.const(shape.steps))
        active = e.compare("slt", step, length)
        return e.select(active, self._reversed(e, length, step), step), active

    def _reversed(self, e: Emitter, length: Value, step: Value) -> Value:
        if self.shape.direction == "forward":
            return step
        backwards = e.sub(e.sub(length, e.const(1)), step)
        if self.shape.direction == "reverse":
            return backwards
        return e.select(e.compare("eq", self.direction, e.const(1)), backwards, step)

    def state_offset(self, e: Emitter, row: Value, cell: Value) -> Value:
        """Offset in initial_h, initial_c, Y_h and Y_c: [directions, batch, hidden], or batch first."""
        shape, b = self.shape, e.add(self.first, row)
        outer = e.add(e.mul(self.direction, shape.batch), b) if shape.layout == 0 else e.add(e.mul(b, shape.directions), self.direction)
        return e.add(e.mul(outer, shape.hidden), cell)

    def store_step(self, e: Emitter, y: Value, value: Value, time: Value, row: Value, cell: Value) -> None:
        """Y[time, direction, sequence] or Y[sequence, time, direction], for layout 1, from `cell` on."""
        shape, b = self.shape, e.add(self.first, row)
        if shape.layout == 0:
            outer = e.add(e.mul(e.add(e.mul(time, shape.directions), self.direction), shape.batch), b)
        else:
            outer = e.add(e.mul(e.add(e.mul(b, shape.steps), time), shape.directions), self.direction)
        self.store(e, value, e.gep(y, e.add(e.mul(outer, shape.hidden), cell), "float"), cell)

    def store(self, e: Emitter, value: Value, place: Value, cell: Value) -> None:
        """Store the lanes that are cells of the layer; whole vectors without a mask, for which AVX2 may take 12 cycles (Zen 3)."""
        if self.shape.hidden == self.padded:
            e.store(value, place, 4)
            return
        rest = self.shape.hidden % self.lanes
        with e.when(e.compare("sle", cell, e.const(self.shape.hidden - self.lanes))):
            e.store(value, place, 4)
        if rest:
            exist = ", ".join(f"i1 {str(lane < rest).lower()}" for lane in range(self.lanes))
            with e.when(e.compare("eq", cell, e.const(self.shape.hidden - rest))):
                e.masked_store(value, place, 4, Value(f"<{exist}>", vector_type("i1", self.lanes)))

    def load(self, e: Emitter, place: Value, cell: Value) -> Value:
        """Load the lanes that are cells of the layer, zero in the others."""
        mask, type_ = self._mask(e, cell), vector_type("float", self.lanes)
        return e.load(place, type_, 4) if mask is None else e.masked_load(place, type_, 4, mask, e.zero(type_))

    def _mask(self, e: Emitter, cell: Value) -> Value | None:
        if self.shape.hidden == self.padded:
            return None
        numbers = e.binary("add", e.splat(cell, self.lanes), e.lane_numbers(self.lanes))
        return e.compare("slt", numbers, e.const(self.shape.hidden, numbers.type))


def emit_initial_states(e: Emitter, sequences: Sequences, memory: Memory) -> None:
    """Hidden state and memory from initial_h and initial_c, or zero."""
    for name, initial in (("hidden", sequences.pointers.initial_h), ("memory", sequences.pointers.initial_c)):
        if not memory.has(name):
            continue
        state = memory.at(e, name)
        with e.loop(0, sequences.count) as row, e.loop(0, sequences.padded, sequences.lanes) as cell:
            if initial is None:
                value = e.zero(vector_type("float", sequences.lanes))
            else:
                place = e.gep(initial, sequences.state_offset(e, row.index, cell.index), "float")
                value = sequences.load(e, place, cell.index)
            e.store(value, e.gep(state, e.add(e.mul(row.index, sequences.padded), cell.index), "float"), 4)


def emit_final_states(e: Emitter, sequences: Sequences, memory: Memory, hidden: Value) -> None:
    """Y_h and Y_c, where they are wanted."""
    for state, output in ((hidden, sequences.pointers.y_h), (None, sequences.pointers.y_c)):
        if output is None:
            continue
        source = state or memory.at(e, "memory")
        with e.loop(0, sequences.count) as row, e.loop(0, sequences.padded, sequences.lanes) as cell:
            place = e.gep(source, e.add(e.mul(row.index, sequences.padded), cell.index), "float")
            value = e.load(place, vector_type("float", sequences.lanes), 4)
            to = e.gep(output, sequences.state_offset(e, row.index, cell.index), "float")
            sequences.store(e, value, to, cell.index)

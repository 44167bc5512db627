"""The recurrent product of float32 states: the sums of a block of cells, in registers for some sequences at a time.

Weights may be stored narrower than they are multiplied (`RecurrentWeights.panels`). Sequences that are more than registers hold take turns
with a part of the panel: it comes from behind the first-level cache once for all of them.
"""

from __future__ import annotations

from anycann.codegen.conversions import from_storage
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.dot_products import DotProducts, add_word_pairs
from anycann.codegen.kernels.matmul_shape import multiply_add
from anycann.codegen.kernels.recurrent_kernel import RecurrentKernel, only_if, panel_offset, projected_gates
from anycann.codegen.kernels.recurrent_packing import panel_depth
from anycann.codegen.kernels.recurrent_state import Sequences
from anycann.codegen.values import Value, vector_type
from anycann.te import dtypes

_PART_BYTES = 1 << 14  # of a panel: half of the smallest first-level caches


def emit_sums(e: Emitter, kernel: RecurrentKernel, sequences: Sequences, phase: int, step: Value, block: Value, source: Value) -> None:
    """sums[row, gate, vector] = gates + source R of one block, into scratch, for all sequences of a task at once."""
    panel = _Panel(e, kernel, sequences, phase, block)
    for rows, condition in _heights(e, kernel, sequences):
        with only_if(e, condition):
            first = [total for i in range(rows) for total in _first_sums(e, kernel, sequences, phase, step, block, e.const(i))]
            sums = [e.zero(kernel.sum)] * len(first) if kernel.head_rows else first
            sums = panel.products(source, (0, panel.depth), sums)
            if kernel.head_rows:
                sums = panel.scaled(sums, first, e.const(0))
            panel.store(kernel.memory.at(e, "sums"), sums)


def emit_sums_in_turns(
    e: Emitter, kernel: RecurrentKernel, sequences: Sequences, phase: int, step: Value, block: Value, source: Value
) -> None:
    """As `emit_sums`, for the groups of several tasks: each part of the panel is multiplied with all of them before the next one."""
    panel, sums, group = _Panel(e, kernel, sequences, phase, block), kernel.memory.at(e, "sums"), kernel.tile.group
    width = len(panel.offsets)
    with e.loop(0, sequences.count) as row:
        first = [e.zero(kernel.sum)] * width if kernel.head_rows else _first_sums(e, kernel, sequences, phase, step, block, row.index)
        panel.store(panel.line(sums, row.index), first)
    with e.loop(0, panel.depth, panel.part_depth) as part:
        end = e.smin(e.add(part.index, panel.part_depth), e.const(panel.depth))
        with e.loop(0, sequences.count, group) as turn:
            here, left = panel.line(sums, turn.index), e.smin(e.const(group), e.sub(sequences.count, turn.index))
            states = e.gep(source, e.mul(turn.index, kernel.padded), "i16" if kernel.takes_pairs else "float")
            for rows in _turns(kernel):
                with e.when(e.compare("eq", left, e.const(rows))):
                    panel.store(here, panel.products(states, (part.index, end), panel.load(here, rows)))
    if kernel.head_rows:
        with e.loop(0, sequences.count) as row:
            here, first = panel.line(sums, row.index), _first_sums(e, kernel, sequences, phase, step, block, row.index)
            panel.store(here, panel.scaled(panel.load(here, 1), first, row.index))


def add_first_sums(e: Emitter, kernel: RecurrentKernel, sequences: Sequences, phase: int, step: Value, block: Value, row: Value) -> None:
    """What the products of one sequence are added to, added to them."""
    line = e.gep(kernel.memory.at(e, "sums"), e.mul(row, kernel.memory.sums_per_row), "float")
    for number, first in enumerate(_first_sums(e, kernel, sequences, phase, step, block, row)):
        place = e.gep(line, number * kernel.lanes, "float")
        e.store(e.binary("fadd", e.load(place, kernel.vector, 4), first), place, 4)


class _Panel:
    """The weights of one block of cells, [hidden][gate][cell], behind what they are multiples of if they are integers.

    Where pairs are multiplied [pair of hidden cells][gate][cell][one of the pair].
    """

    def __init__(self, e: Emitter, kernel: RecurrentKernel, sequences: Sequences, phase: int, block: Value):
        gates, lanes = len(kernel.shape.phases[phase]), kernel.lanes
        self.e, self.kernel, self.stored = e, kernel, kernel.panels
        self.columns = gates * kernel.width
        self.offsets = [gate * kernel.width + v * lanes for gate in range(gates) for v in range(kernel.tile.vectors)]
        self.head = e.gep(kernel.pointers.panels, panel_offset(e, kernel, sequences, phase, block), self.stored.storage)
        self.weights = e.gep(self.head, kernel.head_rows * self.columns, self.stored.storage)

    @property
    def part_depth(self) -> int:
        """Rows of weights that sequences take turns with."""
        return max(16, _PART_BYTES // (self.columns * self.stored.nbytes) // 2 * 2)

    @property
    def depth(self) -> int:
        """Rows of weights that are multiplied: whole pairs, whose other one is zero and not what fills the last vector."""
        kernel = self.kernel
        return panel_depth(kernel.shape, kernel.tile) if kernel.takes_pairs else kernel.shape.hidden

    def products(self, states: Value, cells: tuple[Value | int, Value | int], sums: list[Value]) -> list[Value]:
        """sums + states R over the hidden cells of a range, for as many sequences as there are sums.

        Of the states and the weights of a cell the fewer are held, and the others are read one by one.
        """
        e, kernel, columns = self.e, self.kernel, len(self.offsets)
        rows = len(sums) // columns
        order = [(i, j) for i in range(rows) for j in range(columns)]
        if rows < columns:
            order.sort(key=lambda place: place[1])
        with e.loop(*cells, 2 if kernel.takes_pairs else 1, carried=sums) as k:
            row = e.gep(self.weights, e.mul(k.index, self.columns), self.stored.storage)
            factors, weights, totals = dict[int, Value](), dict[int, Value](), dict[tuple[int, int], Value]()
            for i, j in order:
                if i not in factors:
                    factors[i] = self._state(states, e.add(k.index, i * kernel.padded))
                if j not in weights:
                    weights[j] = self._weight(row, j)
                totals[i, j] = self._add_product(k.values[i * columns + j], factors[i], weights[j])
            k.carry([totals[i, j] for i in range(rows) for j in range(columns)])
        return list(k.values)

    def _state(self, states: Value, cell: Value) -> Value:
        """The state of a cell, or of a pair, in every lane."""
        e, kernel = self.e, self.kernel
        if kernel.takes_pairs:
            return e.splat(e.load(e.gep(states, cell, "i16"), "i32", 2), kernel.lanes)
        return e.splat(e.load(e.gep(states, cell, "float"), "float", 4), kernel.lanes)

    def _weight(self, row: Value, column: int) -> Value:
        e, stored, lanes = self.e, self.stored, self.kernel.lanes
        if self.kernel.tile.by_pairs:
            return e.load(e.gep(row, 2 * self.offsets[column], "i16"), vector_type("i32", lanes), 2)
        if self.kernel.in_words:
            pairs = e.load(e.gep(row, 2 * self.offsets[column], stored.storage), vector_type(stored.storage, 2 * lanes), stored.nbytes)
            return e.cast("sext", pairs, "i16")
        place = e.gep(row, self.offsets[column], stored.storage)
        raw = e.load(place, vector_type(stored.storage, lanes), stored.nbytes)
        return e.cast("sitofp", raw, "float") if self.kernel.head_rows else from_storage(e, raw, stored)

    def _add_product(self, total: Value, state: Value, weight: Value) -> Value:
        if self.kernel.in_words:
            return add_word_pairs(self.e, self.kernel.target, total, state, weight)
        if self.kernel.tile.by_pairs:
            return DotProducts(dtypes.bfloat16, self.kernel.target).add(self.e, total, [state], [weight])
        return multiply_add(self.e, state, weight, total)

    def scaled(self, totals: list[Value], first: list[Value], row: Value) -> list[Value]:
        """Sums of integer weights from `row` on, times what they (and states in words) are multiples of, and what they are added to."""
        e, kernel = self.e, self.kernel
        result = []
        for number, total in enumerate(totals):
            line, column = divmod(number, len(self.offsets))
            step = e.load(e.gep(self.head, self.offsets[column], "float"), kernel.vector, 4)
            if kernel.in_words:
                of_state = e.load(e.gep(kernel.memory.at(e, "steps"), e.add(row, line), "float"), "float", 4)
                total, step = e.cast("sitofp", total, "float"), e.binary("fmul", step, e.splat(of_state, kernel.lanes))
            result.append(multiply_add(e, total, step, first[number]))
        return result

    def line(self, sums: Value, row: Value) -> Value:
        """Where the sums of one sequence are."""
        return self.e.gep(sums, self.e.mul(row, self.kernel.memory.sums_per_row), "float")

    def load(self, sums: Value, rows: int) -> list[Value]:
        """The sums of `rows` sequences."""
        return [self.e.load(self._place(sums, number), self.kernel.sum, 4) for number in range(rows * len(self.offsets))]

    def store(self, sums: Value, totals: list[Value]) -> None:
        """Keep the sums of as many sequences as there are."""
        for number, total in enumerate(totals):
            self.e.store(total, self._place(sums, number), 4)

    def _place(self, sums: Value, number: int) -> Value:
        line, column = divmod(number, len(self.offsets))
        return self.e.gep(sums, line * self.kernel.memory.sums_per_row + self.offsets[column], "float")


def _heights(e: Emitter, kernel: RecurrentKernel, sequences: Sequences) -> list[tuple[int, Value | None]]:
    """The numbers of sequences a task may have, with the condition under which it has them."""
    rest = kernel.shape.batch % kernel.tile.rows
    if not rest:
        return [(kernel.tile.rows, None)]
    if kernel.shape.batch < kernel.tile.rows:
        return [(rest, None)]
    return [(rows, e.compare("eq", sequences.count, e.const(rows))) for rows in (kernel.tile.rows, rest)]


def _turns(kernel: RecurrentKernel) -> list[int]:
    """The numbers of sequences that may have a turn: a group, or what is left in the last one."""
    return sorted({kernel.tile.group, kernel.shape.batch % kernel.tile.group} - {0})


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

"""What every part of a recurrent kernel knows: its shape and tile, and where the operands of a block of cells begin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.recurrent_packing import HEAD_ROWS, blocks_of, gate_columns, padded_hidden, panel_depth
from anycann.codegen.kernels.recurrent_shape import RecurrentShape, RecurrentTile
from anycann.codegen.kernels.recurrent_state import Memory, Pointers, Sequences
from anycann.codegen.values import Value, vector_type
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te.dtypes import DType


@dataclass(frozen=True)
class RecurrentKernel:
    """The kernel of a shape, cut into blocks of cells as its tile says; `panels`: what the recurrent weights are stored in."""

    shape: RecurrentShape
    tile: RecurrentTile
    target: Target
    pointers: Pointers
    memory: Memory
    panels: DType = dtypes.float32

    @property
    def lanes(self) -> int:
        return self.target.lanes

    @property
    def in_words(self) -> bool:
        """True if states are rounded to 16 bits and multiplied as integers."""
        return self.shape.rounds_states and self.panels is dtypes.int8

    @property
    def takes_pairs(self) -> bool:
        """True if states and weights of two cells, of 16 bits each, are multiplied at once: words, or bfloat16."""
        return self.in_words or self.tile.by_pairs

    @property
    def sum(self) -> str:
        """The type of one vector of sums."""
        return vector_type("i32" if self.in_words else "float", self.lanes)

    @property
    def width(self) -> int:
        """Cells of a block."""
        return self.tile.width(self.lanes)

    @property
    def blocks(self) -> int:
        """Blocks of cells of one direction."""
        return blocks_of(self.shape, self.tile, self.lanes)

    @property
    def padded(self) -> int:
        """Cells of one direction, whole blocks."""
        return padded_hidden(self.shape, self.tile, self.lanes)

    @property
    def head_rows(self) -> int:
        """Rows of a panel before its weights: what these are multiples of."""
        return HEAD_ROWS if self.panels is dtypes.int8 else 0

    @property
    def vector(self) -> str:
        """The type of one vector of cells."""
        return vector_type("float", self.lanes)


def panel_offset(e: Emitter, kernel: RecurrentKernel, sequences: Sequences, phase: int, block: Value) -> Value:
    """Where the panel of one block begins in `RecurrentWeights.panels`."""
    shape, rows = kernel.shape, kernel.head_rows + panel_depth(kernel.shape, kernel.tile)
    before = sum(len(p) for p in shape.phases[:phase]) * shape.directions * rows * kernel.padded
    number = e.add(e.mul(sequences.direction, kernel.blocks), block)
    return e.add(e.mul(number, rows * len(shape.phases[phase]) * kernel.width), before)


def projected_gates(e: Emitter, kernel: RecurrentKernel, sequences: Sequences, step: Value, block: Value, row: Value) -> Value:
    """Address of the projected gates of one sequence at this step, from `block` on."""
    shape = kernel.shape
    columns = gate_columns(shape, kernel.tile, kernel.lanes)
    time, _ = sequences.time(e, step, row)
    b = e.add(sequences.first, row)
    line = e.add(e.mul(time, shape.batch), b) if shape.layout == 0 else e.add(e.mul(b, shape.steps), time)
    within = e.add(e.mul(sequences.direction, shape.gates * kernel.padded), e.mul(block, shape.gates * kernel.width))
    return e.gep(kernel.pointers.gates, e.add(e.mul(line, columns), within), "float")


@contextmanager
def only_if(e: Emitter, condition: Value | None) -> Iterator[None]:
    """Run the body only if the condition holds; None: always."""
    if condition is None:
        yield
        return
    with e.when(condition):
        yield

"""One matrix product kernel as decided: shape, tile, pointers, writer; and the part of the result that a task computes."""

from __future__ import annotations

from dataclasses import dataclass

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.matmul_shape import MatmulShape, Operand
from anycann.codegen.kernels.matmul_tile import MatmulTile
from anycann.codegen.kernels.matmul_writer import MatmulIndex, Start, Write
from anycann.codegen.values import Value, vector_type


@dataclass(frozen=True)
class PanelKernel:
    """Everything decided about one kernel, and the pointers of its operands."""

    shape: MatmulShape
    tile: MatmulTile
    lanes: int
    a: Value
    b: Value
    write: Write
    start: Start | None
    inline: bool

    @property
    def width(self) -> int:
        return self.tile.vectors * self.lanes

    @property
    def left(self) -> Operand:
        return Operand(self.shape.a_dtype, self.shape.accumulator)

    @property
    def right(self) -> Operand:
        """B as the innermost loop reads it: a copy in scratch has the type of the sums."""
        return Operand(self.shape.accumulator if self.tile.copy else self.shape.b_dtype, self.shape.accumulator)

    @property
    def vector(self) -> str:
        return vector_type(self.shape.accumulator.register, self.lanes)

    @property
    def is_blocked(self) -> bool:
        """True if the sums over k are cut, and wait in scratch for the next part."""
        return self.tile.depth < self.shape.k

    @property
    def chunk(self) -> int:
        return self.tile.rows * self.tile.row_blocks

    @property
    def sums_bytes(self) -> int:
        """Scratch for sums: a register tile on its way to the writer, or all of a task's."""
        rows = self.chunk if self.is_blocked else self.tile.rows
        return rows * self.width * self.shape.accumulator.nbytes


@dataclass(frozen=True)
class Panel:
    """The part of C that a task computes: `columns` columns from `n` on (a full panel or the last), rows `m` to `m_end`."""

    batch: tuple[Value, ...]
    m: Value
    m_end: Value
    n: Value
    number: Value
    columns: int
    vectors: int
    mask: Value | None


def panel_scratch(shape: MatmulShape, lanes: int, tile: MatmulTile) -> int:
    """Bytes of scratch memory: the sums, then the copy of a panel if there is one."""
    nowhere = Value("null", "ptr")
    kernel = PanelKernel(shape, tile, lanes, nowhere, nowhere, _no_write, None, False)
    panel = min(tile.depth, shape.k) * kernel.width * shape.accumulator.nbytes if tile.copy else 0
    return kernel.sums_bytes + panel


def _no_write(e: Emitter, index: MatmulIndex, total: Value, mask: Value | None) -> None:
    raise AssertionError("only sizes are asked of this kernel")

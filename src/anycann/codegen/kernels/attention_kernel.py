"""One attention kernel as decided: shape, tile, scratch, pointers, writer; and the rows that a task computes."""

from __future__ import annotations

from anycann.codegen.kernels.attention_shape import AttentionShape, AttentionTile, Memory, Pointers, Write, copies_values
from anycann.codegen.kernels.matmul_shape import Operand
from anycann.codegen.values import Value, vector_type
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te import dtypes


@dataclass(frozen=True)
class Kernel:
    """Everything decided about one kernel, and the pointers of its operands."""

    shape: AttentionShape
    tile: AttentionTile
    target: Target
    memory: Memory
    pointers: Pointers
    write: Write

    @property
    def lanes(self) -> int:
        return self.target.lanes

    @property
    def is_direct(self) -> bool:
        """True if there is one block of keys: results go from registers to the writer."""
        return self.memory.is_direct

    @property
    def is_far(self) -> bool:
        """True if what the kernel reads does not stay in the second-level cache."""
        shape = self.shape
        elements = shape.batches * (shape.rows * shape.depth + shape.keys * (shape.depth + shape.width))
        return elements * shape.dtype.nbytes > self.target.l2_bytes // 2

    @property
    def vector(self) -> str:
        return vector_type("float", self.lanes)

    @property
    def operand(self) -> Operand:
        return Operand(self.shape.dtype, dtypes.float32)

    @property
    def copies_values(self) -> bool:
        return copies_values(self.shape, self.tile, self.lanes)


@dataclass(frozen=True)
class Rows:
    """The rows of one task: `count` of them from `first` on, in `vectors` registers; `seen` keys at most.

    batch: the head; block: the task's number among those of the head; following: the next head.
    """

    batch: tuple[Value, ...]
    first: Value
    count: int
    vectors: int
    seen: Value
    block: Value
    following: tuple[Value, ...]

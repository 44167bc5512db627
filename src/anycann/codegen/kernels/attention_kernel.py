"""One attention kernel as decided: shape, tile, scratch, pointers, writer; and the rows that a task computes."""

from __future__ import annotations

from collections.abc import Callable

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.arithmetic_rate import has_fma
from anycann.codegen.kernels.attention_shape import AttentionShape, AttentionTile, Memory, Pointers, Write, copies_keys, copies_values
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

    @property
    def copies_keys(self) -> bool:
        return copies_keys(self.shape, self.tile)

    @property
    def unroll(self) -> int:
        """Steps of a product in a turn of its loop: 1 if wider copies need registers too, or where there are many of them."""
        few = self.target.has_few_registers and has_fma(self.target) and self.shape.dtype is dtypes.float32
        return _UNROLL if few and self.tile.group > 1 else 1


# With 16 registers 12 multiply-adds have eight or nine other instructions: four steps of them in a turn bring attention beside a neighbour
# on the core from 51 to 61 % of the multiply-adds with 197 keys, from 57 to 63 with 512, and a quiet core takes as long (Zen 3). 32 keys of
# a depth of 32 take 1.04 of the time.
_UNROLL = 4


def emit_turns(
    e: Emitter, count: Value, rest: int | None, unroll: int, sums: list[Value], added: Callable[[Value, list[Value]], list[Value]]
) -> list[Value]:
    """The sums after added(step, sums) for each of `count` steps, `unroll` of them in a turn. rest: what turns leave, None if not known."""
    whole = e.sub(count, e.urem(count, unroll)) if unroll > 1 and rest != 0 else count
    with e.loop(0, whole, unroll, carried=sums) as turn:
        sums = list(turn.values)
        for number in range(unroll):
            if number:
                e.keep_order()  # loads of the next step would need the registers of sums
            sums = added(e.add(turn.index, number) if number else turn.index, sums)
        turn.carry(sums)
    if unroll == 1 or rest == 0:
        return turn.values
    with e.loop(whole, count, carried=turn.values) as step:
        step.carry(added(step.index, list(step.values)))
    return step.values


@dataclass(frozen=True)
class Rows:
    """The rows of one task: `count` of them from `first` on, in `vectors` registers; `seen` keys at most.

    batch: the head; block: the number of these rows among those of the head; following: the next head. number: among those of the task,
    if it has several.
    """

    batch: tuple[Value, ...]
    first: Value
    count: int
    vectors: int
    seen: Value
    block: Value
    following: tuple[Value, ...]
    number: Value | None = None

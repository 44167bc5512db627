"""Native loops over rows of pixels: the same lines written once for a vector of pixels and once for each that is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value, vector_type
from anycann.media.kernels import run
from anycann.runtime.memory import address
from anycann.support.records import dataclass
from anycann.target.target import Target

_COLUMNS, _BUFFERS = 0, 1


@dataclass(frozen=True)
class Buffer:
    """Rows of `step` bytes a pixel, or, where pixels share samples, for 2 ** `shared_bits` pixels that lie side by side."""

    step: int
    shared_bits: int = 0


@dataclass(frozen=True)
class RowLoop:
    """`body` writes the code for `lanes` pixels of a row, or for one. `numbers`: how many int32 it is given at each call."""

    name: str
    buffers: tuple[Buffer, ...]
    body: Callable[[Pixels], None] = field(compare=False)
    numbers: int = 0
    lanes: int = 16

    def ir(self, target: Target) -> tuple[str, str]:
        """(symbol, text) of `void(ptr words, i64 begin, i64 end, ptr)`: rows.

        words, int64: pixels of a row, then for each buffer its address and the bytes between its rows, then the address of the numbers.
        """
        e = Emitter()
        columns, table = _word(e, _COLUMNS), e.argument(_BUFFERS + 2 * len(self.buffers))
        numbers = [e.load(e.gep(table, number, "i32"), "i32", 4) for number in range(self.numbers)]
        whole = e.mul(e.udiv(columns, self.lanes), self.lanes)
        with e.loop(e.begin, e.end) as row:
            places = [(e.argument(_BUFFERS + 2 * n), _word(e, _BUFFERS + 2 * n + 1)) for n in range(len(self.buffers))]
            starts = [e.gep(start, e.mul(row.index, stride), "i8") for start, stride in places]
            for first, last, lanes in ((e.const(0), whole, self.lanes), (whole, columns, 1)):
                with e.loop(first, last, lanes) as column:
                    self.body(Pixels(e, self.buffers, starts, column.index, lanes, numbers))
        return e.finish(self.name)


def _word(e: Emitter, number: int) -> Value:
    return e.load(e.gep(e.args, number, "i64"), "i64", 8)


class Pixels:
    """`lanes` pixels from a column on, as a body sees them."""

    def __init__(self, e: Emitter, buffers: Sequence[Buffer], starts: Sequence[Value], column: Value, lanes: int, numbers: Sequence[Value]):
        self.e, self.lanes, self._buffers, self._numbers = e, lanes, buffers, numbers
        places = [column if not buffer.shared_bits else e.binary("lshr", column, e.const(buffer.shared_bits)) for buffer in buffers]
        self._at = [e.gep(start, e.mul(place, buffer.step), "i8") for start, place, buffer in zip(starts, places, buffers, strict=True)]
        self._loaded: dict[int, Value] = {}

    def sample(self, buffer: int, offset: int, element: str) -> Value:
        """Byte `offset` of each pixel, as an unsigned number of that type."""
        return self.for_each(buffer, self.shared_sample(buffer, offset, element))

    def shared_sample(self, buffer: int, offset: int, element: str) -> Value:
        """As `sample`, once for the pixels that share it."""
        if self.lanes == 1:
            return self.e.cast("zext", self.e.load(self.e.gep(self._at[buffer], offset, "i8"), "i8", 1), element)
        step, count = self._buffers[buffer].step, self.lanes >> self._buffers[buffer].shared_bits
        if buffer not in self._loaded:
            self._loaded[buffer] = self.e.load(self._at[buffer], vector_type("i8", count * step), 1)
        whole = self._loaded[buffer]
        return self.e.cast("zext", self.e.shuffle(whole, whole, [lane * step + offset for lane in range(count)]), element)

    def for_each(self, buffer: int, value: Value) -> Value:
        """What pixels of a buffer share, for each of them."""
        shared = self._buffers[buffer].shared_bits
        if self.lanes == 1 or not shared:
            return value
        return self.e.shuffle(value, value, [lane >> shared for lane in range(self.lanes)])

    def store(self, buffer: int, samples: Sequence[Value]) -> None:
        """Write the bytes of each pixel, all of them."""
        e, count = self.e, len(samples)
        small = [e.cast("trunc", sample, "i8") for sample in samples]
        if self.lanes == 1:
            for offset, sample in enumerate(small):
                e.store(sample, e.gep(self._at[buffer], offset, "i8"), 1)
            return
        whole = small[0]
        for sample in small[1:]:  # one behind the other; vectors of one shuffle have one length
            longer = e.shuffle(sample, sample, [lane % self.lanes for lane in range(whole.lanes)])
            whole = e.shuffle(whole, longer, [*range(whole.lanes), *range(whole.lanes, whole.lanes + self.lanes)])
        e.store(e.shuffle(whole, whole, [n * self.lanes + lane for lane in range(self.lanes) for n in range(count)]), self._at[buffer], 1)

    def number(self, which: int, like: Value) -> Value:
        """A number of the call, in as many lanes as `like` has."""
        return self.e.splat(self._numbers[which], like.lanes)

    def const(self, number: int, element: str) -> Value:
        """A number in every lane."""
        return self.e.const(number, vector_type(element, self.lanes))


def run_rows(
    loop: RowLoop, rows: int, columns: int, buffers: Sequence[NDArray[np.uint8]], numbers: NDArray[np.int32] | None = None
) -> None:
    """Let the loop go over `rows` x `columns` pixels of each buffer, whose rows may lie any distance apart. `numbers`: contiguous."""
    if not rows or not columns:
        return
    places = [word for buffer in buffers for word in (address(buffer), buffer.strides[0])]
    run(loop, np.array([columns, *places, 0 if numbers is None else address(numbers)], np.int64), rows)

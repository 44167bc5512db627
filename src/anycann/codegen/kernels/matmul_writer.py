"""Where results belong, and what takes them: the border between a matrix product and its caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from anycann.codegen.conversions import to_storage
from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value, first_lanes, vector_type
from anycann.support.records import dataclass
from anycann.te import dtypes
from anycann.te.dtypes import DType


@dataclass(frozen=True)
class MatmulIndex:
    """Where a vector of results belongs: the batch dimensions, the row and the first column, as scalar i64; the lanes run along n."""

    batch: tuple[Value, ...]
    m: Value
    n: Value


_SUM_BYTES = 4  # of float32 and of int32
Write: TypeAlias = Callable[[Emitter, MatmulIndex, Value, "Value | None"], None]
Fetch: TypeAlias = Callable[[Emitter, MatmulIndex], None]
Start: TypeAlias = Callable[[Emitter, MatmulIndex], Value]


def batch_index(e: Emitter, linear: Value, sizes: tuple[int, ...]) -> tuple[Value, ...]:
    """The indices of row-major sizes that a linear one stands for."""
    indices = []
    for size in reversed(sizes):
        indices.append(e.urem(linear, size))
        linear = e.udiv(linear, size)
    return tuple(reversed(indices))


def offset(e: Emitter, indices: tuple[Value, ...], strides: tuple[int, ...]) -> Value:
    """The sum of index times stride."""
    total = e.const(0)
    for index, stride in zip(indices, strides, strict=True):
        total = e.add(total, e.mul(index, stride))
    return total


Result = TypeVar("Result")


def unfolded(function: Callable[..., Result], sizes: tuple[int, ...]) -> Callable[..., Result]:
    """`function` called with the index that its caller knows, where m stands for the trailing batch dimensions as well (`folded`)."""

    def call(e: Emitter, index: MatmulIndex, *rest: Value | None) -> Result:
        *batch, m = batch_index(e, index.m, sizes)
        return function(e, MatmulIndex((*index.batch, *batch), m, index.n), *rest)

    return call


def write_rows(e: Emitter, sums: str, pitch: int, columns: int, rows: tuple[Value, int], place: MatmulIndex, write: Write) -> None:
    """Hand on sums that are in scratch, from row `rows[0]` to `rows[1]`, `columns` of each as vectors of the type `sums`.

    pitch: sums from one row to the next. place: of the first.
    """
    first, stop = rows
    element, lanes = e.zero(sums).element, e.zero(sums).lanes
    with e.loop(first, stop) as row:
        line = e.gep(e.scratch, e.mul(row.index, pitch), element)
        for at in range(0, columns, lanes):
            total = e.load(e.gep(line, at, element), sums, _SUM_BYTES)
            index = MatmulIndex(place.batch, e.add(place.m, e.sub(row.index, first)), e.add(place.n, at))
            write(e, index, total, first_lanes(columns - at, lanes))


def plain_writer(pointer: Value, batch: tuple[int, ...], row: int, column: int = 1, dtype: DType = dtypes.float32) -> Write:
    """A writer that stores the sums as they are: `pointer` and strides in elements of the output, which has element type `dtype`."""

    def write(e: Emitter, index: MatmulIndex, sums: Value, mask: Value | None) -> None:
        at = e.add(offset(e, index.batch, batch), e.add(e.mul(index.m, row), e.mul(index.n, column)))
        address, value = e.gep(pointer, at, dtype.storage), to_storage(e, sums, dtype)
        if column != 1 and sums.lanes > 1:
            steps = e.binary("mul", e.lane_numbers(value.lanes), e.const(column, vector_type("i64", value.lanes)))
            e.scatter(value, address, steps, dtype.nbytes, mask)
        elif mask is None:
            e.store(value, address, dtype.nbytes)
        else:
            e.masked_store(value, address, dtype.nbytes, mask)

    return write

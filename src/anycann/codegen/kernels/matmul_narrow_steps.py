"""Products of few columns, as `matmul_narrow.py` lays them out: the copy of a computed B, the steps along k, and the sums at their end."""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.matmul_kernel import PanelKernel
from anycann.codegen.kernels.matmul_shape import MatmulShape, Operand, addition, multiply_add
from anycann.codegen.kernels.matmul_writer import MatmulIndex
from anycann.codegen.values import Value, first_lanes


def emit_narrow_copy(e: Emitter, shape: MatmulShape, lanes: int, group: int, source: Value, count: Value, to: Value) -> None:
    """What `pack_narrow` makes of `count` rows of B at `source`, in the type of the sums; only columns that there are are written."""
    operand, register = Operand(shape.b_dtype, shape.accumulator), shape.accumulator.register
    last = e.gep(to, e.mul(e.udiv(e.sub(count, 1), group), lanes), register)
    e.store(e.zero(f"<{lanes} x {register}>"), last, shape.accumulator.nbytes)
    with e.loop(0, count) as k:
        row = operand.step(e, source, e.mul(k.index, shape.b.row))
        place = e.gep(to, e.add(e.mul(e.udiv(k.index, group), lanes), e.urem(k.index, group)), register)
        for column in range(shape.n):
            raw = e.load(operand.step(e, row, column * shape.b.column), operand.dtype.storage, operand.dtype.nbytes)
            e.store(operand.widen(e, raw), e.gep(place, column * group, register), shape.accumulator.nbytes)


def emit_steps(
    e: Emitter, kernel: PanelKernel, rows: int, sums: list[Value], rows_of_b: Value, corner_of_a: Value, count: Value
) -> list[Value]:
    """sums[i] += A[m + i, k..k+count] B[k..k+count]: several neighbours of k in a step, in the last step of all those that are left."""
    left, right, group = kernel.left, kernel.right, kernel.group
    whole, rest = e.udiv(count, group), kernel.shape.k % group
    for first, last, present in ((e.const(0), whole, group), (whole, e.udiv(e.add(count, group - 1), group), rest)):
        if not present:
            continue
        with e.loop(first, last, carried=sums) as step:
            vector = right.load(e, right.step(e, rows_of_b, e.mul(step.index, kernel.lanes)), kernel.lanes)
            column = left.step(e, corner_of_a, e.mul(step.index, group))
            factors = [_spread(e, left, left.step(e, column, i * kernel.left_row), kernel.lanes, group, present) for i in range(rows)]
            step.carry([multiply_add(e, factor, vector, total) for factor, total in zip(factors, step.values, strict=True)])
        sums = step.values
    return sums


def finished(e: Emitter, kernel: PanelKernel, place: MatmulIndex, total: Value) -> Value:
    """A sum as its writer takes it: with one lane for each column, and with what it starts from."""
    if kernel.group == 1:
        return total
    total = _add_neighbours(e, total, kernel.group)
    if not kernel.start:
        return total
    first = kernel.start(e, place)
    return e.binary(addition(first), first, total)


def _spread(e: Emitter, left: Operand, pointer: Value, lanes: int, group: int, count: int) -> Value:
    """`group` neighbours of A over and over; those from `count` on are not read and are zero."""
    few = left.load(e, pointer, group, first_lanes(count, group))
    return e.shuffle(few, few, [lane % group for lane in range(lanes)])


def _add_neighbours(e: Emitter, sums: Value, group: int) -> Value:
    """The finished sums of the columns, side by side from the first lane on."""
    lanes, distance = sums.lanes, group // 2
    while distance:
        other = e.shuffle(sums, sums, [lane ^ distance for lane in range(lanes)])
        sums, distance = e.binary(addition(sums), sums, other), distance // 2
    return e.shuffle(sums, sums, [lane * group % lanes for lane in range(lanes)])

"""Kernels one after the other, over bands of rows: what one writes the next one reads while it is in the cache.

A task is a band of rows of the last kernel. A kernel computes the rows that the next one needs for it and that were not computed yet, by
calling its own tasks: the kernels are the functions they are alone. A call that does not go on behind the thread's last one computes the
rows before it again.
"""

from __future__ import annotations

from collections.abc import Sequence

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernel import Kernel, RowTasks
from anycann.codegen.resuming import resumed
from anycann.codegen.values import POINTER, Value

_FUNCTION, _TAIL = "define ", "attributes #0"  # a module: declarations, functions, attributes


def in_bands(kernels: Sequence[Kernel], rows: int) -> Kernel:
    """The kernel that computes what `kernels` do, `rows` rows of the last one in each task; its arguments are theirs in order.

    Each kernel but the first reads the result of the one before as argument 0; all have `rows`, of one image.
    """
    e = Emitter()
    goes_on = resumed(e)
    tasks = [row_tasks(kernel) for kernel in kernels]
    args = [e.gep(e.args, sum(len(k.arguments) for k in kernels[:number]), POINTER) for number in range(len(kernels))]
    start = e.mul(e.begin, rows)
    before, now = _needed(e, tasks, e.sub(start, rows), start), _needed(e, tasks, start, start)
    done = [e.select(goes_on, stop, first) for (_, stop), (first, _) in zip(before, now, strict=True)]
    with e.loop(e.begin, e.end, carried=done) as band:
        first = e.mul(band.index, rows)
        needed = _needed(e, tasks, first, e.smin(e.add(first, rows), e.const(tasks[-1].rows)))
        for number, kernel in enumerate(kernels):
            call_rows(e, kernel, args[number], e.scratch, e.const(0), band.values[number], needed[number][1])
        band.carry([e.smax(before, stop) for before, (_, stop) in zip(band.values, needed, strict=True)])
    symbol, text = e.finish("bands")
    return Kernel(
        symbol,
        one_module([kernel.ir for kernel in kernels], text),
        tuple(name for kernel in kernels for name in kernel.arguments),
        -(-tasks[-1].rows // rows),
        max(kernel.scratch_bytes for kernel in kernels),
        sum(kernel.flops for kernel in kernels),
        resumes=True,
    )


def row_tasks(kernel: Kernel) -> RowTasks:
    """How the tasks of a kernel lie along rows, of which it must have some."""
    assert kernel.rows is not None, f"{kernel.symbol} has no rows"
    return kernel.rows


def _needed(e: Emitter, tasks: Sequence[RowTasks], first: Value, stop: Value) -> list[tuple[Value, Value]]:
    """The rows of each kernel that `first` to `stop` of the last one need: the first, and the one behind the last.

    Up to where those of the next band begin, all rows for the last, so that no row is left out that is only read elsewhere.
    """
    found = [(first, stop)]
    for reader in reversed(tasks[1:]):
        all_rows = e.const(reader.in_rows)
        low = e.smin(e.smax(e.add(e.mul(first, reader.stride), reader.first), e.const(0)), all_rows)
        last, following = e.mul(e.sub(stop, 1), reader.stride), e.mul(stop, reader.stride)
        high = e.smax(e.add(last, reader.last + 1), e.add(following, reader.first))
        high = e.smin(e.smax(high, e.const(0)), all_rows)
        high = e.select(e.compare("eq", stop, e.const(reader.rows)), all_rows, high)
        found.insert(0, (low, high))
        first, stop = low, high
    return found


def call_rows(e: Emitter, kernel: Kernel, args: Value, scratch: Value, image: Value, first: Value, stop: Value) -> None:
    """Rows `first` to `stop` of an image by a kernel, none if it is past them."""
    tasks, before = row_tasks(kernel), 0
    for rows in (tasks.first_rows, tasks.rows - tasks.first_rows) if tasks.first_rows else (tasks.rows,):
        low, high = (e.sub(each, before) for each in (first, stop))
        if tasks.first_rows:
            low, high = e.smax(low, e.const(0)), e.smin(high, e.const(rows))
        with e.when(e.compare("slt", low, high)), e.loop(0, tasks.outer) as outer:
            row = e.add(e.mul(e.add(e.mul(image, tasks.outer), outer.index), rows), before * tasks.outer)
            begin, end = (e.mul(e.add(row, each), tasks.inner) for each in (low, high))
            operands = f"ptr {args.text}, i64 {begin.text}, i64 {end.text}, ptr {scratch.text}"
            e.do(f"call void @{kernel.symbol}({operands})")
        before += rows


def one_module(kernels: Sequence[str], caller: str) -> str:
    """The functions of several modules in one; only `caller` is seen from outside, and every function is there once.

    They stay functions: inlined into the loops of the caller, AIPP and a small convolution took 1.04 times as long.
    """
    declarations, functions = dict[str, None](), dict[str, None]()
    for text in (*kernels, caller):
        start, end = text.index(_FUNCTION), text.rindex(_TAIL)
        declarations |= dict.fromkeys(line for line in text[:start].splitlines() if line)
        found = [_FUNCTION + body.rstrip() for body in text[start:end].split(_FUNCTION)[1:]]
        functions |= dict.fromkeys(found if text is caller else [_private(function) for function in found])
    tail = caller[caller.rindex(_TAIL) :]
    return "\n".join((*declarations, *functions, tail))


def _private(function: str) -> str:
    return function.replace("define void", "define internal void", 1).replace(") #0 {", ") noinline #0 {", 1)

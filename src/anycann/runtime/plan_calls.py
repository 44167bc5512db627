"""Kernels among the lines of a plan: programs, attention and Concat as native calls that are filled in one by one, and run together."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anycann.codegen.kernels.open_attention import ROWS_AT_ONCE, SIZES
from anycann.runtime.dispatch import Block, Row, split
from anycann.runtime.executor import CompiledProgram
from anycann.runtime.join_ir import Join
from anycann.runtime.kernel_call import KernelCall
from anycann.runtime.memory import numpy_dtype
from anycann.runtime.open_attention import PART_ROWS, AttentionKernel, kind_of, scratch_bytes
from anycann.runtime.plan_text import FLOAT32, Known, Sizes, Text, UnplannedError, is_literal, tuple_of
from anycann.runtime.thread_pool import joining_kernel
from anycann.support.records import dataclass

UNIT_BYTES = 1 << 18  # of a copy that is worth sharing with another thread: some 10 us


@dataclass(frozen=True)
class Own:
    """What each run at a time has of its own: made once, by what was made before, and called `name` in the function."""

    name: str
    make: Callable[[dict[str, Any]], object]


class Calls:
    """The native calls of a plan, and what they need: `own`. They wait until `flush`."""

    def __init__(self, text: Text, run: Callable[[Any], None]):
        self._text, self._run = text, text.bind(run)
        self.own: list[Own] = []
        self._waiting: list[str] = []  # names of the addresses of blocks

    def _have(self, make: Callable[[dict[str, Any]], object]) -> str:
        name = self._text.fresh("c")
        self.own.append(Own(name, make))
        return name

    def _call(self, address: Callable[[dict[str, Any]], int]) -> None:
        self._waiting.append(self._have(address))

    @property
    def wait(self) -> bool:
        """Whether some do."""
        return bool(self._waiting)

    def flush(self) -> None:
        """Run what waits."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            blocks = self._have(lambda own: array("q", [own[name] for name in waiting]))
            self._text.line(f"{self._run}({blocks})")

    # ---- programs
    def program(self, program: CompiledProgram, operands: Sequence[Known], outputs: Sequence[bool]) -> list[Known]:
        """The outputs of a program of kernels; outputs: which of them leave the function, and are new arrays in each run."""
        text, specs = self._text, program.program.inputs
        if not program.takes_addresses:
            raise UnplannedError
        for operand, spec in zip(operands, specs, strict=True):
            if operand.dtype != numpy_dtype(spec.dtype):
                raise UnplannedError
            text.same_sizes(operand.sizes, [str(size) for size in spec.shape])
        operands = [text.plain(operand) for operand in operands]
        call = self._have(lambda _: program.own_call())
        block = self._have(lambda own: own[call].block)
        first = Block.ARRAYS
        makers = program.own_call().makers  # type: ignore[union-attr]
        for place, operand in enumerate(operands, first):
            text.line(f"{block}[{place}] = id({operand.name})")
        results = []
        for number, (spec, leaves, make) in enumerate(zip(program.program.outputs, outputs, makers, strict=True)):
            sizes, dtype = tuple(map(str, spec.shape)), numpy_dtype(spec.dtype)
            if leaves:
                name = text.fresh("x")
                text.line(f"{name} = {text.bind(make)}()")
                text.line(f"{block}[{first + len(specs) + number}] = id({name})")
            else:
                name = self._result_of(block, first + len(specs) + number, make)
            results.append(Known(name, sizes, dtype, True, leaves))
        self._call(lambda own: own[call].address)
        return results

    def _result_of(self, block: str, place: int, make: Callable[[], Any]) -> str:
        """An array that stays in a block."""
        return self._have(lambda own: _put(own[block], place, make()))

    # ---- Concat
    def joined(self, operands: Sequence[Known], axis: int) -> Known:
        """Arrays one behind the other along `axis`."""
        text, first = self._text, operands[0]
        for operand in operands[1:]:
            if operand.dtype != first.dtype or len(operand.sizes) != len(first.sizes):
                raise UnplannedError
            text.same_sizes(_without(operand.sizes, axis), _without(first.sizes, axis))
        operands = [text.plain(operand) for operand in operands]
        total = text.sum(*(operand.sizes[axis] for operand in operands))
        result = text.made((*first.sizes[:axis], total, *first.sizes[axis + 1 :]), first.dtype)
        outer, row = text.product(*first.sizes[:axis]), text.product(*first.sizes[axis + 1 :], str(first.dtype.itemsize))
        numbers = [str(len(operands)), text.product(total, row), *(text.product(operand.sizes[axis], row) for operand in operands)]
        kind = f"{text.bind(_join_kind)}({text.product(outer, total, row)})"
        parts = len(operands)
        self._kernel(lambda _: KernelCall(joining_kernel(), 1 + parts, Join.BYTES + parts), [result, *operands], numbers, outer, kind)
        return result

    # ---- attention
    def attention(self, kernel: AttentionKernel, operands: Sequence[Known]) -> Known:
        """As `AttentionKernel.run`."""
        text, what = self._text, kernel.what
        operands = list(operands[: 4 if what.masked else 3])
        if any(operand.dtype != FLOAT32 or not 2 <= len(operand.sizes) <= 4 for operand in operands):
            raise UnplannedError
        rank = max(len(operand.sizes) for operand in operands[:3])
        if what.masked and len(operands[3].sizes) > max(len(operands[0].sizes), len(operands[1].sizes)):
            raise UnplannedError
        sizes, steps = [], []
        for number, operand in enumerate(operands):
            own, found = list(map(text.known, operand.sizes)), list(self._steps(operand))
            if number == 1 and not kernel.turned:
                own[-2:], found[-2:] = own[:-3:-1], found[:-3:-1]
            text.refuse_if(f"{found[-1]} != 4")
            if not operand.plain:
                text.refuse_if(f"not {operand.name}.flags.aligned")
            sizes.append(["1"] * (4 - len(own)) + own)
            steps.append(["0"] * (4 - len(found)) + found)
        q, k, v = sizes[:3]
        for size, known in ((q[3], str(what.depth)), (k[3], str(what.depth)), (v[3], str(what.width)), (v[2], k[2])):
            text.same(size, known)
        sizes = [list(map(text.known, each)) for each in sizes]
        q, k, v = sizes[:3]
        batches, heads = (self._stretched([each[axis] for each in sizes[:3]]) for axis in (0, 1))
        rows, keys = q[2], k[2]
        if what.masked:
            text.same(sizes[3][3], keys)
        if "0" in (batches, heads, rows, keys):
            raise UnplannedError
        for each in dict.fromkeys((batches, heads, rows, keys)):
            if not is_literal(each):
                text.refuse_if(f"not {each}")
        taken = []
        for number, (own, found) in enumerate(zip(sizes, steps, strict=True)):
            counts = (batches, heads, keys if number in (1, 2) else rows)
            taken.append([self._step(size, step, count) for size, step, count in zip(own, found, counts, strict=False)])
        result, strides = self._result(batches, heads, rows, str(what.width))
        parts, part_rows = text.let(f"-(-{rows} // {PART_ROWS})"), str(ROWS_AT_ONCE)
        if rows != "1":
            part_rows = text.let(f"-(-{rows} // ({parts} * {ROWS_AT_ONCE})) * {ROWS_AT_ONCE}")
        length = text.let(f"-(-{keys} // {kernel.lanes}) * {kernel.lanes}")
        taken.insert(3, strides)
        numbers = [rows, keys, length, heads, parts, part_rows, *(step for each in taken for step in each)]
        numbers += ["0"] * (SIZES - len(numbers))
        flops = text.product(str(2 * (what.depth + what.width)), batches, heads, rows, keys)
        call = self._kernel(
            lambda _: kernel.new_call(),
            [*operands[:3], result, *operands[3:]],
            numbers,
            text.product(batches, heads, parts),
            f"{text.bind(kind_of)}({flops})",
        )
        text.line(f"{call}.reserve({text.bind(scratch_bytes)}({length}), {kernel.pool.threads})")
        if rank == 4:
            return result
        lead = "0, " * (4 - rank)
        return text.view(f"{result.name}[{lead}...]", result.sizes[4 - rank :], FLOAT32, result.plain)

    def _steps(self, operand: Known) -> Sizes:
        """Bytes from one place of each axis to the next."""
        names = tuple(self._text.fresh("n") for _ in operand.sizes)
        self._text.line(f"{', '.join(names)}, = {operand.name}.strides")
        return names

    def _step(self, size: str, step: str, count: str) -> str:
        """That of a stretched axis; go no further where it has not so many places, nor is known to have one."""
        if self._text.was_one(size) and not self._text.was_one(count):
            self._text.same(size, "1")
            return "0"
        self._text.same(size, count)
        return step

    def _stretched(self, sizes: Sequence[str]) -> str:
        """How many there are along an axis along which some have one for all."""
        return next((size for size in sizes if not self._text.was_one(size)), sizes[0])

    def _result(self, batches: str, heads: str, rows: str, width: str) -> tuple[Known, list[str]]:
        """[batches, heads, rows, width] in memory in which the heads of a row lie side by side, and its strides but for the last."""
        text, width_bytes = self._text, str(FLOAT32.itemsize * int(width))
        row = text.product(heads, width_bytes)
        strides = [text.product(rows, row), width_bytes, row]
        if "1" in (rows, heads):
            return text.made((batches, heads, rows, width), FLOAT32), strides
        made = f"empty({tuple_of([batches, rows, heads, width])}, {text.bind(FLOAT32)})"
        return text.view(f"{made}.transpose(0, 2, 1, 3)", (batches, heads, rows, width), FLOAT32), strides

    def _kernel(
        self, make: Callable[[dict[str, Any]], object], arrays: Sequence[Known], numbers: Sequence[str], tasks: str, kind: str
    ) -> str:
        """A call of one kernel that is told its sizes."""
        call = self._have(make)
        prepare = self._have(lambda own: own[call].prepare)
        self._text.line(f"{prepare}({tuple_of([each.name for each in arrays])}, {tuple_of(numbers)}, {tasks}, {kind})")
        self._call(lambda own: own[call].block_address)
        return call


def _without(sizes: Sizes, axis: int) -> Sizes:
    return (*sizes[:axis], *sizes[axis + 1 :])


def _join_kind(nbytes: int) -> int:
    """Of the row of the dispatch table."""
    return split(nbytes // UNIT_BYTES) if nbytes >= 2 * UNIT_BYTES else Row.INLINE


def _put(block: memoryview, place: int, result: np.ndarray) -> np.ndarray:
    block[place] = id(result)
    return result

"""What share of the multiply-adds' rate the kernels of a model reach: both are measured in turns of microseconds, between kernels.

python -m benchmarks.shares bert_base                     a model of the table, on one thread
python -m benchmarks.shares vit_b16 --threads 2 --seconds 20

A processor of a shared machine has not one peak: its clock changes within a second and is lower under products than under multiply-adds
alone, and another's thread on the same core takes instructions and its part of the caches. So two probes run behind every kernel:
multiply-adds of registers, and a product whose operands the first-level cache holds, which is what loading allows at best. A turn is quiet
if the multiply-adds before and behind a kernel agree, and the product reaches its usual share of them on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
import time
from typing import Any, TypeAlias

import click
import numpy as np
from numpy.typing import NDArray

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.matmul import MatmulShape, MatmulTile, Strides, emit_matmul, plain_writer
from anycann.codegen.kernels.matmul_default import most_rows
from anycann.codegen.objects import emit_object
from anycann.runtime.dispatch import split
from anycann.runtime.executor import CompiledProgram
from anycann.runtime.loader import LoadedCode
from anycann.runtime.observe import StepEvent
from anycann.runtime.thread_pool import ThreadPool
from anycann.support.errors import AnyCANNError, UsageError
from anycann.target.target import Target, host
from anycann.tools.model_options import GivenInputs, input_options
from benchmarks.layers import Feeds, Layer, chosen, loaded, source
from benchmarks.peak import multiply_adds
from benchmarks.report import markdown

ITERATIONS = 1000  # of the multiply-adds: some microseconds
TOGETHER = 10  # times as long for each of several threads, which have to share a row and wait for each other
REPEATS, WARM = 10, 4  # rows of each probe, and how many first ones do not count: another thread has to wake
AGREES = 0.02
USUAL = 0.97  # of the product's share when it is disturbed least
LEAST_QUIET = 3
LEAST_TURNS = 20  # of each kernel, however short the time: a fifth of them is quiet where another's work disturbs
Numbers: TypeAlias = NDArray[np.float64]


def near_product(target: Target, units: int) -> tuple[str, str, int]:
    """Symbol, IR and operations of one task: a register tile, its operands within two thirds of the first-level cache; `units` tasks."""
    vectors = 2
    shape = MatmulShape((units,), 1, vectors * target.lanes, 1, Strides((0,), 1, 1), Strides((0,), vectors * target.lanes, 1))
    rows = most_rows(shape, target, vectors)
    k = target.l1_bytes * 2 // 3 // (4 * (rows + vectors * target.lanes))
    shape = MatmulShape((units,), rows, shape.n, k, Strides((0,), k, 1), shape.b)
    e = Emitter()
    a, b, c = (e.argument(number) for number in range(3))
    emit_matmul(e, shape, target, MatmulTile(rows, vectors, k, 1), a, b, plain_writer(c, (rows * shape.n,), shape.n), inline=True)
    return *e.finish("near"), shape.flops // units


class Probe:
    """Multiply-adds of registers, then a product within the first-level cache, on as many threads."""

    def __init__(self, threads: int):
        target, times = host(), 1 if threads == 1 else TOGETHER * threads
        units = 4 * times
        adds = multiply_adds(target)
        symbol, ir, operations = near_product(target, units)
        self._code = LoadedCode({adds.symbol: emit_object(adds.ir, target), symbol: emit_object(ir, target)})
        sizes = target.l1_bytes, target.l1_bytes, units * target.registers * target.lanes
        self._memory = [np.full(size, 1e-3, np.float32) for size in sizes]
        self._arguments = np.array([memory.ctypes.data for memory in self._memory], np.int64)
        self._operations = ITERATIONS * times * adds.operations, units * operations
        at = self._arguments.ctypes.data
        first = [(self._code.address(adds.symbol), at, ITERATIONS * times, split(units))] * REPEATS
        second = [(self._code.address(symbol), at, units, split(units))] * REPEATS
        self._rows = np.array(first + second, np.int64)
        self._times = np.zeros(2 * REPEATS + 1, np.int64)
        self._pool = ThreadPool(threads)

    def run(self) -> tuple[float, float]:
        """Operations a second of both, now."""
        self._pool.run(self._rows.ctypes.data, len(self._rows), 0, 0, self._times.ctypes.data)
        took = np.diff(self._times).reshape(2, REPEATS)[:, WARM:]
        first, second = (count / float(np.median(row)) * 1e9 for count, row in zip(self._operations, took, strict=True))
        return first, second


@dataclass(frozen=True)
class Turns:
    """All turns of one kernel, arrays of one number a turn: operations the multiply-adds had done in its time, and the probes beside it.

    steady: the greatest difference of the multiply-adds before and behind it; near: the product's lesser share of them.
    """

    layer: Layer
    flops: int
    possible: Numbers
    steady: Numbers
    near: Numbers

    def quiet(self, usual: float) -> Numbers:
        """`possible` of the quiet turns; if they are too few, of those that are disturbed least."""
        found = self.possible[self.is_quiet(usual)]
        least = np.argsort(-np.where(self.near <= 1, self.near, 0))[:LEAST_QUIET]
        return found if len(found) >= LEAST_QUIET else self.possible[least]

    def is_quiet(self, usual: float) -> NDArray[np.bool_]:
        """Turn by turn; `usual`: what the product reaches at least. Multiply-adds that it surpasses were disturbed themselves."""
        return (self.steady < AGREES) & (self.near >= usual) & (self.near <= 1)


def measure_turns(executable: CompiledProgram, feeds: Sequence[Any], threads: int, seconds: float) -> list[Turns]:
    """Every kernel of a program, in order; the program is run again and again for `seconds`, and at least `LEAST_TURNS` times."""
    probe = Probe(threads)
    seen: dict[tuple[str, ...], StepEvent] = {}
    rows: dict[tuple[str, ...], list[tuple[float, float, float]]] = {}
    last = (0.0, 0.0)

    def observe(event: StepEvent) -> None:
        nonlocal last
        before, last = last, probe.run()
        if event.kind == "kernel":
            key = (event.name, *event.outputs)
            seen[key] = event
            possible = (event.end_ns - event.begin_ns) * 1e-9 * (before[0] + last[0]) / 2
            near = min(product / adds for adds, product in (before, last))
            rows.setdefault(key, []).append((possible, abs(before[0] / last[0] - 1), near))

    for _ in range(3):
        executable.run(feeds)
    ends, runs = time.perf_counter() + seconds, 0
    with executable.observe(observe):
        while time.perf_counter() < ends or runs < LEAST_TURNS:
            last = probe.run()
            executable.run(feeds)
            runs += 1
    columns = {key: np.array(found).T for key, found in rows.items()}
    return [Turns(Layer(e.name, e.nodes, e.op_types, 0.0), e.flops, *columns[key]) for key, e in seen.items()]


def usual_share(turns: Sequence[Turns]) -> float:
    """What the product within the first-level cache reaches of the multiply-adds when nobody disturbs it, less a little.

    Raises UsageError for a program without kernels.
    """
    if not turns:
        raise UsageError("the model has no kernel whose share could be measured: all of it runs on the host, or nothing is left of it")
    near = np.concatenate([turn.near for turn in turns])
    return float(np.percentile(near[near <= 1], 98)) * USUAL if (near <= 1).any() else 0.0


def share_of(model: Path, feeds: Feeds, threads: int, seconds: float) -> float:
    """Of the multiply-adds' rate: what the float32 kernels of a model reach in quiet turns; 0 for a model without any."""
    found = loaded(model.stem, model, feeds, "fp32", threads)
    turns = measure_turns(found.program, found.feeds, threads, seconds)
    return _share(turns, usual_share(turns), 50) if turns else 0.0


def table(turns: Sequence[Turns], usual: float) -> list[str]:
    """Markdown: kernels of the same operators and size together, those that take longest first."""
    groups: dict[tuple[tuple[str, ...], int], list[Turns]] = {}
    for turn in turns:
        groups.setdefault((turn.layer.op_types, turn.flops), []).append(turn)
    total = _sum(turns, usual, 50)
    rows = []
    for group in sorted(groups.values(), key=lambda group: -_sum(group, usual, 50)):
        time_share = _sum(group, usual, 50) / total
        rows.append([f"{len(group)} x {source(group[0].layer)}", f"{time_share:.1%}", *shares(group, usual).values()])
    rows.append(["all", "", *shares(turns, usual).values()])
    return markdown(["kernels", "of the time", *shares(turns, usual)], rows)


def shares(turns: Sequence[Turns], usual: float) -> Mapping[str, str]:
    """Of the multiply-adds' rate: the median and quartiles of quiet turns, the median of all."""
    best, median, worst = (_share(turns, usual, percentile) for percentile in (25, 50, 75))
    everything = _share(turns, 0.0, 50, quiet=False)
    return {"quiet": f"{median:.1%}", "quartiles": f"{worst:.1%} to {best:.1%}", "all turns": f"{everything:.1%}"}


def _share(turns: Sequence[Turns], usual: float, percentile: float, quiet: bool = True) -> float:
    return sum(turn.flops for turn in turns) / _sum(turns, usual, percentile, quiet)


def _sum(turns: Sequence[Turns], usual: float, percentile: float, quiet: bool = True) -> float:
    """Operations that the multiply-adds had done in the time of these kernels."""
    return sum(float(np.percentile(turn.quiet(usual) if quiet else turn.possible, percentile)) for turn in turns)


@click.command
@click.argument("model")
@input_options
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True)
@click.option("--seconds", type=float, default=10.0, show_default=True, help="How long the model is run.")
def main(model: str, given: GivenInputs, threads: int, seconds: float) -> None:
    """Say what share of the multiply-adds' rate the float32 kernels of MODEL (a name of the table, an .onnx or an .om file) reach."""
    name, path, feeds = chosen(model, "fp32", given)
    try:
        found = loaded(name, Path(path), feeds, "fp32", threads)
        turns = measure_turns(found.program, found.feeds, threads, seconds)
        usual = usual_share(turns)
    except (AnyCANNError, OSError) as error:
        raise click.ClickException(f"{type(error).__name__}: {error}") from None
    near = np.concatenate([turn.near for turn in turns])
    counted = sum(len(turn.possible) for turn in turns)
    quiet = sum(int(turn.is_quiet(usual).sum()) for turn in turns)
    print(f"{name}, {threads} thread(s): {counted} turns of {len(turns)} kernels, {quiet / counted:.0%} quiet")
    print(f"a product within the first-level cache: median {np.median(near):.1%} of the multiply-adds, {usual:.1%} counts as quiet")
    print(*table(turns, usual), sep="\n")


if __name__ == "__main__":
    main()

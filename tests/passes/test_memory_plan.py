"""The memory plan on random questions, and on compiled programs: kernels read what the same kernels wrote as if nothing were shared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import onnx
import pytest

from anycann.om.plan import Buffer, HostStep, NativeStep, Program
from anycann.passes.memory import Interval, MemoryPlan, check_plan, plan_memory
from tests.passes.graphs import compile_graph, floats, parse


@st.composite
def questions(draw: st.DrawFn) -> list[Interval]:
    count = draw(st.integers(0, 14))
    found = []
    for number in range(count):
        first = draw(st.integers(0, 10))
        found.append(Interval(f"v{number}", draw(st.integers(0, 700)), first, first + draw(st.integers(0, 6))))
    return found


@settings(max_examples=300, deadline=None, derandomize=True)
@given(questions())
def test_values_alive_together_never_share_bytes(intervals: list[Interval]) -> None:
    plan = plan_memory(intervals)
    assert check_plan(intervals, plan) == []
    assert plan.arena_bytes <= sum(-(-(i.nbytes + 64) // 64) * 64 for i in intervals)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from([70_000, 100_000, 300_000, 640]), st.integers(0, 30), st.integers(0, 4)), max_size=60))
def test_values_of_frequent_sizes_never_share_bytes_while_they_live(buffers: list[tuple[int, int, int]]) -> None:
    intervals = [Interval(f"v{n}", nbytes, first, first + more) for n, (nbytes, first, more) in enumerate(buffers)]
    assert check_plan(intervals, plan_memory(intervals)) == []


def layers(wide: int, count: int = 10) -> list[Interval]:
    """Two small values and a wide one for each layer, as in a transformer: one after the other."""
    sizes = [100_000, 100_000, wide] * count
    return [Interval(f"v{step}", nbytes, step, step + 1) for step, nbytes in enumerate(sizes)]


def test_large_values_of_frequent_sizes_share_memory_among_themselves_only() -> None:
    intervals = layers(300_000)
    plan = plan_memory(intervals)
    assert check_plan(intervals, plan) == []
    small = {plan.offsets[i.name] for i in intervals if i.nbytes == 100_000}
    wide = {plan.offsets[i.name] for i in intervals if i.nbytes == 300_000}
    assert wide == {0}
    assert len(small) == 2
    assert min(small) >= 300_000


@pytest.mark.parametrize(("nbytes", "count"), [(300_000, 4), (6_000, 10)])
def test_values_of_rare_or_small_sizes_take_any_memory_that_is_free(nbytes: int, count: int) -> None:
    intervals = [Interval(i.name, i.nbytes * nbytes // 300_000, i.first, i.last) for i in layers(300_000, count)]
    assert min(plan_memory(intervals).offsets[i.name] for i in intervals if i.nbytes < nbytes) == 0


def test_memory_grows_to_twice_the_least_at_most() -> None:
    sizes = [100_000 + 1000 * (step % 3) for step in range(30)]
    intervals = [Interval(f"v{step}", nbytes, step, step) for step, nbytes in enumerate(sizes)]
    assert plan_memory(intervals).arena_bytes == 102_080, "three sizes, of which one at a time is alive"


def test_values_alive_one_after_the_other_share_their_bytes() -> None:
    chain = [Interval(f"v{n}", 1000, n, n + 1) for n in range(10)]
    assert plan_memory(chain).arena_bytes == 2 * 1088


def test_the_check_notices_each_fault() -> None:
    a, b = Interval("a", 100, 0, 2), Interval("b", 100, 1, 3)
    assert check_plan([a, b], MemoryPlan({"a": 0, "b": 64}, 1000)) == ["a and b are alive together and share bytes"]
    assert check_plan([a], MemoryPlan({"a": 3}, 1000)) == ["a at 3 with 100 bytes is outside the arena or unaligned"]
    assert check_plan([a], MemoryPlan({"a": 0}, 128)) == ["a at 0 with 100 bytes is outside the arena or unaligned"]


def apart(intervals: Sequence[Interval]) -> MemoryPlan:
    """A plan in which nothing shares anything."""
    offsets, end = {}, 0
    for interval in intervals:
        offsets[interval.name] = end
        end += -(-(interval.nbytes + 64) // 64) * 64
    return MemoryPlan(offsets, end)


def writers_read(program: Program) -> Iterator[tuple[str, frozenset[int]]]:
    """For each argument that a step reads from the arena: which steps wrote its bytes last (-1: none did)."""
    last = np.full(program.arena_bytes + 1, -1)
    number = 0
    for step in program.steps:
        for task in step.tasks if isinstance(step, NativeStep) else ():
            written = [program.values[name].buffer for name in task.outputs if name in program.values]
            read = list(task.arguments[: len(task.arguments) - len(written)]) if written else [*task.arguments]
            yield from ((task.symbol, _writers(last, b)) for b in read if b.space == "arena")
            for buffer in (b for b in task.arguments if b.space == "arena" and any(_inside(b, w) for w in written)):
                last[buffer.offset_bytes : buffer.offset_bytes + buffer.nbytes] = number
            number += 1
        if isinstance(step, HostStep):
            buffers = [program.values[name].buffer for name in step.inputs if name in program.values]
            yield from ((step.name, _writers(last, b)) for b in buffers if b.space == "arena")
            for name in step.outputs:
                if name in program.values and program.values[name].buffer.space == "arena":
                    made = program.values[name].buffer
                    last[made.offset_bytes : made.offset_bytes + made.nbytes] = number
            number += 1


def _inside(part: Buffer, whole: Buffer) -> bool:
    return whole.offset_bytes <= part.offset_bytes and part.offset_bytes + part.nbytes <= whole.offset_bytes + whole.nbytes


def _writers(last: np.ndarray, buffer: Buffer) -> frozenset[int]:
    return frozenset(last[buffer.offset_bytes : buffer.offset_bytes + buffer.nbytes].tolist())


def branches() -> onnx.ModelProto:
    return parse(
        "g (float[1,16,8,8] x) => (float[1,48,8,8] y, float[1,8,8,8] t) { a = Conv<pads=[1,1,1,1]>(x, w) b = Conv<pads=[1,1,1,1]>(a, w)"
        " c = Conv<pads=[1,1,1,1]>(b, w) j = Concat<axis=1>(a, b, c) s = Conv<pads=[1,1,1,1]>(j, v) r = Relu(s) y = Exp(r)"
        " p, q = Split<axis=1, num_outputs=2>(a) n = Neg(q) t = Mul(n, p) }",
        w=floats(16, 16, 3, 3),
        v=floats(48, 48, 3, 3),
    )


def transformer() -> onnx.ModelProto:
    return parse(
        "g (float[12,64] x) => (float[12,64] y) { q = MatMul(x, w) k = MatMul(x, u) kt = Transpose(k) s = MatMul(q, kt) p = Softmax(s)"
        " o = MatMul(p, x) r = Add(o, x) h = MatMul(r, w) e = Relu(h) f = MatMul(e, u) y = Add(f, r) }",
        w=floats(64, 64),
        u=floats(64, 64, seed=1),
    )


def with_a_host_step() -> onnx.ModelProto:
    return parse(
        "g (float[3,64,64] x) => (float[3,64,64] y) { a = MatMul(x, w) h = Det(a) s = Reshape(h, column) b = Mul(s, a) c = MatMul(b, w)"
        " d = Det(c) t = Reshape(d, column) e = MatMul(c, w) y = Add(e, t) }",
        w=floats(64, 64),
        column=np.array([3, 1, 1]),
    )


def test_a_program_takes_less_memory_than_its_values() -> None:
    compiled = compile_graph(transformer())
    assert compiled.program.arena_bytes < sum(interval.nbytes for interval in compiled.intervals)


@pytest.mark.parametrize("make", [branches, transformer, with_a_host_step], ids=lambda f: f.__name__)
@pytest.mark.parametrize("fuse", [True, False], ids=["fused", "unfused"])
def test_every_kernel_of_a_program_reads_what_it_would_read_if_nothing_were_shared(make, fuse: bool) -> None:  # type: ignore[no-untyped-def]
    compiled = compile_graph(make(), fuse=fuse)
    with mock.patch("anycann.assembly.placement.plan_memory", apart):
        unshared = compile_graph(make(), fuse=fuse)
    assert compiled.program.arena_bytes <= unshared.program.arena_bytes
    assert list(writers_read(compiled.program)) == list(writers_read(unshared.program))
    offsets = {i.name: compiled.program.values[i.name].buffer.offset_bytes for i in compiled.intervals if i.name in compiled.program.values}
    known = [i for i in compiled.intervals if i.name in offsets]
    assert check_plan(known, MemoryPlan(offsets, compiled.program.arena_bytes)) == []

"""The executor: the border to the caller's arrays, host nodes among kernels, many threads, flat memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
import os
import subprocess
import sys
import threading

import numpy as np
from programs import Kernels, ProgramBuilder, spec
import pytest

from anycann.om.plan import Buffer, Location
from anycann.runtime.executor import CompiledProgram
from anycann.runtime.loader import LoadedCode
from anycann.runtime.thread_pool import ThreadPool
from anycann.support.errors import InternalError, UsageError

SHAPE = (3, 5)


def numbers(seed: int, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def fused(kernels: Kernels, pool: ThreadPool, shape: tuple[int, ...] = SHAPE) -> CompiledProgram:
    """y = (a + b) * w, z = a + b."""
    w = np.full(shape, 3, np.float32)
    builder = ProgramBuilder([spec("a", shape), spec("b", shape)], [spec("y", shape), spec("z", shape)], {"w": w})
    s, y, z = spec("s", shape), spec("y", shape), spec("z", shape)
    return builder.native(("fadd", "a", "b", s), ("fmul", "s", "w", y), ("fadd", "a", "b", z), kernels=kernels).compiled(kernels, pool)


@pytest.mark.parametrize("shape", [(1,), (), (7,), (2, 3, 5), (0, 4), (1000, 3)], ids=str)
def test_a_program_computes_its_outputs(kernels: Kernels, pool: ThreadPool, shape: tuple[int, ...]) -> None:
    a, b = numbers(1, shape), numbers(2, shape)
    y, z = fused(kernels, pool, shape).run([a, b])
    np.testing.assert_allclose(y, (a + b) * 3, rtol=1e-6)
    np.testing.assert_array_equal(z, a + b)
    assert y.shape == shape and y.dtype == np.float32 and y.flags.writeable  # noqa: PT018


def test_results_of_different_runs_share_no_memory(kernels: Kernels, two_threads: ThreadPool) -> None:
    program = fused(kernels, two_threads)
    first, _ = program.run([numbers(1), numbers(2)])
    kept = first.copy()
    program.run([numbers(3), numbers(4)])
    np.testing.assert_array_equal(first, kept)


@pytest.mark.parametrize(
    "disguise",
    [
        lambda a: np.asfortranarray(a),
        lambda a: np.repeat(a, 2, axis=1)[:, ::2],
        lambda a: a[::-1].copy()[::-1],
        lambda a: a.astype(">f4"),
        lambda a: np.frombuffer(b"x" + a.tobytes(), np.uint8)[1:].view(np.float32).reshape(a.shape),
        lambda a: np.broadcast_to(a, (1, *a.shape))[0],
    ],
    ids=["column-major", "strided", "reversed", "big-endian", "misaligned", "read-only"],
)
def test_a_feed_may_lie_in_memory_in_any_way(kernels: Kernels, two_threads: ThreadPool, disguise) -> None:  # type: ignore[no-untyped-def]
    a, b = numbers(1), numbers(2)
    fed = disguise(a)
    y, _ = fused(kernels, two_threads).run([fed, b])
    np.testing.assert_allclose(y, (a + b) * 3, rtol=1e-6)
    np.testing.assert_array_equal(fed, a)


@pytest.mark.parametrize(
    ("feed", "message"),
    [
        (np.zeros((3, 5)), r"input 0 \('a'\) is float64\[3, 5\]; accepted: float32\[3, 5\]"),
        (np.zeros((5, 3), np.float32), r"is float32\[5, 3\]; accepted: float32\[3, 5\]"),
        (np.zeros((3, 5, 1), np.float32), "accepted"),
        (np.zeros((3, 5), np.int32), "int32"),
        ([[0.0] * 5] * 3, "is a list"),
        (None, "is a NoneType"),
    ],
)
def test_a_feed_that_does_not_fit_is_refused_by_name(kernels: Kernels, two_threads: ThreadPool, feed: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fused(kernels, two_threads).run([feed, numbers(2)])


def test_too_few_feeds_are_refused_with_the_names(kernels: Kernels, two_threads: ThreadPool) -> None:
    with pytest.raises(UsageError, match=r"1 feeds; accepted: 2 \(a, b\)"):
        fused(kernels, two_threads).run([numbers(1)])


def test_outputs_go_to_the_arrays_of_the_caller(kernels: Kernels, pool: ThreadPool) -> None:
    a, b = numbers(1), numbers(2)
    mine = np.full(SHAPE, np.nan, np.float32)
    y, z = fused(kernels, pool).run([a, b], [mine, None])
    assert y is mine
    np.testing.assert_allclose(mine, (a + b) * 3, rtol=1e-6)
    np.testing.assert_array_equal(z, a + b)


def test_an_output_array_that_kernels_cannot_write_is_filled_by_a_copy(kernels: Kernels, two_threads: ThreadPool) -> None:
    a, b = numbers(1), numbers(2)
    around = np.full((3, 10), 7, np.float32)
    y, _ = fused(kernels, two_threads).run([a, b], [around[:, ::2], None])
    assert y.base is around
    np.testing.assert_allclose(around[:, ::2], (a + b) * 3, rtol=1e-6)
    assert (around[:, 1::2] == 7).all()


def test_an_output_array_may_overlap_a_feed(kernels: Kernels, two_threads: ThreadPool) -> None:
    a, b = numbers(1), numbers(2)
    expected = (a + b) * 3
    line = np.concatenate([a.reshape(-1), np.zeros(1, np.float32)])
    fed, target = line[:15].reshape(SHAPE), line[1:].reshape(SHAPE)
    y, z = fused(kernels, two_threads).run([fed, b], [target, None])
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    np.testing.assert_allclose(z, expected / 3, rtol=1e-6)


@pytest.mark.parametrize(
    ("buffer", "message"),
    [
        (np.zeros((3, 4), np.float32), r"the buffer for output 0 \('y'\) is float32\[3, 4\]; accepted: a numpy array of float32\[3, 5\]"),
        (np.zeros(SHAPE), "float64"),
        (np.broadcast_to(np.float32(0), SHAPE), "read-only"),
        ([], "is list"),
    ],
)
def test_an_output_array_that_does_not_fit_is_refused(kernels: Kernels, two_threads: ThreadPool, buffer: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fused(kernels, two_threads).run([numbers(1), numbers(2)], [buffer, None])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="1 output buffers; accepted: 2"):
        fused(kernels, two_threads).run([numbers(1), numbers(2)], [None])


def test_an_output_may_be_an_input_a_constant_or_the_same_value_twice(kernels: Kernels, two_threads: ThreadPool) -> None:
    w = numbers(3)
    outputs = [spec("a", SHAPE), spec("w", SHAPE), spec("y", SHAPE), spec("y", SHAPE)]
    builder = ProgramBuilder([spec("a", SHAPE)], outputs, {"w": w})
    program = builder.native(("fadd", "a", "w", spec("y", SHAPE)), kernels=kernels).compiled(kernels, two_threads)
    a = numbers(1)
    kept = a.copy()
    results = program.run([a])
    for got, expected in zip(results, [kept, w, kept + w, kept + w], strict=True):
        np.testing.assert_array_equal(got, expected)
    for result in results:
        result += 1  # each is the caller's alone
    np.testing.assert_array_equal(a, kept)
    for got, expected in zip(program.run([a]), [kept, w, kept + w, kept + w], strict=True):
        np.testing.assert_array_equal(got, expected)


def test_host_nodes_read_and_write_among_kernels(kernels: Kernels, pool: ThreadPool) -> None:
    builder = ProgramBuilder([spec("a", SHAPE), spec("b", SHAPE)], [spec("y", SHAPE), spec("n", SHAPE)])
    builder.native(("fadd", "a", "b", spec("s", SHAPE)), kernels=kernels)
    builder.host("Neg", ["s"], ["t"], [spec("t", SHAPE)])
    builder.native(("fmul", "t", "a", spec("y", SHAPE)), kernels=kernels)
    builder.host("Neg", ["y"], ["n"], [spec("n", SHAPE)])
    a, b = numbers(1), numbers(2)
    y, n = builder.compiled(kernels, pool).run([a, b])
    np.testing.assert_allclose(y, -(a + b) * a, rtol=1e-6)
    np.testing.assert_array_equal(n, -y)


def test_values_of_open_shape_and_sequences_live_beside_the_arena(kernels: Kernels, two_threads: ThreadPool) -> None:
    builder = ProgramBuilder(
        [spec("a", SHAPE)], [spec("where", (2, None), "int64"), spec("many", (), "object"), spec("count", (), "int64")]
    )
    builder.native(("fadd", "a", "a", spec("s", SHAPE)), kernels=kernels)
    builder.host("NonZero", ["s"], ["where"])
    builder.host("SequenceConstruct", ["s", "where"], ["many"])
    builder.host("SequenceLength", ["many"], ["count"])
    program = builder.compiled(kernels, two_threads)
    a = np.where(numbers(1) > 0, numbers(1), 0).astype(np.float32)
    where, many, count = program.run([a])
    np.testing.assert_array_equal(where, np.nonzero(a))
    np.testing.assert_array_equal(many[0], a + a)
    assert count == 2
    program.run([np.ones(SHAPE, np.float32)])
    np.testing.assert_array_equal(many[0], a + a)  # not a view of the arena


def test_a_host_result_that_is_a_view_of_the_arena_survives_later_kernels(kernels: Kernels, two_threads: ThreadPool) -> None:
    builder = ProgramBuilder([spec("a", SHAPE)], [spec("kept", (None, None)), spec("t", SHAPE)])
    builder.native(("fadd", "a", "a", spec("s", SHAPE)), kernels=kernels)
    builder.host("Identity", ["s"], ["kept"])
    builder.outputs, outputs = (), builder.outputs
    builder.arena_bytes = 0  # t takes the place of s, as a memory plan does
    builder.native(("fmul", "a", "a", spec("t", SHAPE)), kernels=kernels)
    builder.outputs = outputs
    a = numbers(1)
    kept, t = builder.compiled(kernels, two_threads).run([a])
    np.testing.assert_array_equal(kept, a + a)
    np.testing.assert_array_equal(t, a * a)


def test_a_caller_may_change_what_it_got_from_a_host_node_that_returned_its_input(kernels: Kernels, two_threads: ThreadPool) -> None:
    builder = ProgramBuilder([spec("a", SHAPE)], [spec("b", (None, None))]).host("Identity", ["a"], ["b"])
    a = numbers(1)
    kept = a.copy()
    (b,) = builder.compiled(kernels, two_threads).run([a])
    b += 1
    np.testing.assert_array_equal(a, kept)


@pytest.mark.parametrize(("op_type", "got"), [("WrongDtype", r"float64\[3, 5\]"), ("WrongShape", r"float32\[2, 5\]")])
def test_a_host_result_unlike_its_plan_is_an_internal_error(kernels: Kernels, two_threads: ThreadPool, op_type: str, got: str) -> None:
    builder = ProgramBuilder([spec("a", SHAPE)], [spec("y", SHAPE)]).host(op_type, ["a"], ["y"], [spec("y", SHAPE)])
    with pytest.raises(InternalError, match=rf"'y' was computed as {got}, but was planned as float32\[3, 5\]"):
        builder.compiled(kernels, two_threads).run([numbers(1)])


def test_an_absent_input_of_a_host_node_is_none(kernels: Kernels, two_threads: ThreadPool) -> None:
    builder = ProgramBuilder([], [spec("has", (), "bool")]).host("Optional", [], ["o"]).host("OptionalHasElement", ["o"], ["has"])
    assert builder.compiled(kernels, two_threads).run([]) == [False]


def test_after_a_failing_run_the_next_one_is_right(kernels: Kernels, two_threads: ThreadPool) -> None:
    builder = ProgramBuilder([spec("a", SHAPE), spec("c", (None,), "bool")], [spec("y", SHAPE), spec("k", (None,))])
    builder.native(("fadd", "a", "a", spec("y", SHAPE)), kernels=kernels).host("Compress", ["a", "c"], ["k"])
    program = builder.compiled(kernels, two_threads)
    with pytest.raises(IndexError):
        program.run([numbers(1), np.ones(4, np.bool_)])
    y, k = program.run([numbers(1), np.array([True, False, True])])
    np.testing.assert_array_equal(y, numbers(1) * 2)
    np.testing.assert_array_equal(k, numbers(1)[[0, 2]])


def test_many_threads_may_run_one_program(kernels: Kernels, two_threads: ThreadPool) -> None:
    program = fused(kernels, two_threads, (50, 41))
    together = threading.Barrier(6)

    def work(seed: int) -> bool:
        a, b = numbers(seed, (50, 41)), numbers(seed + 100, (50, 41))
        together.wait()
        return all(np.array_equal(program.run([a, b])[1], a + b) for _ in range(200))

    with ThreadPoolExecutor(6) as threads:
        assert all(threads.map(work, range(6)))


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # this process has threads, on purpose
def test_a_forked_child_runs_on_memory_of_its_own(kernels: Kernels, two_threads: ThreadPool) -> None:
    shape = (1 << 20,)  # an arena that is mapped
    program = fused(kernels, two_threads, shape)
    a, b = np.ones(shape, np.float32), np.full(shape, 2, np.float32)
    program.run([a, b])
    child = os.fork()
    mine = a if child else a + 10
    right = all((program.run([mine, b])[0] == (mine + b) * 3).all() for _ in range(20))
    if not child:
        os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert right


MANY_RUNS = """
import numpy as np, onnx
from pathlib import Path
from anycann import InferenceSession
def resident_kilobytes():
    return int(next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmRSS")).split()[1])
text = '<ir_version: 10, opset_import: ["": 20]> g (float[64] x) => (float[64] y) { a = Exp(x)  y = Softmax(a) }'
session = InferenceSession(onnx.parser.parse_model(text), num_threads=2)
feeds = {"x": np.ones(64, np.float32)}
for _ in range(5_000):
    session.run(None, feeds)
before = resident_kilobytes()
for _ in range(100_000):
    session.run(None, feeds)
print(resident_kilobytes() - before)
"""


def test_a_hundred_thousand_runs_leave_the_resident_size_flat() -> None:
    """In a process of its own: what other tests leave behind is collected at any time."""
    child = subprocess.run([sys.executable, "-c", MANY_RUNS], capture_output=True, text=True, timeout=600, check=True)
    assert int(child.stdout) < 512


def test_a_symbol_that_no_object_defines_is_named(kernels: Kernels, two_threads: ThreadPool) -> None:
    builder = ProgramBuilder([spec("a", SHAPE)], [spec("y", SHAPE)]).native(("fadd", "a", "a", spec("y", SHAPE)), kernels=kernels)
    with pytest.raises(InternalError, match=kernels.symbols["fadd"]):
        CompiledProgram(builder.program(), builder.constants, LoadedCode({}), two_threads)


def test_constants_that_are_not_aligned_are_copied_to_where_they_are(kernels: Kernels, two_threads: ThreadPool) -> None:
    w = numbers(3)
    builder = ProgramBuilder([spec("a", SHAPE)], [spec("y", SHAPE)], {"w": w})
    builder.native(("fadd", "a", "w", spec("y", SHAPE)), kernels=kernels)
    moved = np.concatenate([np.zeros(65, np.uint8), builder.constants])
    start = -moved.ctypes.data % 64 + 1
    moved[start : start + builder.constants.nbytes] = builder.constants
    program = CompiledProgram(builder.program(), memoryview(moved)[start : start + builder.constants.nbytes], kernels.code, two_threads)
    np.testing.assert_array_equal(program.run([numbers(1)])[0], numbers(1) + w)


def test_a_value_in_blocked_layout_is_read_by_the_host_in_plain_order(kernels: Kernels, two_threads: ThreadPool) -> None:
    lanes = kernels.code.target.lanes
    shape, blocked = (2, lanes + 3, 2, 3), (2, 2, 2, 3, lanes)
    builder = ProgramBuilder([spec("a", shape)], [spec("y", shape), spec("t", shape)])
    builder.host("Neg", ["a"], ["n"], [spec("n", blocked)])
    builder.values["n"] = Location(spec("n", shape), Buffer("arena", 0, int(np.prod(blocked)) * 4), "NC1HWC0")
    builder.host("Neg", ["n"], ["y"], [spec("y", shape)])
    builder.host("Identity", ["n"], ["t"])
    a = numbers(1, shape)
    y, t = builder.compiled(kernels, two_threads).run([a])
    np.testing.assert_array_equal(y, a)
    np.testing.assert_array_equal(t, -a)

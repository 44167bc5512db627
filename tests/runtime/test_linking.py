"""Programs with an If and what follows it as one native call: the rows of their regions, and when the steps run instead."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from programs import Kernels, ProgramBuilder, spec
import pytest
from test_regions import SmallCompiler, binary, numbers, renamed

from anycann.om.plan import RegionStep, TensorSpec
from anycann.runtime.executor import CompiledProgram
from anycann.runtime.thread_pool import ThreadPool

A, B = numbers(1, (7,)), numbers(2, (7,))
CHOICE = RegionStep("if", "choose", ("sum", "product"), ("c",), (("a", "b"), ("b", "a")), ("y",))


class Counting(SmallCompiler):
    """Counts the regions that steps have run."""

    def calls_in(self, program: CompiledProgram, runs: Sequence[Sequence[np.ndarray]]) -> int:
        plain, calls = self.cache.program, []
        self.cache.program = lambda *given: (calls.append(given), plain(*given))[1]  # type: ignore[method-assign, func-returns-value]
        for feeds in runs:
            program.run(feeds)
        self.cache.program = plain  # type: ignore[method-assign]
        return len(calls)


def choosing(kernels: Kernels, pool: ThreadPool, shape: tuple[int | None, ...] = (7,)) -> tuple[CompiledProgram, Counting]:
    """y = c ? a + b : b * a; without a planned place for y where `shape` is open."""
    compiler = Counting(kernels, pool, {"sum": binary(kernels, "fadd"), "product": binary(kernels, "fmul")})
    builder = ProgramBuilder([spec("c", (), "bool"), spec("a", (7,)), spec("b", (7,))], [spec("y", shape)])
    return builder.region(CHOICE, [spec("y", (7,))] if None not in shape else []).compiled(kernels, pool, compiler.cache), compiler


def feeds(condition: object, a: np.ndarray = A, b: np.ndarray = B) -> list[np.ndarray]:
    return [np.array(condition), a, b]


@pytest.mark.parametrize("shape", [(7,), (None,)])
def test_branches_that_were_met_run_in_one_call_whatever_the_condition_is(
    kernels: Kernels, pool: ThreadPool, shape: tuple[int | None, ...]
) -> None:
    program, compiler = choosing(kernels, pool, shape)
    for condition in (True, True, False, True, False, False):
        (y,) = program.run(feeds(condition))
        np.testing.assert_array_equal(y, A + B if condition else A * B)
    assert compiler.calls_in(program, [feeds(condition) for condition in (True, False, True)]) == 0


def test_a_branch_that_was_not_met_is_compiled_when_it_is(kernels: Kernels, two_threads: ThreadPool) -> None:
    program, compiler = choosing(kernels, two_threads)
    for _ in range(3):
        program.run(feeds(True))
    assert [region for region, _ in compiler.compiled] == ["sum"]
    assert compiler.calls_in(program, [feeds(False), feeds(True), feeds(False)]) == 1
    assert [region for region, _ in compiler.compiled] == ["sum", "product"]


def test_results_of_linked_runs_share_no_memory_and_go_to_the_callers_arrays(kernels: Kernels, two_threads: ThreadPool) -> None:
    program, _ = choosing(kernels, two_threads, (None,))
    (first,) = program.run(feeds(True))
    (second,) = program.run(feeds(True))
    own = np.full(7, np.nan, np.float32)
    (third,) = program.run(feeds(True, A + 1), [own])
    assert third is own
    assert not np.shares_memory(first, second)  # type: ignore[arg-type]
    np.testing.assert_array_equal(own, A + 1 + B)
    np.testing.assert_array_equal(second, A + B)


def first_input(inputs: tuple[TensorSpec, ...]) -> ProgramBuilder:
    a, b = renamed(inputs, "a", "b")
    return ProgramBuilder([a, b], [a])


def negated(inputs: tuple[TensorSpec, ...]) -> ProgramBuilder:
    a, b = renamed(inputs, "a", "b")
    return ProgramBuilder([a, b], [spec("y", a.shape)]).host("Neg", ["a"], ["y"], [spec("y", a.shape)])  # type: ignore[arg-type]


def test_a_branch_may_hand_on_what_it_was_given(kernels: Kernels, pool: ThreadPool) -> None:
    compiler = Counting(kernels, pool, {"sum": binary(kernels, "fadd"), "product": first_input})
    builder = ProgramBuilder([spec("c", (), "bool"), spec("a", (7,)), spec("b", (7,))], [spec("y", (None,))])
    program = builder.region(CHOICE).compiled(kernels, pool, compiler.cache)
    for condition in (True, False, True, False):
        b = B.copy()
        (y,) = program.run(feeds(condition, A, b))
        y[:] += 1  # type: ignore[index]
        np.testing.assert_array_equal(b, B)
        np.testing.assert_array_equal(y, A + B + 1 if condition else B + 1)
    assert compiler.calls_in(program, [feeds(True), feeds(False)]) == 0


def test_a_branch_with_a_host_node_is_run_by_steps(kernels: Kernels, two_threads: ThreadPool) -> None:
    compiler = Counting(kernels, two_threads, {"sum": binary(kernels, "fadd"), "product": negated})
    builder = ProgramBuilder([spec("c", (), "bool"), spec("a", (7,)), spec("b", (7,))], [spec("y", (7,))])
    program = builder.region(CHOICE, [spec("y", (7,))]).compiled(kernels, two_threads, compiler.cache)
    for condition in (True, True, False, True, False, False, True):
        (y,) = program.run(feeds(condition))
        np.testing.assert_array_equal(y, A + B if condition else -B)


def test_a_rare_branch_with_a_host_node_leaves_the_others_in_one_call(kernels: Kernels, pool: ThreadPool) -> None:
    compiler = Counting(kernels, pool, {"sum": binary(kernels, "fadd"), "product": negated})
    builder = ProgramBuilder([spec("c", (), "bool"), spec("a", (7,)), spec("b", (7,))], [spec("y", (7,))])
    program = builder.region(CHOICE, [spec("y", (7,))]).compiled(kernels, pool, compiler.cache, poison=False)
    program.run(feeds(True))
    direct = program.direct("cab", feeds(True))
    assert direct is not None
    for _ in range(100):
        assert direct(dict(zip("cab", feeds(True), strict=True))) is not None
    for _ in range(10):
        program.run(feeds(False))
    assert compiler.calls_in(program, [feeds(True)]) == 0


def test_branches_with_results_of_different_shapes_take_turns(kernels: Kernels, two_threads: ThreadPool) -> None:
    compiler = Counting(kernels, two_threads, {"sum": binary(kernels, "fadd"), "product": binary(kernels, "fmul")})
    step = RegionStep("if", "choose", ("sum", "product"), ("c",), (("a", "a"), ("b", "b")), ("y",))
    builder = ProgramBuilder([spec("c", (), "bool"), spec("a", (7,)), spec("b", (5,))], [spec("y", (None,))])
    program = builder.region(step).compiled(kernels, two_threads, compiler.cache)
    for condition in (True, True, False, False, True, False, True):
        (y,) = program.run(feeds(condition, A, B[:5]))
        np.testing.assert_array_equal(y, A + A if condition else B[:5] * B[:5])


@pytest.mark.parametrize("count", [20, 200])
def test_many_branches_of_different_shapes_one_after_the_other_are_left_to_the_steps(
    kernels: Kernels, two_threads: ThreadPool, count: int
) -> None:
    compiler = Counting(kernels, two_threads, {"sum": binary(kernels, "fadd"), "product": binary(kernels, "fmul")})
    builder = ProgramBuilder([spec("c", (), "bool"), spec("a", (7,)), spec("b", (5,))], [spec("y0", (None,))])
    for number in range(count):
        builder.region(RegionStep("if", f"if {number}", ("sum", "product"), ("c",), (("a", "a"), ("b", "b")), (f"y{number}",)))
    program = builder.compiled(kernels, two_threads, compiler.cache)
    for condition in (True, False, True, False):
        (y,) = program.run(feeds(condition, A, B[:5]))
        np.testing.assert_array_equal(y, A + A if condition else B[:5] * B[:5])
    assert compiler.calls_in(program, [feeds(True, A, B[:5])]) == count


def test_what_follows_branches_of_different_shapes_is_there_for_each(kernels: Kernels, pool: ThreadPool) -> None:
    def first_five(inputs: tuple[TensorSpec, ...]) -> ProgramBuilder:
        named = renamed(inputs, "x", "b")
        doubled, z = spec("doubled", named[0].shape), spec("z", (5,))  # type: ignore[arg-type]
        return ProgramBuilder(named, [z]).native(("fadd", "x", "x", doubled), ("fmul", "doubled", "b", z), kernels=kernels)

    compiler = Counting(kernels, pool, {"sum": binary(kernels, "fadd"), "product": binary(kernels, "fmul"), "last": first_five})
    builder = ProgramBuilder([spec("c", (), "bool"), spec("a", (7,)), spec("b", (5,))], [spec("z", (None,))])
    builder.region(RegionStep("if", "choose", ("sum", "product"), ("c",), (("a", "a"), ("b", "b")), ("x",)))
    builder.region(RegionStep("deferred", "last", ("last",), (), (("x", "b"),), ("z",)))
    program = builder.compiled(kernels, pool, compiler.cache)
    for condition in (True, False, True, False):
        (z,) = program.run(feeds(condition, A, B[:5]))
        np.testing.assert_array_equal(z, ((A[:5] + A[:5]) * 2 if condition else B[:5] * B[:5] * 2) * B[:5])
    assert compiler.calls_in(program, [feeds(condition, A, B[:5]) for condition in (False, True)]) == 0


def nested(kernels: Kernels, pool: ThreadPool) -> tuple[CompiledProgram, Counting]:
    """z = ((c ? (d ? a + b : a * b) : b) + b, whose value goes through a deferred region, doubled) * a."""

    def inner(inputs: tuple[TensorSpec, ...]) -> ProgramBuilder:
        named = renamed(inputs, "d", "a", "b")
        step = RegionStep("if", "inner", ("sum", "product"), ("d",), (("a", "b"), ("a", "b")), ("x",))
        return ProgramBuilder(named, [spec("x", (None,))]).region(step)

    def last(inputs: tuple[TensorSpec, ...]) -> ProgramBuilder:
        named = renamed(inputs, "x", "ab", "a")
        doubled, z = (TensorSpec(name, "float32", named[0].shape) for name in ("doubled", "z"))
        return ProgramBuilder(named, [z]).native(("fadd", "x", "x", doubled), ("fmul", "doubled", "ab", z), kernels=kernels)

    table = {"sum": binary(kernels, "fadd"), "product": binary(kernels, "fmul"), "inner": inner, "other": first_input, "last": last}
    compiler = Counting(kernels, pool, table)
    inputs = [spec("c", (), "bool"), spec("d", (), "bool"), spec("a", (7,)), spec("b", (7,))]
    builder = ProgramBuilder(inputs, [spec("z", (None,)), spec("z", (None,)), spec("ab", (7,))])
    builder.native(("fmul", "a", "b", spec("ab", (7,))), kernels=kernels)
    builder.region(RegionStep("if", "outer", ("inner", "other"), ("c",), (("d", "a", "b"), ("b", "a")), ("x",)))
    builder.region(RegionStep("deferred", "last", ("last",), (), (("x", "ab", "a"),), ("z",)))
    return builder.compiled(kernels, pool, compiler.cache), compiler


def nested_in_numpy(c: bool, d: bool, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    x = (a + b if d else a * b) if c else b
    return (x + x) * (a * b)


def test_an_if_in_an_if_and_what_is_deferred_behind_them_are_one_call(kernels: Kernels, pool: ThreadPool) -> None:
    program, compiler = nested(kernels, pool)
    rng = np.random.default_rng(5)
    for c, d in [*rng.integers(0, 2, (24, 2)).astype(bool).tolist(), (True, True), (True, False), (False, True)]:
        a, b = rng.standard_normal((2, 7)).astype(np.float32)
        z, same, ab = program.run([np.array(c), np.array(d), a, b])
        np.testing.assert_array_equal(z, nested_in_numpy(c, d, a, b))
        np.testing.assert_array_equal(same, z)
        np.testing.assert_array_equal(ab, a * b)
        assert not np.shares_memory(z, same)  # type: ignore[arg-type]
    every = [[np.array(c), np.array(d), A, B] for c in (True, False) for d in (True, False)]
    assert compiler.calls_in(program, every) == 0


def test_threads_that_take_different_branches_get_their_own_results(kernels: Kernels, pool: ThreadPool) -> None:
    program, _ = nested(kernels, pool)

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(30):
            c, d = rng.integers(0, 2, 2).astype(bool).tolist()
            a, b = rng.standard_normal((2, 7)).astype(np.float32)
            np.testing.assert_array_equal(program.run([np.array(c), np.array(d), a, b])[0], nested_in_numpy(c, d, a, b))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))


def test_whoever_watches_sees_the_steps_of_a_linked_program(kernels: Kernels, two_threads: ThreadPool) -> None:
    program, _ = choosing(kernels, two_threads)
    for condition in (True, False):
        program.run(feeds(condition))
    seen: list[str] = []
    with program.observe(lambda event: seen.append(event.kind)):
        program.run(feeds(True))
    assert seen == ["kernel", "region"]


def test_a_condition_of_several_bools_stays_an_error(kernels: Kernels, two_threads: ThreadPool) -> None:
    compiler = SmallCompiler(kernels, two_threads, {"sum": binary(kernels, "fadd"), "product": binary(kernels, "fmul")})
    builder = ProgramBuilder([spec("c", (2,), "bool"), spec("a", (7,)), spec("b", (7,))], [spec("y", (7,))])
    program = builder.region(CHOICE, [spec("y", (7,))]).compiled(kernels, two_threads, compiler.cache)
    for _ in range(2):
        with pytest.raises(Exception, match=r"the condition is bool\[2\]"):
            program.run(feeds([True, True]))

"""If, Loop, Scan and deferred regions, compiled for the shapes they meet by a small compiler made of real programs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from programs import Kernels, ProgramBuilder, spec
import pytest

from anycann.om.plan import RegionStep, TensorSpec
from anycann.runtime.executor import CompiledProgram
from anycann.runtime.region_cache import RegionCache
from anycann.runtime.thread_pool import ThreadPool
from anycann.support.errors import InternalError, ModelError

Region = Callable[[tuple[TensorSpec, ...]], ProgramBuilder]


class SmallCompiler:
    """Makes the program of a region from its table of builders, and counts how often."""

    def __init__(self, kernels: Kernels, pool: ThreadPool, table: dict[str, Region], capacity: int = 64):
        self.kernels, self.pool, self.table = kernels, pool, table
        self.compiled: list[tuple[str, tuple[TensorSpec, ...]]] = []
        self.cache = RegionCache(self.compile, capacity)

    def compile(self, region: str, inputs: tuple[TensorSpec, ...]) -> CompiledProgram:
        self.compiled.append((region, inputs))
        return self.table[region](inputs).compiled(self.kernels, self.pool, self.cache)


def renamed(inputs: tuple[TensorSpec, ...], *names: str) -> list[TensorSpec]:
    return [TensorSpec(name, one.dtype, one.shape) for name, one in zip(names, inputs, strict=True)]


def binary(kernels: Kernels, opcode: str) -> Region:
    """A region of two float inputs: y = a opcode b."""

    def region(inputs: tuple[TensorSpec, ...]) -> ProgramBuilder:
        a, b = renamed(inputs, "a", "b")
        y = TensorSpec("y", "float32", a.shape)
        return ProgramBuilder([a, b], [y]).native((opcode, "a", "b", y), kernels=kernels)

    return region


def numbers(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("condition", [True, False])
def test_if_runs_the_branch_of_its_condition_and_compiles_only_that(kernels: Kernels, pool: ThreadPool, condition: bool) -> None:
    compiler = SmallCompiler(kernels, pool, {"sum": binary(kernels, "fadd"), "product": binary(kernels, "fmul")})
    step = RegionStep("if", "choose", ("sum", "product"), ("c",), (("a", "b"), ("b", "a")), ("y",))
    builder = ProgramBuilder([spec("c", (), "bool"), spec("a", (7,)), spec("b", (7,))], [spec("y", (7,))])
    program = builder.region(step, [spec("y", (7,))]).compiled(kernels, pool, compiler.cache)
    a, b = numbers(1, (7,)), numbers(2, (7,))
    for _ in range(3):
        (y,) = program.run([np.array(condition), a, b])
        np.testing.assert_array_equal(y, a + b if condition else a * b)
    assert [name for name, _ in compiler.compiled] == ["sum" if condition else "product"]


def power_loop(kernels: Kernels) -> dict[str, Region]:
    """x = x * f for each iteration while the sum of x stays below the limit; each x is scanned."""

    def body(inputs: tuple[TensorSpec, ...]) -> ProgramBuilder:
        named = renamed(inputs, "i", "going", "x", "f", "limit")
        x = named[2]
        outputs = [spec("more", (), "bool"), TensorSpec("next", "float32", x.shape), TensorSpec("scanned", "float32", x.shape)]
        builder = ProgramBuilder(named, outputs)
        builder.native(("fmul", "x", "f", outputs[1]), ("fadd", "x", "x", outputs[2]), kernels=kernels)
        return builder.host("ReduceSum", ["next"], ["total"]).host("Less", ["total", "limit"], ["more"], [outputs[0]])

    return {"body": body}


def loop_program(
    kernels: Kernels, pool: ThreadPool, inputs: tuple[str, ...] = ("trips", "going", "x0")
) -> tuple[CompiledProgram, SmallCompiler]:
    compiler = SmallCompiler(kernels, pool, power_loop(kernels))
    step = RegionStep("loop", "powers", ("body",), inputs, (("f", "limit"),), ("x", "xs"))
    feeds = [spec("trips", (), "int64"), spec("going", (), "bool"), spec("x0", (4,)), spec("f", (4,)), spec("limit", ())]
    builder = ProgramBuilder(feeds, [spec("x", (4,)), spec("xs", (None, 4))])
    return builder.region(step, [spec("x", (4,))]).compiled(kernels, pool, compiler.cache), compiler


def loop_feeds(trips: int, going: bool = True, limit: float = 1e9) -> list[np.ndarray]:
    return [np.array(trips), np.array(going), np.ones(4, np.float32), np.full(4, 2, np.float32), np.array(limit, np.float32)]


@pytest.mark.parametrize("trips", [1, 2, 5])
def test_loop_runs_as_often_as_its_trip_count_and_stacks_what_it_scans(kernels: Kernels, pool: ThreadPool, trips: int) -> None:
    program, compiler = loop_program(kernels, pool)
    x, xs = program.run(loop_feeds(trips))
    assert x.tolist() == [2.0**trips] * 4
    assert xs.tolist() == [[2.0 * 2.0**i] * 4 for i in range(trips)]
    assert len(compiler.compiled) == 1


@pytest.mark.parametrize("inputs", [("trips", "going", "x0"), ("", "going", "x0"), ("", "", "x0")])
def test_loop_ends_when_the_body_says_so_with_or_without_trip_count(
    kernels: Kernels, two_threads: ThreadPool, inputs: tuple[str, ...]
) -> None:
    program, _ = loop_program(kernels, two_threads, inputs)
    x, xs = program.run(loop_feeds(1000, limit=30.0))
    assert x.tolist() == [8.0] * 4
    assert len(xs) == 3


@pytest.mark.parametrize(("trips", "going"), [(0, True), (5, False), (-3, True)])
def test_a_loop_without_iterations_keeps_its_values_and_scans_nothing(
    kernels: Kernels, two_threads: ThreadPool, trips: int, going: bool
) -> None:
    program, _ = loop_program(kernels, two_threads)
    x, xs = program.run(loop_feeds(trips, going))
    assert x.tolist() == [1.0] * 4
    assert (xs.shape, xs.dtype) == ((0, 4), np.float32)


def test_a_condition_that_is_no_bool_is_a_model_error_that_names_the_step(kernels: Kernels, two_threads: ThreadPool) -> None:
    compiler = SmallCompiler(kernels, two_threads, {"sum": binary(kernels, "fadd")})
    step = RegionStep("if", "choose", ("sum", "sum"), ("a",), (("a", "a"), ("a", "a")), ("y",))
    builder = ProgramBuilder([spec("a", (2,))], [spec("y", (2,))]).region(step)
    with pytest.raises(ModelError, match=r"the condition is float32\[2\]; accepted: one bool") as caught:
        builder.compiled(kernels, two_threads, compiler.cache).run([np.ones(2, np.float32)])
    assert caught.value.__notes__ == ["while running if 'choose'"]


def growing_loop(kernels: Kernels) -> Region:
    def body(inputs: tuple[TensorSpec, ...]) -> ProgramBuilder:
        named = renamed(inputs, "i", "going", "x", "part")
        grown = TensorSpec("grown", "float32", (int(named[2].shape[0] or 0) + 1,))
        return ProgramBuilder(named, [spec("going", (), "bool"), grown]).host("Concat", ["x", "part"], ["grown"], [grown])

    return body


def test_a_carried_value_may_grow_and_each_shape_is_compiled_once(kernels: Kernels, two_threads: ThreadPool) -> None:
    compiler = SmallCompiler(kernels, two_threads, {"body": growing_loop(kernels)})
    step = RegionStep("loop", "grow", ("body",), ("trips", "", "x"), (("x",),), ("y",))
    builder = ProgramBuilder([spec("trips", (), "int64"), spec("x", (1,))], [spec("y", (None,))]).region(step)
    program = builder.compiled(kernels, two_threads, compiler.cache)
    for _ in range(2):
        (y,) = program.run([np.array(5), np.ones(1, np.float32)])
        assert y.tolist() == [1.0] * 6
    assert [inputs[2].shape for _, inputs in compiler.compiled] == [(1,), (2,), (3,), (4,), (5,)]


def test_the_cache_keeps_the_programs_used_last(kernels: Kernels, two_threads: ThreadPool) -> None:
    compiler = SmallCompiler(kernels, two_threads, {"sum": binary(kernels, "fadd")}, capacity=2)
    for size in (1, 2, 1, 3, 1, 2):
        x = np.ones(size, np.float32)
        assert compiler.cache.program("sum", ("a", "b"), [x, x]).run([x, x])[0].tolist() == [2.0] * size
    assert [inputs[0].shape for _, inputs in compiler.compiled] == [(1,), (2,), (3,), (2,)]


def test_threads_that_need_the_same_region_compile_it_once(kernels: Kernels, two_threads: ThreadPool) -> None:
    program, compiler = loop_program(kernels, two_threads)
    with ThreadPoolExecutor(6) as threads:
        results = list(threads.map(lambda _: program.run(loop_feeds(3))[0][0], range(12)))
    assert results == [8.0] * 12
    assert len(compiler.compiled) == 1


def test_a_region_that_fails_to_compile_says_for_which_inputs(kernels: Kernels, two_threads: ThreadPool) -> None:
    def refuse(region: str, inputs: tuple[TensorSpec, ...]) -> CompiledProgram:
        raise ModelError("no")

    with pytest.raises(ModelError) as caught:
        RegionCache(refuse).program("r", ("a", "b"), [np.zeros((2, 3), np.int8), None])
    assert caught.value.__notes__ == ["while compiling region 'r' for a int8[2, 3], b object[]"]


def test_a_deferred_region_is_compiled_when_its_shapes_are_known(kernels: Kernels, pool: ThreadPool) -> None:
    compiler = SmallCompiler(kernels, pool, {"rest": binary(kernels, "fadd")})
    step = RegionStep("deferred", "rest", ("rest",), ("kept",), (("kept",),), ("y",))
    builder = ProgramBuilder([spec("a", (4, 3)), spec("which", (4,), "bool")], [spec("y", (None, 3))])
    program = builder.host("Compress", ["a", "which"], ["kept"]).region(step).compiled(kernels, pool, compiler.cache)
    a = numbers(1, (4, 3))
    for which in ([True, False, True, True], [False] * 4, [True, False, True, True]):
        (y,) = program.run([a, np.array(which)])
        np.testing.assert_array_equal(y, 2 * a[which])
    assert [inputs[0].shape for _, inputs in compiler.compiled] == [(3, 3), (0, 3)]


def test_results_of_a_deferred_region_are_the_callers_at_each_length_and_in_any_thread(kernels: Kernels, pool: ThreadPool) -> None:
    compiler = SmallCompiler(kernels, pool, {"rest": binary(kernels, "fmul")})
    step = RegionStep("deferred", "rest", ("rest",), (), (("kept", "other"),), ("y",))
    builder = ProgramBuilder([spec("a", (4, 3)), spec("which", (4,), "bool")], [spec("y", (None, 3)), spec("kept", (None, 3))])
    builder.host("Compress", ["a", "which"], ["kept"]).host("Neg", ["kept"], ["other"]).region(step)
    program = builder.compiled(kernels, pool, compiler.cache)
    masks = [np.array(which) for which in ([True] * 4, [True, False, True, True], [False] * 4)]

    def run(number: int) -> tuple[list[object], list[np.ndarray]]:
        a, which = numbers(number, (4, 3)), masks[number // 2 % 3]
        return program.run([a, which]), [-a[which] * a[which], a[which]]

    with ThreadPoolExecutor(4) as threads:
        runs = list(threads.map(run, range(60)))
    for got, expected in runs:
        for one, other in zip(got, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    assert len(compiler.compiled) == 3


def scan_program(kernels: Kernels, pool: ThreadPool, **attributes: object) -> CompiledProgram:
    """State s and slices x, z: s' = s + x, out = s' * z."""

    def body(inputs: tuple[TensorSpec, ...]) -> ProgramBuilder:
        named = renamed(inputs, "s", "x", "z")
        outputs = [TensorSpec("next", "float32", named[0].shape), TensorSpec("out", "float32", named[0].shape)]
        builder = ProgramBuilder(named, outputs)
        return builder.native(("fadd", "s", "x", outputs[0]), ("fmul", "next", "z", outputs[1]), kernels=kernels)

    compiler = SmallCompiler(kernels, pool, {"body": body})
    step = RegionStep("scan", "scan", ("body",), ("s0", "xs", "zs"), ((),), ("s", "out"), {"num_scan_inputs": 2, **attributes})
    shapes = {"xs": (5, 3), "zs": (3, 5) if attributes.get("scan_input_axes") else (5, 3)}
    builder = ProgramBuilder([spec("s0", (3,)), *(spec(n, s) for n, s in shapes.items())], [spec("s", (3,)), spec("out", (None, None))])
    return builder.region(step).compiled(kernels, pool, compiler.cache)


def scan_in_numpy(s: np.ndarray, xs: np.ndarray, zs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    outs = []
    for x, z in zip(xs, zs, strict=True):
        s = s + x
        outs.append(s * z)
    return s, np.stack(outs)


@pytest.mark.parametrize("axis", [1, -1])
def test_scan_cuts_and_stacks_along_its_axes_and_directions(kernels: Kernels, pool: ThreadPool, axis: int) -> None:
    s0, xs, zs = numbers(1, (3,)), numbers(2, (5, 3)), numbers(3, (3, 5))
    attributes = {
        "scan_input_axes": (0, axis),
        "scan_input_directions": (1, 0),
        "scan_output_axes": (axis,),
        "scan_output_directions": (1,),
    }
    s, out = scan_program(kernels, pool, **attributes).run([s0, xs, zs])
    expected_s, expected = scan_in_numpy(s0, xs[::-1], zs.T)
    np.testing.assert_array_equal(s, expected_s)
    np.testing.assert_array_equal(out, expected[::-1].T)


def test_scan_without_attributes_runs_forward_along_the_first_axis(kernels: Kernels, two_threads: ThreadPool) -> None:
    s0, xs, zs = numbers(1, (3,)), numbers(2, (5, 3)), numbers(3, (5, 3))
    s, out = scan_program(kernels, two_threads).run([s0, xs, zs])
    expected_s, expected = scan_in_numpy(s0, xs, zs)
    np.testing.assert_array_equal(s, expected_s)
    np.testing.assert_array_equal(out, expected)


def test_scan_inputs_of_different_lengths_are_a_model_error(kernels: Kernels, two_threads: ThreadPool) -> None:
    program = scan_program(kernels, two_threads, scan_input_axes=(1, 1))
    with pytest.raises(ModelError, match=r"\[3, 5\] slices"):
        program.run([numbers(1, (3,)), numbers(2, (5, 3)), numbers(3, (3, 5))])


def test_a_sequence_may_be_carried_by_a_loop(kernels: Kernels, two_threads: ThreadPool) -> None:
    def body(inputs: tuple[TensorSpec, ...]) -> ProgramBuilder:
        named = renamed(inputs, "i", "going", "items", "x")
        return ProgramBuilder(named, [named[1], spec("more", (), "object")]).host("SequenceConstruct", ["x", "i"], ["more"])

    compiler = SmallCompiler(kernels, two_threads, {"body": body})
    step = RegionStep("loop", "collect", ("body",), ("trips", "", "items"), (("x",),), ("all",))
    builder = ProgramBuilder([spec("trips", (), "int64"), spec("items", (), "object"), spec("x", (2,))], [spec("all", (), "object")])
    (items,) = builder.region(step).compiled(kernels, two_threads, compiler.cache).run([np.array(3), [], np.ones(2, np.float32)])
    assert [item.tolist() for item in items] == [[1.0, 1.0], 2]
    assert [one.dtype for one in compiler.compiled[0][1]] == ["int64", "bool", "object", "float32"]


def test_a_program_loaded_without_a_compiler_says_so(kernels: Kernels, two_threads: ThreadPool) -> None:
    step = RegionStep("deferred", "rest", ("rest",), ("a",), ((),), ("y",))
    builder = ProgramBuilder([spec("a", (2,))], [spec("y", (2,))]).region(step)
    with pytest.raises(InternalError, match="without one"):
        builder.compiled(kernels, two_threads).run([np.ones(2, np.float32)])

"""Code for processors of 16 registers without masks: tails, elements that lie apart, indices of 32 bits, exponentials without denormals."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import onnx
import pytest

from anycann import InferenceSession, SessionOptions
from anycann.codegen import vector_math
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernel import Kernel
from anycann.codegen.nest_kernel import Output, generate
from anycann.runtime.loader import LoadedCode
from anycann.target.target import Target, by_name
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.dtypes import DType
from tests.codegen.kernels.jit import ENTRY, Compiled, distinct_names, guarded, object_of, runnable

RUNNABLE = pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)


def run(kernel: Kernel, target: Target, arrays: list[np.ndarray]) -> None:
    execute(kernel, target, [array.ctypes.data for array in arrays])


def execute(kernel: Kernel, target: Target, addresses: list[int]) -> None:
    code = LoadedCode({kernel.symbol: object_of(kernel.ir, target)}, target)
    table = (ctypes.c_void_p * len(addresses))(*addresses)
    scratch = np.empty(kernel.scratch_bytes + 64, np.uint8)
    ENTRY(code.address(kernel.symbol))(table, 0, kernel.tasks, scratch.ctypes.data)


@RUNNABLE
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16, dtypes.int8, dtypes.int64, dtypes.bool_], ids=str)
def test_the_tail_of_a_row_is_written_whole_and_nothing_behind_it(dtype: DType, target: Target) -> None:
    for count in (*range(1, 19), 31, 32, 33, 63, 64, 65, 93, 96, 98, 127, 131):
        source = te.placeholder("source", (count,), dtypes.int8)
        result = te.compute((count,), lambda i, source=source: x.cast(source[i], dtype))
        given = np.arange(1, count + 1, dtype=np.int8)
        got = np.full(count + 32, 77, np.uint8 if dtype is dtypes.bool_ else dtype.numpy)
        run(generate([Output("result", result)], {}, target), target, [given, got])
        np.testing.assert_array_equal(got[:count], 1 if dtype is dtypes.bool_ else given)
        assert (got[count:] == 77).all(), count


@RUNNABLE
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.uint8, dtypes.float64], ids=str)
def test_lanes_that_a_condition_takes_out_are_not_read_from_where_they_point(dtype: DType, target: Target) -> None:
    for count in (5, 8, 29):
        places = te.placeholder("places", (count,), dtypes.int64)
        source = te.placeholder("source", (40,), dtype)

        def chosen(i: x.Expr, places: te.Placeholder = places, source: te.Placeholder = source) -> x.Expr:
            place = places[i]
            return x.select((place >= 0) & (place < 40), source[place], x.const(7, source.dtype))

        kernel = generate([Output("result", te.compute((count,), chosen))], {}, target)
        indices = np.random.default_rng().integers(-60, 100, count)
        indices[:2] = 1 << 40, -(1 << 62)
        given, got = np.arange(40).astype(dtype.numpy), np.zeros(count, dtype.numpy)
        named = {"places": indices, "source": given, "result": got}
        run(kernel, target, [named[name] for name in kernel.arguments])
        np.testing.assert_array_equal(got, [given[i] if 0 <= i < 40 else 7 for i in indices])


def test_a_condition_on_elements_that_lie_apart_is_no_branch_for_each_lane() -> None:
    source, places = te.placeholder("source", (40,), dtypes.float32), te.placeholder("places", (64,), dtypes.int64)
    result = te.compute((64,), lambda i: x.select((places[i] >= 0) & (places[i] < 40), source[places[i]], 0.0))
    narrow, wide = (generate([Output("result", result)], {}, by_name(name)).ir for name in ("avx2", "avx512"))
    assert "gather" not in narrow
    assert "call <16 x float> @llvm.masked.gather" in wide


@pytest.mark.parametrize("target", ["avx2", "avx512"])
def test_indices_that_32_bits_hold_are_computed_in_32(target: str) -> None:
    source = te.placeholder("source", (1000,), dtypes.float32)
    result = te.compute((64,), lambda i: source[x.minimum(x.maximum(i * 17 - 40, 3) % 50, 999 - i)])
    ir = generate([Output("result", result)], {}, by_name(target)).ir
    lanes = by_name(target).lanes
    assert f"@llvm.smin.v{lanes}i32" in ir
    assert f"@llvm.smin.v{lanes}i64" not in ir


@RUNNABLE
def test_indices_beyond_32_bits_stay_exact(target: Target) -> None:
    factor = (1 << 31) - 1
    result = te.compute((40,), lambda i: x.minimum(i * 17 - 5, 300) * factor + x.select(i < 20, i * 3, 500 - i) % 7)
    got = np.zeros(40, np.int64)
    run(generate([Output("result", result)], {}, target), target, [got])
    i = np.arange(40)
    np.testing.assert_array_equal(got, np.minimum(i * 17 - 5, 300) * factor + np.where(i < 20, i * 3, 500 - i) % 7)


@RUNNABLE
@pytest.mark.parametrize("times", [2, 3, 4, 8])
def test_elements_repeated_along_the_lanes_are_read_once(times: int, target: Target) -> None:
    for extent in (1, 5, 16, 33):
        source = te.placeholder("source", (3, -(-extent // times)), dtypes.float32)
        result = te.compute((3, 2, extent), lambda n, _, i, source=source: source[n, i // times] + 1.0)
        given = np.arange(source.size, dtype=np.float32).reshape(source.shape)
        kernel = generate([Output("result", result)], {}, target)
        assert "gather" not in kernel.ir or times == 3 or extent % target.lanes
        for read, got in guarded(given, np.zeros((3, 2, extent), np.float32)):
            execute(kernel, target, [read.address, got.address])
            np.testing.assert_array_equal(got.array, np.repeat(given, times, 1)[:, None, :extent].repeat(2, 1) + 1)


@RUNNABLE
@pytest.mark.parametrize("name", ["exp", "sigmoid"])
def test_where_denormal_numbers_are_zero_functions_stay_as_exact(name: str, target: Target) -> None:
    lanes, e = target.lanes, Emitter(scales=target.has("avx512f"), flushes=True)
    source, output, type_ = e.argument(0), e.argument(1), f"<{target.lanes} x float>"
    with e.loop(e.begin, e.end) as loop:
        offset = e.mul(loop.index, lanes)
        value = vector_math.FUNCTIONS[name](e, e.load(e.gep(source, offset, "float"), type_, 4))
        e.store(value, e.gep(output, offset, "float"), 4)
    rng = np.random.default_rng()
    edges = [0.0, -0.0, 88.72, 88.73, 89.0, 1e9, -86.0, -87.4, -87.5, -1e9, np.inf, -np.inf, np.nan, np.uint32(0x7FFFFFFF).view(np.float32)]
    given = np.concatenate([edges, rng.uniform(-90, 90, 4000), rng.standard_normal(1970)]).astype(np.float32)
    given = np.resize(given, -(-given.size // lanes) * lanes)
    got = np.empty_like(given)
    Compiled(e, "math", target)([given, got], given.size // lanes)
    with np.errstate(all="ignore"):
        exact = np.exp(given.astype(np.longdouble))
        exact = exact if name == "exp" else np.where(np.isinf(exact), 1, exact / (1 + exact))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(given))
    small = exact < 2.0**-125
    assert (got[small] <= 2.0**-125).all()
    with np.errstate(over="ignore"):
        regular = np.isfinite(exact.astype(np.float32)) & ~small
        np.testing.assert_array_equal(got[~regular & ~small & ~np.isnan(given)], np.inf)
    assert (np.abs(got[regular] - exact[regular]) <= 3.1 * np.spacing(exact[regular].astype(np.float32))).all()


@pytest.mark.parametrize("target", distinct_names("host", "avx2", "sse"))
@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("shape", [(5, 37), (6, 197), (37, 5)], ids=str)
def test_a_nan_in_a_row_makes_the_row_nan_wherever_it_is(operator: str, shape: tuple[int, int], target: str) -> None:
    size = ",".join(map(str, shape))
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 20]> g (float[{size}] a) => (float[{size}] y) {{ y = {operator}(a) }}'
    )
    session = InferenceSession(model, SessionOptions(target=by_name(target)))
    for place in range(shape[1]):
        a = np.random.default_rng(place).standard_normal(shape).astype(np.float32)
        a[2, place], a[0] = np.nan, -np.inf
        a[0, place] = 1.0
        (y,) = session.run(None, {"a": a})
        assert np.isnan(y[2]).all()
        assert np.isfinite(y[[1, 3]]).all()
        assert y[0, place] == (1.0 if operator == "Softmax" else 0.0)


def test_bytes_fill_whole_registers_where_little_is_done_to_them() -> None:
    a, b = (te.placeholder(name, (3, 100), dtypes.uint8) for name in "ab")
    ir = generate([Output("result", te.compute((3, 100), lambda n, i: x.maximum(a[n, 99 - i], b[0, i])))], {}, by_name("avx2")).ir
    assert "32 x i8" not in ir  # backwards
    ir = generate([Output("result", te.compute((3, 100), lambda n, i: x.maximum(a[n, i], b[0, i])))], {}, by_name("avx2")).ir
    assert "store <32 x i8>" in ir


@RUNNABLE
def test_rows_of_bytes_are_combined_with_columns_and_scalars(target: Target) -> None:
    rng = np.random.default_rng()
    for width in (64, 77, 133):
        row, column = te.placeholder("row", (width,), dtypes.uint8), te.placeholder("column", (5, 1), dtypes.float32)
        result = te.compute((5, width), lambda n, i, row=row, column=column: x.cast(row[i], dtypes.float32) > column[n, 0])
        given = {"row": rng.integers(0, 255, width).astype(np.uint8), "column": rng.uniform(0, 255, (5, 1)).astype(np.float32)}
        got = np.full(5 * width + 64, 9, np.uint8)
        kernel = generate([Output("result", result)], {}, target)
        run(kernel, target, [{**given, "result": got}[name] for name in kernel.arguments])
        np.testing.assert_array_equal(got[: 5 * width].reshape(5, width), given["row"] > given["column"])
        assert (got[5 * width :] == 9).all()


PADS = [((0, 1), (0, 1)), ((2, 3), (1, 5)), ((0, 9), (0, 0)), ((0, 0), (0, 17)), ((1, -2), (0, 3)), ((0, -1), (0, -1)), ((0, 20), (3, 20))]


@pytest.mark.parametrize("target", distinct_names("host", "avx2", "sse"))
@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_padded_rows_of_every_length_are_whole(mode: str, target: str) -> None:
    for width, (before, after) in itertools.product((21, 24, 40), PADS):
        if mode == "wrap" and min(*before, *after) < 0:
            continue  # numpy has no cut rows that repeat
        pads = [*before, *after]
        model = onnx.parser.parse_model(
            f'<ir_version: 10, opset_import: ["": 20]> g (float[4,{width}] a) => (float[] y) '
            f'<int64[4] pads = {{{",".join(map(str, pads))}}}> {{ y = Pad<mode="{mode}">(a, pads) }}'
        )
        model.graph.output[0].type.tensor_type.ClearField("shape")
        a = np.random.default_rng(width).standard_normal((4, width)).astype(np.float32)
        cut = a[:, max(0, -before[1]) : width - max(0, -after[1])]
        right = np.pad(cut, [(before[0], after[0]), (max(0, before[1]), max(0, after[1]))], mode)  # type: ignore[call-overload]
        (y,) = InferenceSession(model, SessionOptions(target=by_name(target), poison=True)).run(None, {"a": a})
        np.testing.assert_array_equal(y, right)


@pytest.mark.parametrize("name", ["avx2", "avx512"])
def test_the_inside_of_a_padded_row_is_read_in_order(name: str) -> None:
    source, target = te.placeholder("source", (56,), dtypes.float32), by_name(name)
    result = te.compute((3, 58), lambda _, w: source[x.clamp(w - 1, 0, 55)])
    ir = generate([Output("result", result)], {}, target).ir
    assert ir.count(f"load <{target.lanes} x float>") == 1
    assert ir.count("load float") < 16  # at both borders


def test_rows_that_read_in_order_have_an_inside_where_masks_are_dear_or_vectors_are_many() -> None:
    def has_inside(width: int, name: str) -> bool:
        source, target = te.placeholder("source", (9, width), dtypes.float32), by_name(name)
        outside = x.Const(0.0, dtypes.float32)
        moved = te.compute((9, width), lambda i, w: x.select((w >= 2) & (w < width - 1), source[i, w - 2], outside))
        return f"= load <{target.lanes} x float>" in generate([Output("result", moved)], {}, target).ir

    assert has_inside(60, "avx2")
    assert not has_inside(60, "avx512")
    assert has_inside(300, "avx512")


def column_sums(kind: str, images: int, rows: int, columns: int) -> te.Tensor:
    source = te.placeholder("source", (images, rows, columns), dtypes.float32)
    return te.reduce(kind, (images, columns), [rows], lambda i, j, k: source[i, k, j])


@RUNNABLE
@pytest.mark.parametrize("kind", ["sum", "max"])
def test_columns_reduced_side_by_side_are_read_and_written_exactly(kind: str, target: Target) -> None:
    rng = np.random.default_rng()
    for columns in (1, 7, 8, 16, 17, 31, 64, 65, 100, 127, 128, 131, 200):
        for images, rows in ((1, 8), (1, 61), (2, 9), (2, 30), (3, 1)):
            result = column_sums(kind, images, rows, columns)
            given = rng.standard_normal((images, rows, columns)).astype(np.float32)
            wanted = (given.astype(np.float64).sum if kind == "sum" else given.max)(1)
            kernel = generate([Output("result", result)], {}, target)
            for source, got in guarded(given, np.full((images, columns), np.nan, np.float32)):
                execute(kernel, target, [source.address, got.address])
                np.testing.assert_allclose(got.array, wanted, rtol=1e-5, atol=1e-5)


@RUNNABLE
def test_columns_of_a_function_and_what_becomes_of_their_sums(target: Target) -> None:
    source = te.placeholder("source", (40, 150), dtypes.float32)
    squares = te.reduce("sum", (150,), [40], lambda j, k: source[k, j] * source[k, j])
    result = te.compute((150,), lambda j: squares[j] * 0.5 + source[3, j])
    given = np.random.default_rng().standard_normal((40, 150)).astype(np.float32)
    got = np.full(150 + 8, np.nan, np.float32)
    run(generate([Output("result", result)], {}, target), target, [given, got])
    np.testing.assert_allclose(got[:150], (given * given).sum(0) * 0.5 + given[3], rtol=1e-5)
    assert np.isnan(got[150:]).all()


def test_so_many_columns_are_reduced_at_once_that_the_rows_are_read_least_often() -> None:
    def widest(columns: int, name: str = "avx2", rows: int = 40) -> int:
        ir = generate([Output("result", column_sums("sum", 1, rows, columns))], {}, by_name(name)).ir
        return max(lanes for lanes in (0, 8, 16, 32, 64, 128) if lanes == 0 or f"fadd <{lanes} x float>" in ir)

    assert [widest(columns) for columns in (15, 16, 32, 64, 100, 127, 768)] == [8, 16, 32, 64, 32, 32, 64]
    assert [widest(columns, "avx512") for columns in (31, 32, 64, 100, 127, 768)] == [16, 32, 64, 64, 64, 128]
    assert widest(768, "avx512", rows=20) == 16  # they are written out

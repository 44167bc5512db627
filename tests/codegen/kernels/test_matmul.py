"""Matrix products against float64: odd sizes, strides, types, blocking of k, custom writers; nothing read or written outside."""

from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
import pytest

from anycann.codegen.emitter import Emitter, Value
from anycann.codegen.kernels import matmul
from anycann.codegen.kernels.matmul import MatmulIndex, MatmulShape, MatmulTile, Strides, contiguous
from anycann.target.target import NAMED, Target, by_name
from anycann.te import dtypes
from anycann.te.dtypes import DType
from tests.codegen.kernels.jit import Compiled, Guarded, compiles_everywhere, passes_in_child, runnable

HOST = by_name("host")


@dataclass
class Problem:
    """Operands in logical form and as they lie in memory."""

    shape: MatmulShape
    a: np.ndarray
    b: np.ndarray
    a_memory: np.ndarray
    b_memory: np.ndarray

    @property
    def exact(self) -> np.ndarray:
        wide = np.float64 if self.shape.accumulator.is_float else np.int64
        return self.a.astype(wide) @ self.b.astype(wide)


def values(random: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    if dtype.is_float:
        return random.standard_normal(shape).astype(dtype.numpy)
    limits = np.iinfo(dtype.numpy)
    return random.integers(max(limits.min, -1000), min(limits.max, 1000), shape, dtype.numpy, endpoint=True)


def problem(
    m: int,
    n: int,
    k: int,
    batch: tuple[int, ...] = (),
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    a_dtype: DType = dtypes.float32,
    b_dtype: DType = dtypes.float32,
    accumulator: DType = dtypes.float32,
) -> Problem:
    """Random operands, never the same twice."""
    random = np.random.default_rng()
    a, b = values(random, (*batch, m, k), a_dtype), values(random, (*batch, k, n), b_dtype)
    types = {"a_dtype": a_dtype, "b_dtype": b_dtype, "accumulator": accumulator}
    shape = contiguous(batch, m, n, k, transpose_a=transpose_a, transpose_b=transpose_b, **types)
    stored_a = np.swapaxes(a, -1, -2) if transpose_a else a
    stored_b = np.swapaxes(b, -1, -2) if transpose_b else b
    return Problem(shape, a, b, np.ascontiguousarray(stored_a), np.ascontiguousarray(stored_b))


def packed(p: Problem, target: Target, tile: MatmulTile) -> Problem:
    """The same product with B in panels."""
    shape = replace(
        p.shape, packed=True, b=Strides(tuple(np.cumprod([1, *p.shape.batch[:0:-1]])[::-1].tolist()) if p.shape.batch else (), 0, 0)
    )
    return replace(p, shape=shape, b_memory=matmul.pack_columns(p.b, matmul.panel_width(p.shape, target, tile)))


def write(shape: MatmulShape, target: Target, tile: MatmulTile, inline: bool = False) -> tuple[Emitter, int]:
    e = Emitter()
    a, b, c = (e.argument(i) for i in range(3))
    strides = contiguous(shape.batch, shape.m, shape.n, shape.n).a
    writer = matmul.plain_writer(c, strides.batch, strides.row, 1, shape.accumulator)
    return e, matmul.emit_matmul(e, shape, target, tile, a, b, writer, inline=inline)


def compute(p: Problem, target: Target = HOST, tile: MatmulTile | None = None, inline: bool = False, parts: int = 3) -> np.ndarray:
    tile = tile or matmul.default_tile(p.shape, target)
    e, tasks = write(p.shape, target, tile, inline)
    c = np.full((*p.shape.batch, p.shape.m, p.shape.n), 77, p.shape.accumulator.numpy)
    Compiled(e, "matmul", target, matmul.scratch_bytes(p.shape, target, tile))([p.a_memory, p.b_memory, c], tasks, parts)
    return c


def check(p: Problem, **options: object) -> None:
    got = compute(p, **options)  # type: ignore[arg-type]
    if not p.shape.accumulator.is_float:
        np.testing.assert_array_equal(got, p.exact)
        return
    size = np.abs(p.a.astype(np.float64)) @ np.abs(p.b.astype(np.float64))
    unit = np.finfo(p.shape.accumulator.numpy).eps
    assert (np.abs(got - p.exact) <= 1e-30 + 2 * unit * np.sqrt(p.shape.k + 4) * size).all()


SIZES = [
    (1, 1, 1),
    (1, 17, 33),
    (1, 300, 40),
    (3, 16, 1),
    (5, 7, 9),
    (8, 48, 16),
    (9, 49, 17),
    (31, 33, 65),
    (50, 1, 37),
    (50, 1, 3),
    (13, 100, 70),
    (197, 64, 30),
    (64, 5, 200),
]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("form", ["plain", "packed", "a transposed", "b transposed", "both transposed"])
def test_products_of_any_size_and_order_are_exact_to_rounding(size: tuple[int, int, int], form: str) -> None:
    p = problem(*size, transpose_a=form in ("a transposed", "both transposed"), transpose_b=form in ("b transposed", "both transposed"))
    check(packed(p, HOST, matmul.default_tile(replace(p.shape, packed=True), HOST)) if form == "packed" else p)


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize("transpose_b", [False, True])
def test_every_target_that_runs_here_agrees(target: Target, transpose_b: bool) -> None:
    for size in ((13, 37, 21), (2, 9, 19), (40, 70, 33), (30, 1, 21)):
        check(problem(*size, transpose_b=transpose_b), target=target)


@pytest.mark.parametrize("name", sorted(NAMED))
def test_every_target_compiles(name: str) -> None:
    target = NAMED[name]
    for shape in (contiguous((2,), 19, 35, 40), contiguous((), 3, 20, 40, transpose_b=True), contiguous((), 40, 20, 40, transpose_b=True)):
        compiles_everywhere(lambda t, shape=shape: write(shape, t, matmul.default_tile(shape, t))[0], [target])


@pytest.mark.parametrize("depth", [1, 16, 33, 64])
@pytest.mark.parametrize("form", ["plain", "packed", "copied", "b transposed"])
def test_sums_over_parts_of_k_wait_in_scratch(depth: int, form: str) -> None:
    p = problem(23, 50, 100, transpose_b=form == "b transposed")
    tile = MatmulTile(4, 2, depth, 3, copy=form in ("copied", "b transposed"))
    check(packed(p, HOST, tile) if form == "packed" else p, tile=tile)


def test_every_tile_of_the_search_space_gives_the_product() -> None:
    p = problem(21, 70, 24)
    space = matmul.tiles(p.shape, HOST)
    assert len(space) == len(set(space)) >= 10
    for tile in space[:12]:
        check(p, tile=tile)
        check(p, tile=tile, inline=True)


@pytest.mark.parametrize("parts", [1, 2, 5, 1000])
@pytest.mark.parametrize("panels_inner", [False, True])
def test_any_split_of_the_tasks_gives_the_product(parts: int, panels_inner: bool) -> None:
    check(problem(37, 90, 12, (2,)), tile=MatmulTile(3, 1, 12, 2, panels_inner), parts=parts)


def test_a_batch_dimension_of_stride_zero_repeats_its_matrix() -> None:
    p = problem(6, 18, 10, (3, 4))
    p = replace(p, b=p.b[:1], b_memory=np.ascontiguousarray(p.b[:1]), a=p.a[:, :1], a_memory=np.ascontiguousarray(p.a[:, :1]))
    p = replace(p, shape=replace(p.shape, a=Strides((60, 0), 10, 1), b=Strides((0, 180), 18, 1)))
    check(p)


@pytest.mark.parametrize("m", [1, 5])
@pytest.mark.parametrize("n", [1, 40])
def test_batches_that_share_b_are_more_rows_of_one_product(m: int, n: int) -> None:
    p = problem(m, n, 10, (3, 4))
    p = replace(p, b=p.b[0, 0], b_memory=np.ascontiguousarray(p.b[0, 0]), shape=replace(p.shape, b=Strides((0, 0), n, 1)))
    assert write(p.shape, HOST, MatmulTile(4, 1, 10, 100))[1] == -(-n // HOST.lanes)
    check(p)
    if n > 1:
        shape = replace(p.shape, packed=True, b=Strides((0, 0), 0, 0))
        tile = matmul.default_tile(shape, HOST)
        check(replace(p, shape=shape, b_memory=matmul.pack_columns(p.b, matmul.panel_width(shape, HOST, tile))))


def test_a_packed_b_may_have_a_batch() -> None:
    p = problem(6, 40, 10, (3, 2))
    check(packed(p, HOST, matmul.default_tile(p.shape, HOST)))


def test_operands_may_be_slices_of_larger_tensors() -> None:
    """Heads side by side, as attention has them: [rows, heads, size]."""
    random, heads, rows, size = np.random.default_rng(), 3, 20, 24
    q, k = (random.standard_normal((rows, heads, size)).astype(np.float32) for _ in range(2))
    strides = Strides((size,), heads * size, 1)
    shape = MatmulShape((heads,), rows, rows, size, strides, Strides((size,), 1, heads * size))
    check(Problem(shape, q.transpose(1, 0, 2), k.transpose(1, 2, 0), q, k))


def test_a_b_with_no_contiguous_direction_is_gathered() -> None:
    random = np.random.default_rng()
    a, b = random.standard_normal((20, 9)).astype(np.float32), random.standard_normal((9, 3, 21, 2)).astype(np.float32)
    shape = MatmulShape((), 20, 21, 9, Strides((), 9, 1), Strides((), 126, 2))
    check(Problem(shape, a, b[:, 0, :, 0], a, b))


@pytest.mark.parametrize("size", [(0, 5, 3), (5, 0, 3)])
def test_empty_results_have_no_tasks(size: tuple[int, int, int]) -> None:
    shape = contiguous((), *size)
    assert write(shape, HOST, matmul.default_tile(shape, HOST))[1] == 0


@pytest.mark.parametrize("transpose_b", [False, True])
def test_a_sum_over_nothing_is_zero(transpose_b: bool) -> None:
    for m in (2, 30):
        assert (compute(problem(m, 20, 0, transpose_b=transpose_b)) == 0).all()


FLOAT_TYPES = [dtypes.float16, dtypes.bfloat16]


@pytest.mark.parametrize("dtype", FLOAT_TYPES, ids=str)
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("rows", [2, 31])
def test_16_bit_operands_are_summed_in_float32(dtype: DType, transpose_b: bool, rows: int) -> None:
    check(problem(rows, 37, 50, transpose_b=transpose_b, a_dtype=dtype, b_dtype=dtype))
    check(problem(rows, 37, 50, transpose_b=transpose_b, a_dtype=dtype))


@pytest.mark.parametrize("transpose_b", [False, True])
def test_double_is_summed_in_double(transpose_b: bool) -> None:
    types = {"a_dtype": dtypes.float64, "b_dtype": dtypes.float64, "accumulator": dtypes.float64}
    for m in (2, 31):
        check(problem(m, 37, 50, transpose_b=transpose_b, **types))


@pytest.mark.parametrize("a_dtype", [dtypes.int8, dtypes.uint8], ids=str)
@pytest.mark.parametrize("b_dtype", [dtypes.int8, dtypes.uint8], ids=str)
def test_bytes_are_summed_in_int32(a_dtype: DType, b_dtype: DType) -> None:
    for transpose_b in (False, True):
        check(problem(17, 37, 50, transpose_b=transpose_b, a_dtype=a_dtype, b_dtype=b_dtype, accumulator=dtypes.int32))


@pytest.mark.skipif(not HOST.has("avx512vnni"), reason="this processor has no dot product of bytes")
@pytest.mark.parametrize("a_dtype", [dtypes.int8, dtypes.uint8], ids=str)
@pytest.mark.parametrize("b_dtype", [dtypes.int8, dtypes.uint8], ids=str)
def test_dot_products_of_four_bytes_are_exact_for_all_signs(a_dtype: DType, b_dtype: DType) -> None:
    for m, n, k in ((17, 37, 50), (1, 200, 7), (8, 48, 64), (3, 5, 3), (5, 20, 0)):
        p = problem(m, n, k, (2,), a_dtype=a_dtype, b_dtype=b_dtype, accumulator=dtypes.int32)
        shape = replace(p.shape, packed=True, grouped=True, b=Strides((1,), 0, 0))
        assert matmul.wants_groups(p.shape, HOST)
        tile = matmul.default_tile(shape, HOST)
        first = np.random.default_rng().integers(-1000, 1000, (2, n), np.int32)
        panels = matmul.pack_b(shape, HOST, tile, p.b, first)
        got = compute(replace(p, shape=shape, b_memory=panels), tile=tile)
        np.testing.assert_array_equal(got, p.exact + first[:, None])


@pytest.mark.skipif(not HOST.has("avx512bf16"), reason="this processor has no dot product of bfloat16")
@pytest.mark.parametrize("size", [(17, 37, 50), (1, 200, 7), (8, 48, 64), (3, 5, 1), (5, 20, 0)], ids=str)
def test_dot_products_of_two_bfloat16_are_summed_in_float32(size: tuple[int, int, int]) -> None:
    p = problem(*size, (2,), a_dtype=dtypes.bfloat16, b_dtype=dtypes.bfloat16)
    assert matmul.wants_groups(p.shape, HOST)
    shape = replace(p.shape, packed=True, grouped=True, b=Strides((1,), 0, 0))
    check(replace(p, shape=shape, b_memory=matmul.pack_b(shape, HOST, matmul.default_tile(shape, HOST), p.b)))


def test_dot_products_of_bytes_are_only_wanted_where_the_processor_has_them() -> None:
    shape = contiguous((), 8, 32, 16, a_dtype=dtypes.uint8, b_dtype=dtypes.int8, accumulator=dtypes.int32)
    assert not matmul.wants_groups(shape, by_name("avx2"))
    assert not matmul.wants_groups(contiguous((), 8, 32, 16), HOST)


@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.int64, dtypes.uint32], ids=str)
def test_wider_integers_are_summed_in_their_own_type(dtype: DType) -> None:
    check(problem(17, 37, 20, a_dtype=dtype, b_dtype=dtype, accumulator=dtype))


def test_a_packed_16_bit_b_stays_16_bit() -> None:
    p = problem(9, 40, 30, b_dtype=dtypes.bfloat16)
    q = packed(p, HOST, matmul.default_tile(replace(p.shape, packed=True), HOST))
    assert q.b_memory.dtype == ml_dtypes.bfloat16
    check(q)


@pytest.mark.parametrize("size", [(13, 37, 10), (30, 1, 20), (3, 37, 20)], ids=str)
@pytest.mark.parametrize("depth", [None, 8])
def test_sums_start_from_what_the_caller_says_and_end_in_its_writer(size: tuple[int, int, int], depth: int | None) -> None:
    p = problem(*size, transpose_b=True)
    tile = matmul.default_tile(p.shape, HOST)
    tile = replace(tile, depth=depth) if depth else tile
    bias = np.random.default_rng().standard_normal(size[1] + 64).astype(np.float32)
    e = Emitter()
    a, b, c, row = (e.argument(i) for i in range(4))

    def start(e: Emitter, index: MatmulIndex) -> Value:
        lanes = 1 if size[1] == 1 else HOST.lanes
        return e.load(e.gep(row, index.n, "float"), f"<{lanes} x float>" if lanes > 1 else "float", 4)

    plain = matmul.plain_writer(c, (), 1, size[0])  # transposed: lanes lie apart

    def doubled(e: Emitter, index: MatmulIndex, sums: Value, mask: Value | None) -> None:
        plain(e, index, e.binary("fadd", sums, sums), mask)

    tasks = matmul.emit_matmul(e, p.shape, HOST, tile, a, b, doubled, start=start)
    got = np.full((size[1], size[0]), -77, np.float32)
    Compiled(e, "matmul", HOST, matmul.scratch_bytes(p.shape, HOST, tile))([p.a_memory, p.b_memory, got, bias], tasks)
    np.testing.assert_allclose(got.T, 2 * (p.exact + bias[: size[1]]), rtol=1e-4, atol=1e-4)


def guarded_cases() -> None:
    """Every form with each operand and the result right before a page that must not be touched."""
    for target in runnable():
        for m, n, k in ((1, 17, 33), (13, 37, 21), (9, 1, 19), (2, 3, 5), (40, 30, 18)):
            for transpose_a, transpose_b in ((False, False), (False, True), (True, False)):
                for dtype in (dtypes.float32, dtypes.bfloat16):
                    p = problem(m, n, k, (2,), transpose_a=transpose_a, transpose_b=transpose_b, a_dtype=dtype, b_dtype=dtype)
                    run_guarded(p, target)

    for m, n, k in ((3, 20, 6), (9, 33, 13)):
        p = problem(m, n, k, a_dtype=dtypes.int8, b_dtype=dtypes.uint8, accumulator=dtypes.int32)
        if matmul.wants_groups(p.shape, HOST):
            shape = replace(p.shape, packed=True, grouped=True)
            tile = matmul.default_tile(shape, HOST)
            panels = matmul.pack_b(shape, HOST, tile, p.b)
            run_guarded(replace(p, shape=shape, b_memory=panels), HOST)


def run_guarded(p: Problem, target: Target) -> None:
    tile = matmul.default_tile(p.shape, target)
    e, tasks = write(p.shape, target, tile)
    memory = [Guarded(x) for x in (p.a_memory, p.b_memory, np.full((*p.shape.batch, p.shape.m, p.shape.n), 77, p.shape.accumulator.numpy))]
    Compiled(e, "matmul", target, matmul.scratch_bytes(p.shape, target, tile)).run([x.address for x in memory], tasks)
    np.testing.assert_allclose(memory[2].array, p.exact, rtol=1e-3, atol=1e-3)


def test_nothing_is_touched_behind_the_operands_or_the_result() -> None:
    passes_in_child("tests.codegen.kernels.test_matmul", "guarded_cases")


@pytest.mark.parametrize("size", [(128, 768, 768), (197, 3072, 768), (1, 1000, 2048), (3136, 64, 64), (12, 12, 12)], ids=str)
def test_default_tiles_fit_the_registers_and_cover_the_task_range(size: tuple[int, int, int]) -> None:
    for target in NAMED.values():
        shape = contiguous((), *size, packed=True)
        tile = matmul.default_tile(shape, target)
        assert tile.rows * tile.vectors + tile.vectors < target.registers
        assert write(shape, target, tile)[1] >= 1


def test_zero_padding_fills_the_last_panel() -> None:
    b = np.arange(10, dtype=np.float32).reshape(2, 5)
    panels = matmul.pack_columns(b, 4)
    np.testing.assert_array_equal(panels, [[[0, 1, 2, 3], [5, 6, 7, 8]], [[4, 0, 0, 0], [9, 0, 0, 0]]])

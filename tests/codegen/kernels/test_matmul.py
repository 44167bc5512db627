"""Matrix products against float64: odd sizes, strides, blocking of k, custom writers; nothing read or written outside."""

from dataclasses import replace
import itertools

import numpy as np
import pytest

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels import matmul
from anycann.codegen.kernels.matmul import MatmulIndex, MatmulShape, MatmulTile, Strides, contiguous
from anycann.codegen.kernels.matmul_kernel import PanelKernel, even_heights
from anycann.codegen.kernels.matmul_tile import gathers_rows, row_chunks, streams, unroll
from anycann.codegen.objects import emit_assembly
from anycann.codegen.values import Value
from anycann.target.target import NAMED, Target, by_name
from anycann.te import dtypes
from tests.codegen.kernels.jit import Compiled, assert_compiles_everywhere, assert_passes_in_child, guarded, runnable
from tests.codegen.kernels.products import HOST, Problem, check, compute, packed, problem, write

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
        assert_compiles_everywhere(lambda t, shape=shape: write(shape, t, matmul.default_tile(shape, t))[0], [target])


@pytest.mark.parametrize("depth", [1, 16, 33, 64])
@pytest.mark.parametrize("form", ["plain", "packed", "copied", "b transposed"])
def test_sums_over_parts_of_k_wait_in_scratch(depth: int, form: str) -> None:
    p = problem(23, 50, 101, transpose_b=form == "b transposed")  # an odd k ends with a half turn of the innermost loop
    tile = MatmulTile(4, 2, depth, 3, copy=form in ("copied", "b transposed"))
    check(packed(p, HOST, tile) if form == "packed" else p, tile=tile)


@pytest.mark.parametrize(("rows", "heights"), [(1, [1] * 14), (4, [4, 4, 3, 3]), (5, [5, 5, 4]), (9, [7, 7]), (13, [7, 7])])
def test_register_tiles_are_as_even_as_they_can_be(rows: int, heights: list[int]) -> None:
    found = even_heights(14, rows)
    assert [found.tall] * found.talls + [found.low] * (found.count - found.talls) == heights
    for depth in (40, 16):
        check(problem(14, 37, 40), tile=MatmulTile(rows, 1, depth, 2))


def test_every_tile_of_the_search_space_gives_the_product() -> None:
    p = problem(21, 70, 24)
    space = matmul.tiles(p.shape, HOST)
    assert len(space) == len(set(space)) >= 10
    for tile in space[:12]:
        check(p, tile=tile)
        check(p, tile=tile, inline=True)


@pytest.mark.parametrize(
    ("name", "tile"),
    [
        ("avx512", MatmulTile(9, 3, 255, 4)),
        ("avx512", MatmulTile(9, 3, 48, 4)),
        ("avx2", MatmulTile(6, 2, 255, 4)),
        ("avx2", MatmulTile(4, 3, 48, 4)),
    ],
)
def test_no_sum_leaves_its_register_in_the_innermost_loop(name: str, tile: MatmulTile) -> None:
    """The tiles fill the registers: loads of a second step of k that came before the first was done would need those of the sums."""
    target = NAMED[name]
    shape = replace(contiguous((), 512, 33, 255), packed=True)
    steps = unroll(shape, target, tile)
    assert steps > 1
    e, _ = write(shape, target, tile)
    blocks = (block.split("\n\tj")[0] for block in emit_assembly(e.finish("product")[1], target).split("\n.L"))
    loop = max(blocks, key=lambda block: block.count("vfmadd"))
    assert loop.count("vfmadd") == steps * tile.rows * tile.vectors
    assert ("prefetcht0" in loop) == (target.registers > 16), "with few registers every instruction counts"
    assert not [line for line in loop.splitlines() if "mm" in line and "(%rsp)" in line]


@pytest.mark.parametrize(("rows", "fetches"), [(2, True), (3, True), (4, False), (12, False)])
def test_few_rows_that_wait_for_a_panel_fetch_it_with_16_registers_too(rows: int, fetches: bool) -> None:
    target, shape = NAMED["avx2"], replace(contiguous((), rows, 768, 768), packed=True)
    e, _ = write(shape, target, matmul.default_tile(shape, target))
    assert ("prefetcht0" in emit_assembly(e.finish("product")[1], target)) is fetches


@pytest.mark.parametrize("parts", [1, 2, 5, 1000])
@pytest.mark.parametrize("panels_inner", [False, True])
def test_any_split_of_the_tasks_gives_the_product(parts: int, panels_inner: bool) -> None:
    check(problem(37, 90, 12, (2,)), tile=MatmulTile(3, 1, 12, 2, panels_inner), parts=parts)


@pytest.mark.parametrize(("rows", "row_blocks"), [(6, 17), (17, 1), (17, 2), (29, 4), (1, 99), (1, 1)])
def test_rows_that_threads_share_out_are_as_many_for_each(rows: int, row_blocks: int) -> None:
    nowhere, tile = Value("null", "ptr"), MatmulTile(rows, 1, 300, row_blocks, panels_inner=True)
    kernel = PanelKernel(contiguous((), 197, 300, 300), tile, 16, nowhere, nowhere, matmul.plain_writer(nowhere, (), 300), None, False)
    e, heights = Emitter(), kernel.heights
    place = e.argument(0)
    with e.loop(e.begin, e.end) as number:
        e.store(heights.start(e, number.index), e.gep(place, number.index, "i64"), 8)
    found = np.full(heights.count + 1, -1, np.int64)
    Compiled(e, "starts", HOST).run([found.ctypes.data], len(found))
    starts = found.tolist()
    assert (starts[0], starts[-1]) == (0, 197)
    assert {end - start for start, end in itertools.pairwise(starts)} <= set(range(1, rows + 1))
    chunks = [*starts[:-1:row_blocks], 197]
    parts = [end - start for start, end in itertools.pairwise(chunks)]
    assert len(parts) == row_chunks(kernel.shape, tile)
    whole = parts if heights.count % row_blocks == 0 else parts[:-1]
    assert max(whole) - min(whole) <= 1


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize(("m", "n", "k"), [(131, 300, 272), (197, 333, 259), (640, 250, 300)])
def test_rows_are_shared_out_in_halves_where_b_does_not_stay(target: Target, m: int, n: int, k: int) -> None:
    target = replace(target, l2_bytes=512 << 10)
    p = problem(m, n, k)
    shape = replace(p.shape, packed=True)
    tile = matmul.default_tile(shape, target)
    assert tile.panels_inner
    if target.registers > 16:
        assert row_chunks(shape, tile) % 2 == 0
    for parts in (1, 2, 5):
        check(packed(p, target, tile), target=target, tile=tile, parts=parts)


@pytest.mark.parametrize(("m", "halved"), [(127, False), (128, True), (400, True)])
def test_few_rows_are_not_halved(m: int, halved: bool) -> None:
    shape = contiguous((), m, 768, 768, packed=True)
    tile = matmul.default_tile(shape, NAMED["avx512"])
    assert (tile.panels_inner and row_chunks(shape, tile) % 2 == 0) is halved


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize("parts", [1, 3, 1000])
def test_rows_of_a_transposed_matrix_are_copied_once_for_the_tasks_that_share_them(target: Target, parts: int) -> None:
    for size, rows, depth in (((150, 90, 70), 6, 70), ((131, 40, 100), 5, 32), ((129, 33, 9), 1, 9), ((200, 20, 50), 17, 50)):
        p = problem(*size, (2,), transpose_a=True)
        tile = MatmulTile(rows, 1, depth, 3, panels_inner=True)
        assert gathers_rows(p.shape, tile)
        check(p, target=target, tile=tile, parts=parts)


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
def test_a_product_of_short_k_is_written_in_bands_of_rows(target: Target, transpose_a: bool, transpose_b: bool) -> None:
    large = contiguous((30,), 460, 1007, 11, transpose_a=transpose_a, transpose_b=transpose_b)
    tile = matmul.default_tile(large, target)
    assert tile.copy == transpose_b, "a copy of B is not repaid by a few rows"
    assert (tile.rows * tile.row_blocks <= 40) != transpose_b
    assert tile.panels_inner != transpose_b or transpose_a
    p = problem(131, 261, 11, transpose_a=transpose_a, transpose_b=transpose_b)
    check(p, target=target, tile=tile)
    assert not matmul.default_tile(replace(large, k=96), target).panels_inner or transpose_a, "longer sums are worth a panel"


@pytest.mark.parametrize(("name", "vectors"), [("avx2", 3), ("avx512", 6)])
def test_results_that_leave_the_cache_are_written_in_long_rows_but_on_a_zen(name: str, vectors: int) -> None:
    large = contiguous((), 3000, 1007, 11)
    long, lines = (matmul.default_tile(large, by_name(processor)) for processor in (name, "znver4"))
    assert long.rows <= 3
    assert long.vectors >= vectors
    assert (lines.rows, lines.vectors, lines.row_blocks) == (8, 1, 1)
    more = matmul.default_tile(replace(large, k=40), by_name(name))
    assert more.rows > 3
    assert more.rows * more.row_blocks <= 40
    assert more.panels_inner


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
def test_a_panel_that_few_tiles_read_is_copied_in_parts_that_stay_in_the_first_cache(target: Target) -> None:
    p = problem(9, 70, 1203, transpose_a=True, transpose_b=True)
    tile = matmul.default_tile(p.shape, target)
    assert tile.copy
    assert tile.depth * matmul.panel_width(p.shape, target, tile) * 4 <= target.l1_bytes // 2
    check(p, target=target)


@pytest.mark.parametrize("name", ["sse", "avx2", "avx512"])
def test_rows_of_a_transposed_matrix_are_copied_if_several_panels_or_memory_repay_it(name: str) -> None:
    def gathers(batch: tuple[int, ...], n: int) -> bool:
        shape = contiguous(batch, 400, n, 300, transpose_a=True)
        return gathers_rows(shape, matmul.default_tile(shape, NAMED[name]))

    assert not gathers((), NAMED[name].lanes), "one panel, in the cache"
    assert gathers((), 300)
    assert gathers((20,), NAMED[name].lanes), "from memory it is read in order"


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


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize(("n", "k", "batch"), [(300, 256, ()), (33, 387, ()), (1, 514, (3, 2)), (70, 261, (2,))])
def test_one_row_takes_several_parts_of_k_side_by_side(n: int, k: int, batch: tuple[int, ...], target: Target) -> None:
    p = problem(1, n, k, batch)
    shape = packed(p, target, MatmulTile(1, 1, k, 1)).shape
    tile = matmul.default_tile(shape, target)
    assert streams(shape, target, tile) > 1
    check(packed(p, target, tile), target=target, tile=tile)
    for other in (replace(tile, vectors=1), replace(tile, vectors=8), replace(tile, depth=k - k % 16 - 16)):
        check(packed(p, target, other), target=target, tile=other)


@pytest.mark.parametrize("name", ["sse", "avx2", "avx512"])
def test_panels_of_few_rows_leave_room_for_the_next(name: str) -> None:
    target = NAMED[name]
    for m, k in ((2, 4096), (4, 3072), (6, 2000)):
        shape = replace(contiguous((), m, 1000, k), packed=True)
        width = matmul.panel_width(shape, target, matmul.default_tile(shape, target))
        assert width == target.lanes or width * k * 4 <= target.l2_bytes // 3


@pytest.mark.parametrize("k", [2100, 5003])
@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
def test_with_few_registers_many_rows_too_long_for_the_second_cache_share_wide_panels(target: Target, k: int) -> None:
    target = replace(target, l2_bytes=512 * 1024)
    p = problem(131, 61, k)
    shape = replace(p.shape, packed=True)
    tile = matmul.default_tile(shape, target)
    long = matmul.default_tile(replace(shape, m=512, n=600), target)
    if target.registers <= 16:
        assert long.panels_inner
        assert long.vectors >= 3
        assert not matmul.default_tile(replace(shape, m=200, n=600), target).panels_inner, "B is read once"
        assert 96 <= long.rows * long.row_blocks <= 132
        assert matmul.default_tile(replace(shape, m=512, n=600, k=1280), target).row_blocks < long.row_blocks, "k = 1280 stays there"
    check(packed(p, target, tile), target=target, tile=tile, parts=2)


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
        for m, n, k in ((1, 17, 33), (13, 37, 21), (9, 1, 19), (2, 3, 5), (40, 30, 18), (23, 3, 45)):
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
    kernel = Compiled(e, "matmul", target, matmul.scratch_bytes(p.shape, target, tile))
    for a, b, c in guarded(p.a_memory, p.b_memory, np.full((*p.shape.batch, p.shape.m, p.shape.n), 77, p.shape.accumulator.numpy)):
        kernel.run([a.address, b.address, c.address], tasks)
        np.testing.assert_allclose(c.array, p.exact, rtol=1e-3, atol=1e-3)


def test_nothing_is_touched_around_the_operands_or_the_result() -> None:
    assert_passes_in_child("tests.codegen.kernels.test_matmul", "guarded_cases")


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

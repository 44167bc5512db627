"""Rows of A that tasks copy for all panels of a constant B: exact sums, when a copy is made, and what a later call finds of it."""

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels import matmul
from anycann.codegen.kernels.matmul import MatmulIndex, MatmulTile, contiguous, keeps_rows
from anycann.codegen.kernels.matmul_kernel import PanelKernel
from anycann.codegen.kernels.matmul_tile import row_chunks
from anycann.codegen.objects import emit_assembly
from anycann.codegen.values import Value
from anycann.target.target import NAMED, Target
from anycann.te import dtypes
from tests.codegen.kernels.jit import Compiled, Guarded, runnable
from tests.codegen.kernels.products import Problem, check, packed, problem, write

AVX2 = replace(NAMED["avx2"], l2_bytes=64 << 10)  # small matrices are far away
with_avx2 = pytest.mark.skipif(NAMED["avx2"] not in runnable(), reason="needs AVX2")


def assert_kept(p: Problem, tile: MatmulTile) -> Problem:
    p = packed(p, AVX2, tile)
    assert keeps_rows(p.shape, AVX2, tile)
    return p


@with_avx2
@pytest.mark.parametrize("parts", [1, 3, 1000])
@pytest.mark.parametrize(
    ("size", "tile"),
    [
        ((80, 640, 256), MatmulTile(4, 3, 256, 20, True)),
        ((97, 645, 263), MatmulTile(6, 2, 263, 8, True)),
        ((83, 700, 257), MatmulTile(4, 3, 257, 21, True)),
        ((131, 641, 264), MatmulTile(3, 4, 48, 15, True)),
        ((90, 650, 271), MatmulTile(6, 2, 64, 7, True)),
        ((85, 640, 259), MatmulTile(1, 8, 259, 85, True)),
        ((101, 643, 278), MatmulTile(14, 1, 278, 3, True)),
    ],
    ids=str,
)
def test_products_of_packed_rows_are_exact_to_rounding(size: tuple[int, int, int], tile: MatmulTile, parts: int) -> None:
    check(assert_kept(problem(*size), tile), target=AVX2, tile=tile, parts=parts)


@with_avx2
@pytest.mark.parametrize("size", [(80, 640, 256), (131, 700, 900), (200, 801, 333), (90, 641, 5003), (400, 656, 2100)], ids=str)
def test_the_default_tile_gives_the_product(size: tuple[int, int, int]) -> None:
    p = problem(*size)
    check(assert_kept(p, matmul.default_tile(replace(p.shape, packed=True), AVX2)), target=AVX2, parts=2)


@with_avx2
@pytest.mark.parametrize("depth", [261, 96])
def test_batches_with_weights_of_their_own_are_packed_one_after_the_other(depth: int) -> None:
    p = problem(83, 650, 261, (3,))
    tile = MatmulTile(4, 3, depth, 11, True)
    check(assert_kept(p, tile), target=AVX2, tile=tile, parts=4)


@with_avx2
@pytest.mark.parametrize("depth", [259, 128, 256])
def test_nothing_behind_the_rows_is_read(depth: int) -> None:
    """The last block of a row whose length is no multiple of a block would begin in front of the end of the memory and end behind it."""
    p = problem(80, 640, 259)
    tile = MatmulTile(4, 3, depth, 20, True)
    p = assert_kept(p, tile)
    e, tasks = write(p.shape, AVX2, tile)
    a, c = Guarded(p.a_memory), Guarded(np.zeros((80, 640), np.float32))
    Compiled(e, "matmul", AVX2, matmul.scratch_bytes(p.shape, AVX2, tile)).run([a.address, p.b_memory.ctypes.data, c.address], tasks)


@with_avx2
@pytest.mark.parametrize("depth", [264, 80])
def test_a_call_that_goes_on_finds_the_rows_that_the_one_before_copied(depth: int) -> None:
    tile = MatmulTile(4, 3, depth, 12, True)
    p = assert_kept(problem(90, 640, 264), tile)
    e, tasks = write(p.shape, AVX2, tile)
    compiled = Compiled(e, "matmul", AVX2)
    chunks = row_chunks(p.shape, tile)
    panels, first = tasks // chunks, 45  # half of the rows
    assert chunks == 2
    a, c = p.a_memory.copy(), np.zeros((90, 640), np.float32)
    scratch = np.zeros(matmul.scratch_bytes(p.shape, AVX2, tile) + 64, np.uint8)
    memory = scratch.ctypes.data + -scratch.ctypes.data % 64
    table = (ctypes.c_void_p * 3)(a.ctypes.data, p.b_memory.ctypes.data, c.ctypes.data)
    compiled.entry(table, 0, 5, memory)
    a[:first] = np.nan
    compiled.entry(table, 5, panels + 3, memory + 1)
    compiled.entry(table, panels + 3, tasks, memory)
    np.testing.assert_allclose(c, p.exact, rtol=1e-4, atol=1e-4)
    compiled.entry(table, 5, 6, memory)
    assert np.isnan(c[:first]).any(), "a call that does not go on copies them again"


@pytest.mark.parametrize(("m", "n", "tasks"), [(100, 640, 14), (128, 768, 16), (120, 1000, 22), (200, 640, 28), (400, 768, 32)])
def test_threads_share_out_panels_of_rows_in_parts(m: int, n: int, tasks: int) -> None:
    shape = contiguous((), m, n, 2048, packed=True)
    target = replace(AVX2, l2_bytes=512 << 10)
    tile = replace(matmul.default_tile(shape, target), rows=4, vectors=3)
    assert tile.depth < shape.k
    assert write(shape, target, tile)[1] == tasks
    nowhere = Value("null", "ptr")
    groups = PanelKernel(shape, tile, 8, nowhere, nowhere, matmul.plain_writer(nowhere, (), n), None, False, packs_rows=True).panel_groups
    assert groups.count % 2 == 0
    assert groups.talls * groups.tall + (groups.count - groups.talls) * groups.low == -(-n // 24)
    assert groups.most <= 4


def test_rows_are_packed_where_registers_are_few_and_a_copy_is_repaid() -> None:
    def packs(target: Target = NAMED["avx2"], **changes: Any) -> bool:
        shape = replace(contiguous((), 197, 3072, 768, packed=True), **changes)
        return keeps_rows(shape, target, matmul.default_tile(shape, target))

    assert packs()
    assert packs(m=1500)
    assert packs(k=3072)
    assert not packs(NAMED["avx512"]), "registers are many"
    assert not packs(NAMED["sse"]), "nothing multiplies and adds at once"
    assert not packs(m=50), "few rows share a panel"
    assert not packs(n=512), "few panels share a row"
    assert not packs(k=128), "sums are short"
    assert not packs(m=120, k=384), "A stays in the cache"
    assert not packs(k=16384), "rows are long"
    assert not packs(packed=False)
    assert not packs(a=contiguous((), 197, 3072, 768, transpose_a=True).a), "rows of a transposed matrix are gathered"
    assert not packs(a_dtype=dtypes.float16)


@pytest.mark.parametrize("size", [(80, 640, 6500), (191, 768, 3072), (197, 768, 3072), (1500, 5120, 1280), (3136, 768, 256)], ids=str)
def test_threads_share_out_rows_and_copies_stay_small(size: tuple[int, int, int]) -> None:
    shape = contiguous((), *size, packed=True)
    target = NAMED["avx2"]
    tile = matmul.default_tile(shape, target)
    assert keeps_rows(shape, target, tile)
    assert matmul.scratch_bytes(shape, target, tile) <= 2.3e6
    assert row_chunks(shape, tile) == 1 if shape.m < 96 else row_chunks(shape, tile) % 2 == 0


@with_avx2
@pytest.mark.parametrize("tile", [MatmulTile(6, 2, 112, 8, True), MatmulTile(4, 3, 128, 23, True)], ids=str)
def test_parts_of_k_begin_with_what_the_sums_start_with(tile: MatmulTile) -> None:
    p = assert_kept(problem(90, 650, 263), tile)
    first = np.random.default_rng(3).standard_normal((90, 650)).astype(np.float32)
    e = Emitter()
    a, b, c, start = (e.argument(number) for number in range(4))

    def begin(emitter: Emitter, index: MatmulIndex) -> Value:
        place = emitter.gep(start, emitter.add(emitter.mul(index.m, 656), index.n), "float")
        return emitter.load(place, "<8 x float>", 4)

    tasks = matmul.emit_matmul(e, p.shape, AVX2, tile, a, b, matmul.plain_writer(c, (), 650), start=begin)
    found, starts = np.full((90, 650), np.nan, np.float32), np.pad(first, ((0, 0), (0, 6)))
    Compiled(e, "matmul", AVX2, matmul.scratch_bytes(p.shape, AVX2, tile)).run(
        [memory.ctypes.data for memory in (p.a_memory, p.b_memory, found, starts)], tasks
    )
    np.testing.assert_allclose(found, p.exact + first, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("m", "k", "parts", "fetches"), [(197, 768, 1, False), (1500, 768, 1, True), (197, 3072, 6, False), (131, 1100, 3, False)]
)
def test_long_rows_are_taken_in_parts_that_stay_in_the_second_cache(m: int, k: int, parts: int, fetches: bool) -> None:
    shape = contiguous((), m, 768, k, packed=True)
    target = replace(AVX2, l2_bytes=512 << 10)
    tile = matmul.default_tile(shape, target)
    assert -(-k // tile.depth) == parts
    assert (tile.rows * tile.row_blocks * tile.depth * 4 <= target.l2_bytes) is not fetches
    e, _ = write(shape, target, tile)
    blocks = [block.split("\n\tj")[0] for block in emit_assembly(e.finish("product")[1], target).split("\n.L")]
    loop = max(blocks, key=lambda block: block.count("vfmadd"))
    assert loop.count("vfmadd") == 8 * tile.rows * tile.vectors
    assert ("prefetcht0" in loop) is fetches
    assert not [line for line in loop.splitlines() if "mm" in line and "(%rsp)" in line], "no sum leaves its register"

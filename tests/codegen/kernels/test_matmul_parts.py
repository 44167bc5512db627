"""Which part of a product a thread takes: its own rows where a chain of products would else send half of every A from cache to cache."""

from dataclasses import replace

import pytest

from anycann.codegen.kernels import matmul
from anycann.codegen.kernels.matmul import MatmulShape, MatmulTile, contiguous
from anycann.codegen.kernels.matmul_tile import row_chunks
from anycann.target.target import NAMED, PROCESSORS, Target
from tests.codegen.kernels.jit import runnable
from tests.codegen.kernels.products import check, packed, problem

AVX512 = NAMED["avx512"]


def keeps_rows(shape: MatmulShape, tile: MatmulTile) -> bool:
    """True if the tasks go along the rows, in two equal parts, to within a register tile, or in some whose last may be shorter."""
    parts, part = row_chunks(shape, tile), tile.row_blocks * tile.rows
    return tile.panels_inner and (parts > 3 or (parts == 2 and 2 * part - shape.m <= 2 * tile.rows))


@pytest.mark.parametrize("size", [(64, 128, 128), (128, 128, 128), (49, 192, 192), (196, 128, 400), (131, 100, 90)], ids=str)
def test_small_weights_are_read_by_both_threads_of_which_each_keeps_its_rows(size: tuple[int, int, int]) -> None:
    shape = contiguous((), *size, packed=True)
    assert keeps_rows(shape, matmul.default_tile(shape, AVX512))


@pytest.mark.parametrize(
    ("batch", "size", "why"),
    [
        ((), (16, 512, 128), "few rows: B costs more to read twice than half of A to fetch"),
        ((), (64, 256, 512), "B does not stay in the cache"),
        ((), (9, 24, 9), "too little work for two threads"),
        ((4,), (64, 128, 128), "threads share out the batches"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_other_products_are_not_cut_along_rows_for_that(batch: tuple[int, ...], size: tuple[int, int, int], why: str) -> None:
    shape = contiguous(batch, *size, packed=True)
    assert not keeps_rows(shape, matmul.default_tile(shape, AVX512)), why


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize("parts", [1, 2, 3, 1000])
def test_products_cut_along_rows_are_whole(target: Target, parts: int) -> None:
    for size in ((67, 129, 131), (49, 190, 192)):
        p = problem(*size)
        check(packed(p, target, matmul.default_tile(replace(p.shape, packed=True), target)), target=target, parts=parts)


def test_a_panel_that_is_used_once_is_no_narrower_for_the_first_level_cache() -> None:
    """Of rows enough for several register tiles it is: panels of so long a k would leave it."""
    target = PROCESSORS["znver4"]
    once, often = (matmul.default_tile(contiguous((), rows, 827, 225), target).vectors for rows in (1, 60))
    assert once > often

"""Matrix tiles measured by how many are used: what is counted, and which rounds count as shared."""

from __future__ import annotations

import numpy as np
import pytest

from anycann.codegen.kernels.dot_tiles import has_tiles
from anycann.codegen.objects import emit_assembly
from anycann.support.errors import UsageError
from anycann.target.target import by_name, host
from anycann.te import dtypes
from benchmarks import matrix_tiles
from benchmarks.matrix_tiles import EIGHT_TILES, FORMS, PRODUCTS, measure, table

TILES = by_name("avx512,+amx-tile,+amx-int8,+amx-bf16")


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_form_uses_as_many_tiles_as_it_says(form: matrix_tiles.Form) -> None:
    text = emit_assembly(matrix_tiles._kernel(form, 1 << 14)[1], TILES)
    products = [line for line in text.splitlines() if "tdpbf16ps" in line]
    assert len(products) == form.rows * form.columns
    assert len({word.strip(",") for line in products for word in line.split()[1:]}) == form.tiles
    assert ("tileloadd" in text) == form.loads


def test_rounds_in_which_eight_tiles_are_slow_beside_products_alone_are_shared() -> None:
    quick, slow = ([2e12 if form in (PRODUCTS, EIGHT_TILES) else 1e12 for form in FORMS] for _ in range(2))
    slow[FORMS.index(EIGHT_TILES)] = 0.5e12
    lines = table(np.array([quick, slow, quick, quick]))
    assert lines[FORMS.index(EIGHT_TILES) + 2] == "| 2 x 2 | 8 | 2000 | 500 |"
    assert lines[-1] == "25% of the rounds were shared"


def test_it_runs_where_there_are_tiles_and_says_so_where_there_are_none() -> None:
    if has_tiles(host(), dtypes.bfloat16):
        rates = measure(1 << 14, 0.01)
        assert rates.shape[1] == len(FORMS)
        assert np.all(rates > 0)
    else:
        with pytest.raises(UsageError, match="no matrix tiles"):
            measure(1 << 14, 0.01)

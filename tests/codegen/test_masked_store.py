"""Stores of some lanes: those that a mask names are written, nothing beside them, however the mask is known."""

from __future__ import annotations

import numpy as np
import pytest

from anycann.codegen.emitter import Emitter
from anycann.codegen.nest_kernel import Output, generate
from anycann.codegen.values import Value, vector_type
from anycann.target.target import Target, by_name
from anycann.te import dtypes
from anycann.te import tensor as te
from tests.codegen.kernels.jit import Compiled, runnable

TYPES = ("float32", "float64", "int8", "uint16", "int32", "int64")


@pytest.mark.parametrize("target", runnable(), ids=str)
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_lanes_of_a_known_mask_are_written_and_no_others(name: str, lanes: int, target: Target) -> None:
    kind, rng = dtypes.BY_NAME[name], np.random.default_rng()
    firsts = [np.arange(lanes) < count for count in range(lanes + 1)]
    masks = [*firsts, *(mask[::-1] for mask in firsts), *(rng.random(lanes) < 0.5 for _ in range(4))]
    e = Emitter()
    source, to = e.argument(0), e.argument(1)
    with e.loop(e.begin, e.end):
        for number, mask in enumerate(masks):
            value = e.load(e.gep(source, number * lanes, kind.storage), vector_type(kind.storage, lanes), kind.nbytes)
            known = ", ".join(f"i1 {str(bool(bit)).lower()}" for bit in mask)
            e.masked_store(value, e.gep(to, number * lanes, kind.storage), kind.nbytes, Value(f"<{known}>", vector_type("i1", lanes)))
    values = rng.integers(1, 100, len(masks) * lanes).astype(name)
    result = np.full_like(values, 123)
    Compiled(e, "stores", target)([values, result], 1)
    np.testing.assert_array_equal(result, np.where(np.concatenate(masks), values, 123))


def test_the_rest_of_a_row_is_masked_only_where_masks_are_registers() -> None:
    x = te.placeholder("x", (100, 13), dtypes.float32)
    total = te.reduce("sum", x.shape[:1], x.shape[1:], lambda i, j: x[i, j])
    row = te.compute(x.shape, lambda i, j: x[i, j] / total[i])
    stores = {name: generate([Output("row", row)], {}, by_name(name)).ir.count("@llvm.masked.store") for name in ("avx2", "avx512")}
    assert stores["avx2"] == 0
    assert stores["avx512"] > 0

"""Loads and stores of some lanes: those that a mask names are read or written, nothing beside them, however the mask is known."""

from __future__ import annotations

import ctypes
import mmap

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


def some(lanes: int) -> list[np.ndarray]:
    """Masks of the first lanes, of the last ones, and of any."""
    firsts, rng = [np.arange(lanes) < count for count in range(lanes + 1)], np.random.default_rng()
    return [*firsts, *(mask[::-1] for mask in firsts), *(rng.random(lanes) < 0.5 for _ in range(4))]


def known(mask: np.ndarray) -> Value:
    return Value(f"<{', '.join(f'i1 {str(bool(bit)).lower()}' for bit in mask)}>", vector_type("i1", len(mask)))


@pytest.mark.parametrize("target", runnable(), ids=str)
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_lanes_of_a_known_mask_are_written_and_no_others(name: str, lanes: int, target: Target) -> None:
    kind, rng = dtypes.BY_NAME[name], np.random.default_rng()
    masks, e = some(lanes), Emitter()
    source, to = e.argument(0), e.argument(1)
    with e.loop(e.begin, e.end):
        for number, mask in enumerate(masks):
            value = e.load(e.gep(source, number * lanes, kind.storage), vector_type(kind.storage, lanes), kind.nbytes)
            e.masked_store(value, e.gep(to, number * lanes, kind.storage), kind.nbytes, known(mask))
    values = rng.integers(1, 100, len(masks) * lanes).astype(name)
    result = np.full_like(values, 123)
    Compiled(e, "stores", target)([values, result], 1)
    np.testing.assert_array_equal(result, np.where(np.concatenate(masks), values, 123))


@pytest.mark.parametrize("target", runnable(), ids=str)
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_lanes_of_a_known_mask_are_read_and_others_are_zero(name: str, lanes: int, target: Target) -> None:
    kind, rng = dtypes.BY_NAME[name], np.random.default_rng()
    masks, e = some(lanes), Emitter()
    source, to = e.argument(0), e.argument(1)
    type_ = vector_type(kind.storage, lanes)
    with e.loop(e.begin, e.end):
        for number, mask in enumerate(masks):
            value = e.masked_load(e.gep(source, number * lanes, kind.storage), type_, kind.nbytes, known(mask), e.zero(type_))
            e.store(value, e.gep(to, number * lanes, kind.storage), kind.nbytes)
    values = rng.integers(1, 100, len(masks) * lanes).astype(name)
    result = np.full_like(values, 123)
    Compiled(e, "loads", target)([values, result], 1)
    np.testing.assert_array_equal(result, np.where(np.concatenate(masks), values, 0))


def test_a_masked_load_of_the_first_lanes_does_not_touch_the_page_behind_them() -> None:
    target, e = runnable()[-1], Emitter()
    type_ = vector_type("float", 16)
    with e.loop(e.begin, e.end):
        first = known(np.arange(16) < 8)
        e.store(e.masked_load(e.argument(0), type_, 4, first, e.zero(type_)), e.argument(1), 4)
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    place = np.frombuffer(memory, np.float32)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(place.ctypes.data + page), ctypes.c_size_t(page), 0) == 0
    values = place[page // 4 - 8 : page // 4]
    values[:] = np.arange(1, 9)
    result = np.full(16, 123, np.float32)
    Compiled(e, "edge", target)([values, result], 1)
    np.testing.assert_array_equal(result, [*range(1, 9), *[0] * 8])


def test_the_rest_of_a_row_is_masked_only_where_masks_are_registers() -> None:
    x = te.placeholder("x", (100, 13), dtypes.float32)
    total = te.reduce("sum", x.shape[:1], x.shape[1:], lambda i, j: x[i, j])
    row = te.compute(x.shape, lambda i, j: x[i, j] / total[i])
    stores = {name: generate([Output("row", row)], {}, by_name(name)).ir.count("@llvm.masked.store") for name in ("avx2", "avx512")}
    assert stores["avx2"] == 0
    assert stores["avx512"] > 0

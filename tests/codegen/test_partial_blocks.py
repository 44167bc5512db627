"""Stores of channels that fill no whole number of blocks: lanes behind the last channel may get anything, other values keep theirs."""

from __future__ import annotations

import ctypes
from math import prod

import numpy as np
import pytest

from anycann.codegen.nest_kernel import Output, generate
from anycann.codegen.objects import emit_object
from anycann.runtime.loader import LoadedCode
from anycann.target.target import Target, by_name
from anycann.te import dtypes
from anycann.te import tensor as te
from anycann.te.layout import NC1HWC0, ND, NHWC, Place, physical_shape
from anycann.te.tensor import Tensor
from tests.codegen.kernels.jit import ENTRY, runnable

SIZE, KEPT = (3, 7), 123.0
TARGETS = pytest.mark.parametrize("target", runnable(), ids=str)


def biased(channels: int) -> Tensor:
    """x + b[channel], of two images; what is read of `b` ends with the last channel."""
    x, b = te.placeholder("x", (2, channels, *SIZE), dtypes.float32), te.placeholder("b", (channels,), dtypes.float32)
    return te.compute(x.shape, lambda n, c, i, j: x[n, c, i, j] + b[c])


def arranged(x: np.ndarray, layout: str, lanes: int) -> np.ndarray:
    """`x` as it lies in memory; lanes without a channel are NaN."""
    if layout == NHWC:
        return np.ascontiguousarray(np.moveaxis(x, 1, -1))
    if layout == ND:
        return x
    full = np.full((x.shape[0], -(-x.shape[1] // lanes) * lanes, *SIZE), np.nan, np.float32)
    full[:, : x.shape[1]] = x
    return np.ascontiguousarray(np.moveaxis(full.reshape(x.shape[0], -1, lanes, *SIZE), 2, -1))


def channels_of(memory: np.ndarray, layout: str, shape: tuple[int, ...], lanes: int) -> np.ndarray:
    """The real elements of what `arranged` arranges."""
    found = memory.reshape(physical_shape(layout, shape, lanes))
    if layout == NC1HWC0:
        return np.moveaxis(found, -1, 2).reshape(shape[0], -1, *SIZE)[:, : shape[1]]
    return np.moveaxis(found, -1, 1) if layout == NHWC else found


def computed(target: Target, channels: int, read: str, place: Place) -> np.ndarray:
    """x + 1 as it lies in a buffer that held KEPT, which is also all around it and has to stay there."""
    layout = place.layout
    kernel = generate([Output("y", biased(channels), layout, place)], {"x": read}, target)
    values = np.arange(2 * channels * prod(SIZE), dtype=np.float32).reshape(2, channels, *SIZE)
    count = prod(physical_shape(layout, place.shape, target.lanes))
    memory = np.full(count + 64, KEPT, np.float32)
    start = 32 - memory.ctypes.data % 64 // 4
    arrays = {"x": arranged(values, read, target.lanes), "b": np.ones(channels, np.float32), "y": memory[start:]}
    pointers = (ctypes.c_void_p * 3)(*(arrays[name].ctypes.data for name in kernel.arguments))
    code = LoadedCode({kernel.symbol: emit_object(kernel.ir, target)}, target)
    ENTRY(code.address(kernel.symbol))(pointers, 0, kernel.tasks, None)
    assert (np.delete(memory, slice(start, start + count)) == KEPT).all()
    return channels_of(memory[start : start + count], layout, place.shape, target.lanes)


@TARGETS
@pytest.mark.parametrize("channels", [1, 3, 8, 13, 16, 33])
@pytest.mark.parametrize(("read", "written"), [(ND, NC1HWC0), (NC1HWC0, NC1HWC0), (NC1HWC0, ND), (NC1HWC0, NHWC), (NHWC, NC1HWC0)])
def test_every_channel_is_stored_and_nothing_outside_the_value(read: str, written: str, channels: int, target: Target) -> None:
    shape = (2, channels, *SIZE)
    got = computed(target, channels, read, Place(shape, written))
    np.testing.assert_array_equal(got, np.arange(prod(shape), dtype=np.float32).reshape(shape) + 1)


@TARGETS
@pytest.mark.parametrize("first", [0, 16])
def test_a_piece_of_a_larger_value_leaves_the_channels_behind_it_as_they_are(first: int, target: Target) -> None:
    got = computed(target, 13, NC1HWC0, Place((2, 37, *SIZE), NC1HWC0, (0, first, 0, 0)))
    np.testing.assert_array_equal(got[:, first : first + 13], np.arange(2 * 13 * 21, dtype=np.float32).reshape(2, 13, *SIZE) + 1)
    assert (np.delete(got, slice(first, first + 13), axis=1) == KEPT).all()


@pytest.mark.parametrize("name", ["avx2", "avx512"])
def test_the_last_block_of_a_value_is_filled_up(name: str) -> None:
    ir = generate([Output("y", biased(13), NC1HWC0)], {"x": NC1HWC0}, by_name(name)).ir
    assert "@llvm.masked.load" in ir
    assert "@llvm.masked.store" not in ir


def test_rows_of_channels_that_are_not_there_are_left_out_by_a_branch_where_masks_are_no_registers() -> None:
    stores = {
        n: generate([Output("y", biased(13), ND)], {"x": NC1HWC0}, by_name(n)).ir.count("@llvm.masked.store") for n in ("avx2", "avx512")
    }
    assert stores["avx2"] < stores["avx512"]


@pytest.mark.parametrize("name", ["avx2", "avx512"])
@pytest.mark.parametrize("channels", [13, 33])
def test_channels_that_do_not_exist_are_not_stored_and_not_read_far_away(channels: int, name: str) -> None:
    """By no mask either: where no page is, processors take long over the lanes that it leaves out."""
    x, target = te.placeholder("x", (1, channels, 16, 16), dtypes.float32), by_name(name)
    copied = te.compute(x.shape, lambda n, c, i, j: x[n, c, i, j])
    planes = generate([Output("y", copied, ND, Place(x.shape, ND))], {"x": NC1HWC0}, target).ir
    assert "masked.store" not in planes
    blocks = generate([Output("y", copied, NC1HWC0, Place(x.shape, NC1HWC0))], {"x": ND}, target).ir
    loads = blocks.count("masked.load") - 1  # and the declaration
    assert 0 < loads <= blocks.count("select i1")

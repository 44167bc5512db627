"""Memory for kernels, layouts of tensors in it, and loading object code."""

from __future__ import annotations

from collections.abc import Callable
import mmap
import os

import ml_dtypes
import numpy as np
import pytest
from runtime_kernels import count_kernel, load

from anycann.codegen.objects import emit_object
from anycann.om.plan import Buffer, Location, TensorSpec
from anycann.runtime import layouts, memory
from anycann.runtime.loader import LoadedCode
from anycann.runtime.recycling import Recycler
from anycann.runtime.results import Given
from anycann.support.errors import DeviceError, InternalError, UnsupportedError, UsageError
from anycann.target.target import Target, by_name, host


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 4097, (2 << 20) + 1, 9 << 20])
def test_memory_is_aligned_and_has_slack_behind_it(nbytes: int) -> None:
    data = memory.allocate(nbytes)
    assert data.nbytes == nbytes
    assert data.ctypes.data % 64 == 0
    data[:] = 1
    behind = np.lib.stride_tricks.as_strided(data, (nbytes + 64,), (1,))
    behind[nbytes:] = 2  # a crash or a damaged heap if it were not ours
    assert (data == 1).all()


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # this process has threads, on purpose
def test_large_memory_is_private_to_a_forked_child() -> None:
    data = memory.allocate(4 << 20)
    data[:] = 1
    child = os.fork()
    if not child:
        data[:] = 2
        os._exit(0)
    os.waitpid(child, 0)
    assert (data == 1).all()


def test_large_memory_goes_back_when_nobody_refers_to_it() -> None:
    def mapped() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * mmap.PAGESIZE

    before = mapped()
    for _ in range(50):
        memory.allocate(64 << 20)[::4096] = 1
    assert mapped() - before < 200 << 20


def test_more_memory_than_there_is_is_a_device_error() -> None:
    with pytest.raises(DeviceError, match=str(1 << 60)):
        memory.allocate(1 << 60)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, ml_dtypes.bfloat16])
@pytest.mark.parametrize("make", [lambda d: np.zeros(5, d), lambda d: np.zeros(0, d), lambda d: np.broadcast_to(np.zeros((), d), (3,))])
def test_the_address_is_that_of_the_first_element(dtype: type, make) -> None:  # type: ignore[no-untyped-def]
    array = make(dtype)
    assert memory.address(array) == array.ctypes.data


def test_the_address_of_what_may_not_be_written_and_of_views() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    frozen = array.view()
    frozen.flags.writeable = False
    for one in (frozen, array[1:], array[::-1], array.T, np.frombuffer(b"abcd", np.uint8)[1:], array.view(np.ndarray)[2:2]):
        assert memory.address(one) == one.ctypes.data


def views(array: np.ndarray) -> list[np.ndarray]:
    """Views of `array` of every kind."""
    strided = np.lib.stride_tricks.as_strided(array, (2, 3), array.strides)
    return [array, array[1:], array.T[::2], array.view(np.uint8), strided, strided[1:], np.broadcast_to(array, (2, *array.shape))]


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.ones((4, 6), np.float32),
        lambda: memory.empty((100, 60), np.dtype(np.float32)),
        lambda: memory.empty((1000, 900), np.dtype(np.float32)),
        lambda: Recycler(96).empty((4, 6), np.dtype(np.float32)),
        lambda: np.frombuffer(bytearray(96), np.float32).reshape(4, 6),
    ],
    ids=["numpy", "aligned", "mapped", "recycled", "a buffer's"],
)
def test_a_result_that_shows_memory_a_step_was_given_is_copied_and_another_is_not(make: Callable[[], np.ndarray]) -> None:
    given, fresh = make(), make()
    given[...], fresh[...] = 1, 2
    for known in views(given):
        for result in views(known) if known.shape == given.shape else [known, known[1:], known.view()]:
            copy = Given([None, known, []]).own(result)
            assert isinstance(copy, np.ndarray)
            assert not np.shares_memory(copy, given)
            np.testing.assert_array_equal(copy, result)
        assert Given([known]).own(fresh) is fresh
        assert Given([known]).own([fresh, 3]) == [fresh, 3]
    fresh.flags.writeable = False
    assert Given([given]).own(fresh) is not fresh


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 5, 3, 4), (1, 8, 2, 2), (3, 17, 7), (2, 3), (0, 5, 2, 2), (1, 9, 2, 0)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_blocked_tensors_are_written_and_read_back_in_plain_order(shape: tuple[int, ...], dtype: str, lanes: int) -> None:
    value = np.arange(np.prod(shape)).reshape(shape).astype(memory.numpy_dtype(dtype))
    batch, channels, *spatial = shape
    blocks = -(-channels // lanes)
    raw = np.full(batch * blocks * lanes * int(np.prod(spatial)) * value.itemsize, memory.POISON, np.uint8)
    location = Location(TensorSpec("x", dtype, shape), Buffer("arena", 0, raw.nbytes), "NC1HWC0")
    layouts.write(location, raw, lanes, value)
    np.testing.assert_array_equal(layouts.read(location, raw, lanes), value)
    physical = raw.view(value.dtype).reshape(batch, blocks, *spatial, lanes)
    for index in np.ndindex(*shape):
        n, c, *at = index
        assert physical[(n, c // lanes, *at, c % lanes)] == value[index]


def test_an_open_shape_has_no_place_in_memory() -> None:
    with pytest.raises(InternalError, match="open shape"):
        layouts.read(Location(TensorSpec("x", "float32", (None, 2)), Buffer("arena", 0, 8)), np.zeros(8, np.uint8), 16)


def test_an_unknown_symbol_is_named() -> None:
    with pytest.raises(InternalError, match="'missing'"):
        load(count_kernel()).address("missing")


def test_bytes_that_are_no_object_are_refused_before_llvm_sees_them() -> None:
    with pytest.raises(UsageError, match="'k': 3 bytes that are not a 64-bit ELF object"):
        LoadedCode({"k": b"abc"})


def test_code_of_another_machine_is_refused() -> None:
    other = by_name("neon" if host().is_x86 else "avx2")
    data = emit_object("define void @k() {\nret void\n}", other)
    with pytest.raises(UnsupportedError, match="compile it for this machine"):
        LoadedCode({"k": data}, other)
    with pytest.raises(UnsupportedError, match="'k' is code for"):
        LoadedCode({"k": data})


def test_code_that_needs_features_the_processor_lacks_is_refused_by_their_names() -> None:
    native = host()
    wished = Target("future", native.triple, native.cpu, native.features + ",+avx9000", native.lanes, native.registers)
    with pytest.raises(UnsupportedError, match="needs avx9000, which this processor lacks"):
        LoadedCode({}, wished)


def test_half_conversions_of_an_old_processor_find_their_library_functions() -> None:
    if not host().is_x86:
        pytest.skip("needs an x86 processor")
    target = by_name("sse")
    text = (
        "define void @widen(ptr %args, i64 %begin, i64 %end, ptr %scratch) {\n"
        "%from = load ptr, ptr %args\n%slot = getelementptr ptr, ptr %args, i64 1\n%to = load ptr, ptr %slot\n"
        "%half = load half, ptr %from\n%wide = fpext half %half to float\nstore float %wide, ptr %to\nret void\n}"
    )
    assert LoadedCode({"widen": emit_object(text, target)}, target).address("widen")


def test_overlaps_sees_through_views_and_buffers_and_keeps_owners_apart() -> None:
    one, other = np.zeros(8, np.float32), np.zeros(8, np.float32)
    again = np.frombuffer(memoryview(one), np.int32)
    assert memory.overlaps(one, one)
    assert memory.overlaps(one, again)
    assert memory.overlaps(again, one)
    assert memory.overlaps(one[:5], one[4:])
    assert not memory.overlaps(one[:4], one[4:])
    assert not memory.overlaps(one, other)
    assert not memory.overlaps(one[:0], one)
    empty = np.zeros(0, np.float32)
    assert not memory.overlaps(empty, empty)

from __future__ import annotations

import ctypes
import mmap
from types import ModuleType

import numpy as np
import pytest

from anycann.acl.process import PROCESS

H2D, D2H = 1, 2


def test_data_goes_to_the_device_and_back(acl: ModuleType) -> None:
    data = np.random.default_rng(0).random(1000, np.float32)
    device, ret = acl.rt.malloc(data.nbytes, 0)
    host, ret_host = acl.rt.malloc_host(data.nbytes)
    assert (ret, ret_host) == (0, 0)
    assert acl.rt.memcpy(device, data.nbytes, acl.util.numpy_to_ptr(data), data.nbytes, H2D) == 0
    assert acl.rt.memcpy(host, data.nbytes, device, data.nbytes, D2H) == 0
    assert np.array_equal(acl.util.ptr_to_numpy(host, (10, 100), 11), data.reshape(10, 100))
    assert acl.util.ptr_to_bytes(host, 40) == data.tobytes()[:40]
    assert (acl.rt.free(device), acl.rt.free_host(host)) == (0, 0)


def test_bytes_and_arrays_are_seen_where_they_are(acl: ModuleType) -> None:
    data = bytes(range(64))
    assert acl.util.ptr_to_bytes(acl.util.bytes_to_ptr(data), 64) == data
    array = np.zeros(8, np.int32)
    acl.util.ptr_to_numpy(acl.util.numpy_to_ptr(array), (8,), 5)[3] = 7
    assert array[3] == 7
    pointer, contiguous = acl.util.numpy_contiguous_to_ptr(np.arange(12).reshape(3, 4).T)
    assert contiguous.flags.c_contiguous
    assert acl.util.numpy_to_ptr(contiguous) == pointer


def test_memory_in_the_middle_of_an_allocation_may_be_set_and_copied(acl: ModuleType) -> None:
    device, _ = acl.rt.malloc(256, 0)
    assert acl.rt.memset(device, 256, 1, 256) == 0
    assert acl.rt.memset(device + 100, 56, 255, 56) == 0
    assert acl.rt.memcpy(device, 56, device + 100, 56, 3) == 0
    assert acl.util.ptr_to_bytes(device, 256) == b"\xff" * 56 + b"\x01" * 44 + b"\xff" * 56 + b"\x01" * 100


def test_rows_are_copied_with_their_pitches(acl: ModuleType) -> None:
    source = np.arange(12, dtype=np.uint8).reshape(3, 4)
    device, _ = acl.rt.malloc(30, 0)
    acl.rt.memset(device, 30, 0, 30)
    assert acl.rt.memcpy2d(device, 10, acl.util.numpy_to_ptr(source), 4, 4, 3, H2D) == 0
    assert np.array_equal(acl.util.ptr_to_numpy(device, (3, 10), 2)[:, :4], source)


def test_memory_that_a_program_shows_is_copied_as_on_boards_whose_device_shares_it(acl: ModuleType) -> None:
    data = np.arange(100, dtype=np.uint8)
    device, _ = acl.rt.malloc(100, 0)
    assert acl.rt.memcpy(device, 100, acl.util.numpy_to_ptr(data), 100, 3) == 0
    assert acl.util.ptr_to_bytes(device, 100) == data.tobytes()
    back = np.zeros(100, np.uint8)
    assert acl.rt.memcpy(back.ctypes.data, 100, device, 100, 3) == 107000
    assert acl.rt.memcpy(acl.util.numpy_to_ptr(back), 100, device, 100, 3) == 0
    assert np.array_equal(back, data)


@pytest.mark.parametrize("nbytes", [40, 100_000, 10 << 20])
def test_host_memory_that_is_used_after_it_was_freed_is_no_memory_of_python(acl: ModuleType, nbytes: int) -> None:
    host, _ = acl.rt.malloc_host(nbytes)
    device, _ = acl.rt.malloc(nbytes, 0)
    assert acl.rt.free_host(host) == 0
    others = [np.zeros(nbytes, np.uint8) for _ in range(8)]
    assert acl.rt.memset(host, nbytes, 7, nbytes) == 0
    assert acl.rt.memcpy(device, nbytes, host, nbytes, H2D) == 0
    assert acl.util.ptr_to_bytes(device, nbytes) == b"\7" * nbytes
    assert not any(other.any() for other in others)
    assert acl.rt.free_host(host) == 107000


def test_a_source_that_ends_with_the_memory_of_the_process_is_followed_by_zeros(acl: ModuleType) -> None:
    page = mmap.PAGESIZE
    libc = ctypes.CDLL(None)
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    start = libc.mmap(None, 2 * page, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    ctypes.memset(start, 5, 2 * page)
    assert libc.munmap(ctypes.c_void_p(start + page), ctypes.c_size_t(page)) == 0
    device, _ = acl.rt.malloc(100, 0)
    assert acl.rt.memset(device, 100, 9, 100) == 0
    assert acl.rt.memcpy(device, 100, start + page - 30, 100, H2D) == 0
    assert acl.util.ptr_to_bytes(device, 100) == b"\5" * 30 + b"\0" * 70
    libc.munmap(ctypes.c_void_p(start), ctypes.c_size_t(page))


@pytest.mark.parametrize(
    ("call", "code", "words"),
    [
        (lambda acl, p, x: acl.rt.free(0), 100000, "null"),
        (lambda acl, p, x: acl.rt.free(p + 64), 107000, "lies 64 bytes inside an allocation of 1024 bytes"),
        (lambda acl, p, x: acl.rt.free_host(p), 107000, "is device memory"),
        (lambda acl, p, x: acl.rt.memcpy(p, 10, x, 11, 1), 100000, "11 bytes for dst, which has room for 10"),
        (lambda acl, p, x: acl.rt.memcpy(p, 2000, x, 1025, 1), 107000, "end 1 bytes behind its allocation of 1024 bytes"),
        (lambda acl, p, x: acl.rt.memcpy(p, 1024, 8, 1024, 1), 100000, "not this process's memory"),
        (lambda acl, p, x: acl.rt.memcpy(x, 100, 4096, 100, 3), 107000, "no live device memory"),
        (lambda acl, p, x: acl.rt.memcpy(p, 1024, x, 0, 1), 100000, "count is 0"),
        (lambda acl, p, x: acl.rt.memcpy(p, 1024, x, 8, 99), 100000, "kind is 99"),
        (lambda acl, p, x: acl.rt.malloc(0, 0)[1], 100000, "size is 0"),
        (lambda acl, p, x: acl.rt.malloc(16, 55)[1], 100000, "memory policy is 55"),
        (lambda acl, p, x: acl.rt.malloc(1 << 60, 0)[1], 207001, "out of memory"),
        (lambda acl, p, x: acl.rt.memset(p + 1020, 1024, 0, 5), 107000, "end 1 bytes behind"),
    ],
)
def test_what_may_not_be_done_gets_a_code_and_a_sentence(acl: ModuleType, call: object, code: int, words: str) -> None:
    device, _ = acl.rt.malloc(1024, 0)
    outside = np.zeros(4096, np.uint8)
    assert call(acl, device, acl.util.numpy_to_ptr(outside)) == code
    assert words in acl.get_recent_err_msg()
    assert acl.get_recent_err_msg() is None


def test_memory_is_freed_once(acl: ModuleType) -> None:
    device, _ = acl.rt.malloc(100, 0)
    assert acl.rt.free(device) == 0
    assert acl.rt.free(device) == 107000
    assert "freed before" in acl.get_recent_err_msg()


def test_a_view_outlives_the_memory_it_was_made_of(acl: ModuleType) -> None:
    device, _ = acl.rt.malloc(4096, 0)
    view = acl.util.ptr_to_numpy(device, (1024,), 11)
    view[:] = 3
    acl.rt.free(device)
    assert view.sum() == 3 * 1024


def test_the_device_counts_what_is_taken(acl: ModuleType) -> None:
    free, total, ret = acl.rt.get_mem_info(1)
    device, _ = acl.rt.malloc(1 << 20, 0)
    assert acl.rt.get_mem_info(1) == (free - (1 << 20), total, 0)
    acl.rt.free(device)
    assert acl.rt.get_mem_info(0) == (free, total, ret)


def test_memory_wants_a_context(acl: ModuleType) -> None:
    PROCESS.thread.context = 0
    assert acl.rt.malloc(16, 0) == (0, 107002)


def test_wrong_arguments_raise_as_the_binding_does(acl: ModuleType) -> None:
    for call in (lambda: acl.rt.malloc(16), lambda: acl.rt.malloc("16", 0), lambda: acl.rt.memcpy(1, 2, 3)):
        with pytest.raises(TypeError, match="args parse failed"):
            call()
    with pytest.raises(AttributeError, match=r"did you mean acl\.rt\.malloc"):
        _ = acl.rt.mallocc
    with pytest.raises(AttributeError, match="no constants"):
        _ = acl.rt.ACL_MEMCPY_HOST_TO_DEVICE

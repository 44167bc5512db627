"""Addresses and memory reserved apart, and memory of another process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest

from anycann.acl.process import PROCESS
from tests.acl.test_models import OPEN, offline_model

HERE = {"handleType": 0, "allocationType": 0, "memAttr": 1, "location": {"id": 0, "type": 1}, "reserve": 0}


def test_memory_is_put_behind_addresses_and_taken_away(acl: ModuleType) -> None:
    size, ret = acl.rt.mem_get_allocation_granularity(HERE, 1)
    assert (size, ret) == (2 << 20, 0)
    before = PROCESS.devices[0].taken_bytes
    virt, ret = acl.rt.reserve_mem_address(2 * size, 0, 0, 1)
    (one, _), (other, _) = acl.rt.malloc_physical(size, HERE, 0), acl.rt.malloc_physical(size - 100, HERE, 0)
    assert (ret, PROCESS.devices[0].taken_bytes) == (0, before + 2 * size)
    assert acl.rt.memset(virt, size, 1, size) != 0
    assert [acl.rt.map_mem(virt, size, 0, one, 0), acl.rt.map_mem(virt + size, size, 0, other, 0)] == [0, 0]
    data = np.arange(1000, dtype=np.uint8)
    assert acl.rt.memcpy(virt + 100, size - 100, acl.util.numpy_to_ptr(data), 1000, 1) == 0
    assert acl.rt.unmap_mem(virt) == 0
    assert acl.rt.memcpy(virt, size, virt + size, 10, 3) == 107000
    assert [acl.rt.unmap_mem(virt + size), acl.rt.map_mem(virt + size, size, 0, one, 0)] == [0, 0]
    assert acl.util.ptr_to_bytes(virt + size + 100, 1000) == data.tobytes()
    assert acl.rt.release_mem_address(virt) == 107000
    assert "unmap_mem comes first" in acl.get_recent_err_msg()
    assert [acl.rt.unmap_mem(virt + size), acl.rt.free_physical(one), acl.rt.free_physical(other)] == [0, 0, 0]
    assert [acl.rt.release_mem_address(virt), acl.rt.release_mem_address(virt)] == [0, 107000]
    assert PROCESS.devices[0].taken_bytes == before


def test_a_model_runs_on_mapped_memory_up_to_its_last_byte(acl: ModuleType, tmp_path: object) -> None:
    size = 2 << 20
    text = OPEN.replace("n, 3", f"{size // 12}, 3").replace("(", "(")
    model, ret = acl.mdl.load_from_file(offline_model(tmp_path, text))  # type: ignore[arg-type]
    assert ret == 0
    virt, _ = acl.rt.reserve_mem_address(2 * size, 0, 0, 1)
    physical, _ = acl.rt.malloc_physical(2 * size, HERE, 0)
    assert acl.rt.map_mem(virt, 2 * size, 0, physical, 0) == 0
    nbytes = size // 12 * 12
    places = (virt + size - nbytes, virt + 2 * size - nbytes)
    datasets = []
    for place in places:
        datasets.append(acl.mdl.create_dataset())
        acl.mdl.add_dataset_buffer(datasets[-1], acl.create_data_buffer(place, nbytes))
    x = np.random.default_rng(1).random((size // 12, 3), np.float32)
    assert acl.rt.memcpy(places[0], nbytes, acl.util.numpy_to_ptr(x), nbytes, 1) == 0
    assert acl.mdl.execute(model, *datasets) == 0
    assert np.array_equal(acl.util.ptr_to_numpy(places[1], x.shape, 11), x + x)
    assert acl.rt.unmap_mem(virt) == 0


OTHER = """
import sys, acl
acl.init()
acl.rt.set_device(0)
memory, ret = acl.rt.mem_import_from_shareable_handle(int(sys.argv[1]), 0)
virt, _ = acl.rt.reserve_mem_address(2 << 20, 0, 0, 1)
print(ret, acl.rt.map_mem(virt, 2 << 20, 0, memory, 0), acl.util.ptr_to_bytes(virt, 5))
acl.rt.memset(virt, 5, 9, 5)
"""


@pytest.mark.slow
def test_another_process_takes_memory_by_its_handle(acl: ModuleType) -> None:
    memory, _ = acl.rt.malloc_physical(2 << 20, HERE, 0)
    virt, _ = acl.rt.reserve_mem_address(2 << 20, 0, 0, 1)
    assert acl.rt.map_mem(virt, 2 << 20, 0, memory, 0) == 0
    assert acl.rt.memset(virt, 5, 7, 5) == 0
    shareable, ret = acl.rt.mem_export_to_shareable_handle(memory, 0, 1)
    assert ret == 0
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in (*sys.path, os.path.dirname(acl.__path__[0])) if path)}
    done = subprocess.run([sys.executable, "-c", OTHER, str(shareable)], capture_output=True, text=True, env=environment, timeout=600)
    assert done.stdout == f"0 0 {bytes([7]) * 5}\n", done.stderr
    assert acl.util.ptr_to_bytes(virt, 5) == bytes([9]) * 5
    assert acl.rt.mem_import_from_shareable_handle(1, 0)[1] != 0


def test_only_processes_that_were_named_take_memory_by_its_handle(acl: ModuleType) -> None:
    memory, _ = acl.rt.malloc_physical(2 << 20, HERE, 0)
    shareable, ret = acl.rt.mem_export_to_shareable_handle(memory, 0, 0)
    assert (ret, acl.rt.mem_import_from_shareable_handle(shareable, 0)[1]) == (0, 107000)
    assert "acl.rt.mem_set_pid_to_shareable_handle" in acl.get_recent_err_msg()
    assert acl.rt.mem_set_pid_to_shareable_handle(shareable, [1]) == 0
    assert acl.rt.mem_import_from_shareable_handle(shareable, 0)[1] == 107000
    assert acl.rt.mem_set_pid_to_shareable_handle(shareable, [acl.rt.device_get_bare_tgid()[0]]) == 0
    same, ret = acl.rt.mem_import_from_shareable_handle(shareable, 0)
    assert ret == 0
    virt, _ = acl.rt.reserve_mem_address(4 << 20, 0, 0, 1)
    assert [acl.rt.map_mem(virt, 2 << 20, 0, memory, 0), acl.rt.map_mem(virt + (2 << 20), 2 << 20, 0, same, 0)] == [0, 0]
    assert acl.rt.memset(virt, 5, 7, 5) == 0
    assert acl.util.ptr_to_bytes(virt + (2 << 20), 5) == bytes([7]) * 5
    assert [acl.rt.unmap_mem(virt), acl.rt.unmap_mem(virt + (2 << 20))] == [0, 0]
    assert [acl.rt.free_physical(memory), acl.rt.free_physical(same), acl.rt.release_mem_address(virt)] == [0, 0, 0]
    assert acl.rt.mem_set_pid_to_shareable_handle(shareable, [1]) == 107000  # the memory is given back
    assert acl.rt.mem_import_from_shareable_handle(shareable, 0)[1] != 0
    other, _ = acl.rt.malloc_physical(2 << 20, HERE, 0)
    assert acl.rt.mem_export_to_shareable_handle(other, 0, 2)[1] == 107000
    assert acl.rt.mem_export_to_shareable_handle(0, 0, 0)[1] == 100000
    new, _ = acl.rt.mem_export_to_shareable_handle(other, 0, 0)
    assert acl.rt.mem_set_pid_to_shareable_handle(new, [0]) == 107000


def test_what_cannot_be_is_refused(acl: ModuleType) -> None:
    size = 2 << 20
    virt, _ = acl.rt.reserve_mem_address(size, 0, 0, 1)
    memory, _ = acl.rt.malloc_physical(size, HERE, 0)
    assert acl.rt.reserve_mem_address(0, 0, 0, 1)[1] == 100000
    assert acl.rt.malloc_physical(0, HERE, 0)[1] == 100000
    assert acl.rt.malloc_physical(1 << 60, HERE, 0)[1] == 207001
    assert acl.rt.malloc_physical(size, {"location": {"id": 99}}, 0)[1] == 107001
    for arguments in (
        (virt + size, size, 0, memory, 0),
        (virt + 100, 10, 0, memory, 0),
        (virt, 2 * size, 0, memory, 0),
        (virt, size, 5, memory, 0),
    ):
        assert acl.rt.map_mem(*arguments) == 107000
    assert acl.rt.map_mem(virt, size, 0, 12345, 0) == 100000
    assert acl.rt.map_mem(virt, size, 0, memory, 0) == 0
    assert acl.rt.map_mem(virt, size, 0, memory, 0) == 107000
    assert acl.rt.unmap_mem(virt + 1) == 107000
    assert acl.rt.free_physical(5) == 100000


IMPORT = """
import sys
import acl
acl.init(), acl.rt.set_device(0)
key = sys.stdin.readline().strip()
print(acl.rt.device_get_bare_tgid()[0], flush=True)
assert acl.rt.ipc_mem_import_by_key(key, 1) == (0, 107000)  # not named yet
print(flush=True)
assert sys.stdin.readline()
ptr, ret = acl.rt.ipc_mem_import_by_key(key, 1)
assert ret == 0, acl.get_recent_err_msg()
assert acl.util.ptr_to_bytes(ptr, 5000) == bytes(range(250)) * 20
assert acl.rt.memset(ptr, 5000, 9, 10) == 0
assert acl.rt.memset(ptr, 5001, 9, 5001) != 0
assert acl.rt.ipc_mem_import_by_key(key, 1) == (0, 107000)
assert [acl.rt.ipc_mem_close(key), acl.rt.ipc_mem_close(key)] == [0, 107000]
assert acl.rt.memset(ptr, 5000, 9, 10) != 0
"""


@pytest.mark.parametrize("size", [5000, 3 << 20])
def test_memory_is_shared_with_another_process_by_a_key(acl: ModuleType, size: int) -> None:
    (ptr, _), (other, _) = acl.rt.malloc(size, 0), acl.rt.malloc(64, 0)
    data = bytes(range(250)) * 20
    assert acl.rt.memcpy(ptr, size, acl.util.bytes_to_ptr(data), 5000, 1) == 0
    key, ret = acl.rt.ipc_mem_get_export_key(ptr, 5000, 65, 0)
    assert ret == 0
    assert acl.util.ptr_to_bytes(ptr, 5000) == data
    path = os.pathsep.join(path for path in (*sys.path, os.path.dirname(acl.__path__[0])) if path)
    environment = {**os.environ, "PYTHONPATH": path}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    with subprocess.Popen([sys.executable, "-c", IMPORT], **pipes) as process:  # type: ignore[call-overload]
        assert process.stdin is not None
        assert process.stdout is not None
        print(key, file=process.stdin, flush=True)
        pid = int(process.stdout.readline())
        assert process.stdout.readline() == "\n"
        assert acl.rt.ipc_mem_set_import_pid(key, [pid]) == 0
        print(file=process.stdin, flush=True)
        assert process.wait(600) == 0
    assert acl.util.ptr_to_bytes(ptr, 12) == bytes([9] * 10 + [10, 11])
    assert acl.rt.ipc_mem_get_export_key(ptr + 64, 8, 65, 0) == ("", 107000)
    assert acl.rt.ipc_mem_get_export_key(other, 65, 65, 1) == ("", 107000)
    assert acl.rt.ipc_mem_get_export_key(other, 64, 8, 1) == ("", 107000)
    assert acl.rt.ipc_mem_get_export_key(ptr, 8, 65, 1) == ("", 107000)
    assert "has a key already" in acl.get_recent_err_msg()
    assert acl.rt.ipc_mem_get_export_key(other, 64, 65, 1)[1] == 0
    assert acl.rt.free(other) == 0  # with its key
    assert [acl.rt.ipc_mem_close(key), acl.rt.ipc_mem_close(key)] == [0, 107000]
    assert acl.util.ptr_to_bytes(ptr, 12) == bytes([9] * 10 + [10, 11])
    assert acl.rt.free(ptr) == 0
    assert acl.rt.ipc_mem_import_by_key(key, 0) == (0, 107000)
    assert "cannot be opened" in acl.get_recent_err_msg()


def test_a_key_is_of_one_export_only(acl: ModuleType) -> None:
    """The next export may have the same descriptor (as `reused`), and may be smaller."""
    large, small = acl.rt.malloc(9000, 0)[0], acl.rt.malloc(64, 0)[0]
    old, _ = acl.rt.ipc_mem_get_export_key(large, 9000, 65, 1)
    assert acl.rt.ipc_mem_close(old) == 0
    key, _ = acl.rt.ipc_mem_get_export_key(small, 64, 65, 1)
    reused = "-".join([*old.split("-")[:2], key.split("-")[2], *old.split("-")[3:]])
    assert reused != key
    for closed in (old, reused):
        assert acl.rt.ipc_mem_import_by_key(closed, 0) == (0, 107000)
    assert "is shared no more" in acl.get_recent_err_msg()
    assert acl.rt.ipc_mem_import_by_key(key.replace("-64-", "-9000000-"), 0) == (0, 107000)
    assert acl.rt.ipc_mem_set_import_pid(key, [-1]) == 107000
    assert [acl.rt.ipc_mem_close(key), acl.rt.free(small), acl.rt.free(large)] == [0, 0, 0]


def open_files() -> set[int]:
    """The files of this process, by a number that no other file that is open has."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that listed them
            found.add(os.fstat(int(descriptor)).st_ino)
    return found


def test_memory_of_another_is_not_freed_and_not_exported(acl: ModuleType) -> None:
    before = open_files()
    ptr, _ = acl.rt.malloc(5000, 0)
    key, _ = acl.rt.ipc_mem_get_export_key(ptr, 5000, 65, 1)
    there, ret = acl.rt.ipc_mem_import_by_key(key, 0)
    assert ret == 0
    free, _, _ = acl.rt.get_mem_info(1)
    assert acl.rt.free(there) == 107000
    assert acl.rt.get_mem_info(1)[0] == free
    assert acl.rt.ipc_mem_get_export_key(there, 64, 65, 1) == ("", 107000)
    assert acl.rt.memset(ptr, 5000, 7, 5000) == 0
    assert acl.util.ptr_to_bytes(there, 5000) == b"\7" * 5000
    assert acl.rt.free(ptr) == 0  # with its key; what was imported stays
    assert acl.util.ptr_to_bytes(there, 5000) == b"\7" * 5000
    assert [acl.rt.ipc_mem_close(key), acl.rt.ipc_mem_close(key)] == [0, 107000]
    assert open_files() <= before

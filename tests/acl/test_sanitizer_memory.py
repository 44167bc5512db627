from __future__ import annotations

from pathlib import Path

import pytest

from tests.acl.seeded import check

MISTAKES = {
    "freed twice": """
ptr, _ = acl.rt.malloc(64, 0)
acl.rt.free(ptr)
acl.rt.free(ptr)  #! double-free
""",
    "an address inside an allocation is freed": """
ptr, _ = acl.rt.malloc(64, 0)
acl.rt.free(ptr + 16)  #! free-inside
acl.rt.free(ptr)
""",
    "host memory is freed as memory of a device": """
ptr, _ = acl.rt.malloc_host(64)
acl.rt.free(ptr)  #! mismatched-free
acl.rt.free_host(ptr)
""",
    "memory of a device is freed as host memory": """
ptr, _ = acl.rt.malloc(64, 0)
acl.rt.free_host(ptr)  #! mismatched-free
acl.rt.free(ptr)
""",
    "memory of dvpp is freed as memory of a device": """
ptr, _ = acl.media.dvpp_malloc(64)
acl.rt.free(ptr)  #! mismatched-free
""",
    "memory of a device is freed as memory of dvpp": """
ptr, _ = acl.rt.malloc(64, 0)
acl.media.dvpp_free(ptr)  #! mismatched-free
acl.rt.free(ptr)
""",
    "an array of numpy is freed": """
array = np.ones(64, np.uint8)
acl.rt.free(acl.util.numpy_to_ptr(array))  #! mismatched-free
""",
    "set after it was freed": """
ptr, _ = acl.rt.malloc(64, 0)
acl.rt.free(ptr)
acl.rt.memset(ptr, 64, 0, 64)  #! use-after-free
""",
    "copied from and to after it was freed": """
ptr, _ = acl.rt.malloc(64, 0)
array = np.ones(64, np.uint8)
acl.rt.free(ptr)
acl.rt.memcpy(ptr, 64, acl.util.numpy_to_ptr(array), 64, 1)  #! use-after-free
acl.rt.memcpy(acl.util.numpy_to_ptr(array), 64, ptr, 64, 2)  #! use-after-free
""",
    "described by a data buffer after it was freed": """
ptr, _ = acl.rt.malloc(64, 0)
acl.rt.free(ptr)
buffer = acl.create_data_buffer(ptr, 64)  #! use-after-free
acl.destroy_data_buffer(buffer)
""",
    "more is copied than the destination has": """
ptr, _ = acl.rt.malloc(64, 0)
array = np.ones(65, np.uint8)
acl.rt.memcpy(ptr, 65, acl.util.numpy_to_ptr(array), 65, 1)  #! out-of-bounds
acl.rt.free(ptr)
""",
    "more is copied than the source has": """
ptr, _ = acl.rt.malloc(63, 0)
host, _ = acl.rt.malloc_host(64)
acl.rt.memset(ptr, 63, 0, 63)
acl.rt.memcpy(host, 64, ptr, 64, 2)  #! out-of-bounds
acl.rt.free(ptr)
acl.rt.free_host(host)
""",
    "more is copied than an array of numpy has": """
ptr, _ = acl.rt.malloc(64, 0)
array = np.ones(60, np.uint8)
acl.rt.memcpy(ptr, 64, acl.util.numpy_to_ptr(array), 64, 1)  #! out-of-bounds
acl.rt.free(ptr)
""",
    "more is copied than the room that is given": """
ptr, _ = acl.rt.malloc(64, 0)
array = np.ones(64, np.uint8)
acl.rt.memcpy(ptr, 32, acl.util.numpy_to_ptr(array), 64, 1)  #! out-of-bounds
acl.rt.free(ptr)
""",
    "the last row of a copy of rows is outside": """
ptr, _ = acl.rt.malloc(4 * 20, 0)
array = np.ones((4, 16), np.uint8)
acl.rt.memcpy2d(ptr, 24, acl.util.numpy_to_ptr(array), 16, 16, 4, 1)  #! out-of-bounds
acl.rt.free(ptr)
""",
    "an array whose elements are not one behind the other is copied whole": """
ptr, _ = acl.rt.malloc(96, 0)
planes = np.zeros((2, 4, 3), np.float32).transpose(2, 0, 1)
acl.rt.memcpy(ptr, 96, acl.util.numpy_to_ptr(planes), planes.nbytes, 1)  #! not-contiguous
columns = np.zeros((4, 6), np.float32)[:, ::2]
acl.rt.memcpy(acl.util.numpy_to_ptr(columns), 48, ptr, 48, 2)  #! not-contiguous
acl.rt.free(ptr)
""",
    "addresses come from arrays themselves": """
ptr, _ = acl.rt.malloc(96, 0)
small = np.zeros(12, np.float32)
acl.rt.memcpy(ptr, 96, small.ctypes.data, 96, 1)  #! out-of-bounds
turned = np.zeros((4, 6), np.float32).T
acl.rt.memcpy(ptr, 96, turned.ctypes.data, 96, 1)  #! not-contiguous

class Holder:
    def __init__(self):
        self.data = np.zeros(15, np.float32)

    def send(self):
        send(self.data.ctypes.data)

def send(address):
    acl.rt.memcpy(ptr, 96, address, 64, 1)  #! out-of-bounds

Holder().send()
acl.rt.free(ptr)
""",
    "memory is used after its device was reset": """
ptr, _ = acl.rt.malloc(64, 0)  #? leaked-memory
acl.rt.reset_device(0)
acl.rt.set_device(0)
acl.rt.memset(ptr, 64, 0, 64)  #! use-after-reset
""",
    "source and destination overlap": """
ptr, _ = acl.rt.malloc(64, 0)
acl.rt.memset(ptr, 64, 0, 64)
acl.rt.memcpy(ptr + 8, 48, ptr, 48, 3)  #! overlapping-copy
acl.rt.free(ptr)
""",
    "to the device, and the destination is on the host": """
host, _ = acl.rt.malloc_host(64)
array = np.ones(64, np.uint8)
acl.rt.memcpy(host, 64, acl.util.numpy_to_ptr(array), 64, 1)  #! wrong-copy-kind
acl.rt.free_host(host)
""",
    "from the device, and the destination is on it": """
ptr, _ = acl.rt.malloc(64, 0)
other, _ = acl.rt.malloc(64, 0)
acl.rt.memset(ptr, 64, 0, 64)
acl.rt.memcpy(other, 64, ptr, 64, 2)  #! wrong-copy-kind
acl.rt.free(ptr)
acl.rt.free(other)
""",
    "between devices, and both are on the host": """
host, _ = acl.rt.malloc_host(64)
array = np.ones(64, np.uint8)
acl.rt.memcpy(host, 64, acl.util.numpy_to_ptr(array), 64, 3)  #! wrong-copy-kind
acl.rt.free_host(host)
""",
    "from the device, and the source is on the host": """
host, _ = acl.rt.malloc_host(64)
array = np.ones(64, np.uint8)
acl.rt.memcpy(acl.util.numpy_to_ptr(array), 64, host, 64, 2)  #? wrong-copy-kind
acl.rt.free_host(host)
""",
    "the bytes are gone when their address is used": """
ptr, _ = acl.rt.malloc(64, 0)
source = acl.util.bytes_to_ptr(np.ones(64, np.uint8).tobytes())
acl.rt.memcpy(ptr, 64, source, 64, 1)  #! temporary-gone
acl.rt.free(ptr)
""",
    "the array is gone when its address is used": """
ptr, _ = acl.rt.malloc(64, 0)
source = acl.util.numpy_to_ptr(np.arange(64).astype(np.uint8).reshape(8, 8))
acl.rt.memcpy(ptr, 64, source, 64, 1)  #! temporary-gone
acl.rt.free(ptr)
""",
    "nothing was ever written to what is read": """
ptr, _ = acl.rt.malloc(64, 0)
array = np.ones(64, np.uint8)
acl.rt.memcpy(acl.util.numpy_to_ptr(array), 64, ptr, 64, 2)  #! uninitialised-read
acl.rt.free(ptr)
""",
    "a part of what is read was never written": """
ptr, _ = acl.rt.malloc(64, 0)
array = np.ones(64, np.uint8)
acl.rt.memset(ptr, 64, 0, 63)
acl.rt.memcpy(acl.util.numpy_to_ptr(array), 64, ptr, 64, 2)  #? uninitialised-read
acl.rt.free(ptr)
""",
    "the host looks at memory of a device": """
ptr, _ = acl.rt.malloc(64, 0)
acl.rt.memset(ptr, 64, 0, 64)
acl.util.ptr_to_bytes(ptr, 64)  #! host-reads-device
acl.rt.free(ptr)
""",
    "memory of another device": """
ptr, _ = acl.rt.malloc(64, 0)
acl.rt.set_device(1)
acl.rt.memset(ptr, 64, 0, 64)  #! other-device
acl.rt.reset_device(1)
acl.rt.set_device(0)
acl.rt.free(ptr)
acl.rt.reset_device(0)
""",
}
CLEAN = {
    "copies of every kind": """
device, _ = acl.rt.malloc(64, 0)
other, _ = acl.rt.malloc(64, 0)
host, _ = acl.rt.malloc_host(64)
data = np.arange(64, dtype=np.uint8).tobytes()
acl.rt.memcpy(device, 64, acl.util.bytes_to_ptr(data), 64, 1)
acl.rt.memcpy(other, 64, device, 64, 3)
acl.rt.memcpy(host, 64, other, 64, 2)
assert acl.util.ptr_to_bytes(host, 64) == data
rows = np.ones((4, 16), np.uint8)
acl.rt.memcpy2d(device, 16, acl.util.numpy_to_ptr(rows), 16, 16, 4, 1)
acl.rt.memcpy(device, 32, acl.util.numpy_to_ptr(rows[1]), 32, 1)
for ptr in (device, other):
    acl.rt.free(ptr)
acl.rt.free_host(host)
""",
    "views of which no more is copied than lies one behind the other": """
device, _ = acl.rt.malloc(64, 0)
left = np.ones((4, 16), np.uint8)[:, :12]
acl.rt.memcpy2d(device, 12, acl.util.numpy_to_ptr(left), 16, 12, 4, 1)
acl.rt.memcpy(device, 12, acl.util.numpy_to_ptr(left), 12, 1)
picture = np.ones((1, 4, 4, 1), np.float32)
planes = picture.transpose(0, 3, 1, 2)
acl.rt.memcpy(device, 64, acl.util.numpy_to_ptr(planes), 64, 1)
acl.rt.free(device)
""",
    "addresses of arrays whose memory has other views": """
device, _ = acl.rt.malloc(96, 0)
whole = np.zeros((4, 6), np.float32)
turned, part = whole.T, whole.reshape(-1)[12:]
acl.rt.memcpy(device, 96, whole.ctypes.data, 96, 1)
acl.rt.memcpy(device, 96, part.ctypes.data, 48, 1)
acl.rt.memcpy(whole.ctypes.data, 96, device, 96, 2)
acl.rt.free(device)
""",
    "memory that Python writes": """
host, _ = acl.rt.malloc_host(64)
acl.util.ptr_to_numpy(host, (64,), 2)[:] = 7
device, _ = acl.rt.malloc(64, 0)
acl.rt.memcpy(device, 64, host, 64, 1)
acl.rt.free(device)
acl.rt.free_host(host)
""",
    "memory taken and given back many times": """
for turn in range(200):
    ptr, _ = acl.rt.malloc(256, 0)
    data = bytes([turn]) * 256
    acl.rt.memcpy(ptr, 256, acl.util.bytes_to_ptr(data), 256, 1)
    acl.rt.free(ptr)
""",
}


@pytest.mark.parametrize("program", MISTAKES.values(), ids=list(MISTAKES))
def test_the_line_of_a_mistake_is_found(tmp_path: Path, program: str) -> None:
    check(program, tmp_path)


@pytest.mark.parametrize("program", CLEAN.values(), ids=list(CLEAN))
def test_nothing_is_said_of_a_program_without_mistakes(tmp_path: Path, program: str) -> None:
    assert check(program, tmp_path).endswith("AnyCANN sanitizer: 0 errors, 0 notes\n")


def test_the_report_names_the_lines_that_allocated_and_freed(tmp_path: Path) -> None:
    text = check(MISTAKES["freed twice"], tmp_path)
    first = next(number for number, line in enumerate((tmp_path / "program.py").read_text().splitlines(), 1) if line.startswith("ptr, _"))
    assert f"    here       {tmp_path}/program.py:{first + 2} in <module>: acl.rt.free(ptr)  #! double-free\n" in text
    assert f"    allocated  {tmp_path}/program.py:{first} in <module>: ptr, _ = acl.rt.malloc(64, 0)\n" in text
    assert f"    freed      {tmp_path}/program.py:{first + 1} in <module>: acl.rt.free(ptr)\n" in text

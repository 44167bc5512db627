"""Memory of npus is counted exactly, bounded when asked, and its statistics have torch's names."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import pytest
import torch

MIB = 1 << 20


@pytest.fixture
def held() -> int:
    gc.collect()
    torch.npu.reset_peak_memory_stats()
    return torch.npu.memory_allocated()


def test_memory_is_counted_when_it_is_taken_and_when_it_is_freed(held: int) -> None:
    x = torch.empty(MIB, device="npu")
    assert torch.npu.memory_allocated() == held + 4 * MIB
    y = x + 1
    view = y[5:].t()
    del x, y
    assert torch.npu.memory_allocated() == held + 4 * MIB
    del view
    assert torch.npu.memory_allocated() == held
    assert torch.npu.max_memory_allocated() == held + 8 * MIB


def test_each_block_is_rounded_up_to_512_bytes_and_each_npu_has_its_own_account(held: int) -> None:
    others = torch.npu.memory_allocated(1)
    small = torch.empty(3, device="npu:1")
    assert torch.npu.memory_allocated("npu:1") == others + 512
    assert torch.npu.memory_stats(1)["requested_bytes.all.current"] % 512 == 12
    assert torch.npu.memory_allocated() == held
    assert small.is_npu


def test_a_tensor_that_grows_is_counted_again(held: int) -> None:
    x = torch.empty(4, device="npu")
    x.resize_(1024)
    assert torch.npu.memory_allocated() == held + 4096
    out = torch.empty(0, device="npu")
    torch.mul(x, 2, out=out)
    assert torch.npu.memory_allocated() == held + 2 * 4096
    del x, out
    assert torch.npu.memory_allocated() == held


def test_training_gives_back_what_it_took(held: int) -> None:
    def train() -> None:
        module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Dropout(), torch.nn.Linear(64, 2)).npu()
        optimizer = torch.optim.Adam(module.parameters())
        for _ in range(3):
            module(torch.randn(8, 64, device="npu")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    train()
    gc.collect()
    assert torch.npu.memory_allocated() == held
    assert torch.npu.max_memory_allocated() > held + 64 * 64 * 4 * 4


def test_another_thread_may_free(held: int) -> None:
    boxes = [[torch.empty(1000, device="npu")] for _ in range(50)]
    threads = [threading.Thread(target=lambda start=start: [box.clear() for box in boxes[start::4]]) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.npu.memory_allocated() == held


def test_statistics_add_up(held: int) -> None:
    before = torch.npu.memory_stats()
    for _ in range(3):
        torch.empty(1000, device="npu")
    stats = torch.npu.memory_stats()
    assert stats["allocation.all.allocated"] - before["allocation.all.allocated"] == 3
    assert stats["allocation.all.freed"] - before["allocation.all.freed"] == 3
    assert stats["allocated_bytes.all.current"] == held == torch.npu.memory_reserved()
    assert "PyTorch NPU memory summary, device ID 0" in torch.npu.memory_summary()
    kept = torch.empty(MIB, device="npu")
    segments = [segment for segment in torch.npu.memory_snapshot() if segment["device"] == 0]
    assert sum(segment["total_size"] for segment in segments) == torch.npu.memory_allocated()
    assert any(segment["address"] == kept.data_ptr() for segment in segments)


def test_an_npu_with_a_limit_refuses_more_and_stays_usable(held: int) -> None:
    torch.npu.set_per_process_memory_fraction((held + 10 * MIB) / torch.npu.get_device_properties().total_memory)
    try:
        x = torch.empty(MIB, device="npu")
        with pytest.raises(torch.OutOfMemoryError, match=r"NPU out of memory. Tried to allocate 8.00 MiB \(NPU 0; .* total capacity"):
            torch.zeros(2 * MIB, device="npu")
        with pytest.raises(torch.npu.OutOfMemoryError, match="NPU out of memory"):
            x.repeat(3)
        assert torch.npu.memory_allocated() == held + 4 * MIB
        assert torch.npu.memory_stats()["num_ooms"] >= 2
        assert (x.zero_() + 1).sum().item() == MIB
    finally:
        torch.npu.set_per_process_memory_fraction(1.0)


def test_the_configured_memory_is_the_limit() -> None:
    program = """
import torch, torch_npu
print(torch.npu.mem_get_info(), torch.npu.get_device_properties())
try:
    torch.empty(17 << 20, dtype=torch.uint8, device="npu:3")
except torch.OutOfMemoryError as error:
    print(error)
"""
    environment = {"ANYCANN_DEVICE_MEMORY": "16", "PATH": "/usr/bin", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert "(16777216, 16777216) _NPUDeviceProperties(name='Ascend910B1', total_memory=16MB)" in done.stdout, done.stderr
    assert "Tried to allocate 17.00 MiB (NPU 3; 16.00 MiB total capacity; 0 bytes already allocated; 16.00 MiB free" in done.stdout


def test_raw_memory_is_given_back_once() -> None:
    address = torch.npu.caching_allocator_alloc(100)
    torch.npu.caching_allocator_delete(address)
    with pytest.raises(ValueError, match="was not allocated"):
        torch.npu.caching_allocator_delete(address)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16, torch.bool, torch.complex64])
def test_memory_that_grows_is_filled_where_algorithms_are_deterministic(dtype: torch.dtype) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        here, there = (torch.ones(3, dtype=dtype, device=device).resize_(2, 4) for device in ("cpu", "npu"))
        shrunk = torch.ones(6, dtype=dtype, device="npu").resize_(2)
    finally:
        torch.use_deterministic_algorithms(False)
    torch.testing.assert_close(there.cpu(), here, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(shrunk.cpu(), torch.ones(2, dtype=dtype))
    assert torch.utils.deterministic.fill_uninitialized_memory

"""What programs use rarely: notifies, values in memory, failures, settings of streams, facts of devices and memory."""

from __future__ import annotations

import threading
import time
from types import ModuleType

import numpy as np
import pytest

from anycann.acl.entries import BORDER
from anycann.acl.namespace import declared
from anycann.acl.process import PROCESS


def device_array(acl: ModuleType, values: np.ndarray) -> tuple[int, np.ndarray]:
    """Device memory with `values`, and a view of it."""
    address, ret = acl.rt.malloc(values.nbytes, 0)
    assert ret == 0
    view = acl.util.ptr_to_numpy(address, values.shape, values.dtype.num)
    view[...] = values
    return address, view


def test_a_stream_waits_for_the_notify_of_another(acl: ModuleType) -> None:
    (one, _), (two, _) = acl.rt.create_stream(), acl.rt.create_stream()
    notify, ret = acl.rt.create_notify(0)
    address, cell = device_array(acl, np.zeros(1, np.uint64))
    assert (ret, acl.rt.wait_and_reset_notify(notify, two, 0), acl.rt.value_write(address, 7, 0, two)) == (0, 0, 0)
    assert acl.rt.synchronize_stream_with_timeout(two, 50) == 107019
    assert cell[0] == 0
    assert acl.rt.record_notify(notify, one) == 0
    assert acl.rt.synchronize_stream(two) == 0
    assert cell[0] == 7
    assert acl.rt.wait_and_reset_notify(notify, two, 1) == 0  # it was taken back
    assert acl.rt.record_notify(notify, one) == 0
    assert acl.rt.synchronize_stream(two) == 0
    assert acl.rt.get_notify_id(notify)[1] == 0
    assert acl.rt.notify_batch_reset([notify, one]) == 100000
    assert acl.rt.destroy_notify(notify) == 0
    assert acl.rt.record_notify(notify, one) == 100000


@pytest.mark.parametrize(("flag", "start", "wanted", "written"), [(0, 1, 3, 4), (1, 1, 3, 3), (2, 4, 3, 2), (3, 2**64 - 1, 0, 5)])
def test_a_stream_waits_for_a_value(acl: ModuleType, flag: int, start: int, wanted: int, written: int) -> None:
    (one, _), (two, _) = acl.rt.create_stream(), acl.rt.create_stream()
    address, _ = device_array(acl, np.array([start], np.uint64))
    assert acl.rt.value_wait(address, wanted, flag, two) == 0
    assert acl.rt.synchronize_stream_with_timeout(two, 30) == 107019
    assert acl.rt.value_write(address, written, 0, one) == 0
    assert acl.rt.synchronize_stream(two) == 0


def test_waiting_for_a_value_ends_after_the_time_that_was_set(acl: ModuleType) -> None:
    address, _ = device_array(acl, np.zeros(1, np.uint64))
    assert acl.rt.set_op_wait_timeout(1) == 0
    begun = time.monotonic()
    assert acl.rt.value_wait(address, 1, 1, 0) == 0
    assert acl.rt.synchronize_stream(0) == 107019
    assert time.monotonic() - begun > 0.9
    assert acl.rt.set_op_wait_timeout(0) == 0
    assert acl.rt.value_wait(address, 1, 9, 0) == 100000
    assert acl.rt.value_wait(0, 1, 0, 0) == 100000
    assert acl.rt.value_write(123, 1, 0, 0) == 100000


def fail_in(acl: ModuleType, stream: int) -> None:
    """Give `stream` a task that fails: its memory is gone when it comes to it."""
    address, _ = acl.rt.malloc(8, 0)
    notify, _ = acl.rt.create_notify(0)
    other, _ = acl.rt.create_stream()
    acl.rt.wait_and_reset_notify(notify, stream, 0)
    assert acl.rt.memcpy_async(address, 8, address, 8, 3, stream) == 0
    acl.rt.free(address)
    acl.rt.record_notify(notify, other)


def test_a_program_is_told_of_tasks_that_fail(acl: ModuleType) -> None:
    stream, _ = acl.rt.create_stream()
    found: list[tuple[int, ...]] = []

    def note(info: int) -> None:
        parts = ("task_id", "stream_id", "thread_id", "device_id", "error_code")
        found.append(tuple(getattr(acl.rt, f"get_{part}_from_exception_info")(info) for part in parts))

    assert acl.rt.set_exception_info_callback(note) == 0
    fail_in(acl, stream)
    assert acl.rt.synchronize_stream(stream) == 107000
    number, _ = acl.rt.stream_get_id(stream)
    assert found == [(2, number, threading.get_ident() & 0xFFFFFFFF, 0, 107000)]
    assert acl.rt.get_task_id_from_exception_info(stream) == 0xFFFFFFFF
    assert acl.rt.set_exception_info_callback(None) == 0
    fail_in(acl, stream)
    acl.rt.synchronize_stream(stream)
    assert len(found) == 1


def test_a_stream_stops_at_a_failure_if_it_was_told_to(acl: ModuleType) -> None:
    for mode, written in ((0, 5), (1, 0)):
        stream, _ = acl.rt.create_stream()
        address, cell = device_array(acl, np.zeros(1, np.uint64))
        assert acl.rt.set_stream_failure_mode(stream, mode) == 0
        fail_in(acl, stream)
        assert acl.rt.value_write(address, 5, 0, stream) == 0
        assert acl.rt.synchronize_stream(stream) == 107000
        assert cell[0] == written
    assert acl.rt.get_stream_attribute(stream, 1) == ({"failureMode": 1}, 0)
    assert acl.rt.set_stream_attribute(stream, 3, {"userCustomTag": 9}) == 0
    assert acl.rt.get_stream_attribute(stream, 3) == ({"userCustomTag": 9}, 0)
    assert acl.rt.set_stream_attribute(stream, 2, {"failureMode": 1}) == 100000
    assert acl.rt.get_stream_attribute(stream, 7) == (None, 100000)
    assert acl.rt.get_stream_overflow_switch(stream) == (0, 0)


def test_work_that_waits_is_dropped(acl: ModuleType) -> None:
    stream, _ = acl.rt.create_stream()
    address, cell = device_array(acl, np.zeros(1, np.uint64))
    started, gate = threading.Event(), threading.Event()

    def task() -> None:
        started.set()
        gate.wait(600)

    PROCESS.stream(stream).submit(task)
    acl.rt.value_write(address, 5, 0, stream)
    assert started.wait(600)
    assert acl.rt.device_task_abort(0, 50) == 107019  # the one that runs goes on
    gate.set()
    assert acl.rt.synchronize_device_with_timeout(600_000) == 0
    assert cell[0] == 0
    assert acl.rt.stream_abort(stream) == 0


def test_the_last_error_is_kept_for_a_thread(acl: ModuleType) -> None:
    acl.rt.get_last_error(0)
    assert acl.rt.peek_at_last_error(0) == 0
    assert acl.rt.free(0) == 100000
    assert [acl.rt.peek_at_last_error(0), acl.rt.get_last_error(0), acl.rt.peek_at_last_error(0)] == [100000, 100000, 0]
    assert acl.rt.get_last_error(1) == 100000


@pytest.mark.parametrize(("kind", "expected"), [(10, [4, 6]), (11, [3, 5]), (12, [1, 1])])
def test_memory_is_reduced(acl: ModuleType, kind: int, expected: list[int]) -> None:
    (dst, target), (src, _) = device_array(acl, np.array([1, 5], "f4")), device_array(acl, np.array([3, 1], "f4"))
    assert acl.rt.reduce_async(dst, src, 8, kind, 0, 0, 0) == 0
    assert acl.rt.synchronize_stream(0) == 0
    assert target.tolist() == expected
    assert acl.rt.reduce_async(dst, src, 6, kind, 0, 0, 0) == 100000
    assert acl.rt.reduce_async(dst, src, 8, 13, 0, 0, 0) == 100000
    assert acl.rt.reduce_async(dst, src, 12, kind, 0, 0, 0) == 107000


def test_an_address_is_explained(acl: ModuleType) -> None:
    device, _ = acl.rt.malloc(8, 0)
    host, _ = acl.rt.malloc_host(8)
    own = np.zeros(8, np.uint8)
    where = [acl.rt.pointer_get_attributes(ptr)[0]["location"]["type"] for ptr in (device + 7, host, own.ctypes.data)]
    assert where == [1, 0, 2]
    assert acl.rt.host_register(own.ctypes.data, 8, 0) == (own.ctypes.data, 0)
    assert acl.rt.host_register(own.ctypes.data, 8, 0) == (0, 107000)
    assert acl.rt.pointer_get_attributes(own.ctypes.data)[0]["location"]["type"] == 0
    assert acl.rt.host_get_device_pointer(own.ctypes.data, 0) == (own.ctypes.data, 0)
    assert acl.rt.host_unregister(own.ctypes.data) == 0
    assert acl.rt.host_unregister(own.ctypes.data) == 107000
    assert acl.rt.pointer_get_attributes(0) == (None, 100000)


def test_a_copy_is_described_in_memory(acl: ModuleType) -> None:
    (dst, target), (src, _) = device_array(acl, np.zeros(2, "f4")), device_array(acl, np.array([3, 1], "f4"))
    size, ret = acl.rt.get_memcpy_desc_size(6)
    desc, _ = acl.rt.malloc(size, 0)
    assert (ret, acl.rt.set_memcpy_desc(desc, 6, src, dst, 8, 0)) == (0, (desc, 0))
    assert acl.rt.memcpy_async_with_desc(desc, 6, 0) == 0
    assert acl.rt.synchronize_stream(0) == 0
    assert target.tolist() == [3, 1]


def test_devices_and_this_cann_are_described(acl: ModuleType) -> None:
    rate, ret = acl.rt.get_device_utilization_rate(0)
    assert ret == 0
    assert all(0 <= rate[f"{part}_utilization"] <= 100 for part in ("cube", "vector", "aicpu", "memory"))
    assert acl.rt.get_device_utilization_rate(99) == (None, 107001)
    assert acl.get_cann_attribute_list() == ([1, 2, 3], 3, 0)
    assert (acl.get_cann_attribute(2), acl.get_cann_attribute(9)) == ((1, 0), (0, 100000))
    assert acl.rt.device_get_uuid(0) == acl.rt.device_get_uuid(0)
    assert len(acl.rt.device_get_uuid(0)[0]["bytes"]) == 16
    assert acl.rt.get_logic_dev_id_by_phy_dev_id(0) == (0, 0)
    assert acl.rt.get_sys_param_opt(0) == (0, 107021)
    assert (acl.rt.set_sys_param_opt(0, 1), acl.rt.get_sys_param_opt(0)) == (0, (1, 0))
    assert [acl.finalize(), acl.init(), acl.rt.set_device(0)] == [0, 0, 0]
    assert acl.rt.get_sys_param_opt(0) == (0, 107021)
    default, ret = acl.rt.ctx_get_current_default_stream()
    assert (ret, acl.rt.stream_query(default), acl.rt.ctx_get_current_default_stream()[0]) == (0, (0, 0), default)


def test_half_precision_numbers_are_bits(acl: ModuleType) -> None:
    for number, bits in ((1.5, 0x3E00), (-2.0, 0xC000), (65504.0, 0x7BFF), (1e9, 0x7C00), (0.0, 0)):
        assert acl.float_to_float16(number) == bits
    assert acl.float16_to_float(0x3E00) == 1.5
    assert acl.float16_to_float(-1) == 0.0


def test_cores_and_groups_are_told(acl: ModuleType) -> None:
    stream, _ = acl.rt.create_stream()
    all_cores, ret = acl.rt.get_device_res_limit(0, 0)
    assert (ret, all_cores >= 1) == (0, True)
    assert acl.rt.set_device_res_limit(0, 0, 0) == 100000
    assert acl.rt.set_stream_res_limit(stream, 1, 1) == 0
    assert acl.rt.get_stream_res_limit(stream, 1) == (1, 0)
    assert acl.rt.get_res_in_current_thread(1) == (all_cores, 0)
    assert acl.rt.use_stream_res_in_current_thread(stream) == 0
    assert [acl.rt.get_res_in_current_thread(kind) for kind in (0, 1)] == [(all_cores, 0), (1, 0)]
    other, _ = acl.rt.create_stream()
    assert acl.rt.unuse_stream_res_in_current_thread(other) == 0
    assert acl.rt.get_res_in_current_thread(1) == (1, 0)
    assert acl.rt.use_stream_res_in_current_thread(other) == 0
    assert acl.rt.get_res_in_current_thread(1) == (all_cores, 0)
    assert acl.rt.use_stream_res_in_current_thread(stream) == 0
    assert acl.rt.unuse_stream_res_in_current_thread(stream) == 0
    assert acl.rt.get_res_in_current_thread(1) == (all_cores, 0)
    assert acl.rt.get_res_in_current_thread(2) == (0, 100000)
    assert acl.rt.reset_stream_res_limit(stream) == 0
    assert acl.rt.get_stream_res_limit(stream, 1) == (all_cores, 0)
    info = acl.rt.create_group_info()
    assert acl.rt.get_group_info_detail(info, 0, 0) == (None, 100000)
    assert acl.rt.get_all_group_info(info) == 0
    assert acl.rt.get_group_info_detail(info, 0, 5) == ([0], 0)
    assert [acl.rt.set_group(0), acl.rt.set_group(1), acl.rt.get_group_count(0)] == [0, 107014, (1, 0)]
    desc = acl.rt.allocator_create_desc()
    assert acl.rt.allocator_register(stream, desc) == 100000
    assert "no function to alloc" in acl.get_recent_err_msg()


def test_a_device_tells_its_cores_and_its_memory(acl: ModuleType) -> None:
    cores = [acl.rt.get_device_info(0, number) for number in (1, 101, 102, 201)]
    assert len(set(cores)) == 1
    assert cores[0][0] > 0
    assert cores[0][1] == 0
    assert acl.rt.get_device_info(0, 301) == (PROCESS.devices[0].memory_bytes, 0)
    assert acl.rt.get_device_info(0, 999) == (0, 100000)
    assert acl.rt.get_device_info(99, 1)[1] == 107001


def test_overflow_is_not_told_of_a_stream_that_did_not_ask(acl: ModuleType) -> None:
    address, view = device_array(acl, np.full(64, 9, np.uint8))
    assert acl.rt.get_overflow_status(address, 32, 0) == 100000
    assert acl.rt.get_overflow_status(address, 64, 0) == 0
    assert acl.rt.synchronize_stream(0) == 0
    assert not view.any()


def test_numbers_of_streams_events_and_tasks_are_told(acl: ModuleType) -> None:
    (one, _), (two, _) = acl.rt.create_stream(), acl.rt.create_stream()
    assert acl.rt.stream_get_id(one)[0] != acl.rt.stream_get_id(two)[0]
    before, _ = acl.rt.get_stream_available_num()
    acl.rt.create_stream()
    assert acl.rt.get_stream_available_num() == (before - 1, 0)
    (event, _), (later, _) = acl.rt.create_event(), acl.rt.create_event()
    assert acl.rt.get_event_id(event)[0] != acl.rt.get_event_id(later)[0]
    acl.rt.record_event(event, one)
    last, ret = acl.rt.get_thread_last_task_id()
    acl.rt.record_event(event, one)
    assert (ret, acl.rt.get_thread_last_task_id()[0]) == (0, last + 1)
    assert acl.rt.synchronize_event_with_timeout(event, 600_000) == 0


def test_what_is_refused_says_so(acl: ModuleType) -> None:
    declared()
    for name, entry in BORDER.entries.items():
        if entry.refusal is not None:
            result = entry.call()
            assert (result[-1] if isinstance(result, tuple) else result) == entry.refusal
            assert f"{name} is not there: {entry.limits}" in acl.get_recent_err_msg()

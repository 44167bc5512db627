"""What a program sets of the runtime: priorities and numbers of streams, times of waiting, configurations of memory, options."""

from __future__ import annotations

import os
import threading
import time
from types import ModuleType

import pytest

from anycann.acl.process import PROCESS
from anycann.runtime.device import Device

INVALID, RT_INVALID, TIMEOUT = 100000, 107000, 107019


def niceness_of(acl: ModuleType, stream: int) -> int:
    """The niceness of the thread that runs the stream's tasks."""
    found: list[int] = []
    PROCESS.stream(stream).submit(lambda: found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))
    assert acl.rt.synchronize_stream_with_timeout(stream, 60000) == 0
    return found[0]


def test_a_stream_of_low_priority_steps_back(acl: ModuleType) -> None:
    assert acl.rt.device_get_stream_priority_range() == (7, 0, 0)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    for priority, steps in ((0, 0), (3, 6), (7, 14), (9, 14), (-2, 0)):
        stream, ret = acl.rt.create_stream_with_config(priority, 1)
        assert ret == 0
        assert niceness_of(acl, stream) == min(own + steps, 19)
        assert acl.rt.synchronize_stream(stream) == 0
        assert acl.rt.destroy_stream(stream) == 0
    assert acl.rt.create_stream_with_config(0, 2 | 8 | 32)[1] == 0
    assert acl.rt.create_stream_with_config(0, 4) == (0, 207000)
    assert "PERSISTENT" in acl.get_recent_err_msg()


def test_there_are_as_many_streams_and_events_as_are_told(acl: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kind, code in (("stream", "STREAMS", 207008), ("event", "EVENTS", 207007)):
        count = acl.rt.get_stream_available_num if name == "stream" else acl.rt.get_event_avail_num
        create, destroy = getattr(acl.rt, f"create_{name}"), getattr(acl.rt, f"destroy_{name}")
        before, ret = count()
        first, _ = create()
        assert (ret, count()) == (0, (before - 1, 0))
        for module in ("streams", "stream_settings"):
            monkeypatch.setattr(f"anycann.acl.{module}.MOST_{kind}", 2)
        second, _ = create()
        assert count() == (0, 0)
        assert create() == (0, code)
        assert f"2 {name}s are there" in acl.get_recent_err_msg()
        assert destroy(first) == 0
        third, ret = create()
        assert (ret, destroy(second), destroy(third)) == (0, 0, 0)


def test_waiting_for_an_event_ends_after_the_time_that_was_set(acl: ModuleType) -> None:
    (one, _), (two, _), (event, _) = acl.rt.create_stream(), acl.rt.create_stream(), acl.rt.create_event()
    notify, _ = acl.rt.create_notify(0)
    assert acl.rt.wait_and_reset_notify(notify, one, 0) == 0  # the first stream does not come to the event
    assert acl.rt.record_event(event, one) == 0
    assert acl.rt.set_op_wait_timeout(1) == 0
    begun = time.monotonic()
    assert acl.rt.stream_wait_event(two, event) == 0
    assert acl.rt.synchronize_stream(two) == TIMEOUT
    assert time.monotonic() - begun > 0.9
    assert "acl.rt.set_op_wait_timeout" in acl.get_recent_err_msg()
    assert acl.rt.set_op_wait_timeout(-1) == INVALID
    assert acl.rt.set_op_wait_timeout(0) == 0
    assert acl.rt.stream_wait_event(two, event) == 0
    other, _ = acl.rt.create_stream()
    assert acl.rt.record_notify(notify, other) == 0
    assert [acl.rt.synchronize_stream(stream) for stream in (other, one, two)] == [0, 0, 0]
    assert acl.rt.stream_wait_event(two, 0) == INVALID
    assert acl.rt.stream_wait_event(two, one) == RT_INVALID


def test_memory_is_taken_with_a_configuration(acl: ModuleType) -> None:
    good = {"attrs": [{"attr": 1, "value": {"moduleId": 33}}, {"attr": 2, "value": {"deviceId": 0}}], "numAttrs": 2}
    takers = (
        lambda given: acl.rt.malloc_with_cfg(64, 0, given), lambda given: acl.rt.malloc_for_task_scheduler(64, 0, given),
        lambda given: acl.rt.malloc_host_with_cfg(64, given), lambda given: acl.media.dvpp_malloc_with_cfg(64, 0, given),
    )  # fmt: skip
    for take in takers:
        assert [take(given)[1] for given in ({}, good, {"attrs": [], "numAttrs": 0})] == [0, 0, 0]
        assert take({"attrs": [{"attr": 2, "value": {"deviceId": 7}}]}) == (0, RT_INVALID)
        assert "memory of device 7; accepted: 0" in acl.get_recent_err_msg()
        assert [take(wrong)[1] for wrong in ({"attrs": [{"attr": 9}]}, {"attrs": 3})] == [INVALID, INVALID]
    assert acl.rt.malloc_with_cfg(64, 4711, {})[1] == 0  # any policy, as Ascend's
    assert acl.rt.malloc_with_cfg(64, 0, 0)[1] == 0
    assert acl.rt.malloc_with_cfg(64, 0, 5)[1] == INVALID
    assert acl.rt.malloc_with_cfg(0, 0, {})[1] == INVALID


def test_options_of_process_and_context_are_those_that_there_are(acl: ModuleType) -> None:
    assert acl.rt.get_sys_param_opt(0)[1] == 107021
    for put, tell in ((acl.rt.set_sys_param_opt, acl.rt.get_sys_param_opt), (acl.rt.ctx_set_sys_param_opt, acl.rt.ctx_get_sys_param_opt)):
        assert [put(0, 1), put(1, 0), put(2, 1)] == [0, 0, 0]
        assert [tell(option) for option in (0, 1, 2)] == [(1, 0), (0, 0), (1, 0)]
        assert [put(3, 1), put(-1, 0), put(0, 2)] == [INVALID] * 3
        assert "0 (determinism)" in acl.get_recent_err_msg()


def test_caches_are_told_in_order_with_the_tasks_of_a_stream(acl: ModuleType) -> None:
    stream, _ = acl.rt.create_stream()
    ptr, _ = acl.rt.malloc(1000, 0)
    assert [acl.rt.cmo_async(ptr, 1000, kind, stream) for kind in range(4)] == [0] * 4
    assert acl.rt.synchronize_stream(stream) == 0
    assert acl.rt.cmo_async(ptr, 1000, 4, stream) == INVALID
    assert acl.rt.cmo_async(0, 1000, 0, stream) == INVALID
    assert acl.rt.cmo_async(ptr, 1001, 0, stream) == RT_INVALID
    assert acl.rt.cmo_async(ptr, 1000, 0, ptr) == RT_INVALID
    notify, _ = acl.rt.create_notify(0)
    assert acl.rt.wait_and_reset_notify(notify, stream, 0) == 0
    assert acl.rt.cmo_async(ptr, 1000, 0, stream) == 0
    assert acl.rt.free(ptr) == 0
    assert acl.rt.record_notify(notify, 0) == 0
    assert acl.rt.synchronize_stream(0) == 0
    assert acl.rt.synchronize_stream(stream) != 0  # its memory is gone by then


def test_a_failure_tells_the_device_of_its_stream(acl: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PROCESS, "devices", (PROCESS.devices[0], Device(1, PROCESS.devices[0].memory_bytes)))
    found: list[int] = []
    assert acl.rt.set_exception_info_callback(lambda info: found.append(acl.rt.get_device_id_from_exception_info(info))) == 0
    for device in (0, 1):
        assert acl.rt.set_device(device) == 0
        for stream in (acl.rt.create_stream()[0], 0):
            (ptr, _), (notify, _), (other, _) = acl.rt.malloc(8, 0), acl.rt.create_notify(0), acl.rt.create_stream()
            assert acl.rt.wait_and_reset_notify(notify, stream, 0) == 0
            assert acl.rt.memset_async(ptr, 8, 0, 9, stream) == INVALID
            assert acl.rt.memcpy_async(ptr, 8, ptr, 8, 3, stream) == 0
            assert acl.rt.free(ptr) == 0  # before the copy begins
            assert acl.rt.record_notify(notify, other) == 0
            assert acl.rt.synchronize_stream(stream) == RT_INVALID
    assert acl.rt.reset_device_force(1) == 0
    assert found == [0, 0, 1, 1]
    assert acl.rt.get_device_id_from_exception_info(0) == 0xFFFFFFFF

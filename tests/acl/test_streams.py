from __future__ import annotations

import threading
import time
from types import ModuleType
import weakref

import numpy as np
import pytest


@pytest.fixture
def stream(acl: ModuleType) -> int:
    made, ret = acl.rt.create_stream()
    assert ret == 0
    return int(made)


def test_copies_of_a_stream_run_in_order(acl: ModuleType, stream: int) -> None:
    device, _ = acl.rt.malloc(64, 0)
    for number in range(50):
        assert acl.rt.memset_async(device, 64, number, 64, stream) == 0
    back = np.zeros(64, np.uint8)
    assert acl.rt.memcpy_async(acl.util.numpy_to_ptr(back), 64, device, 64, 2, stream) == 0
    assert acl.rt.synchronize_stream(stream) == 0
    assert set(back) == {49}
    assert acl.rt.stream_query(stream) == (0, 0)


def test_what_fails_in_a_stream_is_told_where_it_is_waited_for(acl: ModuleType, stream: int) -> None:
    device, _ = acl.rt.malloc(64, 0)
    event = _held(acl, stream)
    assert acl.rt.memset_async(device, 64, 1, 64, stream) == 0
    data = np.zeros(64, np.uint8)
    assert acl.rt.memcpy_async(device, 64, acl.util.numpy_to_ptr(data), 64, 1, stream) == 0
    acl.rt.free(device)
    event.set()
    assert acl.rt.synchronize_stream(stream) != 0
    assert "freed before" in acl.get_recent_err_msg() or "not this process's memory" in acl.get_recent_err_msg()
    assert acl.rt.synchronize_stream(stream) == 0


def test_a_stream_waits_for_an_event_of_another(acl: ModuleType, stream: int) -> None:
    other, _ = acl.rt.create_stream()
    event, _ = acl.rt.create_event()
    data, back = np.zeros(16, np.uint8), np.zeros(16, np.uint8)
    release = _held(acl, stream)
    acl.rt.memset_async(acl.util.numpy_to_ptr(data), 16, 9, 16, stream)
    assert acl.rt.record_event(event, stream) == 0
    assert acl.rt.stream_wait_event(other, event) == 0
    acl.rt.memcpy_async(acl.util.numpy_to_ptr(back), 16, acl.util.numpy_to_ptr(data), 16, 0, other)
    assert acl.rt.query_event(event) == (1, 0)
    assert acl.rt.synchronize_stream_with_timeout(other, 20) == 107019
    release.set()
    assert acl.rt.synchronize_stream(other) == 0
    assert set(back) == {9}
    assert acl.rt.query_event_status(event) == (1, 0)


def test_time_between_events(acl: ModuleType, stream: int) -> None:
    start, end = acl.rt.create_event()[0], acl.rt.create_event()[0]
    assert acl.rt.event_elapsed_time(start, end)[1] == 107006
    acl.rt.record_event(start, stream)
    _submit_sleep(acl, stream, 0.02)
    acl.rt.record_event(end, stream)
    acl.rt.synchronize_event(end)
    milliseconds, ret = acl.rt.event_elapsed_time(start, end)
    assert ret == 0
    assert milliseconds >= 19
    assert acl.rt.event_elapsed_time(end, start)[1] == 107007


def test_a_thread_runs_what_streams_report(acl: ModuleType, stream: int) -> None:
    seen: list[object] = []
    going = True

    def report(arguments: list[int]) -> None:
        acl.rt.set_context(arguments[0])
        while going:
            acl.rt.process_report(50)

    context, _ = acl.rt.get_context()
    thread, ret = acl.util.start_thread(report, [context])
    assert ret == 0
    assert acl.rt.subscribe_report(thread, stream) == 0
    assert acl.rt.subscribe_report(thread, stream) == 107011
    assert acl.rt.subscribe_report(thread, 0) == 0  # the default stream, at the same time
    for target in (stream, 0):
        for number in range(3):
            assert acl.rt.launch_callback(lambda data: seen.append((data, threading.get_ident())), [number], 1, target) == 0
        assert acl.rt.synchronize_stream(target) == 0
    assert seen == [([0], thread), ([1], thread), ([2], thread)] * 2
    assert [acl.rt.unsubscribe_report(thread, target) for target in (stream, 0)] == [0, 0]
    going = False
    assert acl.util.stop_thread(thread) == 0


def test_a_thread_that_raised_says_so_at_once_and_when_it_is_stopped(acl: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(arguments: object) -> None:
        raise ValueError("wrong")

    thread, _ = acl.util.start_thread(fail, [])
    said = ""
    for _ in range(60000):
        said += capsys.readouterr().err
        if "ValueError: wrong" in said:
            break
        time.sleep(0.01)
    assert "in fail" in said
    assert "ValueError: wrong" in said
    with pytest.raises(RuntimeError, match="ValueError: wrong"):
        acl.util.stop_thread(thread)
    assert acl.util.stop_thread(12345) == 100000


def test_a_thread_that_ended_keeps_nothing_and_may_exit(acl: ModuleType) -> None:
    class Owner:
        def work(self, arguments: object) -> None:
            raise SystemExit(0)

    owner = Owner()
    watched = weakref.ref(owner)
    thread, _ = acl.util.start_thread(owner.work, [])
    assert acl.util.stop_thread(thread) == 0
    del owner
    assert watched() is None


def test_reports_need_a_subscription(acl: ModuleType, stream: int) -> None:
    assert acl.rt.process_report(10) == 100035
    assert acl.rt.launch_callback(print, None, 0, stream) == 107015
    assert acl.rt.unsubscribe_report(1, stream) == 100034


def test_a_destroyed_stream_is_no_stream(acl: ModuleType, stream: int) -> None:
    assert acl.rt.destroy_stream(stream) == 0
    assert acl.rt.synchronize_stream(stream) == 107000
    assert "a stream that was destroyed" in acl.get_recent_err_msg()
    assert acl.rt.destroy_stream(0) == 100000


def _held(acl: ModuleType, stream: int) -> threading.Event:
    """Let the stream wait until the event is set."""
    from anycann.acl.process import PROCESS

    event = threading.Event()
    PROCESS.stream(stream).submit(lambda: event.wait(600) and None)
    return event


def _submit_sleep(acl: ModuleType, stream: int, seconds: float) -> None:
    from anycann.acl.process import PROCESS

    PROCESS.stream(stream).submit(lambda: time.sleep(seconds))

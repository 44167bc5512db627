"""Streams: order, and the thread that waits helps."""

from __future__ import annotations

import threading

import pytest

from anycann.runtime.stream import Stream, current_stream


def test_tasks_run_once_and_in_order_however_many_threads_wait() -> None:
    stream, seen = Stream(), list[int]()
    waiters = [threading.Thread(target=lambda: [stream.synchronize() for _ in range(300)]) for _ in range(3)]
    for waiter in waiters:
        waiter.start()
    for number in range(3000):
        stream.submit(lambda number=number: seen.append(number))  # type: ignore[misc]
        if number % 100 == 0:
            stream.synchronize()
    stream.synchronize()
    for waiter in waiters:
        waiter.join()
    assert seen == list(range(3000))
    stream.close()


def test_a_waiting_thread_runs_what_the_streams_own_has_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", lambda thread: None)
    stream, seen = Stream(), list[object]()
    stream.submit(lambda: seen.append((threading.current_thread(), current_stream())))
    assert stream.synchronize()
    assert seen == [(threading.current_thread(), stream)]
    assert current_stream() is None


def test_what_is_given_while_a_thread_helps_is_not_forgotten() -> None:
    for _ in range(200):
        stream, go, seen = Stream(), threading.Event(), list[int]()
        stream.submit(lambda go=go: go.wait(600) and None)  # type: ignore[misc]
        helper = threading.Thread(target=stream.synchronize)
        helper.start()
        stream.submit(lambda seen=seen: seen.append(1))  # type: ignore[misc]
        go.set()
        stream.submit(lambda seen=seen: seen.append(2))  # type: ignore[misc]
        assert stream.synchronize(600)
        assert seen == [1, 2]
        helper.join()
        stream.close()


def test_a_task_may_not_wait_for_its_stream_in_whatever_thread_it_runs() -> None:
    stream = Stream("this one")
    stream.submit(stream.synchronize)  # type: ignore[arg-type]
    stream.synchronize()
    assert "this one waits for itself" in str(stream.take_error())
    stream.close()


def test_an_interrupt_reaches_the_thread_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", lambda thread: None)

    def interrupt() -> None:
        raise KeyboardInterrupt

    stream, seen = Stream(), list[int]()
    stream.submit(interrupt)
    stream.submit(lambda: seen.append(1))
    with pytest.raises(KeyboardInterrupt):
        stream.synchronize()
    assert stream.synchronize()
    assert seen == [1]


def test_a_closed_stream_ends_its_thread() -> None:
    stream, release = Stream(), threading.Event()
    stream.submit(lambda: release.wait(600) and None)
    stream.close()
    release.set()
    stream.synchronize()
    assert stream._thread is not None
    stream._thread.join(600)
    assert not stream._thread.is_alive()

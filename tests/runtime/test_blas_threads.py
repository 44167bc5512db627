"""numpy's products take one thread while the host computes for a session, and what they took before afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
import threading

import numpy as np
import pytest

from anycann.runtime import blas_threads
from anycann.runtime.blas_threads import Functions, one_thread
from anycann.runtime.open_program import HostNode, OpenProgram


@pytest.fixture
def functions() -> Iterator[Functions]:
    found = blas_threads._functions()
    if found is None:
        pytest.skip("numpy has no OpenBLAS here")
    get, set_ = found
    before = get()
    set_(2)
    yield found
    set_(before)


def test_runs_that_overlap_share_one_thread_until_the_last_leaves(functions: Functions) -> None:
    both, seen = threading.Barrier(2), []

    def work(number: int) -> None:
        with one_thread():
            both.wait()
            if number:
                both.wait()
            seen.append(functions[0]())
        if not number:
            both.wait()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))
    assert seen == [1, 1]
    assert functions[0]() == 2


def test_an_error_gives_the_threads_back(functions: Functions) -> None:
    with pytest.raises(ValueError, match="wrong"), one_thread():
        raise ValueError("wrong")
    assert functions[0]() == 2


def test_a_program_for_open_sizes_computes_products_in_one_thread(functions: Functions) -> None:
    def evaluate(inputs: Sequence[object], captures: Mapping[str, object] | None = None) -> Sequence[object]:
        return [np.array(functions[0]())]

    program = OpenProgram([(HostNode(evaluate, ("x",), ("y",)),)], {}, {}, ("x",), ("y",))
    assert program.run([np.zeros(1)]) == [1]
    assert functions[0]() == 2


def test_without_openblas_nothing_is_done(functions: Functions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas_threads, "_functions", lambda: None)
    seen = []
    with one_thread():
        seen.append(functions[0]())
    assert seen == [2]
    assert functions[0]() == 2
    assert blas_threads._held.runs == 0

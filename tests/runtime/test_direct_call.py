"""A call as one function of the interpreter: what it takes, what it leaves to Python, and that nobody's references are lost or kept."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
import ctypes
import os
import pickle
import sys
from typing import Any
import weakref

import numpy as np
import onnx
import pytest

from anycann import InferenceSession, SessionOptions
from anycann.runtime import native_call
from anycann.runtime.direct_call import direct_call
from anycann.runtime.executor import CompiledProgram
from anycann.runtime.thread_pool import ThreadPool
from anycann.support.errors import UsageError

TEXT = """<ir_version: 10, opset_import: ["": 20]>
g (float[2,3] x, float[2,3] y) => (float[2,3] sum, float[2,3] product) { sum = Add(x, y) product = Mul(x, y) }"""
RNG = np.random.default_rng()


def feeds() -> dict[str, Any]:
    return {name: RNG.standard_normal((2, 3), np.float32) for name in ("x", "y")}


def check(results: list[Any], given: dict[str, Any]) -> None:
    np.testing.assert_array_equal(results[0], np.asarray(given["x"]) + given["y"])
    np.testing.assert_array_equal(results[1], np.asarray(given["x"]) * given["y"])


def session(threads: int = 1) -> InferenceSession:
    """One that has been called as often as it takes to run directly."""
    made = InferenceSession(onnx.parser.parse_model(TEXT), num_threads=threads)
    for _ in range(2):
        made.run(None, feeds())
    assert made._direct is not None
    return made


def executable(made: InferenceSession) -> CompiledProgram:
    (loaded,) = made._programs._programs.values()
    return loaded.executable


def direct_calls(made: InferenceSession) -> int:
    return executable(made)._native.direct_calls


@pytest.mark.parametrize("threads", [1, 2])
def test_each_call_computes_its_own_feeds_into_arrays_of_its_own(threads: int) -> None:
    made, before = session(threads), []
    count = direct_calls(made)
    for _ in range(5):
        given = feeds()
        results = made.run(None, given)
        check(results, given)
        before.append((results, given))
    assert direct_calls(made) == count + 5
    for results, given in before:
        check(results, given)
    np.testing.assert_array_equal(made.run(["product"], given)[0], results[1])


LEFT_TO_PYTHON: dict[str, Callable[[dict[str, Any]], Any]] = {
    "mapping": lambda given: type("Other", (dict,), {})(given),
    "columns": lambda given: {**given, "y": np.asfortranarray(given["y"])},
    "unaligned": lambda given: {**given, "x": np.frombuffer(b"\0" + given["x"].tobytes(), np.float32, offset=1).reshape(2, 3)},
    "subclass": lambda given: {**given, "x": given["x"].view(np.matrix)},
}


def test_arrays_of_another_process_are_taken_and_do_not_keep_those_of_this_one_from_it() -> None:
    made, given = InferenceSession(onnx.parser.parse_model(TEXT), num_threads=1), feeds()
    for _ in range(2):
        check(made.run(None, pickle.loads(pickle.dumps(given))), given)
    count = direct_calls(made)
    check(made.run(None, pickle.loads(pickle.dumps(given))), given)
    check(made.run(None, given), given)
    assert direct_calls(made) == count + 2


@pytest.mark.parametrize("dtype", [">f4", "i4", "f8"])
def test_other_numbers_are_refused(dtype: str) -> None:
    made, given = session(), feeds()
    with pytest.raises(UsageError, match=r"input 'x' has dtype .*; accepted: float32"):
        made.run(None, {**given, "x": given["x"].astype(dtype)})
    check(made.run(None, given), given)


@pytest.mark.parametrize("make", LEFT_TO_PYTHON.values(), ids=LEFT_TO_PYTHON)
def test_what_it_does_not_know_is_computed_by_python(make: Callable[[dict[str, Any]], Any]) -> None:
    made, given = session(), feeds()
    count = direct_calls(made)
    products = made.run(None, make(given))
    np.testing.assert_allclose(products[0], given["x"] + given["y"])
    assert direct_calls(made) == count
    check(made.run(None, given), given)
    assert direct_calls(made) == count + 1


def test_references_are_neither_lost_nor_kept() -> None:
    made, given = session(), feeds()
    held = [sys.getrefcount(array) for array in given.values()]
    nothing = sys.getrefcount(None)
    for _ in range(1000):
        made.run(None, given)
        made._direct({})  # type: ignore[misc]
        made._direct({"x": given["x"], "z": given["y"]})  # type: ignore[misc]
    assert [sys.getrefcount(array) for array in given.values()] == held
    assert abs(sys.getrefcount(None) - nothing) < 500  # other threads have theirs; of interpreters with counted ones
    results = made.run(None, given)
    gone = [weakref.ref(result) for result in results]
    del results
    assert [reference() for reference in gone] == [None, None]


class Jealous:
    """A key with the hash of a name, which asks the session for something before it says that it is another."""

    def __init__(self, made: InferenceSession):
        self.made, self.asked = made, 0

    def __hash__(self) -> int:
        return hash("y")

    def __eq__(self, other: object) -> bool:
        self.asked += 1
        inner = feeds()
        check(self.made.run(None, inner), inner)
        return False


def test_a_call_within_a_call_has_memory_of_its_own() -> None:
    made, given = session(), feeds()
    jealous = Jealous(made)
    assert made._direct({jealous: None, "x": given["x"]}) is None  # type: ignore[misc]
    assert jealous.asked > 0
    check(made.run(None, given), given)


def test_a_result_that_cannot_be_made_is_an_error_and_the_next_call_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    made, given = InferenceSession(onnx.parser.parse_model(TEXT), num_threads=1), feeds()
    missing = [False]
    real = executable(made)._results.makers[1]

    def maker() -> np.ndarray:
        if missing[0]:
            raise MemoryError("no more")
        return real()

    monkeypatch.setattr(executable(made)._results, "makers", [executable(made)._results.makers[0], maker])
    for _ in range(2):
        made.run(None, given)
    missing[0], count = True, direct_calls(made)
    with pytest.raises(MemoryError, match="no more"):
        made.run(None, given)
    missing[0] = False
    check(made.run(None, given), given)
    assert direct_calls(made) == count + 2


def test_observers_see_every_call() -> None:
    made, given, seen = session(), feeds(), []
    with executable(made).observe(lambda event: seen.append(event.name)):
        made.run(None, given)
        first = len(seen)
        made.run(None, given)
    assert first > 0
    assert len(seen) == 2 * first
    check(made.run(None, given), given)
    assert len(seen) == 2 * first


def test_several_threads_call_one_session() -> None:
    made = session(2)

    def calls(_: int) -> None:
        for _ in range(300):
            given = feeds_of_thread()
            check(made.run(None, given), given)

    def feeds_of_thread() -> dict[str, Any]:
        rng = np.random.default_rng()
        return {name: rng.standard_normal((2, 3), np.float32) for name in ("x", "y")}

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(calls, range(4))) == [None] * 4


def test_a_child_process_calls_it_too() -> None:
    made, given = session(2), feeds()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for _ in range(3):
                check(made.run(None, given), given)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    check(made.run(None, given), given)


def test_there_is_none_where_every_read_of_unwritten_memory_is_to_show_and_for_large_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    poisoned = InferenceSession(onnx.parser.parse_model(TEXT), SessionOptions(poison=True))
    monkeypatch.setattr(native_call, "MOST_ARENA_BYTES", -1)
    large = InferenceSession(onnx.parser.parse_model(TEXT))
    for made in (poisoned, large):
        for _ in range(3):
            given = feeds()
            check(made.run(None, given), given)
        assert made._direct is None


def test_a_closed_pool_is_left_to_python() -> None:
    given, watched = feeds(), np.zeros(1, np.int64)
    with ThreadPool(1) as pool:
        code, address, ready = pool.addresses
    made = direct_call(code, (address, ready, 0, 0), ("x",), (given["x"],), (), watched, pool)
    assert made[0]({"x": given["x"]}) is None


def test_an_unknown_interpreter_runs_all_calls_in_the_same_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_call, "is_known", lambda: False)
    made, spaces = InferenceSession(onnx.parser.parse_model(TEXT)), []
    for _ in range(3):
        given = feeds()
        check(made.run(None, given), given)
        spaces.append(executable(made)._workspaces._idle[:])
    assert made._direct is None
    assert len(spaces[0]) == 1
    assert spaces == [spaces[0]] * 3


def test_it_is_made_whatever_others_say_of_the_interpreters_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    other = ctypes.pythonapi.PyCFunction_NewEx
    monkeypatch.setattr(other, "argtypes", (ctypes.c_double,) * 3)
    made, given = session(), feeds()
    check(made.run(None, given), given)
    assert direct_calls(made) > 0
    assert other.argtypes == (ctypes.c_double,) * 3

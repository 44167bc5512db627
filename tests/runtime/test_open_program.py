"""When an open program is run by the function that was written for it, and when part by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from anycann.runtime.open_program import MOST_REFUSED, MOST_WRITTEN, HostNode, OpenProgram
from anycann.runtime.plan_text import Example


class Written:
    """Refuses arrays of other sizes than it was written for; it notes all."""

    def __init__(self, size: int, asked: list[int]):
        self._size, self._asked = size, asked

    def run(self, feeds: Sequence[object]) -> list[object] | None:
        (x,) = feeds
        assert isinstance(x, np.ndarray)
        self._asked.append(x.size)
        return [-x] if x.size == self._size else None


def program(written: list[int], asked: list[int]) -> OpenProgram:
    def write(_: OpenProgram, examples: Mapping[str, Example]) -> Written:
        written.append(examples["x"].shape[0])
        return Written(examples["x"].shape[0], asked)

    def double(inputs: Sequence[object], captures: Mapping[str, object] | None = None) -> Sequence[object]:
        return [2 * np.asarray(inputs[0])]

    return OpenProgram([(HostNode(double, ("x",), ("y",)),)], {}, {}, ("x",), ("y",), write)


def results_of(opened: OpenProgram, size: int) -> np.ndarray:
    found = opened.run([np.ones(size, np.float32)])
    assert found is not None
    return np.asarray(found[0])


def test_the_first_run_writes_it_and_others_are_its_own() -> None:
    written: list[int] = []
    opened = program(written, [])
    assert [results_of(opened, 3)[0] for _ in range(3)] == [2, -1, -1]
    assert written == [3]


def test_it_is_written_for_other_runs_a_few_times() -> None:
    written: list[int] = []
    opened = program(written, [])
    for size in range(1, MOST_WRITTEN + 3):
        assert results_of(opened, size)[0] == 2
    assert written == [*range(1, MOST_WRITTEN + 1)]
    assert results_of(opened, MOST_WRITTEN)[0] == -1


def test_it_is_given_up_when_it_refuses_one_run_after_the_other() -> None:
    asked: list[int] = []
    opened = program([], asked)
    for size in range(1, MOST_WRITTEN + 1):
        results_of(opened, size)
    assert results_of(opened, MOST_WRITTEN)[0] == -1
    for _ in range(MOST_REFUSED):
        results_of(opened, 99)
    assert results_of(opened, MOST_WRITTEN)[0] == -1
    asked.clear()
    for _ in range(MOST_REFUSED + 9):
        assert results_of(opened, 99)[0] == 2
    assert len(asked) == MOST_REFUSED + 1

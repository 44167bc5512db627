"""Hooks: what an observer is told about every step, and what it can look at."""

from __future__ import annotations

import numpy as np
from programs import Kernels, ProgramBuilder, spec
import pytest
from test_regions import loop_feeds, loop_program

from anycann.runtime.executor import CompiledProgram
from anycann.runtime.observe import StepEvent
from anycann.runtime.thread_pool import ThreadPool


def chain(kernels: Kernels, pool: ThreadPool) -> CompiledProgram:
    """s = a + b; t = s * s in the place of s; n = -t on the host; y = n + a."""
    shape = (9,)
    builder = ProgramBuilder([spec("a", shape), spec("b", shape)], [spec("y", shape)])
    builder.native(("fadd", "a", "b", spec("s", shape)), kernels=kernels)
    builder.arena_bytes = 0
    builder.native(("fmul", "s", "s", spec("t", shape)), kernels=kernels)
    builder.host("Neg", ["t"], ["n"], [spec("n", shape)])
    return builder.native(("fadd", "n", "a", spec("y", shape)), kernels=kernels).compiled(kernels, pool)


def run_observed(program: CompiledProgram, tensors: bool) -> tuple[list[StepEvent], list[dict[str, list[float]]]]:
    """Events of one run and, taken in the callback, a copy of the tensors each wrote."""
    events: list[StepEvent] = []
    looks: list[dict[str, list[float]]] = []

    def callback(event: StepEvent) -> None:
        events.append(event)
        looks.append({name: np.asarray(event.tensor(name)).tolist() for name in event.outputs})

    with program.observe(callback, tensors=tensors):
        program.run([np.ones(9, np.float32), np.full(9, 2, np.float32)])
    return events, looks


def test_an_observer_sees_each_value_right_after_its_step_even_if_its_place_is_reused(kernels: Kernels, pool: ThreadPool) -> None:
    events, looks = run_observed(chain(kernels, pool), tensors=True)
    assert looks == [{"s": [3.0] * 9}, {"t": [9.0] * 9}, {"n": [-9.0] * 9}, {"y": [-8.0] * 9}]
    assert [event.kind for event in events] == ["kernel", "kernel", "host", "kernel"]
    assert [event.op_types for event in events] == [("fadd",), ("fmul",), ("Neg",), ("fadd",)]
    assert [event.nodes for event in events] == [("node_s",), ("node_t",), ("host_Neg",), ("node_y",)]
    assert events[0].name == kernels.symbols["fadd"]


@pytest.mark.parametrize("tensors", [True, False])
def test_times_follow_each_other(kernels: Kernels, pool: ThreadPool, tensors: bool) -> None:
    events, looks = run_observed(chain(kernels, pool), tensors)
    moments = [moment for event in events for moment in (event.begin_ns, event.end_ns)]
    assert moments == sorted(moments)
    assert moments[0] > 0
    assert looks[-1] == {"y": [-8.0] * 9}


def test_what_an_observer_looks_at_cannot_be_written(kernels: Kernels, two_threads: ThreadPool) -> None:
    flags = []
    program = chain(kernels, two_threads)
    with program.observe(lambda event: flags.append(np.asarray(event.tensor(event.outputs[0])).flags.writeable)):
        program.run([np.ones(9, np.float32), np.ones(9, np.float32)])
    assert flags == [False] * 4


def test_a_value_that_does_not_exist_is_a_key_error(kernels: Kernels, two_threads: ThreadPool) -> None:
    program = chain(kernels, two_threads)
    with program.observe(lambda event: event.tensor("nothing")), pytest.raises(KeyError):
        program.run([np.ones(9, np.float32), np.ones(9, np.float32)])


def test_after_its_end_an_observer_hears_nothing_and_others_still_do(kernels: Kernels, two_threads: ThreadPool) -> None:
    program = chain(kernels, two_threads)
    heard: list[str] = []
    feeds = [np.ones(9, np.float32), np.ones(9, np.float32)]
    first = program.observe(lambda event: heard.append("first"))
    with program.observe(lambda event: heard.append("second")):
        first.close()
        first.close()
        program.run(feeds)
    program.run(feeds)
    assert heard == ["second"] * 4


def test_steps_inside_regions_are_told_too(kernels: Kernels, two_threads: ThreadPool) -> None:
    program, _ = loop_program(kernels, two_threads)
    events: list[StepEvent] = []
    with program.observe(events.append):
        program.run(loop_feeds(2))
    assert [event.kind for event in events] == ["kernel", "kernel", "host", "host"] * 2 + ["region"]
    assert (events[-1].name, events[-1].op_types, events[-1].outputs) == ("powers", ("loop",), ("x", "xs"))
    assert events[-1].begin_ns <= events[0].begin_ns <= events[-2].end_ns <= events[-1].end_ns

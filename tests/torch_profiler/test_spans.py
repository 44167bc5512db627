"""Which spans of a trace are kernels, and what the tables make of them."""

from __future__ import annotations

from typing import Any

from anycann.adapters.torch.profiler import tables
from anycann.adapters.torch.profiler.spans import host_operators, kernels, spans_of


def event(name: str, start: float, duration: float, kind: str = "cpu_op", thread: int = 1) -> dict[str, Any]:
    return {"ph": "X", "cat": kind, "name": name, "ts": start, "dur": duration, "tid": thread, "pid": 1, "args": {}}


def trace(*events: dict[str, Any]) -> dict[str, Any]:
    return {"traceEvents": list(events)}


def test_the_inner_call_of_the_same_operator_is_the_kernel() -> None:
    spans = spans_of(trace(event("aten::mm", 10, 80), event("aten::linear", 0, 100), event("aten::linear", 5, 90), event("aten::t", 6, 2)))
    (outer,) = spans
    assert [(kernel.name, kernel.start, kernel.duration) for kernel in kernels(outer)] == [("aten::linear", 5, 90)]
    assert [span.start for span in host_operators(spans)] == [0]


def test_an_operator_made_of_others_has_their_kernels() -> None:
    spans = spans_of(
        trace(event("aten::linear_backward", 0, 100), event("aten::mm", 5, 40), event("aten::mm", 50, 40), event("aten::t", 1, 1))
    )
    assert [(kernel.name, kernel.duration) for kernel in kernels(spans[0])] == [("aten::mm", 40), ("aten::mm", 40)]


def test_an_operator_made_of_npu_operators_is_no_kernel_however_long_the_host_takes() -> None:
    spans = spans_of(trace(event("aten::zeros", 0, 100), event("aten::zero_", 10, 30), event("aten::zero_", 20, 10)))
    assert [(kernel.name, kernel.start) for kernel in kernels(spans[0])] == [("aten::zero_", 20)]


def test_an_operator_that_only_fills_its_result_before_is_a_kernel() -> None:
    spans = spans_of(trace(event("aten::sum", 0, 100), event("aten::as_strided", 1, 60), event("aten::fill_", 70, 5)))
    assert [kernel.name for kernel in kernels(spans[0])] == ["aten::sum"]


def test_views_memory_and_the_engine_of_autograd_are_no_kernels() -> None:
    spans = spans_of(trace(event("autograd::engine::evaluate_function: X", 0, 100), event("aten::view", 1, 5), event("aten::empty", 9, 5)))
    assert list(kernels(spans[0])) == []


def test_steps_tell_computing_from_communicating() -> None:
    spans = spans_of(
        trace(
            event("ProfilerStep#3", 0, 100, "user_annotation"),
            event("aten::mm", 10, 30),
            event("gloo:all_reduce", 30, 40, thread=2),
            event("aten::relu", 80, 10),
        )
    )
    (row,) = tables.step_trace_time(spans, 1).rows
    named = dict(zip(tables.step_trace_time(spans, 1).columns, row, strict=True))
    assert (named["Device_id"], named["Step"], named["Computing"], named["Communication"]) == (1, "3", 40, 40)
    assert (named["Communication(Not Overlapped)"], named["Overlapped"], named["Free"], named["Preparing"]) == (30, 10, 20, 10)


def test_statistics_are_sums_of_kernels() -> None:
    spans = spans_of(trace(event("aten::mm", 0, 30), event("aten::mm", 40, 10), event("aten::relu", 60, 60)))
    statistic = tables.op_statistic(spans, 0)
    assert [row[1:7] for row in statistic.rows] == [("Relu", "AI_VECTOR_CORE", 1, 60, 60, 60), ("Mm", "AI_CORE", 2, 40, 10, 20)]
    assert [row[-1] for row in statistic.rows] == [60, 40]
    details = tables.kernel_details(spans, 0)
    assert [row[7] for row in details.rows] == [0, 10, 10]  # waits


def test_intervals_that_touch_become_one() -> None:
    assert tables.merged([(5, 6), (0, 2), (1, 3), (3, 4)]) == [(0, 4), (5, 6)]

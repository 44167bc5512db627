"""The tables of ASCEND_PROFILER_OUTPUT. Times are in microseconds, sizes in the unit that a column names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
import csv
from dataclasses import field
from pathlib import Path
import statistics
from typing import Any

from anycann.adapters.torch.profiler.spans import COMMUNICATION, OPERATOR, Span, every, host_operators, kernels
from anycann.support.records import dataclass

_STEP = "ProfilerStep#"
# AI cores multiply matrices; the other units compute the rest
_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "matmul", "linear", "conv", "attention", "einsum", "mv", "dot")


@dataclass
class Table:
    """Column names and rows."""

    columns: Sequence[str]
    rows: list[Sequence[Any]] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """As CSV."""
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(self.columns)
            writer.writerows([_shown(value) for value in row] for row in self.rows)


def _shown(value: Any) -> Any:
    return f"{value:.3f}" if isinstance(value, float) else value


def all_kernels(spans: Sequence[Span]) -> list[Span]:
    """The kernels of all threads, by time."""
    return sorted((kernel for span in spans for kernel in kernels(span)), key=lambda kernel: kernel.start)


def is_communication(span: Span) -> bool:
    """Whether the kernel is a collective."""
    return span.name.startswith(COMMUNICATION)


def kernel_type(span: Span) -> str:
    """`aten::native_layer_norm` as `NativeLayerNorm`."""
    return "".join(part.capitalize() for part in span.name.split("::")[-1].replace(":", "_").split("_"))


def core_of(span: Span) -> str:
    """The unit that Ascend would use."""
    if is_communication(span):
        return "COMMUNICATION"
    name = span.name.split("::")[-1]
    return "AI_CORE" if any(word in name for word in _PRODUCTS) else "AI_VECTOR_CORE"


def steps(spans: Sequence[Span]) -> list[tuple[str, float, float]]:
    """Number, begin and end of each step; one without a number if the program marked none."""
    marked = [(span.name.removeprefix(_STEP), span.start, span.end) for span in every(spans) if span.name.startswith(_STEP)]
    if marked or not spans:
        return marked
    return [("", min(span.start for span in spans), max(span.end for span in spans))]


def _step_at(marked: Sequence[tuple[str, float, float]], moment: float) -> str:
    return next((name for name, start, end in marked if start <= moment <= end), "")


def kernel_details(spans: Sequence[Span], device: int) -> Table:
    """Every kernel, in the order in which they ran."""
    table = Table(
        ("Step Id", "Device_id", "Name", "Type", "Accelerator Core", "Start Time(us)", "Duration(us)", "Wait Time(us)", "Block Num",
         "Mix Block Num", "Input Shapes", "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types", "Output Formats")
    )  # fmt: skip
    marked, before = steps(spans), None
    for kernel in all_kernels(spans):
        wait = max(0.0, kernel.start - before) if before is not None else 0.0
        before = kernel.end
        shapes, dtypes = _inputs(kernel)
        row = (
            _step_at(marked, kernel.start),
            device,
            kernel.name,
            kernel_type(kernel),
            core_of(kernel),
            kernel.start,
            kernel.duration,
            wait,
        )
        table.rows.append((*row, 1, 0, shapes, dtypes, ";".join("ND" for _ in dtypes.split(";") if _), "N/A", "N/A", "N/A"))
    return table


def _inputs(span: Span) -> tuple[str, str]:
    """Shapes and dtypes of the tensors it took, if they were recorded."""
    shapes, dtypes = span.arguments.get("Input Dims", []), span.arguments.get("Input type", [])
    pairs = [(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=False) if dtype not in ("", "Scalar", "ScalarList")]
    shown = ";".join(",".join(map(str, shape)) for shape, _ in pairs)
    return shown or "N/A", ";".join(str(dtype).upper() for _, dtype in pairs) or "N/A"


def operator_details(spans: Sequence[Span]) -> Table:
    """Every operator of the framework: what the host took for it, and what the npu did."""
    columns = ("Host Self Duration(us)", "Host Total Duration(us)", "Device Self Duration(us)", "Device Total Duration(us)",
               "Device Self Duration With AICore(us)", "Device Total Duration With AICore(us)")  # fmt: skip
    table = Table(("Name", "Input Shapes", "Call Stack", *columns))
    for span in host_operators(spans):
        whole = list(kernels(span))
        own = [kernel for kernel in whole if kernel is span or kernel.name == span.name]
        shapes, _ = _inputs(span)
        stack = str(span.arguments.get("Call stack", ""))
        table.rows.append((span.name, shapes, stack, span.self_duration, span.duration, _sum(own), _sum(whole), _cores(own), _cores(whole)))
    return table


def op_statistic(spans: Sequence[Span], device: int) -> Table:
    """Kernels by type: how often, how long, and the share of all."""
    table = Table(
        ("Device_id", "OP Type", "Core Type", "Count", "Total Time(us)", "Min Time(us)", "Avg Time(us)", "Max Time(us)", "Ratio(%)")
    )
    grouped = _grouped(all_kernels(spans), lambda kernel: (kernel_type(kernel), core_of(kernel)))
    everything = sum(sum(times) for times in grouped.values())
    for (kind, core), times in sorted(grouped.items(), key=lambda item: -sum(item[1])):
        row = (device, kind, core, len(times), sum(times), min(times), statistics.fmean(times), max(times), 100 * sum(times) / everything)
        table.rows.append(row)
    return table


def api_statistic(spans: Sequence[Span], device: int) -> Table:
    """Operators by name, as the host called them."""
    table = Table(("Device_id", "Level", "API Name", "Time(us)", "Count", "Avg(us)", "Min(us)", "Max(us)", "Variance"))
    grouped = _grouped(host_operators(spans), lambda span: span.name)
    for name, times in sorted(grouped.items(), key=lambda item: -sum(item[1])):
        table.rows.append(
            (device, "node", name, sum(times), len(times), statistics.fmean(times), min(times), max(times), statistics.pvariance(times))
        )
    return table


def step_trace_time(spans: Sequence[Span], device: int) -> Table:
    """Each step: computing, communicating, both, neither."""
    table = Table(
        ("Device_id", "Step", "Computing", "Communication(Not Overlapped)", "Overlapped", "Communication", "Free", "Stage", "Bubble",
         "Communication(Not Overlapped and Exclude Receive)", "Preparing")
    )  # fmt: skip
    found = all_kernels(spans)
    for name, start, end in steps(spans):
        inside = [kernel for kernel in found if start <= kernel.start <= end]
        computing = merged((kernel.start, kernel.end) for kernel in inside if not is_communication(kernel))
        talking = merged((kernel.start, kernel.end) for kernel in inside if is_communication(kernel))
        busy = _length(merged([*computing, *talking]))
        both = _length(computing) + _length(talking) - busy
        alone = _length(talking) - both
        first = min((kernel.start for kernel in inside), default=end)
        row = (_length(computing), alone, both, _length(talking), max(0.0, end - first - busy), end - start, 0.0, alone, first - start)
        table.rows.append((device, name, *row))
    return table


def merged(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same moments, in intervals that do not touch."""
    result: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if result and start <= result[-1][1]:
            result[-1] = result[-1][0], max(end, result[-1][1])
        else:
            result.append((start, end))
    return result


def memory_record(trace: dict[str, Any], device: int) -> Table:
    """The memory in use after each change."""
    table = Table(
        ("Component", "Timestamp(us)", "Total Allocated(MB)", "Total Reserved(MB)", "Total Active(MB)", "Stream Ptr", "Device Type")
    )
    for event in _memory_events(trace):
        total = event["args"].get("Total Allocated", 0) / 2**20
        table.rows.append(("PTA", float(event["ts"]), total, total, total, 0, f"NPU:{device}"))
    return table


def operator_memory(trace: dict[str, Any], spans: Sequence[Span], device: int) -> Table:
    """Every block: the operator that took it, how large it is, when it came and went (empty: not within the recording)."""
    table = Table(
        ("Name", "Size(KB)", "Allocation Time(us)", "Release Time(us)", "Active Release Time(us)", "Duration(us)", "Active Duration(us)",
         "Allocation Total Allocated(MB)", "Allocation Total Reserved(MB)", "Allocation Total Active(MB)", "Release Total Allocated(MB)",
         "Release Total Reserved(MB)", "Release Total Active(MB)", "Stream Ptr", "Device Type")
    )  # fmt: skip
    taken: dict[int, dict[str, Any]] = {}
    operators = [span for span in every(spans) if span.kind == OPERATOR]
    for event in _memory_events(trace):
        address, size = event["args"]["Addr"], event["args"]["Bytes"]
        if size > 0:
            taken[address] = event
        elif address in taken:
            table.rows.append(_block(taken.pop(address), event, operators, device))
    table.rows.extend(_block(event, None, operators, device) for event in taken.values())
    table.rows.sort(key=lambda row: float(row[2]))
    return table


def _block(begin: dict[str, Any], end: dict[str, Any] | None, operators: Sequence[Span], device: int) -> tuple[Any, ...]:
    came, total = float(begin["ts"]), begin["args"].get("Total Allocated", 0) / 2**20
    around = [span for span in operators if span.start <= came <= span.end]
    name = around[0].name if around else "(outside)"
    went: tuple[Any, ...] = ("", "", "", "")
    after: tuple[Any, ...] = ("", "", "")
    if end is not None:
        gone = float(end["ts"])
        went = (gone, gone, gone - came, gone - came)
        after = (end["args"].get("Total Allocated", 0) / 2**20,) * 3
    return (name, begin["args"]["Bytes"] / 1024, came, *went, total, total, total, *after, 0, f"NPU:{device}")


def _memory_events(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted((event for event in trace["traceEvents"] if event.get("name") == "[memory]"), key=lambda event: float(event["ts"]))


def communication(spans: Sequence[Span]) -> dict[str, Any]:
    """Collectives by step, with the time each took."""
    marked = steps(spans)
    result: dict[str, Any] = {f"step{name}": {"p2p": {}, "collective": {}} for name, _, _ in marked}
    for number, kernel in enumerate(kernel for kernel in all_kernels(spans) if is_communication(kernel)):
        step = result.get(f"step{_step_at(marked, kernel.start)}")
        if step is not None:
            kind = "p2p" if any(word in kernel.name for word in ("send", "recv")) else "collective"
            times = {"Start Timestamp(us)": kernel.start, "Elapse Time(ms)": kernel.duration / 1000}
            step[kind][f"{kernel.name.split(':')[-1]}_{number}@hccl_world_group"] = {"Communication Time Info": times}
    return result


def _grouped(spans: Iterable[Span], key: Callable[[Span], Any]) -> dict[Any, list[float]]:
    grouped: dict[Any, list[float]] = defaultdict(list)
    for span in spans:
        grouped[key(span)].append(span.duration)
    return grouped


def _length(intervals: Sequence[tuple[float, float]]) -> float:
    return sum((end - start for start, end in intervals), 0.0)


def _sum(found: Sequence[Span]) -> float:
    return sum((kernel.duration for kernel in found), 0.0)


def _cores(found: Sequence[Span]) -> float:
    return _sum([kernel for kernel in found if core_of(kernel) == "AI_CORE"])

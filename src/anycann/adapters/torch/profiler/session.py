"""`torch_npu.profiler.profile`: torch's profiler, with Ascend's settings and Ascend's folder of results."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
import json
import os
from pathlib import Path
import socket
import tempfile
from typing import Any

import torch

from anycann.adapters.torch.profiler import names, tables, timeline, torch_events
from anycann.adapters.torch.profiler.spans import Span, spans_of
from anycann.support.logging import get_logger


class profile(torch.profiler.profile):  # noqa: N801 - torch's name
    """As `torch.profiler.profile`; `with_modules` and `use_cuda` are accepted, what CUDA would record is what the npu computes."""

    def __init__(
        self,
        *,
        activities: Any = None,
        schedule: Any = None,
        on_trace_ready: Callable[..., Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        use_cuda: bool | None = None,
        **others: Any,
    ) -> None:
        self._trace: tuple[Any, dict[str, Any]] | None = None
        asked = set(activities) if activities else names.supported_activities()
        self.experimental_config_npu = experimental_config or names._ExperimentalConfig()
        super().__init__(
            activities=sorted({names.ProfilerActivity.CPU, *_for_npu(asked)}, key=str),
            schedule=schedule,
            on_trace_ready=on_trace_ready,
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
            with_modules=with_modules,
        )

    def trace(self) -> dict[str, Any]:
        """What was recorded last, as a Chrome trace of torch's, which gives it once."""
        results = self.profiler.kineto_results
        if self._trace is None or self._trace[0] is not results:
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "trace.json")
                results.save(path)
                self._trace = results, json.loads(Path(path).read_text(errors="replace"))
        return self._trace[1]

    def export_chrome_trace(self, path: str) -> None:
        """The trace with the npu's track; compressed if `path` ends in .gz."""
        torch_events.write_trace(Path(path), self.trace())

    def analyse(self, output_path: str | None = None) -> None:
        """Write the results below `output_path`, if `on_trace_ready` did not."""
        tensorboard_trace_handler(output_path or ".")(self)


def _for_npu(activities: set[Any]) -> set[Any]:
    """CUDA, and any other accelerator that a script names, is the npu."""
    host = names.ProfilerActivity.CPU
    return {activity if activity == host else names.ProfilerActivity.PrivateUse1 for activity in activities}


def tensorboard_trace_handler(
    dir_name: str | None = None, worker_name: str | None = None, analyse_flag: bool = True, async_mode: bool = False
) -> Callable[[Any], None]:
    """Writes `<worker>_<time>_ascend_pt` below `dir_name` whenever a recording is ready.

    `analyse_flag=False` leaves out the tables, which `profile.analyse` can make. Results are small, so `async_mode` writes at once too.
    Raises RuntimeError if the folder cannot be made.
    """
    parent = Path(dir_name or os.environ.get("ASCEND_WORK_PATH") or "./profiling_data").absolute()
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RuntimeError(f"Can't create directory: {parent}: {error.strerror}") from error

    def write(profiler: Any) -> None:
        stamp = datetime.now().strftime("%Y%m%d%H%M%S%f")[:-3]
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        write_results(profiler, parent / f"{worker}_{stamp}_ascend_pt", analyse_flag)

    return write


def write_results(profiler: Any, folder: Path, tables_too: bool = True) -> None:
    """The whole folder of one recording."""
    trace = profiler.trace()
    spans = spans_of(trace)
    output = folder / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True, exist_ok=True)
    device = torch.npu.current_device()
    _write_facts(profiler, folder)
    (output / "trace_view.json").write_text(json.dumps(timeline.trace_view(trace, spans, device)))
    if tables_too:
        _write_tables(profiler, output, trace, spans, device)
    get_logger("torch").info("All profiling data parsed in a total folder %s", folder)


def _write_tables(profiler: Any, output: Path, trace: dict[str, Any], spans: list[Span], device: int) -> None:
    written = {
        "kernel_details.csv": tables.kernel_details(spans, device),
        "operator_details.csv": tables.operator_details(spans),
        "op_statistic.csv": tables.op_statistic(spans, device),
        "api_statistic.csv": tables.api_statistic(spans, device),
        "step_trace_time.csv": tables.step_trace_time(spans, device),
    }
    if profiler.profile_memory:
        written["memory_record.csv"] = tables.memory_record(trace, device)
        written["operator_memory.csv"] = tables.operator_memory(trace, spans, device)
    for name, table in written.items():
        table.write(output / name)
    (output / "communication.json").write_text(json.dumps(tables.communication(spans), indent=2))
    (output / "communication_matrix.json").write_text("{}")


def _write_facts(profiler: Any, folder: Path) -> None:
    """What was recorded, and with which settings."""
    rank = torch.distributed.get_rank() if torch.distributed.is_available() and torch.distributed.is_initialized() else -1
    settings = getattr(profiler, "experimental_config_npu", names._ExperimentalConfig()).settings
    common = {key: getattr(profiler, key, None) for key in ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")}
    information = {
        "rank_id": rank,
        "config": {"common_config": common, "experimental_config": settings},
        "torch_npu_version": torch.__version__,
    }
    name = "profiler_info.json" if rank < 0 else f"profiler_info_{rank}.json"
    (folder / name).write_text(json.dumps(information, indent=2))
    (folder / "profiler_metadata.json").write_text(
        json.dumps({"device": torch.npu.get_device_name(), "host": socket.gethostname()}, indent=2)
    )

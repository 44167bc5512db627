"""torch_npu.profiler on a training step: the folder, its files, and torch's own profiler beside it."""

from __future__ import annotations

import csv
import gzip
from itertools import pairwise
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
import torch_npu

FILES = {
    "api_statistic.csv",
    "communication.json",
    "communication_matrix.json",
    "kernel_details.csv",
    "memory_record.csv",
    "op_statistic.csv",
    "operator_details.csv",
    "operator_memory.csv",
    "step_trace_time.csv",
    "trace_view.json",
}


class Step:
    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.LayerNorm(32)).npu()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.inputs = torch.randn(16, 32).npu()

    def __call__(self) -> None:
        self.optimizer.zero_grad()
        self.model(self.inputs).sum().backward()
        self.optimizer.step()


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profile")
    profiler, step = torch_npu.profiler, Step()
    settings = profiler._ExperimentalConfig(profiler_level=profiler.ProfilerLevel.Level1, aic_metrics=profiler.AiCMetrics.PipeUtilization)
    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU],
        schedule=profiler.schedule(wait=1, warmup=1, active=2, repeat=1, skip_first=1),
        on_trace_ready=profiler.tensorboard_trace_handler(str(folder), worker_name="worker"),
        record_shapes=True,
        profile_memory=True,
        experimental_config=settings,
    ) as running:
        for _ in range(6):
            step()
            running.step()
    (result,) = folder.glob("worker_*_ascend_pt")
    return result


def test_the_folder_has_ascends_files(output: Path) -> None:
    assert {path.name for path in (output / "ASCEND_PROFILER_OUTPUT").iterdir()} == FILES
    information = json.loads((output / "profiler_info.json").read_text())
    assert information["config"]["experimental_config"]["profiler_level"] == "Level1"
    assert information["config"]["common_config"]["record_shapes"] is True


def test_every_kernel_of_the_active_steps_is_there_with_its_time(output: Path) -> None:
    found = rows(output / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv")
    linear = [row for row in found if row["Name"] == "aten::linear"]
    assert [row["Step Id"] for row in linear] == ["3", "4"]
    assert linear[0]["Input Shapes"] == "16,32;32,32;32"
    assert linear[0]["Accelerator Core"] == "AI_CORE"
    assert {"aten::relu", "aten::native_layer_norm", "aten::native_layer_norm_backward", "aten::mm", "aten::sum"} <= {
        row["Name"] for row in found
    }
    times = [(float(row["Start Time(us)"]), float(row["Duration(us)"])) for row in found]
    assert all(first[0] + first[1] <= second[0] + 0.01 for first, second in pairwise(times))
    steps = rows(output / "ASCEND_PROFILER_OUTPUT" / "step_trace_time.csv")
    computing = sum(float(row["Computing"]) for row in steps)
    assert [row["Step"] for row in steps] == ["3", "4"]
    assert abs(computing - sum(duration for _, duration in times)) < 0.01 * computing
    assert all(float(row["Stage"]) >= float(row["Computing"]) for row in steps)


def test_statistics_agree_with_the_kernels(output: Path) -> None:
    folder = output / "ASCEND_PROFILER_OUTPUT"
    kernels, statistic = rows(folder / "kernel_details.csv"), rows(folder / "op_statistic.csv")
    assert sum(int(row["Count"]) for row in statistic) == len(kernels)
    assert abs(sum(float(row["Ratio(%)"]) for row in statistic) - 100) < 0.1
    operators = {row["Name"]: row for row in rows(folder / "operator_details.csv")}
    layer_norm = operators["aten::native_layer_norm"]
    assert 0 < float(layer_norm["Device Total Duration(us)"]) <= float(layer_norm["Host Total Duration(us)"])
    calls = {row["API Name"]: int(row["Count"]) for row in rows(folder / "api_statistic.csv")}
    assert calls["aten::relu"] == 2


def test_memory_is_told_by_block(output: Path) -> None:
    folder = output / "ASCEND_PROFILER_OUTPUT"
    blocks = rows(folder / "operator_memory.csv")
    relu = [row for row in blocks if row["Name"] == "aten::relu"]
    assert [float(row["Size(KB)"]) for row in relu] == [2.0, 2.0]  # 16 x 32 x 4 bytes
    assert all(float(row["Release Time(us)"]) > float(row["Allocation Time(us)"]) for row in relu)
    assert {row["Device Type"] for row in rows(folder / "memory_record.csv")} == {"NPU:0"}


def test_the_timeline_has_the_npus_track(output: Path) -> None:
    events = json.loads((output / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_text())
    processes = {event["args"]["name"]: event["pid"] for event in events if event["name"] == "process_name"}
    assert set(processes) == {"Python", "Ascend Hardware", "Overlap Analysis"}
    on_device = [event for event in events if event["ph"] == "X" and event["pid"] == processes["Ascend Hardware"]]
    kernels = rows(output / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv")
    assert len(on_device) == len(kernels)
    arrows = [event for event in events if event.get("cat") == "async_npu"]
    assert len(arrows) == 2 * len(on_device)


def test_torchs_own_profiler_tells_the_npus_times(tmp_path: Path) -> None:
    from torch.profiler import ProfilerActivity, profile

    step = Step()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as running:
        step()
    averages = {event.key: event for event in running.key_averages()}
    linear = averages["aten::linear"]
    assert 0 < linear.device_time_total <= linear.cpu_time_total
    assert averages["aten::view"].device_time_total == 0 if "aten::view" in averages else True
    assert "NPU" in running.key_averages().table(sort_by="device_time_total")
    running.export_chrome_trace(str(tmp_path / "trace.json"))
    assert linear_on_track(json.loads((tmp_path / "trace.json").read_text()))


def linear_on_track(trace: dict[str, Any]) -> bool:
    events = trace["traceEvents"]
    track = [event["pid"] for event in events if event.get("args", {}).get("name") == "Ascend Hardware"]
    return any(event["ph"] == "X" and event["pid"] == track[0] and event["name"] == "aten::linear" for event in events)


def test_a_trace_is_exported_as_often_as_one_likes(tmp_path: Path) -> None:
    step = Step()
    with torch_npu.profiler.profile(on_trace_ready=torch_npu.profiler.tensorboard_trace_handler(str(tmp_path))) as running:
        step()
    running.export_chrome_trace(str(tmp_path / "trace.json"))
    running.export_chrome_trace(str(tmp_path / "trace.json.gz"))
    assert linear_on_track(json.loads((tmp_path / "trace.json").read_text()))
    assert linear_on_track(json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes())))


def test_collectives_are_communication(tmp_path: Path) -> None:
    import torch.distributed as dist

    dist.init_process_group("hccl", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    try:
        values = torch.ones(1000, device="npu")
        handler = torch_npu.profiler.tensorboard_trace_handler(str(tmp_path / "result"))
        with torch_npu.profiler.profile(on_trace_ready=handler):
            for asynchronous in (False, True):
                work = dist.all_reduce(values, async_op=asynchronous)
            work.wait()
    finally:
        dist.destroy_process_group()
    (folder,) = (tmp_path / "result").glob("*_ascend_pt/ASCEND_PROFILER_OUTPUT")
    kernels = [row for row in rows(folder / "kernel_details.csv") if row["Accelerator Core"] == "COMMUNICATION"]
    assert [row["Name"] for row in kernels] == ["gloo:all_reduce"] * 2
    (step,) = rows(folder / "step_trace_time.csv")
    assert float(step["Communication"]) > 0
    assert len(json.loads((folder / "communication.json").read_text())["step"]["collective"]) == 2


def test_it_starts_stops_and_writes_by_hand_too(tmp_path: Path) -> None:
    step = Step()
    running = torch.npu.profiler.profile()
    running.start()
    with torch.profiler.record_function("marked"):
        step()
    torch.npu.mstx.mark("moment")
    running.stop()
    running.analyse(str(tmp_path))
    (folder,) = tmp_path.glob("*_ascend_pt")
    assert "memory_record.csv" not in {path.name for path in (folder / "ASCEND_PROFILER_OUTPUT").iterdir()}
    names = {event["name"] for event in json.loads((folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_text())}
    assert {"marked", "moment"} <= names
    steps = rows(folder / "ASCEND_PROFILER_OUTPUT" / "step_trace_time.csv")
    assert [row["Step"] for row in steps] == [""]


def test_cudas_activity_is_the_npus_and_stray_names_are_refused(tmp_path: Path) -> None:
    activities = torch.profiler.ProfilerActivity
    with torch_npu.profiler.profile(activities=[activities.CUDA], use_cuda=True) as running:
        torch.ones(4).npu().add(1)
    assert any(event.device_time_total > 0 for event in running.key_averages())
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = torch_npu.profiler.nothing
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(RuntimeError, match="Can't create directory"):
        torch_npu.profiler.tensorboard_trace_handler(str(blocked / "below"))


def test_the_oldest_profiler_takes_a_folder(tmp_path: Path) -> None:
    with torch.npu.profile(str(tmp_path), use_e2e_profiler=True):
        torch.ones(3).npu().exp()
    (results,) = tmp_path.glob("*_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv")
    assert "Exp" in results.read_text()


def test_the_older_profiler_takes_the_npu_as_scripts_say_it(capfd: pytest.CaptureFixture[str]) -> None:
    for asked in ({"use_npu": True}, {"use_device": "npu"}):
        with torch.autograd.profiler.profile(record_shapes=True, **asked) as recorded:
            torch.ones(3).npu().exp()
        assert recorded.use_device == "npu"
        assert sum(event.device_time_total for event in recorded.key_averages() if event.key == "aten::exp") > 0
    assert "Exception" not in capfd.readouterr().err
    assert "aten::exp" in recorded.key_averages().table(sort_by="self_cpu_time_total", row_limit=-1)
    with torch.autograd.profiler.profile(use_npu=False) as recorded:
        torch.ones(3).exp()
    assert recorded.use_device is None

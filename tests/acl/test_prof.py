"""acl.prof: profiles on disk, subscriptions through a pipe, marks, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
import csv
import json
import os
from pathlib import Path
import time
from types import ModuleType

import numpy as np
import onnx
import pytest

from anycann.compiler import compile_model
from anycann.om.writer import write_offline_model

TEXT = """<ir_version: 10, opset_import: ["": 20]> g (float[8, 16] x, float[16, 4] w) => (float[4] z)
{ y = MatMul(x, w) z = ReduceMax<keepdims=0>(y, axes) }"""
Run = Callable[[], None]


@pytest.fixture
def model(acl: ModuleType, tmp_path: Path) -> tuple[int, Run]:
    """A loaded model, and what runs it once."""
    graph = onnx.parser.parse_model(TEXT)
    graph.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0]), "axes"))
    for node, name in zip(graph.graph.node, ("product", "greatest"), strict=True):
        node.name = name
    write_offline_model(str(tmp_path / "model.om"), compile_model(graph))
    number, ret = acl.mdl.load_from_file(str(tmp_path / "model.om"))
    assert ret == 0
    datasets = []
    for sizes in ((512, 256), (16,)):
        dataset = acl.mdl.create_dataset()
        for size in sizes:
            address, _ = acl.rt.malloc(size, 0)
            acl.rt.memset(address, size, 0, size)
            acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(address, size))
        datasets.append(dataset)

    def run() -> None:
        assert acl.mdl.execute(number, *datasets) == 0

    return number, run


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    """The table `name` of the only profile below `folder`."""
    (path,) = folder.glob(f"PROF_*/mindstudio_profiler_output/{name}_*.csv")
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_profile_holds_every_kernel_of_every_run(acl: ModuleType, model: tuple[int, Run], tmp_path: Path) -> None:
    number, run = model
    run()  # before the profile
    assert acl.prof.init(str(tmp_path)) == 0
    config = acl.prof.create_config([0], 1, 0, 0x3)
    before = time.time_ns() // 1000
    assert acl.prof.start(config) == 0
    run()
    run()
    assert acl.prof.stop(config) == 0
    after = time.time_ns() // 1000
    run()
    assert (acl.prof.finalize(), acl.prof.destroy_config(config)) == (0, 0)
    kernels = rows(tmp_path, "op_summary")
    assert len(kernels) % 2 == 0
    assert {name for row in kernels for name in row["Op Name"].split("+")} == {"product", "greatest"}
    assert {row["Model ID"] for row in kernels} == {str(number)}
    assert kernels[-1]["Output Shapes"] == '"4"'
    assert all(before - 1000 <= float(row["Task Start Time(us)"]) <= after + 1000 for row in kernels)
    total = sum(float(row["Task Duration(us)"]) for row in kernels)
    assert 0 < total < after - before
    assert sum(float(row["Total Time(us)"]) for row in rows(tmp_path, "op_statistic")) == pytest.approx(total)
    (executed,) = (row for row in rows(tmp_path, "api_statistic") if row["API Name"] == "acl.mdl.execute")
    assert executed["Count"] == "2"
    assert float(executed["Time(us)"]) >= total


def test_operators_and_streams_are_in_the_profile(acl: ModuleType, tmp_path: Path) -> None:
    acl.prof.init(str(tmp_path))
    config = acl.prof.create_config([0], 0xFF, 0, 0x2)
    acl.prof.start(config)
    stream, _ = acl.rt.create_stream()
    desc = acl.create_tensor_desc(0, [4], 2)
    address, _ = acl.rt.malloc(16, 0)
    buffer = acl.create_data_buffer(address, 16)
    assert acl.op.execute("Neg", [desc], [buffer], [desc], [buffer], 0, stream) == 0
    assert acl.rt.synchronize_stream(stream) == 0
    assert acl.prof.finalize() == 0
    (row,) = rows(tmp_path, "op_summary")
    assert (row["OP Type"], row["Model Name"], row["Model ID"]) == ("Neg", "Neg", "N/A")
    assert int(row["Stream ID"]) > 0


def test_marks_and_iterations_are_in_the_profile(acl: ModuleType, tmp_path: Path) -> None:
    acl.prof.init(str(tmp_path))
    config = acl.prof.create_config([0], 0xFF, 0, 0x80 | 0x40)
    acl.prof.start(config)
    stamp, info = acl.prof.create_stamp(), acl.prof.create_step_info()
    assert acl.prof.set_stamp_trace_message(stamp, "outer and more", 5) == 0
    assert acl.prof.push(stamp) == 0
    number, ret = acl.prof.range_start(stamp)
    assert acl.prof.mark(stamp) == 0
    assert (ret, acl.prof.range_stop(number), acl.prof.pop()) == (0, 0, 0)
    assert (acl.prof.range_stop(number), acl.prof.pop()) == (100000, 100000)
    assert [acl.prof.get_step_timestamp(info, tag, 0) for tag in (0, 1, 2)] == [0, 0, 100000]
    assert acl.prof.mark_ex("in order", 0) == 0
    acl.rt.synchronize_stream(0)
    assert acl.prof.stop(config) == 0
    marks = rows(tmp_path, "msprof_tx")
    kinds = ["marker", "start/end", "push/pop", "marker_ex"]
    assert [(row["event_type"], row["message"]) for row in marks] == list(zip(kinds, ["outer"] * 3 + ["in order"], strict=True))
    assert float(marks[2]["Start_time(us)"]) <= float(marks[1]["Start_time(us)"]) <= float(marks[0]["Start_time(us)"])
    assert [row["Iteration ID"] for row in rows(tmp_path, "step_trace")] == ["1"]


def test_a_subscribed_model_writes_its_kernels_to_a_pipe(acl: ModuleType, model: tuple[int, Run]) -> None:
    number, run = model
    reading, writing = os.pipe()
    config = acl.prof.create_subscribe_config(1, 0, writing)
    assert acl.prof.model_subscribe(number, config) == 0
    assert acl.prof.model_subscribe(number, config) == 148046
    run()
    assert acl.prof.model_unsubscribe(number) == 0
    assert acl.prof.model_un_subscribe(number) == 100043  # its old name
    run()
    data = b"".join(iter(lambda: os.read(reading, 4096), b""))
    os.close(reading)
    ptr, size = acl.util.bytes_to_ptr(data), len(data)
    assert acl.prof.get_op_desc_size() == (288, 0)
    count, ret = acl.prof.get_op_num(ptr, size)
    assert ret == 0
    names = [acl.prof.get_op_name(ptr, size, index, 200)[0] for index in range(count)]
    assert "+".join(names) == "product+greatest"
    assert acl.prof.get_op_type(ptr, size, 0, 3) == ("Mat", 0)
    assert acl.prof.get_model_id(ptr, size, count - 1) == number
    begin, end = acl.prof.get_op_start(ptr, size, 0), acl.prof.get_op_end(ptr, size, 0)
    assert 0 < acl.prof.get_op_duration(ptr, size, 0) == end - begin
    assert acl.prof.get_op_name(ptr, size, count, 200) == ("", 100000)
    assert acl.prof.get_op_num(ptr, size - 1) == (0, 100000)


def test_calls_out_of_order_are_refused(acl: ModuleType, model: tuple[int, Run], tmp_path: Path) -> None:
    number, _ = model
    config = acl.prof.create_config([0], 0, 0, 2)
    assert [acl.prof.start(config), acl.prof.stop(config), acl.prof.finalize()] == [100043] * 3
    assert acl.prof.init(str(tmp_path / "none")) == 100003
    assert acl.prof.init(str(tmp_path)) == 0
    assert acl.prof.init(str(tmp_path)) == 100042
    assert acl.prof.model_subscribe(number, acl.prof.create_subscribe_config(0, 0, 1)) == 148047
    assert acl.prof.stop(config) == 100043
    assert acl.prof.start(config) == 0
    assert acl.prof.start(config) == 100042
    assert acl.prof.start(number) == 100000
    assert acl.prof.finalize() == 0
    assert acl.prof.create_config([], 0, 0, 2) == 0
    assert acl.prof.create_config([0], 77, 0, 2) == 0
    assert "AI Core metrics are 77" in acl.get_recent_err_msg()
    assert acl.prof.create_config([0], 0, 0, 0) == 0
    assert acl.prof.create_subscribe_config(1, 0, 9999) == 0


def test_a_whole_process_is_profiled_by_its_settings(acl: ModuleType, tmp_path: Path) -> None:
    config = tmp_path / "acl.json"

    def begin(settings: object, **others: object) -> int:
        config.write_text(json.dumps({"profiler": settings, **others}))
        return int(acl.init(str(config)))

    assert acl.finalize() == 0
    assert begin({"switch": "maybe", "output": str(tmp_path)}) == 100010
    assert begin({"switch": "on", "output": str(config / "below")}) == 100010
    assert begin({"switch": "off"}, max_opqueue_num="none") == 148048
    assert begin({"switch": "on", "output": str(tmp_path / "out"), "msproftx": "on"}, max_opqueue_num="5") == 0
    assert acl.rt.set_device(0) == 0
    assert acl.prof.init(str(tmp_path)) == 100042
    stream, _ = acl.rt.create_stream()
    desc = acl.create_tensor_desc(0, [4], 2)
    buffer = acl.create_data_buffer(acl.rt.malloc(16, 0)[0], 16)
    assert acl.op.execute("Neg", [desc], [buffer], [desc], [buffer], 0, stream) == 0
    assert acl.rt.synchronize_stream(stream) == 0
    assert acl.prof.mark(acl.prof.create_stamp()) == 0
    assert acl.finalize() == 0
    assert [row["OP Type"] for row in rows(tmp_path / "out", "op_summary")] == ["Neg"]
    assert len(rows(tmp_path / "out", "msprof_tx")) == 1
    assert "acl.op.execute" in {row["API Name"] for row in rows(tmp_path / "out", "api_statistic")}
    assert acl.init() == 0

"""`torch_npu.profiler.dynamic_profile`: a file that changes while a program runs starts a recording."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from anycann.adapters.torch.profiler.dynamic import DEFAULTS, DynamicProfile

pytestmark = pytest.mark.filterwarnings("ignore")


def _work() -> None:
    torch.ones(8, 8, device="npu") @ torch.ones(8, 8, device="npu")


def _recordings(folder: Path) -> list[Path]:
    return sorted(folder.glob("*_ascend_pt"))


def test_a_changed_file_records_the_steps_it_names(tmp_path: Path) -> None:
    profiler = DynamicProfile()
    profiler.init(str(tmp_path / "settings"))
    file = tmp_path / "settings" / "profiler_config.json"
    assert json.loads(file.read_text()) == DEFAULTS
    profiler.step()
    assert _recordings(tmp_path) == []
    file.write_text(json.dumps({"prof_dir": str(tmp_path), "start_step": 3, "active": 2}))
    for step in range(2, 7):
        _work()
        profiler.step()
        assert bool(_recordings(tmp_path)) == (step >= 5), "steps 3 and 4 are recorded, and written at the end of step 5"
    (folder,) = _recordings(tmp_path)
    trace = (folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_text()
    assert "aten::matmul" in trace or "aten::mm" in trace


def test_start_records_at_once_and_only_on_the_ranks_that_are_named(tmp_path: Path) -> None:
    settings = {"prof_dir": str(tmp_path), "is_rank": True, "rank_list": [3]}
    file = tmp_path / "settings.json"
    for ranks, expected in (([3], 0), ([0], 1)):
        file.write_text(json.dumps(settings | {"rank_list": ranks}))
        profiler = DynamicProfile()
        profiler.start(str(file))
        _work()
        profiler.step()
        assert len(_recordings(tmp_path)) == expected


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    profiler = DynamicProfile()
    profiler.step()  # without init nothing happens
    with pytest.raises(RuntimeError, match="init was not called"):
        profiler.start()
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(RuntimeError, match=r"x\.json cannot be read as settings"):
        profiler.start(str(tmp_path / "x.json"))
    with pytest.raises(ValueError, match="cur_step -1; accepted: an integer from 0 on"):
        profiler.set_state({"cur_step": -1})


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("activities", ["GPU"], 'a list of "CPU" and "NPU"'),
        ("activities", "CPU", 'a list of "CPU" and "NPU"'),
        ("active", 0, "a whole number from 1 on"),
        ("start_step", "3", "the number of a step, or -1"),
        ("with_stack", 1, "true or false"),
        ("rank_list", [-1], "a list of ranks"),
    ],
)
def test_a_setting_of_another_kind_is_said_and_the_program_goes_on(
    name: str, value: object, accepted: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    profiler = DynamicProfile()
    profiler.init(str(tmp_path))
    (tmp_path / "profiler_config.json").write_text(json.dumps({"prof_dir": str(tmp_path), "start_step": -1, name: value}))
    profiler.step()
    profiler.step()
    assert _recordings(tmp_path) == []
    assert f"{name} is {value!r}; accepted: {accepted}" in caplog.text


def test_programs_find_it_under_the_profiler() -> None:
    from torch_npu.profiler import dynamic_profile as dp

    assert isinstance(dp, DynamicProfile)

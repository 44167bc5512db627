"""The names of hccl that programs import, and one group of one rank in this process."""

from __future__ import annotations

from datetime import timedelta
import importlib
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

SHIMS = Path(__file__).parents[2] / "src" / "anycann" / "shims" / "python"


def test_programs_find_the_process_group_and_its_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(SHIMS)
    importlib.import_module("torch_npu")
    native = importlib.import_module("torch_npu._C._distributed_c10d")
    names = importlib.import_module("torch_npu.distributed")
    assert names.is_hccl_available()
    options = native.ProcessGroupHCCL.Options()
    options.hccl_config = {"hccl_buffer_size": 200, "group_name": "everyone", "hccl_exec_timeout": None}
    options.op_timeout = timedelta(seconds=77)
    dist.init_process_group("hccl", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1, pg_options=options)
    try:
        backend = dist.group.WORLD._get_backend(torch.device("npu"))
        assert isinstance(backend, native.ProcessGroupHCCL)
        assert backend.get_hccl_comm_name(0) == "everyone"
        assert backend.options.hccl_config == options.hccl_config
        assert backend.options._timeout == timedelta(seconds=77)
        assert backend.options.global_ranks_in_group == [0]
        assert options.global_ranks_in_group == []  # of the program's, which may be given for other groups
        wrong = native.ProcessGroupHCCL.Options()
        wrong.hccl_config = {"hccl_buffer_size": "200"}
        with pytest.raises(RuntimeError, match=r"Value type of hccl_buffer_size should be int\. Got '200'"):
            dist.new_group([0], pg_options=wrong)
        values = torch.ones(2, device="npu")
        dist.all_reduce(values, group=dist.new_group([0], pg_options=native.ProcessGroupHCCL.Options()))
        assert values.tolist() == [1.0, 1.0]
    finally:
        dist.destroy_process_group()


def test_the_launcher_of_torch_npu_is_that_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SHIMS)
    importlib.import_module("torch_npu")
    launcher = importlib.import_module("torch_npu.distributed.run")
    assert launcher.parse_args(["--nproc_per_node=2", "train.py", "--epochs=3"]).training_script == "train.py"

"""hccl on real processes: programs run once in each world, and each of their checks is a test."""

from __future__ import annotations

import functools
import json
from pathlib import Path
import subprocess
import sys

import pytest

from tests.torch_distributed.worlds import ROOT, ascend_variables, environment, free_port, results, run


def checks_of(program: str) -> list[str]:
    """The names of a program's checks, read from its text: importing it would join nothing, but loads all of torch.distributed."""
    text = (Path(__file__).parent / "programs" / f"{program}.py").read_text()
    return [line.split("(")[0].removeprefix("def check_") for line in text.splitlines() if line.startswith("def check_")]


@functools.cache
def said(programs: tuple[str, ...], size: int) -> list[dict[str, str]]:
    """What each check of the programs said in one world of so many ranks, for each rank."""
    return results(run("checks", size, *programs, timeout_seconds=1200))


PROGRAMS = ("collectives", "training", "uneven")
CASES = [(program, 2, check) for program in PROGRAMS for check in checks_of(program)]
SLOW = [pytest.param(program, 4, check, marks=pytest.mark.slow) for program in PROGRAMS for check in checks_of(program)]


@pytest.mark.parametrize(("program", "size", "check"), [*CASES, *SLOW])
def test_every_rank_agrees(program: str, size: int, check: str) -> None:
    for rank, answers in enumerate(said(PROGRAMS, size)):
        assert answers[check] == "ok", f"rank {rank}:\n{answers[check]}"


def test_a_killed_rank_is_an_error_on_the_others() -> None:
    survivor = run("one_ends", 2, "killed", HCCL_EXEC_TIMEOUT=300)[0].stdout
    assert "hccl allreduce on rank 0 of 2" in survivor
    assert "DistBackendError after" in survivor
    assert "rank 1 has not begun number 2 of this group, allreduce of 4 float32, SUM: its last was number 1" in survivor
    assert float(survivor.split("after ")[1].split(" s")[0]) < 150  # not the 300 s that it may wait


@pytest.mark.parametrize(
    ("how", "of_rank_1"), [("other_sizes", "allreduce of 5 float32, SUM"), ("other_reductions", "allreduce of 4 float32, MAX")]
)
def test_collectives_that_do_not_match_are_named_on_every_rank_before_data_travel(how: str, of_rank_1: str) -> None:
    """Whoever begins last is refused, perhaps both; another one loses the connection and is told why."""
    words = ("allreduce of 4 float32, SUM", of_rank_1)
    outputs = [done.stdout for done in run("one_ends", 2, how)]
    for rank, output in enumerate(outputs):
        refused = f"{words[rank]} on rank {rank}, {words[1 - rank]} on rank {1 - rank}" in output
        assert refused or f"rank {1 - rank} began {words[1 - rank]} in its place" in output, output
        assert "DistBackendError after" in output, output
        assert f"hccl allreduce on rank {rank} of 2" in output, output
    assert any("the ranks do not agree on collective 1 of this group" in output for output in outputs), outputs


def test_a_rank_that_never_comes_is_an_error_within_the_connect_timeout() -> None:
    port = free_port()
    variables = {"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, "-W", "ignore", "-m", "tests.torch_distributed.programs.one_ends", "absent"]
    done = subprocess.run(
        command, env=environment(**variables, HCCL_CONNECT_TIMEOUT=3), capture_output=True, text=True, cwd=ROOT, timeout=600, check=True
    )
    assert "Error after" in done.stdout, done.stdout + done.stderr
    assert 2 < float(done.stdout.split("after ")[1].split(" s")[0]) < 60  # not the 120 s it waits unless told


def test_ascends_variables_are_enough_to_join() -> None:
    outputs = [done.stdout for done in run("joined", 2, variables=ascend_variables)]
    assert ["rank 0 of 2, sum 1.0" in outputs[0], "rank 1 of 2, sum 1.0" in outputs[1]] == [True, True], outputs
    assert all("again 2.0 2.0" in output for output in outputs), outputs


@pytest.mark.slow
def test_a_rank_table_is_enough_to_join(tmp_path: Path) -> None:
    table = tmp_path / "rank_table.json"
    devices = [{"device_id": str(rank), "device_ip": f"192.168.1.{rank}", "rank_id": str(rank)} for rank in range(2)]
    content = {"status": "completed", "version": "1.0", "server_count": "1", "server_list": [{"server_id": "host", "device": devices}]}
    table.write_text(json.dumps(content))

    def variables(rank: int, size: int, port: int) -> dict[str, object]:
        return {"RANK_TABLE_FILE": table, "RANK_ID": rank, "MASTER_PORT": port}

    outputs = [done.stdout for done in run("joined", 2, variables=variables)]
    assert "rank 1 of 2, sum 1.0" in outputs[1], outputs


def test_a_mesh_chooses_the_npu_where_the_program_did_not() -> None:
    outputs = [done.stdout for done in run("no_device_chosen", 2)]
    for rank, output in enumerate(outputs):
        assert f"rank {rank} on {rank}, then 5" in output, outputs


def test_torchrun_starts_the_ranks() -> None:
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}"]
    done = subprocess.run(
        [*command, "-m", "tests.torch_distributed.programs.joined"],
        env=environment(),
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"rank 0 of 2, sum 1.0", "rank 1 of 2, sum 1.0"} <= set(done.stdout.splitlines()), done.stdout


def test_a_program_ends_after_work_that_finished_in_the_background() -> None:
    for done in run("ends", 2):
        assert (done.returncode, done.stdout) == (0, "RESULT 4.0\n")

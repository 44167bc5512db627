"""npu-smi: its tables, its queries, and the processes it knows of."""

from __future__ import annotations

from collections.abc import Iterator
import os
from pathlib import Path
import signal
import subprocess
import sys
import time

import pytest

from anycann.runtime.device import devices
from anycann.runtime.published import started, uses
from anycann.support.cache import cache_folder
from anycann.tools.npu_smi.main import main
from tests.tools.conftest import SOURCES, Process

PROGRAM = """
import sys
from anycann.runtime.device import devices
device = devices()[1]
device.take(3 << 20)
print("taken", flush=True)
for line in sys.stdin:
    if line == "free\\n":
        device.give_back(2 << 20)
        print("freed", flush=True)
    else:
        sum(range(10**9 if line == "work\\n" else 1))
"""


@pytest.fixture(autouse=True)
def _two_devices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANYCANN_DEVICES", "2")
    monkeypatch.setenv("ANYCANN_DEVICE_MEMORY", "1024")
    monkeypatch.setenv("ANYCANN_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def program() -> Iterator[subprocess.Popen[str]]:
    """A process that has taken 3 MiB of device 1."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=-1, stdout=-1, text=True, env=environment) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "taken\n"
        yield running
        running.kill()


def say(program: subprocess.Popen[str], line: str) -> None:
    assert program.stdin is not None
    program.stdin.write(line + "\n")
    program.stdin.flush()


def test_the_table_of_a_chip_with_hbm(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYCANN_SOC", "Ascend910B3")
    monkeypatch.setenv("ANYCANN_DEVICES", "1")
    assert main(["info"]) == 0
    assert (
        capsys.readouterr().out
        == """\
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.rc1                 Version: 24.1.rc1                                             |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B3               | OK            | NA          NA                0    / 0             |
| 0                         | 0000:01:00.0  | 0           0    / 0          0    / 1024          |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| No running processes found in NPU 0                                                            |
+===========================+===============+====================================================+
"""
    )


def test_a_process_and_its_memory_are_seen(program: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    rows = [[cell.split() for cell in row.split("|")[1:-1]] for row in capsys.readouterr().out.splitlines() if row.startswith("|")]
    assert [["1", "310P3"], ["OK"], ["NA", "NA", "0", "/", "0"]] in rows
    (chip,) = [row for row in rows if row[:2] == [["0", "1"], ["0000:02:00.0"]]]
    assert chip[2][1:] == ["3", "/", "1024"]  # behind the load, which the process's start may still show
    (row,) = [row for row in rows if row[0] == ["1", "0"]]
    assert (row[1], row[3]) == ([str(program.pid)], ["3"])
    assert main(["info", "-t", "proc-mem", "-i", "1"]) == 0
    assert f"\tProcess id:{program.pid}     Process name:" in capsys.readouterr().out
    say(program, "free")
    assert program.stdout is not None
    assert program.stdout.readline() == "freed\n"
    assert [(use.pid, use.device, use.taken_bytes) for use in uses()] == [(program.pid, 1, 1 << 20)]


def test_the_load_of_a_process_is_that_of_its_device(
    program: subprocess.Popen[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anycann.tools.npu_smi.facts.available_processors", lambda: 1)

    def load(card: int) -> int:
        assert main(["info", "-t", "usages", "-i", str(card)]) == 0
        facts = dict(line.strip().split(":") for line in capsys.readouterr().out.splitlines() if ":" in line)
        return int(facts["Aicore Usage Rate(%)".ljust(31)])

    say(program, "work")
    give_up = time.monotonic() + 600
    while not load(1):  # until the process was given time of a processor
        assert time.monotonic() < give_up
    assert load(0) == 0


def test_a_process_that_was_killed_is_forgotten(program: subprocess.Popen[str]) -> None:
    program.kill()
    program.wait()
    (left,) = cache_folder("processes").iterdir()
    assert left.name.startswith(f"{program.pid}-")
    assert uses() == []
    assert not left.exists()


def test_another_process_of_the_same_number_is_not_taken_for_it() -> None:
    (cache_folder("processes") / f"{os.getpid()}-{(started(os.getpid()) or 0) + 1}").write_bytes((1 << 20).to_bytes(8, "little"))
    assert uses() == []


def test_a_file_that_is_no_entry_is_left_alone() -> None:
    (cache_folder("processes") / "notes.txt").write_text("x")
    (cache_folder("processes") / f"{os.getpid()}-{started(os.getpid())}").write_bytes(b"odd")
    assert uses() == []
    assert (cache_folder("processes") / "notes.txt").exists()


def test_a_forked_child_has_an_entry_of_its_own() -> None:
    first, _ = devices()
    first.take(1 << 20)
    child = os.fork()
    if child == 0:
        first.take(1 << 20)
        os._exit(0 if {use.pid for use in uses()} == {os.getpid(), os.getppid()} else 1)
    assert os.waitpid(child, 0)[1] == 0
    first.give_back(1 << 20)
    assert uses() == []


@pytest.mark.parametrize("kind", ["usages", "memory", "board", "common", "proc-mem", "health", "temp", "power"])
def test_every_query_names_its_device(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "-t", kind, "-i", "1", "-c", "0"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "\tNPU ID                         : 1"
    assert all(line in ("", "\tNo process in device.") or line[32:34] == ": " for line in rest)


def test_lists_and_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "-l"]) == 0
    assert capsys.readouterr().out.startswith("\tCard Count                     : 2\n\n\tNPU ID                         : 0\n")
    assert main(["info", "-m"]) == 0
    assert capsys.readouterr().out.splitlines()[2].split() == ["1", "0", "1", "Ascend", "310P3"]
    assert main(["info", "-t", "usages", "-i", "2"]) == 1
    assert "NPU 2 is not there; accepted: 0 to 1" in capsys.readouterr().err
    assert main(["-v"]) == 0
    with pytest.raises(SystemExit):
        main(["set", "-t", "reset"])


def test_rows_come_until_the_watch_is_interrupted() -> None:
    command = [sys.executable, "-m", "anycann.tools.cli", "run", "npu-smi", "info", "watch", "-i", "1", "-s", "pam"]
    with subprocess.Popen(command, stdout=-1, text=True, env={**os.environ, "PYTHONPATH": str(SOURCES)}) as watching:
        assert watching.stdout is not None
        lines = [watching.stdout.readline() for _ in range(3)]
        watching.send_signal(signal.SIGINT)
    assert lines[0] == "NpuID(Idx)  ChipId(Idx) Pwr(W)      AI Core(%)  Memory(%)\n"
    assert {tuple(line.split()[:3]) for line in lines[1:]} == {("1", "0", "NA")}
    assert watching.returncode == 0


def test_what_a_watch_cannot_show_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "watch", "-s", "az"]) == 1
    assert "-s is 'az'; accepted: letters of p Pwr(W), t Temp(C)" in capsys.readouterr().err
    assert main(["info", "watch", "-c", "1"]) == 1
    assert "chip 1 is not there" in capsys.readouterr().err


def test_the_topology_names_every_device_and_its_processors(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 5})
    assert main(["info", "-t", "topo"]) == 0
    head, *table = [line.split() for line in capsys.readouterr().out.splitlines()[:3]]
    assert head == ["NPU0", "NPU1", "CPU", "Affinity"]
    assert table == [["NPU0", "X", "SYS", "0-2,5"], ["NPU1", "SYS", "X", "0-2,5"]]


def test_the_command_is_found(process: Process) -> None:
    done = process("run", "npu-smi", "info")
    assert done.returncode == 0, done.stderr
    assert "| NPU     Name                  | Health          |" in done.stdout

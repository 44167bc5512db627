"""Processors of this process: its affinity, and the time that control groups leave it."""

import math
import os
from pathlib import Path

import pytest

from anycann.support import processors
from anycann.support.processors import available_processors, processors_of_quota


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def first_version(folder: str, quota: int, period: int) -> dict[str, str]:
    return {f"{folder}/cpu.cfs_quota_us": f"{quota}\n", f"{folder}/cpu.cfs_period_us": f"{period}\n"}


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/", {"cpu.max": "150000 100000\n"}, 1.5),  # a container that sees its own group as the root
        ("0::/", {"cpu.max": "max 100000\n"}, math.inf),
        ("0::/pod/inner", {"pod/cpu.max": "200000 100000\n", "pod/inner/cpu.max": "max 100000\n"}, 2.0),
        ("0::/pod/inner", {"pod/cpu.max": "800000 100000\n", "pod/inner/cpu.max": "50000 100000\n"}, 0.5),
        ("4:memory:/a\n3:cpu,cpuacct:/a", first_version("cpu,cpuacct/a", 300000, 100000), 3.0),
        ("3:cpu,cpuacct:/docker/4711", first_version("cpu,cpuacct", 100000, 50000), 2.0),
        ("3:cpuacct,cpu:/a", first_version("cpu/a", 300000, 100000), 3.0),  # "cpu" is a link to "cpu,cpuacct"
        ("3:cpu:/", first_version("cpu", -1, 100000), math.inf),
        ("0::/\n1:cpu:/", {"unified/cgroup.procs": "", **first_version("cpu", 100000, 100000)}, 1.0),
        ("0::/../other", {"cpu.max": "100000 100000\n"}, 1.0),
        ("0::/", {}, math.inf),
        ("0::/", {"cpu.max": "nonsense\n"}, math.inf),
        ("0::/", {"cpu.max": "100000 0\n"}, math.inf),
        ("nonsense", {"cpu.max": "100000 100000\n"}, math.inf),
    ],
)
def test_the_tightest_quota_of_the_groups_above_counts(tmp_path: Path, membership: str, files: dict[str, str], expected: float) -> None:
    write(tmp_path / "self", membership + "\n")
    for name, text in files.items():
        write(tmp_path / "groups" / name, text)
    assert processors_of_quota(tmp_path / "self", tmp_path / "groups") == expected


def test_a_system_without_control_groups_has_no_quota(tmp_path: Path) -> None:
    assert processors_of_quota(tmp_path / "absent", tmp_path) == math.inf


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system does not let a program choose its processors")
@pytest.mark.parametrize(("quota", "expected"), [(math.inf, 4), (8.0, 4), (2.0, 2), (1.5, 2), (0.5, 1), (0.0, 1)])
def test_threads_are_as_many_as_both_allow(monkeypatch: pytest.MonkeyPatch, quota: float, expected: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 5, 7})
    monkeypatch.setattr(processors, "processors_of_quota", lambda: quota)
    assert available_processors() == expected

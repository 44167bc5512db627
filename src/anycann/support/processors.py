"""How many processors there are for this process."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
import math
import os
from pathlib import Path, PurePosixPath


def available_processors() -> int:
    """Processors this process may use: those of its affinity, and no more than its control groups leave it time for.

    A group's share is rounded up: with time for one and a half processors two threads do more than one.
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(affinity, processors_of_quota())))


@lru_cache(maxsize=1)
def processors_of_quota(membership: Path = Path("/proc/self/cgroup"), groups: Path = Path("/sys/fs/cgroup")) -> float:
    """The processor time that the control groups of this process leave it, in processors; infinity where they leave it all.

    `membership` says which groups those are, below `groups` (Linux, cgroup version 1 and 2); the tightest of a group and those above it
    counts. More threads than that would be stopped for the rest of each period, all of them, those that wait awake included.
    """
    return min((_quota(folder) for folder in _folders(membership, groups)), default=math.inf)


def _folders(membership: Path, groups: Path) -> Iterator[Path]:
    """The folders of the groups that share out processors: version 2 has one tree, version 1 one for some controllers each."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if path.startswith("/") and (not controllers or "cpu" in controllers.split(",")):
            group = PurePosixPath(path.lstrip("/"))
            trees = {controllers, "cpu"} if controllers else {""}  # "cpuacct,cpu" may lie in a folder "cpu,cpuacct"; "cpu" is a link to it
            yield from (groups / tree / above for tree in trees for above in (group, *group.parents))


def _quota(folder: Path) -> float:
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) >= 0 else math.inf
    except (OSError, ValueError, ZeroDivisionError):  # "max" is no number: no limit
        return math.inf

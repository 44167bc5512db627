"""What processes take of the virtual devices, for others to see (`npu-smi`): a small file for each process in the cache folder.

A file is an int64 for each device, the bytes taken. It is mapped, so that telling costs a store. Its name is the process and when it
began; a file whose process is gone is removed by the next reader.
"""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import suppress
import mmap
import os
from pathlib import Path
import threading

import numpy as np

from anycann.support.cache import cache_folder
from anycann.support.errors import AnyCANNError
from anycann.support.records import dataclass

_FOLDER = "processes"
_ENTRY_BYTES = 8


@dataclass(frozen=True)
class Use:
    """What one process takes of one device."""

    pid: int
    device: int
    taken_bytes: int


class Publisher:
    """Tells what this process takes. Where no file can be written, nobody is told."""

    def __init__(self, devices: int) -> None:
        self._devices = devices
        self._pid = 0
        self._taken: np.ndarray | None = None
        self._lock = threading.Lock()

    def tell(self, device: int, taken_bytes: int) -> None:
        """Device number `device` has `taken_bytes` taken by this process now."""
        if self._pid != os.getpid():  # the first time, and in a child that was forked
            with self._lock:
                if self._pid != os.getpid():
                    self._open()
        if self._taken is not None:
            self._taken[device] = taken_bytes

    def _open(self) -> None:
        self._taken = None
        with suppress(OSError, ValueError, AnyCANNError):
            path = cache_folder(_FOLDER) / f"{os.getpid()}-{started(os.getpid())}"
            with path.open("w+b") as file:
                file.truncate(self._devices * _ENTRY_BYTES)
                self._taken = np.frombuffer(mmap.mmap(file.fileno(), self._devices * _ENTRY_BYTES), np.int64)
            atexit.register(_remove, path, os.getpid())
        self._pid = os.getpid()


def uses() -> list[Use]:
    """What all processes of this user take, those that take nothing left out, by device and process."""
    found = [use for path in _files() for use in _read(path)]
    return sorted(found, key=lambda use: (use.device, use.pid))


def started(pid: int) -> int | None:
    """When a process began, in ticks since the machine did; None if it is not there (0 where the system does not tell)."""
    if not os.path.isdir("/proc/self"):
        return 0
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def busy_ticks(pid: int) -> int | None:
    """Processor time of a process, all threads, in ticks; None if it is not there."""
    fields = _stat(pid)
    return None if fields is None else int(fields[11]) + int(fields[12])


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third on: the name before them may hold anything."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _files() -> Iterator[Path]:
    """The files of processes that live; the others are removed."""
    for path in cache_folder(_FOLDER).iterdir():
        pid, _, began = path.name.partition("-")
        if not (pid.isdigit() and began.isdigit()):
            continue
        if started(int(pid)) == int(began):
            yield path
        else:
            with suppress(OSError):
                path.unlink()


def _read(path: Path) -> list[Use]:
    with suppress(OSError, ValueError):
        taken = np.frombuffer(path.read_bytes(), np.int64)
        pid = int(path.name.partition("-")[0])
        return [Use(pid, device, int(nbytes)) for device, nbytes in enumerate(taken) if nbytes > 0]
    return []


def _remove(path: Path, pid: int) -> None:
    if os.getpid() == pid:
        with suppress(OSError):
            path.unlink()

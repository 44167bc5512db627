"""The journal of a tuning: every measurement as one line, on disk before the next begins, so that nothing is lost by an interruption."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
import json
import os
from pathlib import Path

from anycann.support.files import file_error
from anycann.support.records import dataclass

BETTER = 0.99  # of the best ratio so far: the search goes on


@dataclass(frozen=True)
class Line:
    """One result: of which task (key), of which point, time / time of the default, seconds of the default; null ratio: lost, and why."""

    task: str
    point: dict[str, int]
    ratio: float | None
    default_seconds: float
    problem: str = ""


class Journal:
    """Appends lines to `path`. What a killed writer left unfinished at the end is skipped when read, and overwritten."""

    def __init__(self, path: Path):
        self.path = path

    def lines(self) -> Iterator[Line]:
        """What was written so far; lines that are damaged are left out."""
        try:
            text = self.path.read_text(errors="replace")
        except FileNotFoundError:
            return
        for raw in text.splitlines():
            try:
                line = Line(**json.loads(raw))
                if isinstance(line.task, str) and isinstance(line.point, dict) and isinstance(line.ratio, float | int | None):
                    yield line
            except (ValueError, TypeError):
                continue

    def add(self, lines: list[Line]) -> None:
        """Append lines, and see them on the disk. Raises DeviceError if that fails."""
        text = "".join(json.dumps(asdict(line)) + "\n" for line in lines)
        try:
            with self.path.open("ab+") as file:
                if file.tell() and not _ends_whole(file.fileno()):
                    text = "\n" + text
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise file_error(self.path, "write", error) from error


def candidates_since_better(lines: Iterable[Line]) -> int:
    """How many candidates of one task were measured after the last that was better. Points that were measured again don't count."""
    seen: list[dict[str, int]] = []
    best, idle = 1.0, 0
    for line in lines:
        if line.point in seen:
            continue
        seen.append(line.point)
        if line.ratio is not None and line.ratio < BETTER * best:
            best, idle = line.ratio, 0
        else:
            idle += 1
    return idle


def _ends_whole(descriptor: int) -> bool:
    """True if the last byte is the end of a line."""
    size = os.fstat(descriptor).st_size
    return size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"

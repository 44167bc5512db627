"""Where dump files lie and what they are called."""

from __future__ import annotations

import csv
from datetime import datetime
import os
from pathlib import Path
import secrets
import threading

from anycann.support.files import write_whole

MOST_NAME_BYTES = 255  # of a file, by most file systems
_PLAIN = str.maketrans("./\\ ", "____")
_LOCK = threading.Lock()


def plain(name: str) -> str:
    """A name that can be part of a file's: dots, slashes and spaces become _."""
    return name.translate(_PLAIN)


def stamp(now: datetime | None = None) -> str:
    """The moment as YYYYMMDDhhmmss."""
    return (now or datetime.now()).strftime("%Y%m%d%H%M%S")


def run_folder(root: Path, device: int, model: str, model_id: int, run: int) -> Path:
    """The folder of one run of a model below the folder of the moment."""
    return root / str(device) / plain(model) / str(model_id) / str(run)


def operator_name(op_type: str, name: str, task: int, stream: int, time_us: int, suffix: str = "") -> str:
    """What the file of one run of an operator is called."""
    return f"{plain(op_type)}.{plain(name)}.{task}.{stream}.{time_us}{suffix}"


def write_operator_file(path: Path, content: bytes) -> None:
    """Write it. A name that is too long becomes a number, which mapping.csv of the folder explains."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(str(_possible(path)), content)


def _possible(path: Path) -> Path:
    folder, whole = path.parent, path.name
    if len(os.fsencode(whole)) <= MOST_NAME_BYTES:
        return path
    number = str(secrets.randbelow(10**18) + 10**18) + (".csv" if path.suffix == ".csv" else "")
    with _LOCK, (folder / "mapping.csv").open("a", newline="", encoding="utf-8") as file:
        csv.writer(file).writerow([number, whole])
    return folder / number


def real_names(folder: Path) -> dict[str, str]:
    """What mapping.csv of a folder says: file -> the name it should have."""
    path = folder / "mapping.csv"
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        return {row[0]: row[1] for row in csv.reader(file) if len(row) == 2}

"""The files of knowledge banks: JSON that Ascend's users know, `op/<soc>/unified_bank/<soc>_<cores>_AiCore_<op_type>.json` for schedules,
`graph/<soc>/..._<op_type>.json` for algorithms.

A file is an object: key (md5 of what tells the problem, the generator's version and the machine) -> list of {"knowledge": the point,
"info_dict": what the key was made of, ...}. A file or entry that is damaged is left out, and that is said in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
import fcntl
import json
from pathlib import Path
from typing import Any

from anycann.codegen.space import Point, Space
from anycann.support.files import file_error, write_whole
from anycann.support.logging import get_logger
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.tuning.identity import common_identity, core_name, digest, identity


@dataclass(frozen=True)
class Naming:
    """How a bank calls things. soc: its name for a target. identity: what an entry of a space is found by."""

    soc: Callable[[Target], str]
    identity: Callable[[Space[Any]], dict[str, object]]

    def key(self, space: Space[Any]) -> str:
        return digest(self.identity(space))


OF_THIS_MACHINE = Naming(lambda target: target.name, identity)
OF_CORES = Naming(core_name, common_identity)  # what is built in


@dataclass(frozen=True)
class Entry:
    """One result. before, after: seconds of a run with the default and with `point`."""

    space: Space[Any]
    point: Point
    before: float
    after: float
    threads: int

    def to_json(self, naming: Naming = OF_THIS_MACHINE) -> dict[str, object]:
        """The entry as a bank keeps it."""
        target = self.space.target
        return {
            "knowledge": dict(self.point),
            "info_dict": naming.identity(self.space),
            "caches": {"l1_bytes": target.l1_bytes, "l2_bytes": target.l2_bytes},
            "performance_before_tune(us)": round(self.before * 1e6, 3),
            "performance_after_tune(us)": round(self.after * 1e6, 3),
            "core_num": self.threads,
        }


@dataclass(frozen=True)
class Known:
    """What a file says of one problem of a family: a point, and the caches that it was measured with."""

    family: str
    point: Point
    l1_bytes: int = 0
    l2_bytes: int = 0

    def suits(self, target: Target) -> bool:
        """True if the target's caches are as large."""
        return self.l1_bytes <= target.l1_bytes and self.l2_bytes <= target.l2_bytes


def bank_file(folder: Path, space: Space[Any], threads: int, naming: Naming = OF_THIS_MACHINE) -> Path:
    """The file that keeps results of this space."""
    soc = naming.soc(space.target)
    kind = folder / "graph" / soc if space.is_algorithm else folder / "op" / soc / "unified_bank"
    return kind / f"{soc}_{threads}_AiCore_{space.family}.json"


def keep(entries: Iterable[Entry], folder: Path, naming: Naming = OF_THIS_MACHINE) -> list[str]:
    """Put entries into the bank in `folder`; for each "add" or "update". Several processes may do so at once.

    Raises DeviceError or UsageError if the folder cannot be written.
    """
    modes = []
    for entry in entries:
        path = bank_file(folder, entry.space, entry.threads, naming)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise file_error(path.parent, "make", error) from error
        with _locked(path):
            content = _content(path) or {}
            key = naming.key(entry.space)
            modes.append("update" if key in content else "add")
            content[key] = [entry.to_json(naming)]
            write_whole(path, json.dumps(content, indent=1, sort_keys=True).encode())
    return modes


def read_bank(folder: Path, soc: str) -> dict[str, Known]:
    """All entries of a bank for a soc, by their keys."""
    found: dict[str, Known] = {}
    for path in _files(folder, soc):
        found |= _entries(path)
    return found


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One writer at a time."""
    lock = path.with_name(f".{path.name}.lock")
    try:
        file = lock.open("w")
    except OSError as error:
        raise file_error(lock, "write", error) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _files(folder: Path, soc: str) -> list[Path]:
    """Bank files of a folder for a target, also if `folder` is the folder of a soc or of a kind itself (as atc's options name it)."""
    places = (folder, folder / soc, folder / "op" / soc, folder / "graph" / soc)
    found = [path for place in places for kind in (place, place / "unified_bank") for path in sorted(kind.glob("*_AiCore_*.json"))]
    return list(dict.fromkeys(found))


def _entries(path: Path) -> dict[str, Known]:
    """Key -> what a file says. Wrong entries are left out, and that is said."""
    content = _content(path)
    if content is None:
        return {}
    read = {key: _entry(key, entries) for key, entries in content.items()}
    found = {key: known for key, known in read.items() if known is not None}
    if len(found) < len(read):
        get_logger("tuning").warning(
            "knowledge bank %s: %d of %d entries are damaged or foreign and are not used; tune again with REPEAT_TUNE=True",
            path,
            len(read) - len(found),
            len(read),
        )
    return found


def _entry(key: str, entries: object) -> Known | None:
    """An entry that is what its key says it is."""
    match entries:
        case [{"knowledge": dict() as knowledge, "info_dict": dict() as info, **rest}, *_] if digest(info) == key and knowledge:
            if all(isinstance(name, str) and type(value) is int for name, value in knowledge.items()):
                return _limited(str(info.get("op_type")), knowledge, rest.get("caches"))
    return None


def _limited(family: str, point: Point, caches: object) -> Known | None:
    match caches:
        case None:
            return Known(family, point)
        case {"l1_bytes": int() as l1_bytes, "l2_bytes": int() as l2_bytes}:
            return Known(family, point, l1_bytes, l2_bytes)
    return None


def _content(path: Path) -> dict[str, Any] | None:
    """The object in a file; None if there is no file, or after a warning if it is not one."""
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        get_logger("tuning").warning("knowledge bank %s is not used: %s; remove it, or tune again", path, error)
        return None
    if not isinstance(content, dict):
        get_logger("tuning").warning("knowledge bank %s is not used: it holds no JSON object; remove it, or tune again", path)
        return None
    return content

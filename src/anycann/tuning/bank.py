"""Knowledge banks: what was measured to be the best, kept as JSON that Ascend's users know, and asked while kernels are generated.

A bank is a folder: `op/<soc>/unified_bank/<soc>_<cores>_AiCore_<op_type>.json` for schedules, `graph/<soc>/..._<op_type>.json` for
algorithms. A file is an object: key (md5 of signature, generator version and machine) -> list of {"knowledge": the point,
"info_dict": what the key was made of, ...}. A file or entry that is damaged, of another machine or of another version is never used; the
first is said in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
import fcntl
import json
from pathlib import Path
from typing import Any

from anycann.codegen.space import Point, Space
from anycann.support import options
from anycann.support.cache import cache_folder
from anycann.support.errors import UsageError
from anycann.support.files import file_error, write_whole
from anycann.support.logging import get_logger
from anycann.target.target import Target
from anycann.tuning.identity import digest, identity, key_of

BUILT_IN = Path(__file__).resolve().parent / "built_in"


@dataclass(frozen=True)
class Entry:
    """One result. before, after: seconds of a run with the default and with `point`."""

    space: Space[Any]
    point: Point
    before: float
    after: float
    threads: int

    def to_json(self) -> dict[str, object]:
        """The entry as a bank keeps it."""
        return {
            "knowledge": dict(self.point),
            "info_dict": identity(self.space),
            "performance_before_tune(us)": round(self.before * 1e6, 3),
            "performance_after_tune(us)": round(self.after * 1e6, 3),
            "core_num": self.threads,
        }


class Bank:
    """The points of one bank, or of several of which earlier ones win. Read when it is asked first."""

    def __init__(self, folders: Sequence[Path], target: Target):
        self._folders = tuple(folders)
        self._target = target
        self._points: dict[str, Point] | None = None

    def find(self, space: Space[Any]) -> Point | None:
        """The point kept for this problem on this machine; None if there is none."""
        points = self._read()
        return points.get(key_of(space)) if points else None

    def __len__(self) -> int:
        return len(self._read())

    def _read(self) -> dict[str, Point]:
        if self._points is None:
            self._points = {}
            for folder in reversed(self._folders):
                for path in _files(folder, self._target):
                    self._points |= _points(path)
        return self._points


def open_bank(target: Target, custom: Iterable[str | Path] = ()) -> Bank | None:
    """The banks that compiling for `target` asks: `custom` folders, else that of the environment, then the built-in one.

    None if ENABLE_TUNE_BANK says so.
    """
    if not options.ENABLE_TUNE_BANK.get():
        return None
    folders = [Path(folder) for folder in custom] or [custom_folder()]
    return Bank([*folders, BUILT_IN], target)


def custom_folder() -> Path:
    """Where results are kept: TUNE_BANK_PATH, else aoe_data in ASCEND_CACHE_PATH, else in the cache folder."""
    chosen, ascend = options.TUNE_BANK_PATH.get(), options.ASCEND_CACHE_PATH.get()
    if chosen:
        return Path(chosen).absolute()
    return Path(ascend).absolute() / "aoe_data" if ascend else cache_folder("tuning")


def bank_file(folder: Path, space: Space[Any], threads: int) -> Path:
    """The file that keeps results of this space."""
    soc = space.target.name
    kind = folder / "graph" / soc if space.is_algorithm else folder / "op" / soc / "unified_bank"
    return kind / f"{soc}_{threads}_AiCore_{space.family}.json"


def keep(entries: Iterable[Entry], folder: Path) -> list[str]:
    """Put entries into the bank in `folder`; for each "add" or "update". Several processes may do so at once.

    Raises DeviceError or UsageError if the folder cannot be written.
    """
    modes = []
    for entry in entries:
        path = bank_file(folder, entry.space, entry.threads)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise file_error(path.parent, "make", error) from error
        with _locked(path):
            content = _content(path) or {}
            key = key_of(entry.space)
            modes.append("update" if key in content else "add")
            content[key] = [entry.to_json()]
            write_whole(path, json.dumps(content, indent=1, sort_keys=True).encode())
    return modes


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


def _files(folder: Path, target: Target) -> list[Path]:
    """Bank files of a folder for a target, also if `folder` is the folder of a soc or of a kind itself (as atc's options name it)."""
    soc = target.name
    places = (folder, folder / soc, folder / "op" / soc, folder / "graph" / soc)
    found = [path for place in places for kind in (place, place / "unified_bank") for path in sorted(kind.glob("*_AiCore_*.json"))]
    return list(dict.fromkeys(found))


def _points(path: Path) -> dict[str, Point]:
    """Key -> point of a file. Wrong entries are left out, and that is said."""
    content = _content(path)
    if content is None:
        return {}
    found, wrong = {}, 0
    for key, entries in content.items():
        point = _point(key, entries)
        if point is None:
            wrong += 1
        else:
            found[key] = point
    if wrong:
        get_logger("tuning").warning(
            "knowledge bank %s: %d of %d entries are damaged or foreign and are not used; tune again with REPEAT_TUNE=True",
            path,
            wrong,
            len(content),
        )
    return found


def _point(key: str, entries: object) -> Point | None:
    """The point of an entry that is what its key says it is."""
    match entries:
        case [{"knowledge": dict() as knowledge, "info_dict": dict() as info}, *_] if digest(info) == key:
            whole = all(isinstance(name, str) and type(value) is int for name, value in knowledge.items())
            return knowledge if whole and knowledge else None
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


def require_folder(path: str, option: str) -> str:
    """The folder that an option names. Raises UsageError if it is none."""
    if not Path(path).is_dir():
        raise UsageError(f"{option} {path!r} is no folder; accepted: the folder of a knowledge bank")
    return str(Path(path).absolute())

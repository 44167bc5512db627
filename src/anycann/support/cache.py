"""The user's cache folder. Machine code and keys lie in it, so it is used only if nobody else can write there."""

from __future__ import annotations

import atexit
from functools import lru_cache
import os
from pathlib import Path
import shutil
import stat
import tempfile

from anycann.support import options
from anycann.support.errors import UsageError
from anycann.support.files import file_error
from anycann.support.logging import get_logger


def cache_folder(*parts: str) -> Path:
    """The folder `parts` of the cache, made (mode 0700) if missing: ANYCANN_CACHE_DIR, else anycann in the XDG cache folder.

    If it can't be written, or others can write to it, a warning is logged and a temporary folder stands in until the process ends.
    """
    wanted = _wanted()
    problem = _problem(wanted)
    if problem:
        folder = _temporary(str(wanted), problem, os.getpid())
        if not folder.is_dir():  # swept away by a cleaner of temporary folders
            folder.mkdir(mode=0o700, parents=True)
    else:
        folder = wanted
    return _subfolder(folder, parts)


def cache_problem() -> str:
    """Why the cache folder is not used, with its name; "" if it is."""
    wanted = _wanted()
    problem = _problem(wanted)
    return f"{wanted} is not used: {problem}" if problem else ""


def _wanted() -> Path:
    chosen = options.CACHE_DIR.get()
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "anycann"
    return Path(os.path.expanduser("~")) / ".cache" / "anycann"


def _problem(folder: Path) -> str:
    """Make `folder`; the sentence why it can't serve, or ""."""
    if not folder.is_absolute():
        return "this user has no home folder"
    try:
        status = _made(folder)
    except OSError as error:
        return f"it can't be made ({(error.strerror or str(error)).lower()})"
    if status.st_uid != os.geteuid():
        return f"it belongs to user {status.st_uid}, not to user {os.geteuid()} who runs this"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"other users can write to it (chmod go-w {folder} makes it usable)"
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK) or os.statvfs(folder).f_flag & os.ST_RDONLY:
        return "it can't be written"
    return ""


def _made(folder: Path) -> os.stat_result:
    """The state of `folder`, made if it is missing. A command asks a hundred times, and it is there."""
    try:
        status = os.stat(folder)
        if stat.S_ISDIR(status.st_mode):
            return status
    except FileNotFoundError:
        pass
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.stat(folder)


@lru_cache(maxsize=16)
def _temporary(wanted: str, problem: str, process: int) -> Path:
    """One stand-in for each refused folder and process; removed by the process that made it."""
    folder = Path(tempfile.mkdtemp(prefix="anycann-"))
    get_logger("cache").warning("cache folder %s is not used: %s; compiled kernels are lost when this process ends", wanted, problem)
    atexit.register(_remove, folder, process)
    return folder


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _subfolder(folder: Path, parts: tuple[str, ...]) -> Path:
    for part in parts:
        if part in ("", ".", "..") or "/" in part or "\0" in part:
            raise UsageError(f"{part!r} can't be the name of a cache folder; accepted: one plain name")
        folder = folder / part
        if os.path.isdir(folder):
            continue
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise file_error(folder, "make", error) from error
    return folder

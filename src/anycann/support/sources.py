"""Which code this process runs: a digest of its source files, as long as none of them was changed since the process may have read it."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
import os
from pathlib import Path
import sys
import time

PACKAGE = Path(__file__).resolve().parent.parent
_MARGIN_SECONDS = 1.0  # file systems tell times in ticks, and an editor writes in several steps
_BEGAN = time.time()  # `anycann/__init__.py` imports this file before any that a digest is asked of


@lru_cache(maxsize=8)
def digest(*folders: str) -> str | None:
    """64 hex digits for the sources in `folders` of the package and the version of Python; None if they can't be told."""
    files = _files(folders)
    if not files or not _unchanged(files):
        return None
    total = blake2b(sys.version.encode(), digest_size=32)
    try:
        for path in files:
            content = _content(path)
            total.update(f"\0{os.path.relpath(path, PACKAGE)}\0{len(content)}\0".encode() + content)
    except OSError:
        return None
    return total.hexdigest()


def are_those_that_run(*folders: str) -> bool:
    """Whether no source in `folders` was changed, moved or removed since this process began, so that what is imported late is the same."""
    return _unchanged(_files(folders))


def _content(path: str) -> bytes:
    """As `Path.read_bytes`, without its buffer: there are 250 files."""
    with open(path, "rb", buffering=0) as file:
        return file.read()


@lru_cache(maxsize=8)
def _files(folders: tuple[str, ...]) -> tuple[str, ...]:
    found = [os.path.join(folder, name) for part in folders for folder, _, names in os.walk(PACKAGE / part) for name in names]
    return tuple(sorted(path for path in found if path.endswith(".py")))


def _unchanged(files: tuple[str, ...]) -> bool:
    """The time of the last change of an inode can't be set, as that of the content can."""
    try:
        return all(os.stat(path).st_ctime < _BEGAN - _MARGIN_SECONDS for path in files)
    except OSError:
        return False

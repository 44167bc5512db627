"""Compiled kernels on disk, found by the hash of their IR text, so that compiling a known model takes a second."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
import hashlib
import logging
import os
from pathlib import Path
import stat
import struct
import tempfile
import time

import llvmlite

from anycann.codegen.object_form import PIPELINE
from anycann.support.cache import cache_folder
from anycann.support.logging import get_logger
from anycann.target.target import Target

DEFAULT_LIMIT_BYTES = 1 << 30
_HEADER = struct.Struct("<8sQ32s")  # magic, length and SHA-256 of the object that follows
_MAGIC = b"ANYKERN1"
_LISTED = ".listed"  # an empty file; its time is when the folder was last listed
_TOUCH_SECONDS = 3600.0  # how exactly the time of last use is kept
_LISTING_SECONDS = 3600.0  # how often the folder is listed to see what it holds: of 37 000 kernels that takes 0.4 s
_LISTING_SHARE = 64  # and as soon as one process has added this part of the limit

Progress = Callable[[int, int], None]


def compile_kernels(
    kernels: Mapping[str, str],
    target: Target,
    workers: int | None = None,
    progress: Progress | None = None,
    cache: KernelCache | None = None,
    apart: bool = False,
) -> dict[str, bytes]:
    """Object code of each kernel (symbol -> IR text), from the cache or compiled in parallel and kept there.

    `workers`: processes, by default one a processor; 1 compiles in this process. `apart`: in another process however little it is, so that
    LLVM is not loaded here. `progress(done, total)` is called in this thread.
    Raises InternalError for a kernel that LLVM refuses.
    """
    cache = default_cache() if cache is None else cache
    keys = {symbol: kernel_key(text, target) for symbol, text in kernels.items()}
    objects: dict[str, bytes] = {}

    def done(symbol: str, data: bytes) -> None:
        objects[symbol] = data
        if progress:
            progress(len(objects), len(kernels))

    def compiled(symbol: str, data: bytes) -> None:
        cache.put(keys[symbol], data)
        done(symbol, data)

    for symbol in kernels:
        data = cache.get(keys[symbol])
        if data is not None:
            done(symbol, data)
    missing = {symbol: text for symbol, text in kernels.items() if symbol not in objects}
    if missing:
        from anycann.codegen.compile_pool import compile_missing

        compile_missing(missing, target, workers, compiled, apart)
        cache.keep_within_limit()
    return {symbol: objects[symbol] for symbol in kernels}


def kernel_key(ir_text: str, target: Target) -> str:
    """Everything the object depends on, as 64 hex digits."""
    text = "\0".join((PIPELINE, llvmlite.__version__, target.key, ir_text))
    return hashlib.sha256(text.encode()).hexdigest()


class KernelCache:
    """Objects in `folder` by key. Code in it is trusted because the folder is the user's alone (owner and mode 0700 are checked);
    entries are checked for length and digest when read and written beside and renamed. A folder that cannot be used is ignored, and
    said once in the log: nothing here raises.
    """

    def __init__(self, folder: Path, limit_bytes: int = DEFAULT_LIMIT_BYTES):
        self.folder = folder
        self.limit_bytes = limit_bytes
        self._added = 0  # bytes since the folder was last listed
        self._usable = self._prepare()
        self._writable = self._usable

    def get(self, key: str) -> bytes | None:
        """The object kept under `key`; None if there is none or it is damaged (then it is removed)."""
        if not self._usable:
            return None
        path = self._path(key)
        try:
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
            with open(descriptor, "rb") as file:
                raw = file.read()
                used = os.fstat(descriptor).st_mtime
        except OSError:
            return None
        data = _unpack(raw)
        if data is None:
            _log().warning("kernel cache: %s is damaged; the kernel is compiled again", path)
            _remove(path)
        elif time.time() - used > _TOUCH_SECONDS:
            _touch(path)
        return data

    def put(self, key: str, data: bytes) -> None:
        """Keep `data` under `key`."""
        if not self._writable:
            return
        path = self._path(key)
        header = _HEADER.pack(_MAGIC, len(data), hashlib.sha256(data).digest())
        temporary = ""
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
            with open(descriptor, "wb") as file:
                file.write(header + data)
            os.replace(temporary, path)
            self._added += len(header) + len(data)
        except OSError as error:
            _log().warning("kernel cache: writing to %s failed (%s); nothing more is kept", self.folder, error)
            self._writable = False
            if temporary:
                _remove(temporary)

    def keep_within_limit(self) -> None:
        """`trim`, if no process did in the last hour or this one has added much since; between, the limit may be passed a little."""
        if not self._writable:
            return
        try:
            listed = (self.folder / _LISTED).stat().st_mtime
        except OSError:
            listed = 0.0
        if abs(time.time() - listed) > _LISTING_SECONDS or self._added >= self.limit_bytes / _LISTING_SHARE:
            self.trim()

    def trim(self) -> None:
        """Remove what was not used for longest, until a tenth of the limit is free, if the limit is passed."""
        if not self._usable:
            return
        self._added = 0
        with suppress(OSError):
            (self.folder / _LISTED).touch(mode=0o600)
        entries = sorted(_entries(self.folder))
        total = sum(nbytes for _, nbytes, _ in entries)
        if total <= self.limit_bytes:
            return
        for _, nbytes, path in entries:
            if total <= self.limit_bytes * 9 // 10:
                break
            _remove(path)
            total -= nbytes

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key[2:]

    def _prepare(self) -> bool:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            state = os.lstat(self.folder)
        except OSError as error:
            _log().warning("kernel cache: %s cannot be used (%s); kernels are compiled each time", self.folder, error)
            return False
        private = stat.S_ISDIR(state.st_mode) and not state.st_mode & 0o077
        if hasattr(os, "geteuid") and (not private or state.st_uid != os.geteuid()):
            _log().warning(
                "kernel cache: %s is ignored, because others may write to it; accepted: a folder of yours with mode 0700", self.folder
            )
            return False
        return True


def _log() -> logging.Logger:
    return get_logger("cache")


@lru_cache(maxsize=4)
def _cache_at(folder: Path) -> KernelCache:
    return KernelCache(folder)


def default_cache() -> KernelCache:
    """The cache of this user, in `kernels` of the cache folder."""
    return _cache_at(cache_folder("kernels"))


def _unpack(raw: bytes) -> bytes | None:
    """The object in the bytes of an entry, if they are whole."""
    if len(raw) < _HEADER.size:
        return None
    magic, nbytes, digest = _HEADER.unpack_from(raw)
    data = raw[_HEADER.size :]
    return data if magic == _MAGIC and len(data) == nbytes and hashlib.sha256(data).digest() == digest else None


def _entries(folder: Path) -> list[tuple[float, int, str]]:
    """(time of last use, bytes, path) of each file in the folders of two letters; what vanishes meanwhile is left out."""
    found = []
    for part in _listing(folder):
        for entry in _listing(part.path) if len(part.name) == 2 else ():
            with suppress(OSError):
                state = entry.stat(follow_symlinks=False)
                found.append((state.st_mtime, state.st_size, entry.path))
    return found


def _listing(folder: str | Path) -> list[os.DirEntry[str]]:
    """What is in a folder; nothing if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _remove(path: str | Path) -> None:
    with suppress(OSError):
        os.unlink(path)


def _touch(path: Path) -> None:
    with suppress(OSError):
        os.utime(path)

"""Files that appear whole or not at all: written beside their place, flushed to disk, then renamed onto it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
import ctypes
import errno
import fcntl
import os
from pathlib import Path
import secrets
from typing import BinaryIO

from anycann.support.errors import AnyCANNError, DeviceError, UsageError

_PARTIAL = ".partial"
_FULL = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the disk quota is used up", errno.EFBIG: "the file is larger than allowed here"}
_SYNC_FILE_RANGE_WRITE = 2
_CALLER = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP)


@contextmanager
def atomic_write(path: str | os.PathLike[str], mode: int = 0o666) -> Iterator[BinaryIO]:
    """A seekable binary file that becomes `path` when the block ends, and disappears if the block raises.

    A reader of `path` sees the old content or the new, never a part. `mode` is cut by the umask. What a killed writer of the same path left
    beside it is removed. Raises DeviceError (full disk, no permission) or UsageError (no such folder), naming the file.
    """
    place = Path(os.path.realpath(path))
    try:
        if place.exists() and not place.is_file():
            raise UsageError(f"{place} is not a regular file and can't be replaced; accepted: the path of a file")
        _remove_leftovers(place)
        partial, file = _open_beside(place, mode)
    except OSError as error:
        raise file_error(place, "write", error) from error
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(partial, place)
        _sync_folder(place.parent)
    except OSError as error:
        if error.errno in (*_FULL, errno.EIO) or error.filename == str(partial):
            raise file_error(place, "write", error) from error
        raise
    finally:
        with suppress(OSError):
            partial.unlink()


@contextmanager
def folder_of(path: str | os.PathLike[str]) -> Iterator[None]:
    """The folder of the file `path` is there; where it was made for this, it goes again if the block raises and leaves nothing in it.

    Raises DeviceError (no permission) or UsageError (a file in the way), naming the file.
    """
    folders = Path(os.path.realpath(path)).parents
    try:
        missing = [folder for folder in folders if not folder.exists()]
        folders[0].mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise file_error(path, "write", error) from error
    try:
        yield
    except BaseException:
        with suppress(OSError):
            for folder in missing:
                folder.rmdir()
        raise


def write_whole(path: str | os.PathLike[str], data: bytes | memoryview, mode: int = 0o666) -> None:
    """Write `data` as the file `path`, whole or not at all. Raises as `atomic_write`."""
    with atomic_write(path, mode) as file:
        file.write(data)


def start_writing_back(file: BinaryIO, start: int, stop: int) -> None:
    """Ask the system to bring those bytes of `file` to the disk, without waiting, so that less is left to wait for when it is flushed."""
    ask = getattr(ctypes.CDLL(None), "sync_file_range", None)  # Linux
    if ask is not None:
        ask(file.fileno(), ctypes.c_int64(start), ctypes.c_int64(stop - start), _SYNC_FILE_RANGE_WRITE)


def forget_content(path: str | os.PathLike[str]) -> None:
    """Let the system use the memory in which it keeps the content of a file, if there is one, for another that will soon replace it."""
    with suppress(OSError, AttributeError), open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def file_error(path: str | os.PathLike[str], verb: str, error: OSError) -> AnyCANNError:
    """The error to raise for `error` met while trying to `verb` ("write", "read") `path`."""
    reason = _FULL.get(error.errno or 0) or (error.strerror or str(error)).lower()
    kind = UsageError if error.errno in _CALLER else DeviceError
    return kind(f"can't {verb} {os.fspath(path)}: {reason}")


def _open_beside(place: Path, mode: int) -> tuple[Path, BinaryIO]:
    """A new, locked file in the folder of `place`. The lock tells a living writer's file from a leftover."""
    while True:
        partial = place.with_name(f".{place.name[:200]}.{secrets.token_hex(8)}{_PARTIAL}")
        handle = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        fcntl.flock(handle, fcntl.LOCK_EX)
        # Another writer may have taken it for a leftover in the moment before it was locked.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(partial), os.fstat(handle)):
                return partial, os.fdopen(handle, "wb")
        os.close(handle)


def _remove_leftovers(place: Path) -> None:
    """Remove files beside `place` whose writer is gone."""
    prefix = f".{place.name[:200]}."
    names: list[str] = []
    with suppress(OSError), os.scandir(place.parent) as entries:
        names += [entry.path for entry in entries if entry.name.startswith(prefix) and entry.name.endswith(_PARTIAL)]
    for name in names:
        with suppress(OSError):
            handle = os.open(name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(name)
            finally:
                os.close(handle)


def _sync_folder(folder: Path) -> None:
    """Make the renaming itself last. File systems that can't do this for a folder are left alone."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

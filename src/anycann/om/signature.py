"""Whose machine code may run: code with a MAC made by this installation's key, or by a key that the user lists as trusted.

The MAC binds the code to its target, the compiler that made it, the calling convention, and the programs, because these say which memory
the code touches. It does not bind the constants: they are mapped from a file that may change under a running process, so kernels must be
safe whatever the constants hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
import fcntl
from hashlib import sha256
import hmac
import os
from pathlib import Path
import secrets
import stat

import llvmlite

from anycann.support import options
from anycann.support.cache import cache_folder
from anycann.support.errors import UsageError
from anycann.support.files import file_error, write_whole
from anycann.support.logging import get_logger

KEY_BYTES = 32
MAC_BYTES = 32
KERNEL_ABI = 1  # goes up when kernels are called in another way than before, so that older code is compiled again
_PURPOSE = b"anycann offline model code"
_KEY_FILE = "installation.key"


def compiler_version() -> str:
    """What machine code made or used here depends on, besides the target."""
    return f"llvmlite {llvmlite.__version__}, kernel ABI {KERNEL_ABI}"


def message(target_key: str, compiler: str, code: bytes | memoryview, programs: bytes | memoryview) -> bytes:
    """What a MAC is computed over: the parts, each by its SHA-256, so that none can pass for a piece of another."""
    parts = (target_key.encode(), compiler.encode(), code, programs)
    return _PURPOSE + b"".join(sha256(part).digest() for part in parts)


def sign(text: bytes) -> list[bytes]:
    """The MACs of `text` by this installation's key and by each listed one."""
    return [_mac(key, text) for key in _keys()]


def is_trusted(text: bytes, macs: Iterable[bytes]) -> bool:
    """True if one of `macs` was made over `text` with a key that this user trusts."""
    candidates = list(macs)
    return any(hmac.compare_digest(_mac(key, text), mac) for key in _keys() for mac in candidates)


def _mac(key: bytes, text: bytes) -> bytes:
    return hmac.new(key, text, sha256).digest()


def _keys() -> list[bytes]:
    listed = options.TRUSTED_KEYS.get()
    return [installation_key(), *(read_trusted_keys(listed) if listed else ())]


def installation_key() -> bytes:
    """32 secret bytes of this user's cache folder, made on first use. Processes that race for it all get the same.

    A key that others could read, or of the wrong size, is replaced with a warning: models signed with it are compiled once more.
    """
    folder = cache_folder()
    place = folder / _KEY_FILE
    key = _read_key(place)
    if key is not None:
        return key
    with open(folder / f"{_KEY_FILE}.lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        key = _read_key(place)
        if key is None:
            key = secrets.token_bytes(KEY_BYTES)
            write_whole(place, key, mode=0o600)
    return key


def _read_key(place: Path) -> bytes | None:
    """The key in `place`, or None if there is none fit for use."""
    try:
        handle = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        get_logger("om").warning("%s is replaced: %s", place, (error.strerror or str(error)).lower())
        _discard(place)
        return None
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        private = status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
        key = file.read(KEY_BYTES + 1)
    if private and len(key) == KEY_BYTES:
        return key
    get_logger("om").warning("%s is replaced: accepted is a file of %d bytes that only its owner can read", place, KEY_BYTES)
    return None


def _discard(place: Path) -> None:
    """Remove a link in place of the key; `write_whole` would follow it."""
    with suppress(OSError):
        place.unlink()


def read_trusted_keys(path: str) -> list[bytes]:
    """The keys of a file: hexadecimal digits, at least 64 a line; # begins a comment. Raises UsageError that names file and line."""
    try:
        with open(path, encoding="ascii") as file:
            if os.fstat(file.fileno()).st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise UsageError(f"ANYCANN_TRUSTED_KEYS: other users can write to {path}; accepted: a file only its owner can write")
            lines = file.read().splitlines()
    except OSError as error:
        raise file_error(path, "read the trusted keys of", error) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"ANYCANN_TRUSTED_KEYS: {path} is no text file; accepted: a key in hexadecimal a line") from error
    texts = [(number, line.partition("#")[0].strip()) for number, line in enumerate(lines, 1)]
    return [_parse_key(text, f"{path}:{number}") for number, text in texts if text]


def _parse_key(text: str, where: str) -> bytes:
    # Neither text nor cause is shown: a key with a typing mistake is still mostly a secret.
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) < KEY_BYTES:
        raise UsageError(f"{where} holds no key of ANYCANN_TRUSTED_KEYS; accepted: at least {2 * KEY_BYTES} hexadecimal digits")
    return key

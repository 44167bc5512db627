"""Bundles: several offline models in one file, each on a page of its own, for `acl.mdl.bundle_load_from_file`.

magic, version, number of models, and of each model where it begins and its bytes, all numbers little-endian; then the models, which
are checked as each of them is read.
"""

from __future__ import annotations

from collections.abc import Sequence
import itertools
from pathlib import Path
import struct

from anycann.om.format import PAGE_BYTES, page_aligned
from anycann.support.errors import ModelError, UsageError
from anycann.support.files import write_whole

MAGIC = b"\x89AOB\r\n\x1a\n"
VERSION, MOST_MODELS = 1, 64
_HEADER, _ENTRY = struct.Struct("<8sII"), struct.Struct("<QQ")


def is_bundle(data: bytes) -> bool:
    """Whether a file begins as a bundle does."""
    return data[: len(MAGIC)] == MAGIC


def write_bundle(path: str | Path, models: Sequence[bytes | str | Path]) -> None:
    """Write a file of these models, each the bytes or the path of an `.om`. Raises UsageError for no models, or more than 64."""
    if not 1 <= len(models) <= MOST_MODELS:
        raise UsageError(f"a bundle of {len(models)} models; accepted: 1 to {MOST_MODELS}")
    contents = [model if isinstance(model, bytes) else Path(model).read_bytes() for model in models]
    starts = itertools.accumulate((page_aligned(len(content)) for content in contents), initial=PAGE_BYTES)
    front = _HEADER.pack(MAGIC, VERSION, len(contents))
    front += b"".join(_ENTRY.pack(start, len(content)) for start, content in zip(starts, contents, strict=False))
    pages = [front, *contents]
    write_whole(path, b"".join(page.ljust(page_aligned(len(page)), b"\0") for page in pages))


def read_bundle(data: bytes, where: str) -> list[bytes]:
    """The models of a bundle. Raises ModelError for a file that is cut off or damaged."""
    if len(data) < PAGE_BYTES:
        raise ModelError(f"{where} is a bundle of {len(data)} bytes; accepted: at least {PAGE_BYTES}")
    _, version, count = _HEADER.unpack_from(data)
    if version != VERSION or not 1 <= count <= MOST_MODELS:
        raise ModelError(f"{where} is a bundle of version {version} with {count} models; accepted: version {VERSION}, 1 to {MOST_MODELS}")
    entries = [_ENTRY.unpack_from(data, _HEADER.size + number * _ENTRY.size) for number in range(count)]
    for number, (start, nbytes) in enumerate(entries):
        if start < PAGE_BYTES or start % PAGE_BYTES or start + nbytes > len(data):
            raise ModelError(f"model {number} of {where} has {nbytes} bytes at {start}, of a file of {len(data)}: it is cut off or damaged")
    return [data[start : start + nbytes] for start, nbytes in entries]

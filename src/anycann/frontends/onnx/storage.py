"""Where weights are: mapped files and the tensors that look into them, and the rule which files a model may name."""

from __future__ import annotations

import mmap
from pathlib import Path
import stat
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from anycann.frontends.onnx.wire import SELF
from anycann.support.errors import ModelError

Bytes: TypeAlias = memoryview


def map_file(path: Path) -> Bytes:
    """The content of a regular file, read-only and memory-mapped: pages come in when they are touched.

    Raises ModelError if it cannot be read.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ModelError(f"{path} is not a regular file")
        if path.stat().st_size == 0:
            return memoryview(b"")
        with path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error


class Storage:
    """The bytes a model's tensors may live in: the model itself (`own`) and files inside its folder."""

    def __init__(self, own: Bytes | None, path: Path | None) -> None:
        """`own` is the serialised model if it was given as bytes or a file, `path` the file; without it external data is refused."""
        self._own = own
        self._folders = () if path is None else tuple(dict.fromkeys((path.absolute().parent, path.resolve().parent)))
        self._files: dict[str, Bytes] = {}

    def bytes_at(self, location: str) -> Bytes:
        """All bytes at `location` of an external-data entry: a path relative to the model's folder.

        Raises ModelError when it is absolute, leads out of the folder (by `..` or by a link), or cannot be read.
        """
        if location == SELF and self._own is not None:
            return self._own
        if location not in self._files:
            self._files[location] = map_file(self._resolve(location))
        return self._files[location]

    def _resolve(self, location: str) -> Path:
        if not self._folders:
            raise ModelError(f"external data {location!r}: the model was not given as a file, so it has no folder; give a path")
        relative = Path(location)
        if not location or "\0" in location or relative.is_absolute() or ".." in relative.parts or "\\" in location:
            raise ModelError(f"external data {location!r} is not a path inside the model's folder; absolute paths and .. are refused")
        resolved = (self._folders[0] / relative).resolve()
        if not any(resolved.is_relative_to(folder.resolve()) for folder in self._folders):
            raise ModelError(f"external data {location!r} is a link that leads out of the model's folder")
        if not resolved.exists():
            raise ModelError(f"external data {location!r} does not exist in folder {self._folders[0]}: the weights are missing")
        return resolved


def expected_bytes(data_type: int, dims: tuple[int, ...]) -> int:
    """Size in bytes of a tensor's elements as `raw_data` stores them (types of fewer than 8 bits are packed)."""
    count = 1
    for size in dims:
        count *= size
    return (count * ir.DataType(data_type).bitwidth + 7) // 8


def stored_tensor(tensor: ir.ExternalTensor, storage: Storage) -> ir.TensorProtocol:
    """`tensor`, whose data is in a file or in the model itself, as a view of mapped bytes; nothing is read.

    Raises ModelError when the bytes are not there or their number does not match dims and type.
    """
    content = storage.bytes_at(str(tensor.location))
    dims = tuple(int(size) for size in tensor.shape)  # type: ignore[arg-type]
    needed = expected_bytes(int(tensor.dtype), dims)
    offset, length = tensor.offset or 0, needed if tensor.length is None else tensor.length
    what = f"tensor {tensor.name!r}, {tensor.dtype.name.lower()}{list(dims)}"
    if length != needed:
        raise ModelError(f"{what}: {length} bytes of data are given, {needed} are needed")
    if offset + length > len(content):
        raise ModelError(f"{what}: bytes {offset} to {offset + length} are beyond the end of its data ({len(content)} bytes)")
    raw = np.frombuffer(content, np.uint8, length, offset) if length else np.empty(0, np.uint8)
    if tensor.dtype.bitwidth < 8:
        return ir.PackedTensor(raw, tensor.dtype, shape=dims, name=tensor.name)
    return ir.Tensor(raw.view(tensor.dtype.numpy()).reshape(dims), tensor.dtype, name=tensor.name)

"""A code section: the kernels for one target, with the MACs that say who made them."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
import struct

from anycann.om import signature
from anycann.om.blobs import BlobReader, BlobWriter
from anycann.support.errors import ModelError
from anycann.support.records import dataclass

_MACS = struct.Struct("<Q")
MAX_MACS = 64


@dataclass(frozen=True)
class CodeSection:
    """What a code section says. Nothing of it may be run before `is_trusted`."""

    target_key: str
    compiler: str
    macs: tuple[bytes, ...]
    body: bytes
    objects: Mapping[str, bytes]

    def is_trusted(self, programs: bytes) -> bool:
        """True if code and `programs` (the bytes of that section) were made by someone this user trusts, with the compiler that is here."""
        if self.compiler != signature.compiler_version():
            return False
        return signature.is_trusted(signature.message(self.target_key, self.compiler, self.body, programs), self.macs)


def section_name(target_key: str) -> str:
    """The name of the section with the code for the target of that key."""
    return f"code/{blake2b(target_key.encode(), digest_size=16).hexdigest()}"


def code_to_bytes(target_key: str, objects: Mapping[str, bytes], programs: bytes) -> bytes:
    """The section, signed: number of MACs (u64), the MACs, then the body that is signed."""
    compiler = signature.compiler_version()
    parts = BlobWriter()
    places = {symbol: parts.add(code) for symbol, code in sorted(objects.items())}
    body = parts.finish({"target": target_key, "compiler": compiler, "symbols": places})
    macs = signature.sign(signature.message(target_key, compiler, body, programs))[:MAX_MACS]
    return _MACS.pack(len(macs)) + b"".join(macs) + body


def code_from_bytes(data: bytes, name: str, where: str) -> CodeSection:
    """Read a code section called `name`. Raises ModelError for a damaged one."""
    (count,) = _MACS.unpack_from(data) if len(data) >= _MACS.size else (-1,)
    start = _MACS.size + count * signature.MAC_BYTES
    if not 0 <= count <= MAX_MACS or start > len(data):
        raise ModelError(f"{where} has {count} MACs in {len(data)} bytes; accepted: up to {MAX_MACS} of {signature.MAC_BYTES} bytes")
    macs = tuple(data[_MACS.size + i * signature.MAC_BYTES :][: signature.MAC_BYTES] for i in range(count))
    body = data[start:]
    reader = BlobReader(body, where)
    target_key, compiler = reader.index.get("target"), reader.index.get("compiler")
    if not isinstance(target_key, str) or not isinstance(compiler, str) or section_name(target_key) != name:
        raise ModelError(f"{where} is for target {target_key!r:.60} and compiler {compiler!r:.60}; accepted: the target of its name")
    symbols = reader.mapping(reader.index.get("symbols"), "'symbols'")
    return CodeSection(target_key, compiler, macs, body, {symbol: reader.part(place, symbol) for symbol, place in symbols.items()})

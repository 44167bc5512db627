"""A byte looked up in a table of 256: two permutations of 128 bytes each where the processor has them (AVX-512 VBMI), else lane by lane."""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value, vector_type

TABLE_BYTES = 256
_WIDE = 64  # bytes of a register


def lookup(e: Emitter, index: Value, table: int, permutes: bool) -> Value:
    """The bytes of `table` (256 of them as one number, the first lowest) at `index`: unsigned bytes, a scalar or a vector."""
    content = table.to_bytes(TABLE_BYTES, "little")
    if permutes and 1 < index.lanes <= _WIDE:
        return _permuted(e, index, content)
    return _one_by_one(e, index, content)


def _permuted(e: Emitter, index: Value, table: bytes) -> Value:
    """A permutation looks at seven bits of an index; the eighth says which of two is wanted."""
    type_ = vector_type("i8", _WIDE)
    count = index.lanes
    wide = e.shuffle(index, e.poison(index.type), [lane if lane < count else count for lane in range(_WIDE)])
    parts = [_literal(table[first : first + _WIDE], type_) for first in range(0, TABLE_BYTES, _WIDE)]
    halves = [e.call("llvm.x86.avx512.vpermi2var.qi.512", type_, [parts[i], wide, parts[i + 1]]) for i in (0, 2)]
    found = e.select(e.compare("slt", wide, e.zero(type_)), halves[1], halves[0])
    return e.shuffle(found, found, range(count))


def _one_by_one(e: Emitter, index: Value, table: bytes) -> Value:
    name = f"@table_{table.hex()}"
    array = f"[{TABLE_BYTES} x i8]"
    content = "".join("\\" + f"{byte:02x}" for byte in table)
    e.declarations[name] = f'{name} = private unnamed_addr constant {array} c"{content}"'
    result = e.poison(index.type)
    for lane in range(index.lanes):
        number = e.cast("zext", e.extract(index, lane) if index.lanes > 1 else index, "i64")
        found = e.load(e.gep(Value(name, "ptr"), number, "i8"), "i8", 1)
        result = e.insert(result, found, lane) if index.lanes > 1 else found
    return result


def _literal(content: bytes, type_: str) -> Value:
    return Value("<" + ", ".join(f"i8 {byte}" for byte in content) + ">", type_)

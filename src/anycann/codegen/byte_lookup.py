"""A byte looked up in a table of 256: by two permutations of 128 bytes each where the processor has them (AVX-512 VBMI), by 16 of 16 bytes
each where it has those (AVX2), else lane by lane.
"""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value, vector_type

TABLE_BYTES = 256
_WIDE = 64  # bytes of a register
_ROW = 16  # bytes that a shuffle chooses from
_MANY = 16  # bytes from which on 16 shuffles and what chooses among them take less time than as many looks into memory


def lookup(e: Emitter, index: Value, table: int, permutes: bool, shuffles: bool) -> Value:
    """The bytes of `table` (256 of them as one number, the first lowest) at `index`: unsigned bytes, a scalar or a vector.

    permutes: the processor has AVX-512 VBMI; shuffles: it has AVX2.
    """
    content = table.to_bytes(TABLE_BYTES, "little")
    if permutes and 1 < index.lanes <= _WIDE:
        return _permuted(e, index, content)
    if shuffles and _MANY <= index.lanes <= 2 * _ROW:
        return _shuffled(e, index, content)
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


def _shuffled(e: Emitter, index: Value, table: bytes) -> Value:
    """Each row of the table at the lower four bits of the index, and of these 16 the one that the upper four bits say."""
    count, size = index.lanes, _ROW if index.lanes <= _ROW else 2 * _ROW
    type_, words = vector_type("i8", size), vector_type("i16", size // 2)
    wide = e.shuffle(index, e.poison(index.type), [lane if lane < count else count for lane in range(size)])
    lower = e.binary("and", wide, e.const(_ROW - 1, type_))
    name = "llvm.x86.ssse3.pshuf.b.128" if size == _ROW else "llvm.x86.avx2.pshuf.b"
    rows = [table[first : first + _ROW] * (size // _ROW) for first in range(0, TABLE_BYTES, _ROW)]
    found = [_literal(row, type_) if len(set(row)) == 1 else e.call(name, type_, [_literal(row, type_), lower]) for row in rows]
    two = e.bitcast(wide, words)
    for bit in range(4, 8):  # the sign of a byte chooses: its own, or that of the bytes moved up, two together
        moved = e.bitcast(e.binary("shl", two, e.const(7 - bit, words)), type_)
        upper = e.compare("slt", moved, e.zero(type_))
        pairs = zip(found[::2], found[1::2], strict=True)
        found = [low if low.text == high.text else e.select(upper, high, low) for low, high in pairs]
    return e.shuffle(found[0], found[0], range(count))


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

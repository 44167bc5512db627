"""Memory: given back the wrong way, copied the wrong way, looked at from the wrong side."""

from __future__ import annotations

import ctypes
import math
import zlib

import numpy as np

from anycann.acl.sanitizer.access import check_access, side, wrote
from anycann.acl.sanitizer.pending import Work
from anycann.acl.sanitizer.places import user_values
from anycann.acl.sanitizer.ranges import Range
from anycann.acl.sanitizer.state import Call, Sanitizer, after, before
from anycann.acl.util import NUMPY_TYPES

_FREES = {"acl.rt.free": "device", "acl.rt.free_host": "host", "acl.media.dvpp_free": "dvpp", "acl.himpi.dvpp_free": "dvpp"}
_GIVES = {"device": "acl.rt.malloc", "host": "acl.rt.malloc_host", "dvpp": "acl.media.dvpp_malloc",
          "mapped": "acl.rt.map_mem or acl.rt.ipc_mem_import_by_key"}  # fmt: skip
_MOST_WATCHED = 1 << 26  # bytes whose checksum is taken


# ---- giving back
@before(*_FREES)
def _check_free(state: Sanitizer, call: Call) -> None:
    address = next((argument for argument in call.arguments if isinstance(argument, int)), 0)
    block = state.blocks.find(address)
    freed = state.blocks.find_freed(address) if block is None else None
    if block is not None:
        _check_free_of(state, call, address, _FREES[call.name])
    elif freed is not None:
        kind, words = (
            ("double-free", "freed before") if freed.allocation.address == address else ("use-after-free", "freed as a whole before")
        )
        state.found(call, kind, f"{address:#x} lies in {freed.words}, which was {words}", freed.lines, address=address)
    elif address:
        owner = state.owners.find(address)
        what = f"memory of a {owner.words}, which Python frees" if owner else f"no memory of {_GIVES[_FREES[call.name]]}"
        state.found(call, "mismatched-free", f"{address:#x} is {what}", {"taken": owner.taken} if owner else {}, address=address)


def _check_free_of(state: Sanitizer, call: Call, address: int, wanted: str) -> None:
    block = state.blocks.find(address)
    assert block is not None
    inside, kind = address - block.allocation.address, block.allocation.kind
    if inside:
        text = f"{address:#x} lies {inside} bytes inside {block.words}; only its beginning can be freed"
        state.found(call, "free-inside", text, block.lines, address=address, offset=inside)
    elif kind != wanted:
        text = f"{address:#x} was given by {_GIVES[kind]}, and {call.name} frees what {_GIVES[wanted]} gives"
        state.found(call, "mismatched-free", text, block.lines, address=address)
    else:
        work = state.pending.user(block.range)
        if work is not None:
            text = f"{block.words} is freed while {work.name} in a stream may still use it; call acl.rt.synchronize_stream before"
            state.found(call, "freed-while-pending", text, {**block.lines, "launched": work.where}, address=address)


# ---- copying
_COPIES = ("acl.rt.memcpy", "acl.rt.memcpy_async", "acl.rt.memcpy_async_with_condition", "acl.rt.memcpy2d", "acl.rt.memcpy2d_async")
_SETS = ("acl.rt.memset", "acl.rt.memset_async")
_SIDES = {0: ("host", "host"), 1: ("host", "device"), 2: ("device", "host"), 3: ("device", "device"), 5: ("host", "device"),
          6: ("device", "device"), 7: ("device", "device")}  # fmt: skip


def _spans(call: Call) -> tuple[Range, Range]:
    """What a copy reads and writes."""
    if "2d" not in call.name:
        return Range(call.number("src"), call.number("count")), Range(call.number("dst"), call.number("count"))
    rows, width = max(call.number("height") - 1, 0), call.number("width")
    return Range(call.number("src"), rows * call.number("spitch") + width), Range(call.number("dst"), rows * call.number("dpitch") + width)


def _stream(state: Sanitizer, call: Call) -> int | None:
    return state.stream_key(call.number("stream")) if "_async" in call.name else None


@before(*_COPIES)
def _check_copy(state: Sanitizer, call: Call) -> None:
    source, target = _spans(call)
    for place in (source, target):
        if not side(state, place.address):
            state.owners.look_for(place.address, user_values(), call.where)
    if "2d" not in call.name and call.number("count") > call.number("dst_max"):
        text = f"{call.number('count')} bytes are copied to a destination that is said to have room for {call.number('dst_max')}"
        state.found(call, "out-of-bounds", text, _lines_of(state, target.address), address=target.address, nbytes=target.nbytes)
    _check_sides(state, call, source, target)
    for role, place in (("src", source), ("dst", target)):
        _check_layout(state, call, role, place)
    if source.overlaps(target):
        text = (
            f"source {source.address:#x} and destination {target.address:#x} overlap in {_overlap(source, target)} of {source.nbytes} bytes"
        )
        state.found(call, "overlapping-copy", text, _lines_of(state, target.address), address=target.address, nbytes=source.nbytes)
    check_access(state, call, "src", source, False, _stream(state, call), read="2d" not in call.name)
    check_access(state, call, "dst", target, True, _stream(state, call))


def _check_layout(state: Sanitizer, call: Call, role: str, place: Range) -> None:
    """The elements of an array are copied as if they lay one behind the other."""
    owner = state.owners.find(place.address)
    found = owner.scattered.get(place.address) if owner is not None else None
    if found is not None and "2d" not in call.name and place.nbytes > found.nbytes:
        text = f"{role} is an array {found.words}: {place.nbytes} bytes from there are not its elements; use np.ascontiguousarray"
        state.found(call, "not-contiguous", text, {"taken": found.taken}, address=place.address, nbytes=place.nbytes)


@before(*_SETS)
def _check_set(state: Sanitizer, call: Call) -> None:
    target = Range(call.number("ptr"), call.number("count"))
    if call.number("count") > call.number("max_count"):
        text = f"{call.number('count')} bytes are set in memory that is said to have {call.number('max_count')}"
        state.found(call, "out-of-bounds", text, _lines_of(state, target.address), address=target.address, nbytes=target.nbytes)
    check_access(state, call, "ptr", target, True, _stream(state, call))


def _check_sides(state: Sanitizer, call: Call, source: Range, target: Range) -> None:
    """A source on the other side is a note where the driver finds it by its address: Ascend's own samples do so."""
    kind = call.number("kind")
    for role, place, wanted in zip(("src", "dst"), (source, target), _SIDES.get(kind, ("", "")), strict=True):
        actual = side(state, place.address)
        if actual and wanted and actual != wanted:
            level = "note" if role == "src" and kind in (1, 2) else "error"
            text = f"kind {kind} wants {role} on the {wanted}, and {place.address:#x} is memory of the {actual}"
            state.found(call, "wrong-copy-kind", text, _lines_of(state, place.address), level, address=place.address)  # type: ignore[arg-type]


@after(*_COPIES)
def _copied(state: Sanitizer, call: Call) -> None:
    source, target = _spans(call)
    if "2d" in call.name:
        for row in range(call.number("height")):
            wrote(state, Range(target.address + row * call.number("dpitch"), call.number("width")))
    else:
        wrote(state, target)
    stream = _stream(state, call)
    if stream is not None:
        state.pending.add(Work(call.name, stream, call.where, (source,), (target,), watched=_watched(state, source)))


@after(*_SETS)
def _was_set(state: Sanitizer, call: Call) -> None:
    target = Range(call.number("ptr"), call.number("count"))
    wrote(state, target)
    stream = _stream(state, call)
    if stream is not None:
        state.pending.add(Work(call.name, stream, call.where, writes=(target,)))


def _watched(state: Sanitizer, source: Range) -> tuple[Range, int] | None:
    """The checksum of a host source, unless something pending is to write it yet."""
    if side(state, source.address) != "host" or source.nbytes > _MOST_WATCHED or state.pending.writer(source) is not None:
        return None
    return source, checksum(state, source) or 0


def checksum(state: Sanitizer, place: Range) -> int | None:
    """Of host memory that is known to be there; None if it is not any more."""
    block, owner = state.blocks.find(place.address), state.owners.find(place.address)
    whole = block.range if block is not None else owner.range if owner is not None else None
    if whole is None or place.end > whole.end:
        return None
    return zlib.crc32((ctypes.c_char * place.nbytes).from_address(place.address))


def _overlap(one: Range, other: Range) -> int:
    return min(one.end, other.end) - max(one.address, other.address)


def _lines_of(state: Sanitizer, address: int):  # type: ignore[no-untyped-def]
    block, owner = state.blocks.find(address), state.owners.find(address)
    return block.lines if block else {"taken": owner.taken} if owner else {}


# ---- Python's side
@after("acl.util.bytes_to_ptr", "acl.util.numpy_to_ptr", "acl.util.numpy_contiguous_to_ptr")
def _address_taken(state: Sanitizer, call: Call) -> None:
    thing = call.result[1] if isinstance(call.result, tuple) else call.arguments[0]
    state.owners.take(thing, call.where)


@before("acl.util.ptr_to_numpy", "acl.util.ptr_to_bytes")
def _check_view(state: Sanitizer, call: Call) -> None:
    place = Range(call.number("ptr"), _view_bytes(call))
    if side(state, place.address) == "device":
        text = f"{place.address:#x} is memory of a device, which the host cannot read; copy it with acl.rt.memcpy first"
        state.found(call, "host-reads-device", text, _lines_of(state, place.address), address=place.address)
    check_access(state, call, "ptr", place, False, read=False)
    block = state.blocks.find(place.address)
    if block is not None and call.name.endswith("numpy"):
        block.wrote_all()  # through the view


def _view_bytes(call: Call) -> int:
    if call.name.endswith("bytes"):
        return call.number("size")
    shape = call.given("shape")
    sizes = shape if isinstance(shape, tuple | list) else (shape,)
    whole = [int(size) for size in sizes if isinstance(size, int | np.integer)]
    return math.prod(whole) * np.dtype(NUMPY_TYPES.get(call.number("numpy_type"), "uint8")).itemsize

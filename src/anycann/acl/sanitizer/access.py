"""Looking at a range of memory that a call is about to read or write."""

from __future__ import annotations

from anycann.acl.process import PROCESS
from anycann.acl.sanitizer.blocks import Block
from anycann.acl.sanitizer.ranges import Range
from anycann.acl.sanitizer.state import Call, Sanitizer


def side(state: Sanitizer, address: int) -> str:
    """ "device", "host", or "" for memory that nobody is known to have given."""
    block = state.blocks.find(address)
    if block is not None:
        return "device" if block.on_device else "host"
    return "host" if state.owners.find(address) is not None else ""


def check_access(
    state: Sanitizer,
    call: Call,
    role: str,
    place: Range,
    write: bool,
    stream: int | None = None,
    read: bool | None = None,
    samples: int = 1,
) -> None:
    """Every mistake that a read or write of `place` can be. `stream`: the access happens in this stream, in order with its work.

    samples: how many equal parts the bytes are, the pictures of a batch.
    """
    if not place.address or place.nbytes <= 0:
        return
    live = _check_live(state, call, role, place)
    if live:
        _check_order(state, call, role, place, write, stream)
    if live and (not write if read is None else read):
        _check_written(state, call, role, place, samples)


def _check_live(state: Sanitizer, call: Call, role: str, place: Range) -> bool:
    """False if the memory is gone, and if it is smaller than what is accessed."""
    block = state.blocks.find(place.address)
    if block is None:
        return _check_gone(state, call, role, place)
    if block.reset is not None:
        state.found(
            call, "use-after-reset", f"{role} lies in {block.words}, which went with its device", block.lines, address=place.address
        )
        return False
    if place.end > block.range.end:
        beyond = place.end - block.range.end
        text = f"{place.nbytes} bytes of {role} reach {beyond} bytes behind the end of {block.words}"
        state.found(call, "out-of-bounds", text, block.lines, address=place.address, nbytes=place.nbytes, beyond=beyond)
        return False
    _check_device(state, call, role, place)
    return True


def _check_gone(state: Sanitizer, call: Call, role: str, place: Range) -> bool:
    owner = state.owners.find(place.address)
    freed = state.blocks.find_freed(place.address) if owner is None else None
    if owner is not None and owner.gone:
        text = f"{role} lies in a {owner.words} that the program let go after it took its address; keep the object as long as the address"
        state.found(call, "temporary-gone", text, {"taken": owner.taken}, address=place.address, nbytes=place.nbytes)
        return False
    if owner is not None and place.end > owner.range.end:
        beyond = place.end - owner.range.end
        text = f"{place.nbytes} bytes of {role} reach {beyond} bytes behind the end of a {owner.words}"
        state.found(call, "out-of-bounds", text, {"taken": owner.taken}, address=place.address, nbytes=place.nbytes, beyond=beyond)
        return False
    if freed is not None:
        state.found(
            call, "use-after-free", f"{role} {place.address:#x} lies in {freed.words}, which was freed", freed.lines, address=place.address
        )
        return False
    return True


def _check_device(state: Sanitizer, call: Call, role: str, place: Range) -> None:
    block, context = state.blocks.find(place.address), state.handles.get(PROCESS.thread.context)
    if block is None or not block.on_device or context is None or not context.live:
        return
    current = PROCESS.context().device.number
    if block.allocation.device != current and not (call.name.startswith("acl.rt.memcpy") and call.number("kind") in (3, 6, 7)):
        text = f"{role} is memory of device {block.allocation.device}, and this thread's context is of device {current}"
        state.found(call, "other-device", text, {**block.lines, "context": context.made}, address=place.address)


def _check_order(state: Sanitizer, call: Call, role: str, place: Range, write: bool, stream: int | None) -> None:
    """Work of streams that this access neither waited for nor comes after."""
    work = state.pending.user(place, stream) if write else state.pending.writer(place, stream)
    if work is None:
        return
    lines = {"launched": work.where}
    if stream is not None:
        text = f"{role} is used by {work.name} in another stream, and nothing says which comes first (record_event, stream_wait_event)"
        state.found(call, "race-between-streams", text, lines, address=place.address)
    elif any(range_.overlaps(place) for range_ in work.writes):
        text = f"{role} is the result of {work.name}, and nobody waited for its stream; call acl.rt.synchronize_stream before"
        state.found(call, "used-before-synchronize", text, lines, address=place.address)
    else:
        text = f"{role} is overwritten while {work.name} in a stream may still read it; call acl.rt.synchronize_stream before"
        state.found(call, "overwritten-while-pending", text, lines, address=place.address)
        work.watched = None  # told


def _check_written(state: Sanitizer, call: Call, role: str, place: Range, samples: int) -> None:
    block = state.blocks.find(place.address)
    missing = block.unwritten(place) if block is not None else 0
    if block is None or not missing:
        return
    whole = missing == place.nbytes
    if not whole and call.name.startswith("acl.media."):
        return  # rows are padded, and what is behind them is not looked at
    text = f"{'none' if whole else f'{missing} bytes'} of the {place.nbytes} bytes of {role} {'was' if whole else 'were not'} ever written"
    exact = whole or call.name.startswith(("acl.mdl.execute", "acl.op.execute"))
    left = 0 if whole else _samples_left(block, place, samples, missing)
    if left:
        text += f": the last {left} of {samples} samples, as in a batch that is not full"
    state.found(
        call, "uninitialised-read", text, block.lines, "error" if exact and not left else "note", address=place.address, unwritten=missing
    )
    block.wrote(place)  # told once


def _samples_left(block: Block, place: Range, samples: int, missing: int) -> int:
    """How many whole samples at the end were not written, if that is all that is missing."""
    if samples < 2 or place.nbytes % samples or missing % (place.nbytes // samples):
        return 0
    tail = Range(place.end - missing, missing)
    return missing * samples // place.nbytes if block.unwritten(tail) == missing else 0


def wrote(state: Sanitizer, place: Range) -> None:
    """These bytes hold something from now on."""
    block = state.blocks.find(place.address)
    if block is not None:
        block.wrote(place)

"""DVPP and single operators: what they read and write, in the order of their stream."""

from __future__ import annotations

from collections.abc import Iterator

from anycann.acl.data_buffers import DataBuffer
from anycann.acl.media_pictures import BatchPicDesc, PicDesc
from anycann.acl.process import PROCESS
from anycann.acl.sanitizer.access import check_access, wrote
from anycann.acl.sanitizer.pending import Work
from anycann.acl.sanitizer.ranges import Range
from anycann.acl.sanitizer.state import Call, Sanitizer, after, before

_OPERATORS = ("acl.op.execute", "acl.op.execute_v2", "acl.op.execute_with_handle")
_DECODERS = ("acl.media.dvpp_jpeg_decode_async", "acl.media.dvpp_png_decode_async")
_SCALERS = tuple(f"acl.media.dvpp_vpc_{what}_async" for what in (
    "resize", "crop", "crop_resize", "crop_and_paste", "crop_resize_paste", "convert_color", "equalize_hist", "pyr_down", "make_border",
    "batch_crop", "batch_crop_and_paste", "batch_crop_resize", "batch_crop_resize_paste", "batch_crop_resize_make_border",
))  # fmt: skip
_ENCODERS = ("acl.media.dvpp_jpeg_encode_async",)
_ALL = (*_OPERATORS, *_DECODERS, *_SCALERS, *_ENCODERS)


@before(*_ALL)
def _check(state: Sanitizer, call: Call) -> None:
    stream = state.stream_key(call.number("stream"))
    for role, place in _reads(call):
        check_access(state, call, role, place, False, stream)
    for role, place in _writes(state, call):
        check_access(state, call, role, place, True, stream)


@after(*_ALL)
def _launched(state: Sanitizer, call: Call) -> None:
    reads, writes = [place for _, place in _reads(call)], [place for _, place in _writes(state, call)]
    for place in writes:
        wrote(state, place)
    state.pending.add(Work(call.name, state.stream_key(call.number("stream")), call.where, tuple(reads), tuple(writes)))


def _reads(call: Call) -> Iterator[tuple[str, Range]]:
    """Roles and places of what the call reads."""
    if call.name in _OPERATORS:
        yield from _buffers("input", call.given("inputs"))
    elif call.name in _DECODERS:
        yield "data", Range(call.number("data"), call.number("size"))
    elif call.name in _ENCODERS:
        yield from _pictures("pic", call.number("pic"))
    else:
        yield from _pictures("input picture", call.number("input_pic") or call.number("source"))


def _writes(state: Sanitizer, call: Call) -> Iterator[tuple[str, Range]]:
    """And of what it writes. How much an encoder writes is known afterwards: all there is room for."""
    if call.name in _OPERATORS:
        yield from _buffers("output", call.given("outputs"))
    elif call.name in _DECODERS:
        yield from _pictures("pic", call.number("pic"))
    elif call.name in _ENCODERS:
        block = state.blocks.find(call.number("data"))
        if block is not None:
            yield "data", Range(call.number("data"), block.range.end - call.number("data"))
    else:
        yield from _pictures("output picture", call.number("output_pic") or call.number("target"))


def _buffers(role: str, handles: object) -> Iterator[tuple[str, Range]]:
    live = PROCESS.handles.live(DataBuffer)
    for number, handle in enumerate(handles if isinstance(handles, list | tuple) else ()):
        if handle in live:
            yield f"{role} {number}", Range(live[handle].address, live[handle].size)


def _pictures(role: str, handle: int) -> Iterator[tuple[str, Range]]:
    live, batch = PROCESS.handles.live(PicDesc), PROCESS.handles.live(BatchPicDesc).get(handle)
    for one in batch.pictures if batch is not None else [handle]:
        if one in live:
            yield role, Range(live[one].data, live[one].size)

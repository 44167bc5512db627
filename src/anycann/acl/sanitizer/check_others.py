"""Functions that no other file knows: memory they are given may be written by them, now or in their stream."""

from __future__ import annotations

from collections.abc import Iterator

from anycann.acl.data_buffers import DataBuffer, Dataset
from anycann.acl.process import PROCESS
from anycann.acl.sanitizer.pending import Work
from anycann.acl.sanitizer.ranges import Range
from anycann.acl.sanitizer.state import Call, Sanitizer

_HARMLESS = ("acl.get_data_buffer", "acl.mdl.add_dataset_buffer", "acl.mdl.get_", "acl.mdl.create_", "acl.mdl.destroy_",
             "acl.destroy_data_buffer", "acl.create_tensor_desc", "acl.mdl.set_dataset")  # fmt: skip


def after_any(state: Sanitizer, call: Call) -> None:
    """All memory that the arguments lead to counts as written; what acl.op runs in a stream is pending there."""
    if call.name.startswith(_HARMLESS):
        return
    for address in _addresses(call.arguments):
        block = state.blocks.find(address)
        if block is not None:
            block.wrote_all()
    if call.name.startswith("acl.op.execute") and "stream" in call.parameters:
        reads, writes = (tuple(_ranges(call.given(name))) for name in ("inputs", "outputs"))
        state.pending.add(Work(call.name, state.stream_key(call.number("stream")), call.where, reads, writes))


def _addresses(arguments: object) -> Iterator[int]:
    """Addresses and handles of data buffers and datasets, in lists too."""
    for argument in arguments if isinstance(arguments, list | tuple) else (arguments,):
        if isinstance(argument, list | tuple):
            yield from _addresses(argument)
        elif isinstance(argument, int) and argument > 0:
            yield argument
            yield from (place.address for place in _ranges(argument))


def _ranges(handles: object) -> Iterator[Range]:
    buffers, datasets = PROCESS.handles.live(DataBuffer), PROCESS.handles.live(Dataset)
    for handle in handles if isinstance(handles, list | tuple) else (handles,):
        if handle in buffers:
            yield Range(buffers[handle].address, buffers[handle].size)
        elif handle in datasets:
            yield from (Range(buffers[b].address, buffers[b].size) for b in datasets[handle].buffers if b in buffers)

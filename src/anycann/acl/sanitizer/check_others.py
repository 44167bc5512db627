"""Functions that no other file knows: memory they are given may be written by them."""

from __future__ import annotations

from collections.abc import Iterator

from anycann.acl.data_buffers import DataBuffer, Dataset
from anycann.acl.media_pictures import PicDesc
from anycann.acl.process import PROCESS
from anycann.acl.sanitizer.state import Call, Sanitizer

_HARMLESS = ("acl.get_data_buffer", "acl.mdl.add_dataset_buffer", "acl.mdl.get_", "acl.mdl.create_", "acl.mdl.destroy_",
             "acl.destroy_data_buffer", "acl.create_tensor_desc", "acl.mdl.set_dataset",
             "acl.media.dvpp_set_", "acl.media.dvpp_get_")  # fmt: skip


def after_any(state: Sanitizer, call: Call) -> None:
    """All memory that the arguments lead to counts as written."""
    if call.name.startswith(_HARMLESS):
        return
    for address in _addresses(call.arguments):
        block = state.blocks.find(address)
        if block is not None:
            block.wrote_all()


def _addresses(arguments: object) -> Iterator[int]:
    """Addresses and handles of data buffers and datasets, in lists too."""
    for argument in arguments if isinstance(arguments, list | tuple) else (arguments,):
        if isinstance(argument, list | tuple):
            yield from _addresses(argument)
        elif isinstance(argument, int) and argument > 0:
            yield argument
            yield from _behind(argument)


def _behind(handle: int) -> Iterator[int]:
    """The addresses that a data buffer, a dataset or a picture description leads to."""
    buffers = PROCESS.handles.live(DataBuffer)
    dataset, picture = PROCESS.handles.live(Dataset).get(handle), PROCESS.handles.live(PicDesc).get(handle)
    if handle in buffers:
        yield buffers[handle].address
    elif dataset is not None:
        yield from (buffers[buffer].address for buffer in dataset.buffers if buffer in buffers)
    elif picture is not None:
        yield picture.data

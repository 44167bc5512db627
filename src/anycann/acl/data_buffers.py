"""acl: data buffers, which say where a tensor lies; and acl.mdl: datasets, which are lists of them."""

from __future__ import annotations

from dataclasses import field, replace
import math
from typing import Any, ClassVar

import numpy as np

from anycann.acl.codes import Code
from anycann.acl.entries import status, value, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.process import PROCESS
from anycann.acl.tensor_descs import TensorDesc
from anycann.acl.util import check_readable, view_at
from anycann.support.records import dataclass


@dataclass
class DataBuffer:
    """`size` bytes at `address`."""

    acl_word: ClassVar[str] = "data buffer"
    address: int
    size: int

    def array(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
        """The tensor there, without a copy. Raises AclError if the buffer is too small or its memory is gone."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes > self.size:
            raise AclError(Code.GE_PARAM_INVALID, f"the data buffer has {self.size} bytes; {dtype.name}{list(shape)} needs {nbytes}")
        if nbytes:
            check_readable(self.address, nbytes, "data buffer")
        return view_at(self.address, dtype, shape)

    def place(self, address: int, size: int) -> None:
        """Let the buffer be somewhere else."""
        self.address, self.size = address, size
        PROCESS.handles.changed()


@dataclass
class Dataset:
    """The inputs or outputs of a run: a data buffer each, and what a program says of their shapes."""

    acl_word: ClassVar[str] = "dataset"
    buffers: list[int] = field(default_factory=list)  # handles
    descs: dict[int, TensorDesc] = field(default_factory=dict)  # index -> shape of this run
    gear: int | None = None  # index of the gear that set_dynamic_* chose
    settings: dict[int, object] = field(default_factory=dict)  # input -> dynamic AIPP
    shown: dict[int, int] = field(default_factory=dict)  # index -> the handle that a program has of the description

    def describe(self, index: int, desc: TensorDesc) -> None:
        """Copy `desc` into the dataset; the handle that a program has of an earlier one says the new one."""
        vars(self.descs.setdefault(index, desc := replace(desc))).update(vars(desc))

    def data(self) -> list[DataBuffer]:
        """The data buffers. Raises AclError if one was destroyed."""
        return [PROCESS.handles.get(handle, DataBuffer) for handle in self.buffers]


# ---- data buffers
@value("acl.create_data_buffer", returns="buffer")
def create_data_buffer(data: int, size: int) -> int:
    """A description of `size` bytes at `data`; null and 0 leave it to the run to place an output of unknown size."""
    if size < 0:
        raise AclError(Code.INVALID_PARAM, f"size is {size} bytes; accepted: 0 and more")
    return PROCESS.handles.add(DataBuffer(data, size))


@status("acl.destroy_data_buffer")
def destroy_data_buffer(buffer: int) -> None:
    """Forget the description; the memory stays."""
    PROCESS.handles.remove(buffer, DataBuffer)


@status("acl.update_data_buffer")
def update_data_buffer(buffer: int, data: int, size: int) -> None:
    """Describe other memory."""
    PROCESS.handles.get(buffer, DataBuffer).place(data, size)


@value("acl.get_data_buffer_addr", returns="ptr")
def get_data_buffer_addr(buffer: int) -> int:
    """Where the memory begins."""
    return PROCESS.handles.get(buffer, DataBuffer).address


@value("acl.get_data_buffer_size", returns="bytes")
def get_data_buffer_size(buffer: int) -> int:
    """How many bytes it has."""
    return PROCESS.handles.get(buffer, DataBuffer).size


@value("acl.get_data_buffer_size_v2", returns="bytes")
def get_data_buffer_size_v2(buffer: int) -> int:
    """How many bytes it has."""
    return PROCESS.handles.get(buffer, DataBuffer).size


# ---- datasets
@value("acl.mdl.create_dataset", returns="dataset")
def create_dataset() -> int:
    """An empty list of data buffers."""
    return PROCESS.handles.add(Dataset())


@status("acl.mdl.destroy_dataset")
def destroy_dataset(dataset: int) -> None:
    """Forget the list and what was said of its tensors; its data buffers stay."""
    for desc in PROCESS.handles.remove(dataset, Dataset).shown.values():
        if desc in PROCESS.handles.live(TensorDesc):
            PROCESS.handles.remove(desc, TensorDesc)


@value_and_status("acl.mdl.add_dataset_buffer", failed=(0,), returns="(dataset, ret)")
def add_dataset_buffer(dataset: int, buffer: int) -> int:
    """Put a data buffer at the end of the list."""
    PROCESS.handles.get(buffer, DataBuffer)
    PROCESS.handles.get(dataset, Dataset).buffers.append(buffer)
    PROCESS.handles.changed()
    return dataset


@value("acl.mdl.get_dataset_num_buffers", returns="count")
def get_dataset_num_buffers(dataset: int) -> int:
    """How many data buffers the list has."""
    return len(PROCESS.handles.get(dataset, Dataset).buffers)


@value("acl.mdl.get_dataset_buffer", returns="buffer")
def get_dataset_buffer(dataset: int, index: int) -> int:
    """Data buffer number `index`; 0 if there is none."""
    buffers = PROCESS.handles.get(dataset, Dataset).buffers
    check_index(index, len(buffers), "data buffer")
    return buffers[index]


@value_and_status("acl.mdl.set_dataset_tensor_desc", failed=(0,), returns="(dataset, ret)")
def set_dataset_tensor_desc(dataset: int, desc: int, index: int) -> int:
    """Say what tensor data buffer number `index` holds in the next run, for a model whose shapes are open. The description is copied."""
    found = PROCESS.handles.get(dataset, Dataset)
    check_index(index, len(found.buffers), "data buffer")
    found.describe(index, PROCESS.handles.get(desc, TensorDesc))
    PROCESS.handles.changed()
    return dataset


@value("acl.mdl.get_dataset_tensor_desc", returns="desc")
def get_dataset_tensor_desc(dataset: int, index: int) -> int:
    """What tensor data buffer number `index` holds: as it was set, or as the last run left it. It belongs to the dataset."""
    found = PROCESS.handles.get(dataset, Dataset)
    check_index(index, len(found.buffers), "data buffer")
    if index not in found.descs:
        raise AclError(Code.INVALID_PARAM, f"data buffer {index} of the dataset has no tensor description yet")
    if PROCESS.handles.live(TensorDesc).get(found.shown.get(index, 0)) is not found.descs[index]:
        found.shown[index] = PROCESS.handles.add(found.descs[index])
    return found.shown[index]


def check_index(index: int, count: int, what: str) -> None:
    """Raises AclError for an index that is not there."""
    if not 0 <= index < count:
        raise AclError(
            Code.INVALID_PARAM, f"{what} {index} is not there; accepted: {f'0 to {count - 1}' if count else 'none, there are none'}"
        )

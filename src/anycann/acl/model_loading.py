"""acl.mdl: loading offline models from files and memory, and letting them go."""

from __future__ import annotations

from dataclasses import field
import os
import platform
from typing import ClassVar

import numpy as np

from anycann.acl.codes import Code
from anycann.acl.entries import status, value, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.media_memory import device_bytes
from anycann.acl.models import Model
from anycann.acl.process import PROCESS
from anycann.acl.util import ptr_to_bytes
from anycann.runtime.device import Device
from anycann.runtime.memory import ALIGNMENT
from anycann.support.errors import AnyCANNError, describe
from anycann.support.records import dataclass


@dataclass
class Loaded:
    """A model and whose memory it takes."""

    model: Model
    device: Device
    bytes_taken: int


@dataclass(frozen=True)
class _Block:
    """Memory of the caller's, null for none, and how much is needed."""

    role: str
    address: int
    nbytes: int
    needed: int

    def bytes(self, model: Model) -> np.ndarray | None:
        """A view of it; None for null, which leaves it to the load. Raises AclError for memory that does not do."""
        if not self.address:
            return None
        if self.nbytes < self.needed:
            raise AclError(Code.GE_PARAM_INVALID, f"{self.role} memory has {self.nbytes} bytes; {model.where} needs {self.needed}")
        if self.address % ALIGNMENT:
            raise AclError(
                Code.MEMORY_ADDRESS_UNALIGNED, f"{self.role} memory lies at {self.address:#x}; accepted: multiples of {ALIGNMENT}"
            )
        return device_bytes(self.address, self.nbytes, f"the {self.role} memory")


@dataclass(frozen=True)
class Brought:
    """Memory that the caller brings for runs and for weights: addresses, null for none, and bytes."""

    work: int
    work_size: int
    weights: int
    weight_size: int

    def blocks(self, model: Model) -> tuple[_Block, _Block]:
        """Both, with what a model needs."""
        return (
            _Block("work", self.work, self.work_size, model.work_bytes),
            _Block("weight", self.weights, self.weight_size, model.weight_bytes),
        )


class Models:
    """The loaded models of the process by id, a small number as Ascend's."""

    def __init__(self) -> None:
        self._loaded: dict[int, Loaded] = {}
        self._next = 1

    def load(self, source: str | bytes, brought: Brought | None = None) -> int:
        """Load a model on this thread's device, into memory that the caller `brought`."""
        PROCESS.check_initialised()
        device = PROCESS.context().device
        model = read_model(source)
        taken = model.work_bytes + model.weight_bytes
        if brought is not None:
            work, weights = (block.bytes(model) for block in brought.blocks(model))
            taken -= sum(needed for needed, block in ((model.work_bytes, work), (model.weight_bytes, weights)) if block is not None)
            model.use_memory(work, weights)
        try:
            device.take(taken)
        except AnyCANNError as error:
            raise AclError(Code.RT_MEMORY_ALLOCATION, f"{model.where}: {error}") from error
        with PROCESS.lock:
            number, self._next = self._next, self._next + 1
            self._loaded[number] = Loaded(model, device, taken)
            if model.soc_version != "host":
                PROCESS.model_soc = PROCESS.model_soc or model.soc_version
        return number

    def get(self, model_id: int) -> Model:
        """The model. Raises AclError for an id that is not loaded."""
        found = self._loaded.get(model_id)
        if found is None:
            gone = "was unloaded" if 0 < model_id < self._next else "was never loaded"
            raise AclError(Code.GE_EXEC_MODEL_ID_INVALID, f"model {model_id} {gone}; loaded: {', '.join(map(str, self._loaded)) or 'none'}")
        return found.model

    def device_of(self, model_id: int) -> int:
        """The number of the device that a model was loaded on."""
        return self._loaded[model_id].device.number

    def unload(self, model_id: int) -> None:
        """Forget a model."""
        self.get(model_id)
        with PROCESS.lock:
            gone = self._loaded.pop(model_id)
            PROCESS.handles.changed()
        gone.device.give_back(gone.bytes_taken)

    def live(self) -> dict[int, Model]:
        """All of them."""
        return {number: loaded.model for number, loaded in self._loaded.items()}

    def clear(self) -> None:
        """Forget all of them."""
        for number in list(self._loaded):
            self.unload(number)


MODELS = Models()


def _beside(source: str) -> str:
    """The file that atc writes of a model with open shapes under that name, if it is there."""
    other = f"{source.removesuffix('.om')}_linux_{platform.machine()}.om"
    return f"; {other!r} is there, as atc calls models with open shapes" if os.path.isfile(other) else ""


def read_model(source: str | bytes) -> Model:
    """Raises AclError for a file that is not there or no offline model."""
    if isinstance(source, str) and not os.path.isfile(source):
        raise AclError(
            Code.GE_EXEC_MODEL_PATH_INVALID, f"{source!r} is no file; accepted: an offline model (.om) that atc made{_beside(source)}"
        )
    try:
        return Model(source)
    except AnyCANNError as error:
        raise AclError(Code.PARSE_MODEL, describe(error)) from error


# ---- loading
@value_and_status("acl.mdl.load_from_file", returns="(model_id, ret)")
def load_from_file(path: str) -> int:
    """Load an offline model; its weights are mapped, not read."""
    return MODELS.load(path)


@value_and_status("acl.mdl.load_from_mem", returns="(model_id, ret)")
def load_from_mem(ptr: int, size: int) -> int:
    """Load the offline model whose `size` bytes lie at `ptr`; they may go afterwards."""
    return MODELS.load(bytes_at(ptr, size))


@value_and_status("acl.mdl.load_from_file_with_mem", returns="(model_id, ret)")
def load_from_file_with_mem(path: str, work: int, work_size: int, weights: int, weight_size: int) -> int:
    """As load_from_file, with device memory of the caller's as large as acl.mdl.query_size says; null leaves it to the load.

    A run works in `work`; another run of the model that begins meanwhile takes memory of its own. Models that share it run one after the
    other: nobody looks. The weights are copied to `weights`. Both have to stay as long as the model runs.
    """
    return MODELS.load(path, Brought(work, work_size, weights, weight_size))


@value_and_status("acl.mdl.load_from_mem_with_mem", returns="(model_id, ret)")
def load_from_mem_with_mem(ptr: int, size: int, work: int, work_size: int, weights: int, weight_size: int) -> int:
    """As load_from_mem, with memory of the caller's as load_from_file_with_mem."""
    return MODELS.load(bytes_at(ptr, size), Brought(work, work_size, weights, weight_size))


@status("acl.mdl.unload")
def unload(model_id: int) -> None:
    """Forget a model."""
    MODELS.unload(model_id)


@value_and_status("acl.mdl.query_size", failed=(0, 0), returns="(work_size, weight_size, ret)")
def query_size(path: str) -> tuple[int, int]:
    """Bytes a model needs to run and for its weights."""
    model = read_model(path)
    return model.work_bytes, model.weight_bytes


@value_and_status("acl.mdl.query_size_from_mem", failed=(0, 0), returns="(work_size, weight_size, ret)")
def query_size_from_mem(ptr: int, size: int) -> tuple[int, int]:
    """Bytes a model in memory needs to run and for its weights."""
    model = read_model(bytes_at(ptr, size))
    return model.work_bytes, model.weight_bytes


def bytes_at(ptr: int, size: int) -> bytes:
    """A copy of a model in memory. Raises AclError for null and for memory that is not there."""
    if not ptr or size <= 0:
        raise AclError(Code.INVALID_PARAM, f"model of {size} bytes at {ptr:#x}; accepted: an address that is not null, at least 1 byte")
    data = ptr_to_bytes(ptr, size)
    if data is None:
        raise AclError(Code.GE_EXEC_MODEL_ADDR_INVALID, f"{size} bytes at {ptr:#x} cannot be read")
    return data


# ---- loading by a list of settings
_LOAD_TYPE, _PATH, _ADDRESS, _SIZE = 1, 2, 3, 4
_WEIGHTS, _WEIGHT_SIZE, _WORK, _WORK_SIZE = 5, 6, 7, 8
_FROM_FILE, _FILE_WITH_MEMORY, _FROM_MEMORY, _MEMORY_WITH_MEMORY = 1, 2, 3, 4
_WITH_QUEUES = (5, 6)


@dataclass
class LoadConfig:
    """What acl.mdl.set_config_opt collects."""

    acl_word: ClassVar[str] = "model config handle"
    settings: dict[int, int | str] = field(default_factory=dict)

    def number(self, attribute: int) -> int:
        return int(self.settings.get(attribute, 0))


@value("acl.mdl.create_config_handle", returns="handle")
def create_config_handle() -> int:
    """An empty list of settings."""
    return PROCESS.handles.add(LoadConfig())


@status("acl.mdl.destroy_config_handle")
def destroy_config_handle(handle: int) -> None:
    """Forget the settings."""
    PROCESS.handles.remove(handle, LoadConfig)


@status("acl.mdl.set_config_opt", limits="0 (priority) and 13 (saving memory) are kept: runs share the processors as the system decides")
def set_config_opt(handle: int, attribute: int, setting: object) -> None:
    """attribute: 0 priority, 1 kind of load, 2 path (a str), 3 and 4 address and size of the model, 5 to 8 memory of the caller's."""
    config = PROCESS.handles.get(handle, LoadConfig)
    wanted = str if attribute in (_PATH, 14) else int
    if not isinstance(setting, wanted):
        raise AclError(Code.INVALID_PARAM, f"setting {attribute} is {setting!r:.80}; accepted: {wanted.__name__}")
    config.settings[attribute] = setting


@value_and_status("acl.mdl.load_with_config", returns="(model_id, ret)")
def load_with_config(handle: int) -> int:
    """Load as the settings say. Kinds 5 and 6, with queues, fail: pyACL has no function that makes the queue they name."""
    config = PROCESS.handles.get(handle, LoadConfig)
    kind, path = config.number(_LOAD_TYPE), str(config.settings.get(_PATH, ""))
    memory = (config.number(_WORK), config.number(_WORK_SIZE), config.number(_WEIGHTS), config.number(_WEIGHT_SIZE))
    if kind in (_FROM_FILE, _FILE_WITH_MEMORY):
        source: str | bytes = path
    elif kind in (_FROM_MEMORY, _MEMORY_WITH_MEMORY):
        source = bytes_at(config.number(_ADDRESS), config.number(_SIZE))
    elif kind in _WITH_QUEUES:
        raise AclError(Code.GE_EXEC_MODEL_QUEUE_ID_INVALID, "the queues are not there: pyACL has no function that makes one")
    else:
        raise AclError(Code.INVALID_PARAM, f"load type {kind}; accepted: 1 file, 2 file with memory, 3 memory, 4 memory with memory")
    return MODELS.load(source, Brought(*memory) if kind in (_FILE_WITH_MEMORY, _MEMORY_WITH_MEMORY) else None)

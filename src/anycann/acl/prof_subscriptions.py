"""acl.prof: the kernels of one model, written to a pipe as they run; and reading what came out of the pipe."""

from __future__ import annotations

import contextlib
import os
import struct
from typing import ClassVar

from anycann.acl.codes import Code
from anycann.acl.entries import status, value, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.model_loading import MODELS
from anycann.acl.process import PROCESS
from anycann.acl.profile_session import PROFILER
from anycann.acl.runs import WATCHERS, Run
from anycann.acl.util import ptr_to_bytes
from anycann.runtime.observe import Callback, StepEvent
from anycann.support.logging import get_logger
from anycann.support.records import dataclass

# model id, padding, begin, end, operator type, name: one kernel in a pipe. Programs see the size only.
_RECORD = struct.Struct("<IIQQ64s200s")
_log = get_logger("acl")


@dataclass(frozen=True)
class SubscribeConfig:
    """What acl.prof.create_subscribe_config was told."""

    acl_word: ClassVar[str] = "subscription config"
    with_times: bool
    pipe: int


class Subscriptions:
    """The models whose kernels go to a pipe."""

    def __init__(self) -> None:
        self._pipes: dict[int, SubscribeConfig] = {}

    @property
    def active(self) -> bool:
        """True while a model is subscribed."""
        return bool(self._pipes)

    def add(self, model_id: int, config: SubscribeConfig) -> None:
        """Raises AclError for a model that is subscribed already."""
        if model_id in self._pipes:
            raise AclError(Code.PROF_REPEAT_SUBSCRIBE, f"model {model_id} is subscribed already")
        self._pipes[model_id] = config
        if len(self._pipes) == 1:
            WATCHERS.append(self._watch)

    def remove(self, model_id: int) -> None:
        """Close the pipe, unless another model uses it. Raises AclError for a model that is not subscribed."""
        config = self._pipes.pop(model_id, None)
        if config is None:
            raise AclError(Code.PROF_NOT_RUN, f"model {model_id} is not subscribed")
        if not self._pipes:
            WATCHERS.remove(self._watch)
        if all(other.pipe != config.pipe for other in self._pipes.values()):
            with contextlib.suppress(OSError):  # the program closed it
                os.close(config.pipe)

    def clear(self) -> None:
        """End all of them."""
        for model_id in list(self._pipes):
            self.remove(model_id)

    def _watch(self, run: Run) -> Callback | None:
        models = MODELS.live()
        found = next((number for number in self._pipes if models.get(number) is run.owner), None)
        if found is None:
            return None
        config = self._pipes[found]

        def write(event: StepEvent) -> None:
            if self._pipes.get(found) is not config:  # unsubscribed while the model runs
                return
            begin, end = (event.begin_ns, event.end_ns) if config.with_times else (0, 0)
            kind, name = "+".join(dict.fromkeys(event.op_types)), "+".join(event.nodes)
            record = _RECORD.pack(found, 0, begin, end, _fixed(kind, 64), _fixed(name, 200))
            try:
                os.write(config.pipe, record)  # less than PIPE_BUF: whole or not at all
            except OSError as error:
                _log.warning("the kernels of model %d cannot be written to pipe %d: %s", found, config.pipe, error)

        return write


def _fixed(text: str, size: int) -> bytes:
    """At most `size` - 1 bytes, cut where a character ends."""
    return text.encode()[: size - 1].decode(errors="ignore").encode()


SUBSCRIPTIONS = Subscriptions()
PROCESS.ending.append(SUBSCRIPTIONS.clear)


@value("acl.prof.create_subscribe_config", returns="config", limits="metrics of the AI Core have no meaning here: they are not measured")
def create_subscribe_config(time_info: int, metrics: int, pipe: int) -> int:
    """Where a model's kernels go: the descriptor of a pipe. time_info 1: with their times."""
    if time_info not in (0, 1):
        raise AclError(Code.INVALID_PARAM, f"time_info is {time_info}; accepted: 0, 1")
    try:
        os.fstat(pipe)
    except OSError as error:
        raise AclError(Code.INVALID_PARAM, f"descriptor {pipe} is not open: {error}") from error
    return PROCESS.handles.add(SubscribeConfig(bool(time_info), pipe))


@status("acl.prof.destroy_subscribe_config")
def destroy_subscribe_config(config: int) -> None:
    """Forget it."""
    PROCESS.handles.remove(config, SubscribeConfig)


@status("acl.prof.model_subscribe")
def model_subscribe(model_id: int, config: int) -> None:
    """From now on the kernels of a model are written to the pipe, a record of get_op_desc_size bytes each."""
    wanted = PROCESS.handles.get(config, SubscribeConfig)
    MODELS.get(model_id)
    if PROFILER.folder is not None:
        raise AclError(Code.PROF_API_CONFLICT, "acl.prof.init was called; it and acl.prof.model_subscribe do not go together")
    SUBSCRIPTIONS.add(model_id, wanted)


@status("acl.prof.model_unsubscribe")
def model_unsubscribe(model_id: int) -> None:
    """End what model_subscribe began, and close the descriptor that is written to, so that who reads comes to the end."""
    SUBSCRIPTIONS.remove(model_id)


@status("acl.prof.model_un_subscribe")
def model_un_subscribe(model_id: int) -> None:
    """An old name of model_unsubscribe."""
    SUBSCRIPTIONS.remove(model_id)


# ---- reading records: `ptr` and `size` are of what was read from the pipe
@value_and_status("acl.prof.get_op_desc_size", returns="(bytes, ret)")
def get_op_desc_size() -> int:
    """Bytes of a record."""
    return _RECORD.size


@value_and_status("acl.prof.get_op_num", returns="(count, ret)")
def get_op_num(ptr: int, size: int) -> int:
    """How many records there are."""
    if not ptr or size <= 0 or size % _RECORD.size:
        raise AclError(Code.INVALID_PARAM, f"{size} bytes at {ptr:#x}; accepted: an address, and a multiple of {_RECORD.size}")
    return size // _RECORD.size


@value_and_status("acl.prof.get_op_type", failed=("",), returns="(str, ret)")
def get_op_type(ptr: int, size: int, index: int, most: int) -> str:
    """The operators of a kernel, at most `most` characters."""
    return _text(_record(ptr, size, index)[4])[:most]


@value_and_status("acl.prof.get_op_name", failed=("",), returns="(str, ret)")
def get_op_name(ptr: int, size: int, index: int, most: int) -> str:
    """The nodes of a kernel, at most `most` characters."""
    return _text(_record(ptr, size, index)[5])[:most]


@value("acl.prof.get_op_start", returns="ns")
def get_op_start(ptr: int, size: int, index: int) -> int:
    """When a kernel began, in nanoseconds."""
    return int(_record(ptr, size, index)[2])


@value("acl.prof.get_op_end", returns="ns")
def get_op_end(ptr: int, size: int, index: int) -> int:
    """When a kernel ended, in nanoseconds."""
    return int(_record(ptr, size, index)[3])


@value("acl.prof.get_op_duration", returns="ns")
def get_op_duration(ptr: int, size: int, index: int) -> int:
    """How long a kernel took, in nanoseconds."""
    record = _record(ptr, size, index)
    return int(record[3] - record[2])


@value("acl.prof.get_model_id", returns="model_id")
def get_model_id(ptr: int, size: int, index: int) -> int:
    """Whose kernel it is."""
    return int(_record(ptr, size, index)[0])


def _record(ptr: int, size: int, index: int) -> tuple[int, int, int, int, bytes, bytes]:
    if not ptr or not 0 <= index < size // _RECORD.size:
        raise AclError(Code.INVALID_PARAM, f"record {index} of {size} bytes at {ptr:#x}; accepted: 0 to {size // _RECORD.size - 1}")
    data = ptr_to_bytes(ptr + index * _RECORD.size, _RECORD.size)
    if data is None:
        raise AclError(Code.INVALID_PARAM, f"{_RECORD.size} bytes at {ptr:#x} cannot be read")
    return _RECORD.unpack(data)


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode(errors="replace")

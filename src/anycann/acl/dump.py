"""acl.mdl: data dump as the settings of acl.init say, or between init_dump and finalize_dump."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from anycann.acl.codes import Code
from anycann.acl.entries import status, value
from anycann.acl.errors import AclError
from anycann.acl.initialise import read_config
from anycann.acl.model_loading import MODELS
from anycann.acl.models import Model
from anycann.acl.process import PROCESS
from anycann.acl.profile_session import NO_MODEL, model_id_of
from anycann.acl.runs import TENSOR_WATCHERS, Run
from anycann.runtime.observe import Callback
from anycann.support.errors import UsageError, describe
from anycann.support.logging import get_logger

if TYPE_CHECKING:
    from anycann.runtime.dump.recorder import Dumper

_APPEND = (1 << 64) - 1  # -1 as pyACL gives it: behind what came before
_log = get_logger("acl")


class _Dumping:
    """What is dumped now."""

    def __init__(self) -> None:
        self.by_init = False  # the settings of acl.init
        self.by_call = False  # acl.mdl.init_dump was called
        self.by_callback = False  # nobody said what to dump
        self.dumper: Dumper | None = None
        self.callback: Callable[[dict[str, object]], object] | None = None  # takes dumps in place of files

    def begin(self, section: object) -> None:
        """Dump from now on. Raises AclError for settings that are not accepted."""
        from anycann.runtime.dump.recorder import Dumper
        from anycann.runtime.dump.settings import parse_dump

        try:
            self.dumper = Dumper(parse_dump(section), self._take)
        except UsageError as error:
            raise AclError(Code.INVALID_DUMP_CONFIG, describe(error)) from error
        if self._watch not in TENSOR_WATCHERS:
            TENSOR_WATCHERS.append(self._watch)

    def begin_for_callback(self) -> None:
        """After init_dump a callback gets the outputs of every model; acl.mdl.set_dump may say other things."""
        if self.by_call and self.callback is not None and self.dumper is None:
            self.begin({"dump_path": ".", "dump_list": [{}]})
            self.by_callback = True

    def end_of_callback(self) -> None:
        """Files again; nothing, if it was for the callback alone."""
        self.callback = None
        if self.by_callback:
            self.end()

    def _take(self, path: Path, content: bytes) -> None:
        from anycann.runtime.dump.files import write_operator_file

        if self.callback is None:
            write_operator_file(path, content)
            return
        data = np.frombuffer(content, np.uint8)
        whole = {"data_buf": data.ctypes.data, "buf_len": data.size, "is_last_chunk": 1, "offset": _APPEND, "flag": 0}
        try:
            self.callback({"file_name": str(path), **whole})
        except Exception:  # of the program
            _log.exception("the function of acl.mdl.dump_reg_callback failed")

    def end(self) -> None:
        """Dump no more."""
        self.by_callback = False
        self.dumper = None
        if self._watch in TENSOR_WATCHERS:
            TENSOR_WATCHERS.remove(self._watch)

    def _watch(self, run: Run) -> Callback | None:
        if self.dumper is None:
            return None
        from anycann.runtime.dump.recorder import DumpedRun

        model_id = model_id_of(run.owner)
        names = _names(run.owner) if isinstance(run.owner, Model) else ()
        return self.dumper.watch(DumpedRun(run.program.program, names, model_id, _device(model_id), run.stream))


_DUMPING = _Dumping()


def _names(model: Model) -> tuple[str, ...]:
    """A model is called as its file is, else as it was when it was compiled."""
    return (Path(model.where).stem, model.name) if isinstance(model.source, str) else (model.name,)


def _device(model_id: int) -> int:
    return 0 if model_id == NO_MODEL else MODELS.device_of(model_id)


def _begin_as_configured() -> None:
    section = PROCESS.config.get("dump")
    if section and not _is_about_exceptions(section):
        _DUMPING.begin(section)
        _DUMPING.by_init = True


def _is_about_exceptions(section: object) -> bool:
    """`dump_scene` asks for what the chip knows when it fails, which is nothing that runs here."""
    return isinstance(section, dict) and bool(section.get("dump_scene")) and "dump_list" not in section and "dump_debug" not in section


def _end() -> None:
    _DUMPING.end()
    _DUMPING.by_init = _DUMPING.by_call = False


PROCESS.beginning.append(_begin_as_configured)
PROCESS.ending.append(_end)


@status("acl.mdl.init_dump")
def init_dump() -> None:
    """Get ready to dump; acl.mdl.set_dump says what. Not together with settings of acl.init."""
    PROCESS.check_initialised()
    if _DUMPING.by_init or _DUMPING.by_call:
        cause = "the settings of acl.init dump" if _DUMPING.by_init else "acl.mdl.init_dump was called before"
        raise AclError(Code.DUMP_ALREADY_RUN, f"{cause}; acl.mdl.finalize_dump comes first")
    _DUMPING.by_call = True
    _DUMPING.begin_for_callback()


@status("acl.mdl.set_dump")
def set_dump(config_path: str) -> None:
    """Dump as the `dump` section of a JSON file says, from now on."""
    _check_begun()
    _DUMPING.begin(read_config(config_path).get("dump"))


@status("acl.mdl.finalize_dump")
def finalize_dump() -> None:
    """End what init_dump began."""
    _check_begun()
    _end()


def _check_begun() -> None:
    PROCESS.check_initialised()
    if not _DUMPING.by_call:
        raise AclError(Code.DUMP_NOT_RUN, "acl.mdl.init_dump was not called")


# ---- callbacks
@status("acl.mdl.dump_reg_callback")
def dump_reg_callback(function: Callable, flag: int) -> None:  # type: ignore[type-arg]
    """Give dumps to a function in place of files.

    It gets a dict: file_name, data_buf and buf_len (where the file's content is, during the call), is_last_chunk, offset, flag.
    """
    if not callable(function) or flag != 0:
        raise AclError(Code.FAILURE, f"function is {function!r:.60}, flag {flag!r}; accepted: a function of one argument, and 0")
    _DUMPING.callback = function
    _DUMPING.begin_for_callback()


@value("acl.mdl.dump_unreg_callback", failed=None, returns="None")
def dump_unreg_callback() -> None:
    """Forget the function."""
    _DUMPING.end_of_callback()


PROCESS.ending.append(_DUMPING.end_of_callback)

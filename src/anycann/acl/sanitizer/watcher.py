"""Switching the sanitizer on: it is told of every call, and at the end of the process it says what it has found."""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from functools import cache
import gc
import os
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType

from anycann.acl.entries import BORDER
from anycann.acl.errors import AclError
from anycann.acl.process import PROCESS
from anycann.acl.sanitizer import check_asynchronous, check_life, check_memory, check_models, check_others, check_streams
from anycann.acl.sanitizer.findings import Report
from anycann.acl.sanitizer.places import called_by_program, user_place
from anycann.acl.sanitizer.state import AFTER, BEFORE, FAILED, Call, Check, Sanitizer
from anycann.support import options as settings

_EVERY: tuple[Check, ...] = (
    check_life.check_time,
    check_life.check_process,
    check_life.check_context,
    check_life.check_handles,
    check_life.check_nulls,
    check_models.check_model_use,
    check_streams.check_stream_context,
)
_DECLARED = (check_asynchronous, check_memory, check_models, check_streams, check_others)
_CALL_DEPTH = 3  # the program's frame above a watcher: _watched, call, the program


class Looker:
    """The watcher. Calls that AscendCL's functions make of each other are not the program's, and not looked at."""

    def __init__(self, state: Sanitizer) -> None:
        self._state = state

    def before(self, name: str, arguments: Sequence[object]) -> None:
        if not called_by_program(_CALL_DEPTH):
            return
        call = _call(name, arguments)
        with self._state.lock:
            self._run((*_EVERY, *BEFORE.get(name, ())), call)

    def after(self, name: str, arguments: Sequence[object], result: object, error: AclError | None) -> None:
        if not called_by_program(_CALL_DEPTH):
            return
        call = _call(name, arguments)
        call.result, call.error = result, error
        with self._state.lock:
            self._run((check_life.remember_failure,), call)
            if error is None:
                known = name in BEFORE or name in AFTER
                self._run(AFTER.get(name, ()) if known else (check_others.after_any,), call)
            else:
                self._run((check_life.check_stray, *FAILED.get(name, ())), call)

    def _run(self, checks: Sequence[Check], call: Call) -> None:
        """A check that fails is told; the program goes on."""
        for check in checks:
            try:
                check(self._state, call)
            except Exception as error:
                self._state.found(call, "sanitizer-failed", f"{check.__name__}: {type(error).__name__}: {error}", level="note")


def _call(name: str, arguments: Sequence[object]) -> Call:
    listed = arguments if isinstance(arguments, list) else list(arguments)
    return Call(name, listed, BORDER.entries[name].parameters, user_place())


@cache
def enable() -> None:
    """Look at every call from now on. Once a process."""
    state = Sanitizer(Report(settings.SANITIZE_JSON.get()))
    PROCESS.handles.created.append(state.handle_made)
    PROCESS.handles.destroyed.append(state.handle_ended)
    BORDER.watchers = (*BORDER.watchers, Looker(state))
    atexit.register(_end, state)


def _end(state: Sanitizer) -> None:
    """What is left is told unless the program ended with an exception, which is reason enough; a process that was forked keeps still."""
    if state.initialised is not None and state.process != os.getpid():
        return
    if _goes_on(state):
        _clear_main()
    if _goes_on(state):
        state.found(None, "not-finalized", "acl.finalize was never called", {"initialised": state.initialised}, "note")
        check_life.check_left(state)
    state.report.close()


def _goes_on(state: Sanitizer) -> bool:
    return state.initialised is not None and state.finalized is None and not hasattr(sys, "last_type")


def _clear_main() -> None:
    """What Python is to do next: the objects of the program go. Many programs give everything back in `__del__`.

    Modules, functions and classes stay, for `__del__` uses them.
    """
    names = vars(sys.modules["__main__"])
    kept = (ModuleType, FunctionType, BuiltinFunctionType, type)
    for name in [name for name, value in names.items() if not (name.startswith("__") or isinstance(value, kept))]:
        names[name] = None
    gc.collect()

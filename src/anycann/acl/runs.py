"""What looks on while models and operators run: a profiler, a subscription. Nothing is done for a run that nobody watches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
import threading
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from anycann.acl.codes import Code
from anycann.acl.errors import AclError
from anycann.runtime.executor import CompiledProgram
from anycann.runtime.observe import Callback, StepEvent
from anycann.runtime.stream import Stream, current_stream
from anycann.support.errors import AnyCANNError, describe
from anycann.support.records import dataclass


@dataclass(frozen=True)
class Run:
    """One run. owner: the loaded model or operator behind it. stream: the number of the stream it runs in, 0 for the caller's thread."""

    owner: object
    name: str
    program: CompiledProgram
    stream: int


RunWatcher: TypeAlias = Callable[[Run], Callback | None]
WATCHERS: list[RunWatcher] = []  # each says whether it wants the steps of a run
TENSOR_WATCHERS: list[RunWatcher] = []  # and these look at tensors, for which kernels are launched one by one
LENDERS: WeakKeyDictionary[Stream, Callable[[CompiledProgram], AbstractContextManager[None]]] = WeakKeyDictionary()
_LOCK = threading.Lock()


def run_program(
    program: CompiledProgram, feeds: Sequence[object], places: Sequence[np.ndarray | None] | None, owner: object, name: str
) -> list[object]:
    """Run, in the memory of the stream's allocator if it has one, with those looking on who want to."""
    stream = current_stream() if LENDERS else None
    lender = None if stream is None else LENDERS.get(stream)
    with lender(program) if lender is not None else nullcontext():
        return _watched(program, feeds, places, owner, name)


def _watched(
    program: CompiledProgram, feeds: Sequence[object], places: Sequence[np.ndarray | None] | None, owner: object, name: str
) -> list[object]:
    if not (WATCHERS or TENSOR_WATCHERS):
        return program.run(feeds, places)
    stream, thread = current_stream(), threading.get_ident()
    run = Run(owner, name, program, 0 if stream is None else stream.number)
    with ExitStack() as watched:
        for tensors, watchers in ((False, tuple(WATCHERS)), (True, tuple(TENSOR_WATCHERS))):
            for callback in (watcher(run) for watcher in watchers):
                if callback is not None:
                    watched.callback(_observe(program, _of_thread(thread, callback), tensors))
        return program.run(feeds, places)


def failure(error: AnyCANNError, where: str) -> AclError:
    """What a run that failed comes to: its own code, where who looked on ended it."""
    return error if isinstance(error, AclError) else AclError(Code.RT_MODEL_EXECUTE, f"{where}: {describe(error)}")


def _observe(program: CompiledProgram, callback: Callback, tensors: bool) -> Callable[[], None]:
    """Begin to observe; what is returned ends it. Runs of one program in several threads take turns at it."""
    with _LOCK:
        observation = program.observe(callback, tensors)

    def end() -> None:
        with _LOCK:
            observation.close()

    return end


def _of_thread(thread: int, callback: Callback) -> Callback:
    """Only what this thread runs: another one may run the same program at the same time."""

    def tell(event: StepEvent) -> None:
        if threading.get_ident() == thread:
            callback(event)

    return tell

"""What a profile records between acl.prof.start and stop: kernels, calls, marks and iterations, with times of one clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
import threading
import time

from anycann.acl.entries import BORDER
from anycann.acl.errors import AclError
from anycann.acl.model_loading import MODELS
from anycann.acl.runs import WATCHERS, Run
from anycann.runtime.observe import Callback, StepEvent
from anycann.support.records import dataclass

# bits of the data type mask
ACL_API, TASK_TIME, AICPU, TRAINING_TRACE, MSPROFTX = 0x1, 0x2, 0x8, 0x40, 0x80
KNOWN_BITS = 0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80 | 0x100 | 0x800 | 0x1000 | 0x4000
NO_MODEL = 0xFFFFFFFF  # the model id of a single operator


@dataclass(frozen=True)
class KernelTime:
    """A kernel or host node that ran. Times in ns of time.monotonic_ns()."""

    model: str
    model_id: int
    stream: int
    event: StepEvent
    shapes: tuple[str, ...]
    dtypes: tuple[str, ...]


@dataclass(frozen=True)
class CallTime:
    """A call of an ACL function."""

    name: str
    begin_ns: int
    end_ns: int


@dataclass(frozen=True)
class Mark:
    """A moment (begin = end) or a stretch of the program, with its message."""

    kind: str  # "marker", "push/pop", "start/end"
    message: str
    thread: int
    begin_ns: int
    end_ns: int
    number: int


@dataclass(frozen=True)
class Iteration:
    """One step of a training: between two calls of acl.prof.get_step_timestamp."""

    number: int
    begin_ns: int
    end_ns: int


def model_id_of(owner: object) -> int:
    """The id of a loaded model; NO_MODEL for an operator."""
    return next((number for number, model in MODELS.live().items() if model is owner), NO_MODEL)


@dataclass
class Session:
    """One profile. It looks on from `open` to `close`."""

    mask: int
    devices: tuple[int, ...]
    kernels: list[KernelTime] = field(default_factory=list)
    calls: list[CallTime] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    iterations: list[Iteration] = field(default_factory=list)
    # what has to be added to a monotonic time for one since 1970
    epoch_ns: int = field(default_factory=lambda: time.time_ns() - time.monotonic_ns())

    def __post_init__(self) -> None:
        self._begun = threading.local()

    def open(self) -> None:
        """Look on."""
        if self.mask & (TASK_TIME | AICPU | 0x800):
            WATCHERS.append(self._watch)
        if self.mask & ACL_API:
            BORDER.watchers = (*BORDER.watchers, self)

    def close(self) -> None:
        """Look on no more; what was recorded stays."""
        if self._watch in WATCHERS:
            WATCHERS.remove(self._watch)
        BORDER.watchers = tuple(watcher for watcher in BORDER.watchers if watcher is not self)

    # ---- kernels
    def _watch(self, run: Run) -> Callback:
        model_id, places = model_id_of(run.owner), run.program.program.values

        def note(event: StepEvent) -> None:
            written = [places[name].spec for name in event.outputs if name in places]
            shapes, dtypes = tuple(",".join(map(str, each.shape)) for each in written), tuple(each.dtype for each in written)
            self.kernels.append(KernelTime(run.name, model_id, run.stream, event, shapes, dtypes))

        return note

    # ---- calls, as a watcher of the border
    def before(self, name: str, arguments: Sequence[object]) -> None:
        """A call begins."""
        self._begun.times = [*getattr(self._begun, "times", ()), time.monotonic_ns()]  # calls may call others

    def after(self, name: str, arguments: Sequence[object], result: object, error: AclError | None) -> None:
        """A call has ended."""
        begun: list[int] = getattr(self._begun, "times", [])
        if begun:  # none for the call that began the profile
            self.calls.append(CallTime(name, begun.pop(), time.monotonic_ns()))


class Profiler:
    """acl.prof's state: the folder of init, and the session between start and stop."""

    def __init__(self) -> None:
        self.folder: str | None = None
        self.session: Session | None = None
        self.config = 0  # the handle that the session was started with
        self.settings: dict[int, str] = {}

    def wants(self, bit: int) -> Session | None:
        """The session, if it records that."""
        return self.session if self.session is not None and self.session.mask & bit else None

    def end(self) -> Session | None:
        """Stop what runs."""
        session, self.session, self.config = self.session, None, 0
        if session is not None:
            session.close()
        return session


PROFILER = Profiler()

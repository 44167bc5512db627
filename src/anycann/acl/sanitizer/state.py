"""What the sanitizer knows of the program, and the table of its checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
import threading
from typing import TypeAlias

from anycann.acl.errors import AclError
from anycann.acl.handles import word_for
from anycann.acl.process import PROCESS, Context
from anycann.acl.sanitizer.blocks import Blocks
from anycann.acl.sanitizer.findings import Finding, Level, Report
from anycann.acl.sanitizer.owners import Owners
from anycann.acl.sanitizer.pending import Mark, Pending
from anycann.acl.sanitizer.places import Place, user_place
from anycann.support.records import dataclass


@dataclass
class Call:
    """A call of the program. After it, `result` is what the program gets and `error` why it failed."""

    name: str
    arguments: list[object]
    parameters: tuple[str, ...]
    where: Place | None
    result: object = None
    error: AclError | None = None

    def given(self, parameter: str) -> object:
        """The argument by its name; None if it was left out."""
        at = self.parameters.index(parameter) if parameter in self.parameters else len(self.arguments)
        return self.arguments[at] if at < len(self.arguments) else None

    def number(self, parameter: str) -> int:
        """As `given`, for an argument that is a whole number; 0 for none."""
        found = self.given(parameter)
        return found if isinstance(found, int) else 0


@dataclass
class Made:
    """A handle or a model: what it is, which lines made and ended it, and the context it belongs to."""

    word: str
    made: Place | None
    context: int = 0
    ended: Place | None = None
    live: bool = True

    @property
    def lines(self) -> dict[str, Place | None]:
        return {"created": self.made, "destroyed": self.ended}


@dataclass
class Subscription:
    """A stream that reports to a thread, with the callbacks it was given and those that ran."""

    thread: int
    where: Place | None
    launched: int = 0
    run: int = 0


class _Thread(threading.local):
    failed: tuple[str, Place | None] | None = None  # the last call whose value is a null
    lost_context: tuple[str, Place | None] | None = None


@dataclass
class Sanitizer:
    """The state behind all checks; one call at a time looks at it."""

    report: Report
    blocks: Blocks = field(default_factory=lambda: Blocks(PROCESS.allocations))
    owners: Owners = field(default_factory=Owners)
    pending: Pending = field(default_factory=Pending)
    handles: dict[int, Made] = field(default_factory=dict)
    models: dict[int, Made] = field(default_factory=dict)
    described: dict[int, int] = field(default_factory=dict)  # description -> model
    devices: dict[int, Place | None] = field(default_factory=dict)  # set and not reset
    was_set: set[int] = field(default_factory=set)  # devices that were set at all
    subscriptions: dict[int, Subscription] = field(default_factory=dict)
    processing: dict[int, Place | None] = field(default_factory=dict)  # threads that asked for reports
    reported_to: set[int] = field(default_factory=set)  # threads that were ever subscribed
    initialised: Place | None = None
    process: int = 0  # the one that called acl.init
    finalized: Place | None = None
    thread: _Thread = field(default_factory=_Thread)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def found(
        self,
        call: Call | None,
        kind: str,
        text: str,
        others: Mapping[str, Place | None] | None = None,
        level: Level = "error",
        **facts: object,
    ) -> None:
        """Report a mistake at the line of `call` (None: at no line of its own)."""
        where = call.where if call else None
        self.report.add(Finding(kind, f"{call.name}: {text}" if call else text, where, others or {}, facts, level))

    def handle_made(self, handle: int, thing: object) -> None:
        """A handle came."""
        with self.lock:
            self.handles[handle] = Made(word_for(type(thing)), user_place(), PROCESS.thread.context)

    def handle_ended(self, handle: int, thing: object) -> None:
        """A handle went; a context takes its streams and events along."""
        with self.lock:
            place = user_place()
            gone = [handle]
            if isinstance(thing, Context):
                gone += [number for number, made in self.handles.items() if made.context == handle and made.word in ("stream", "event")]
            for number in gone:
                if number in self.handles and self.handles[number].live:
                    self.handles[number].live, self.handles[number].ended = False, place

    def stream_key(self, stream: int) -> int:
        """The stream by its handle; the default stream goes by that of its context."""
        return stream or PROCESS.thread.context

    def mark(self, stream: int) -> Mark:
        return self.pending.mark(self.stream_key(stream))


Check: TypeAlias = Callable[[Sanitizer, Call], None]
BEFORE: dict[str, list[Check]] = {}
AFTER: dict[str, list[Check]] = {}
FAILED: dict[str, list[Check]] = {}


def before(*names: str) -> Callable[[Check], Check]:
    """The check looks at these functions before they run."""
    return _declare(BEFORE, names)


def after(*names: str) -> Callable[[Check], Check]:
    """The check is told of these functions when they succeeded."""
    return _declare(AFTER, names)


def after_failure(*names: str) -> Callable[[Check], Check]:
    """The check is told of these functions when they failed."""
    return _declare(FAILED, names)


def _declare(table: dict[str, list[Check]], names: tuple[str, ...]) -> Callable[[Check], Check]:
    def declare(check: Check) -> Check:
        for name in names:
            table.setdefault(name, []).append(check)
        return check

    return declare

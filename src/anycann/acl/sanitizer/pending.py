"""Work that was given to streams and that nobody has waited for yet: by what the program called, not by how fast a stream is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from anycann.acl.sanitizer.places import Place
from anycann.acl.sanitizer.ranges import Range
from anycann.support.records import dataclass


@dataclass(eq=False)
class Work:
    """One asynchronous call. `watched`: bytes of host memory that must not change until it is done, with their checksum."""

    name: str
    stream: int
    where: Place | None
    reads: tuple[Range, ...] = ()
    writes: tuple[Range, ...] = ()
    model: int = 0
    watched: tuple[Range, int] | None = None
    done: bool = False

    def touches(self, other: Range) -> bool:
        return any(range_.overlaps(other) for range_ in (*self.reads, *self.writes))


@dataclass
class Mark:
    """What a stream had been given, itself and what it waited for, when an event was recorded or a callback launched."""

    work: tuple[Work, ...] = ()

    @property
    def pending(self) -> list[Work]:
        return [work for work in self.work if not work.done]


@dataclass
class Pending:
    """By stream, in order. A stream that waits for an event has the work before that event in its list too."""

    by_stream: dict[int, list[Work]] = field(default_factory=dict)
    events: dict[int, Mark] = field(default_factory=dict)

    def add(self, work: Work) -> None:
        self.of(work.stream).append(work)

    def of(self, stream: int) -> list[Work]:
        """What has been given to `stream` and is not known to be done."""
        listed = self.by_stream.setdefault(stream, [])
        listed[:] = [work for work in listed if not work.done]
        return listed

    def mark(self, stream: int) -> Mark:
        return Mark(tuple(self.of(stream)))

    def record(self, event: int, stream: int) -> None:
        self.events[event] = self.mark(stream)

    def wait(self, stream: int, event: int) -> None:
        """`stream` goes on after `event`."""
        listed = self.of(stream)
        listed.extend(work for work in self.events.get(event, Mark()).pending if work not in listed)

    def everything(self) -> Iterator[Work]:
        seen: set[int] = set()
        for stream in list(self.by_stream):
            for work in self.of(stream):
                if id(work) not in seen:
                    seen.add(id(work))
                    yield work

    def writer(self, place: Range, besides: int | None = None) -> Work | None:
        """The last pending work that writes there and that stream `besides` is not behind."""
        return self._last(lambda work: any(range_.overlaps(place) for range_ in work.writes), besides)

    def user(self, place: Range, besides: int | None = None) -> Work | None:
        """The last pending work that reads or writes there."""
        return self._last(lambda work: work.touches(place), besides)

    def _last(self, wanted, besides: int | None) -> Work | None:  # type: ignore[no-untyped-def]
        known = self.of(besides) if besides is not None else []
        return next((work for work in reversed(list(self.everything())) if wanted(work) and work not in known), None)

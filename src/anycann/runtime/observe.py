"""Watching a program run: what each step did, how long it took, and what any tensor holds. Profiler and dump hang here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from anycann.om.plan import Program
from anycann.support.records import dataclass


@dataclass(frozen=True)
class StepEvent:
    """One kernel launch, host node or region that has just run, in the thread that ran it.

    name: the kernel's symbol or the node's name. nodes, op_types: the source nodes it computed. outputs: the values it wrote.
    begin_ns, end_ns: the monotonic clock. tensor(value name): the value now, a numpy array in plain row-major order (valid until the
    callback returns, not to be written) or a host object; KeyError for a value that does not exist yet. program: what the step is of, the
    model's program or that of a region.
    """

    kind: Literal["kernel", "host", "region"]
    name: str
    nodes: tuple[str, ...]
    op_types: tuple[str, ...]
    outputs: tuple[str, ...]
    begin_ns: int
    end_ns: int
    tasks: int
    flops: int
    tensor: Callable[[str], object]
    program: Program | None = None


Callback: TypeAlias = Callable[[StepEvent], None]


@dataclass(frozen=True)
class Observer:
    """A callback and whether it looks at tensors: then kernels are launched one by one, so that each finds its outputs intact."""

    callback: Callback
    tensors: bool


class Observation:
    """An observer at work until `close` or the end of the `with` block."""

    def __init__(self, end: Callable[[], None]):
        self._end = end

    def close(self) -> None:
        """Stop observing; twice is fine."""
        self._end()

    def __enter__(self) -> Observation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

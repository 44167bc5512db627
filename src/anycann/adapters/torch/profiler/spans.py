"""A trace of torch's profiler as a tree of spans, and which of them are the kernels: what the npu computed, and how long.

An operator on an npu tensor calls torch's cpu kernel on the same memory. So the time of a kernel is that of the innermost call that
computes; what lies around it is the host's work: dispatch, shapes, memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

from anycann.support.records import dataclass

OPERATOR, ANNOTATION = "cpu_op", "user_annotation"
_NO_OPERATORS = ("autograd::", "torch::", "c10d::")  # the engine of autograd, and calls of collectives, which other threads carry out
COMMUNICATION = ("gloo:", "nccl:", "hccl:")
# They move no data: they make memory, or say how it is to be read.
METADATA_NAMES = """
    _reshape_alias _unsafe_view alias as_strided as_strided_ broadcast_tensors chunk conj detach detach_ diagonal empty empty_like
    empty_strided expand expand_as flatten is_nonzero is_pinned item lift_fresh movedim narrow new_empty new_empty_strided numpy_T
    permute real imag requires_grad_ reshape resize_ resize_as_ resolve_conj resolve_neg result_type select set_ slice split
    split_with_sizes squeeze squeeze_ swapaxes t to transpose transpose_ unbind unflatten unfold unsqueeze unsqueeze_ view view_as
    view_as_complex view_as_real _local_scalar_dense
"""
METADATA = frozenset(f"aten::{name}" for name in METADATA_NAMES.split())

# Kernels call them to prepare their result; alone they are kernels.
HELPERS = frozenset(
    f"aten::{name}" for name in ("_to_copy", "clone", "contiguous", "copy_", "fill_", "ones_like", "zero_", "zeros", "zeros_like")
)


@dataclass
class Span:
    """Something that lasted: times in microseconds."""

    name: str
    kind: str
    start: float
    duration: float
    thread: int
    arguments: dict[str, Any]
    children: list[Any] = field(default_factory=list)

    @property
    def end(self) -> float:
        """When it was over."""
        return self.start + self.duration

    @property
    def self_duration(self) -> float:
        """What its children did not take."""
        return self.duration - sum(child.duration for child in self.children)


def spans_of(trace: dict[str, Any]) -> list[Span]:
    """The outermost operators and annotations of a Chrome trace, in order, with all others inside."""
    by_thread: dict[int, list[Span]] = defaultdict(list)
    for event in trace["traceEvents"]:
        if event.get("ph") == "X" and event.get("cat") in (OPERATOR, ANNOTATION):
            span = Span(event["name"], event["cat"], float(event["ts"]), float(event["dur"]), event["tid"], event.get("args", {}))
            by_thread[span.thread].append(span)
    return [span for spans in by_thread.values() for span in _nested(spans)]


def _nested(spans: list[Span]) -> list[Span]:
    spans.sort(key=lambda span: (span.start, -span.duration))
    outermost: list[Span] = []
    around: list[Span] = []
    for span in spans:
        while around and around[-1].end < span.end - 1e-3:
            around.pop()
        (around[-1].children if around else outermost).append(span)
        around.append(span)
    return outermost


def every(spans: Sequence[Span]) -> Iterator[Span]:
    """All spans, the outer before the inner."""
    for span in spans:
        yield span
        yield from every(span.children)


def host_operators(spans: Sequence[Span]) -> Iterator[Span]:
    """The operators that the host called: not the cpu kernels of the same names inside them, and what those called."""
    for span in spans:
        if span.kind == OPERATOR:
            yield span
        yield from host_operators([child for child in span.children if child.name != span.name])


def is_operator(name: str) -> bool:
    """Whether a span of this name may be a kernel: an operator of a library, or a collective."""
    return ("::" in name and not name.startswith(_NO_OPERATORS)) or name.startswith(COMMUNICATION)


def kernels(node: Any) -> Iterator[Any]:
    """The kernels in `node`, which has `name`, `duration` and `children`; no time is in two of them."""
    if not is_operator(node.name):
        for child in node.children:
            yield from kernels(child)
        return
    same = [child for child in node.children if child.name == node.name]
    if same:
        yield from same
        return
    inner = [kernel for child in node.children for kernel in kernels(child)]
    if node.name in METADATA or any(kernel.name not in HELPERS for kernel in inner) or _holds_kernels(node):
        yield from inner
    else:
        yield node


def _holds_kernels(node: Any) -> bool:
    """Whether operators on npu tensors are in `node`: it is made of them, and computes nothing itself."""
    return any(inner.name == child.name or _holds_kernels(child) for child in node.children for inner in child.children)

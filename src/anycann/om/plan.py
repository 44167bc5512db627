"""A compiled program as data: where every tensor lives and which steps run, in order. The compiler writes it, the runtime follows it."""

from __future__ import annotations

from dataclasses import field
from typing import Literal, TypeAlias

from anycann.support.records import dataclass

Space: TypeAlias = Literal["arena", "constants", "input", "output"]


@dataclass(frozen=True)
class TensorSpec:
    """Name, dtype (numpy's name) and shape of a tensor; a size that is only known at run time is its symbol or None."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...]


@dataclass(frozen=True)
class Buffer:
    """`nbytes` bytes of a space: at `offset_bytes` of the arena or the constants, or the whole of input/output number `index`."""

    space: Space
    offset_bytes: int
    nbytes: int
    index: int = 0


@dataclass(frozen=True)
class Location:
    """A tensor of static shape and the buffer that holds it. `layout` is "ND" (row-major) or "NC1HWC0"."""

    spec: TensorSpec
    buffer: Buffer
    layout: str = "ND"


@dataclass(frozen=True)
class Task:
    """One kernel launch: `symbol(args, 0..tasks, scratch)`, the range split over the threads. `nodes` are the source names it computes."""

    symbol: str
    arguments: tuple[Buffer, ...]
    tasks: int
    scratch_bytes: int
    nodes: tuple[str, ...]
    op_types: tuple[str, ...]
    outputs: tuple[str, ...]  # value names this launch writes
    flops: int = 0
    resumes: bool = False  # the lowest bit of `scratch` tells it that a call goes on behind the last one of its thread
    begin_bytes: int = 0  # what a call reads first that does not


@dataclass(frozen=True)
class NativeStep:
    """A maximal static run of AiCore nodes: one native call."""

    tasks: tuple[Task, ...]


@dataclass(frozen=True)
class HostStep:
    """One AiCpu node, computed by its reference on the host. `node` is a serialised NodeProto; "" stands for an absent input or output.

    `captures` are the outer values that subgraphs of the node use, by name.
    """

    node: bytes
    opset: int
    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    captures: tuple[str, ...] = ()


@dataclass(frozen=True)
class RegionStep:
    """Subgraphs compiled for the shapes they meet. kind "deferred": `regions[0]` is the rest of the program once its input shapes are
    known; "if": inputs[0] is the condition, regions are then, else; "loop": inputs are trip count, condition, carried...; "scan".

    A region's own inputs are `region_inputs` (loop: iteration, condition, carried...) and then the outer values it captures, which the
    step lists in `captures`. Region names lead into `Program.regions`.
    """

    kind: Literal["deferred", "if", "loop", "scan"]
    name: str
    regions: tuple[str, ...]
    inputs: tuple[str, ...]
    captures: tuple[tuple[str, ...], ...]  # per region: outer value names, in the order of the region's trailing inputs
    outputs: tuple[str, ...]
    attributes: dict[str, object] = field(default_factory=dict)


Step: TypeAlias = NativeStep | HostStep | RegionStep


@dataclass(frozen=True)
class Program:
    """Steps for one set of input shapes. `values` locates every value of static shape; any other value is a host object (numpy array,
    list for a sequence, None) that lives in the run's environment under its name."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    arena_bytes: int
    steps: tuple[Step, ...]
    values: dict[str, Location]

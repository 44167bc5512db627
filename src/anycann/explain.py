"""Why a compiled model looks as it does: what each pass did, which nodes share a kernel and which do not, engines, layouts, memory.

    explain(convert_model("model.onnx")).lines()

It reads what the compiler left behind (reports of the passes, reasons of the grouping, the first program) and decides nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from anycann.assembly import Apart, NodeReport
from anycann.compiler import Conversion
from anycann.om.metadata import specs_from_json
from anycann.om.plan import HostStep, Location, NativeStep, Program, RegionStep, Task
from anycann.passes.memory import Interval
from anycann.passes.pipeline import Report
from anycann.support.records import dataclass
from anycann.te.layout import ND

AICPU = "AiCpu"
_NOTHING = Program((), (), 0, (), {})


@dataclass(frozen=True)
class KernelFacts:
    """One kernel launch and the nodes it computes. `tasks` is how far it can be split over threads; `flops` of one launch."""

    symbol: str
    nodes: tuple[str, ...]
    op_types: tuple[str, ...]
    tasks: int
    flops: int

    def __str__(self) -> str:
        members = ", ".join(f"{name} ({kind})" for name, kind in zip(self.nodes, self.op_types, strict=True))
        return f"{self.symbol}: {members}"


@dataclass(frozen=True)
class MemoryFacts:
    """values_bytes: what the values of the arena would take side by side; arena_bytes: what they take because they share.

    in_place: further values that lie inside one of those (views, parts of a concatenation, slices).
    """

    arena_bytes: int
    values_bytes: int
    values: int
    in_place: int
    constants_bytes: int


@dataclass(frozen=True)
class Explanation:
    """What happened to a model on its way through the compiler, for one of its programs ("" if its shapes are open)."""

    program: str
    defaults: tuple[str, ...]
    passes: tuple[Report, ...]
    kernels: tuple[KernelFacts, ...]
    apart: tuple[Apart, ...]
    nodes: tuple[NodeReport, ...]
    other_steps: tuple[str, ...]
    layouts: dict[str, tuple[str, ...]]
    memory: MemoryFacts

    def facts(self) -> dict[str, object]:
        """Everything as JSON data."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """Everything as text, a heading for each stage in order of processing."""
        if not self.program:
            yield "the model leaves shapes open: it is compiled when they are known, or for the shapes and gears that are given"
            return
        if self.defaults:
            yield "inputs with a default value:"
            yield from _indented(
                [f"{name}: constant in this program; a session that feeds it compiles another" for name in self.defaults], ""
            )
        for report in self.passes:
            yield f"{report.name}:"
            yield from _indented(report.lines, "nothing to do")
        yield "engines:"
        yield from _indented([_engine(node) for node in self.nodes], "no nodes are left")
        yield "fusion:"
        yield from _indented([str(kernel) for kernel in self.kernels], "no kernels")
        yield from _indented([str(apart) for apart in self.apart], "every node that could be joined was joined")
        yield "layouts:"
        yield from _indented([f"{layout}: {', '.join(names)}" for layout, names in self.layouts.items()], "every value is row-major")
        yield "steps beside the kernels:"
        yield from _indented(self.other_steps, "none: one native call computes everything")
        yield "memory:"
        yield from _indented(_memory_lines(self.memory), "nothing")


def explain(conversion: Conversion) -> Explanation:
    """The explanation of a conversion: of its first gear, if it has several."""
    key, program = next(iter(conversion.model.programs.items()), ("", _NOTHING))
    tasks = [task for step in program.steps if isinstance(step, NativeStep) for task in step.tasks]
    return Explanation(
        program=key,
        defaults=tuple(spec.name for spec in specs_from_json(conversion.model.metadata["overridable"], "the model")),
        passes=tuple(conversion.reports),
        kernels=tuple(_kernel(task) for task in tasks),
        apart=tuple(conversion.apart),
        nodes=tuple(conversion.nodes),
        other_steps=tuple(_other_steps(program)),
        layouts=_layouts(program.values),
        memory=_memory(program, conversion.intervals, conversion.model.constants.nbytes),
    )


def _kernel(task: Task) -> KernelFacts:
    return KernelFacts(task.symbol, task.nodes, task.op_types, task.tasks, task.flops)


def _other_steps(program: Program) -> Iterator[str]:
    for step in program.steps:
        if isinstance(step, HostStep):
            yield f"{step.name} ({step.op_type}) on the host"
        elif isinstance(step, RegionStep):
            kind = "the rest, once its shapes are known" if step.kind == "deferred" else step.kind
            yield f"{step.name}: {kind}, graphs of its own: {', '.join(step.regions)}"


def _layouts(values: Mapping[str, Location]) -> dict[str, tuple[str, ...]]:
    """Names by layout, row-major ones left out."""
    found: dict[str, tuple[str, ...]] = {}
    for name, location in values.items():
        if location.layout != ND:
            found[location.layout] = (*found.get(location.layout, ()), name)
    return found


def _memory(program: Program, intervals: Sequence[Interval], constants_bytes: int) -> MemoryFacts:
    """A value of the arena that the planner was not asked about lies inside one it was asked about."""
    stored = sum(location.buffer.space == "arena" for location in program.values.values())
    side_by_side = sum(interval.nbytes for interval in intervals)
    return MemoryFacts(program.arena_bytes, side_by_side, len(intervals), stored - len(intervals), constants_bytes)


def _memory_lines(memory: MemoryFacts) -> Sequence[str]:
    return (
        f"arena of {memory.arena_bytes:,} bytes for {memory.values} values of {memory.values_bytes:,} bytes",
        f"{memory.in_place} values lie inside another value's memory",
        f"constants of {memory.constants_bytes:,} bytes",
    )


def _engine(node: NodeReport) -> str:
    return f"{node.name} ({node.op_type}): {node.engine}" + (f", because {node.reason}" if node.reason else "")


def _indented(lines: Sequence[str], otherwise: str) -> Iterator[str]:
    yield from (f"  {line}" for line in lines or (otherwise,))


def slow_nodes(nodes: Sequence[NodeReport]) -> list[tuple[str, str, int]]:
    """(operator, reason, how many) of what runs on the host, the most frequent first."""
    counts = Counter((node.op_type, node.reason) for node in nodes if node.engine == AICPU)
    return [(op_type, reason, count) for (op_type, reason), count in counts.most_common()]

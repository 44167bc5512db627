"""What a kernel's arithmetic and memory allow at best: the roofline of this machine, and the kernels of a program below it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from anycann.om.plan import Buffer, NativeStep, Program, Task
from benchmarks.bandwidth import Bandwidth

_PRODUCTS = ("Conv", "MatMul", "Gemm", "Attention", "Einsum", "LSTM", "GRU")
_BYTE_TYPES = frozenset({"uint8", "int8"})


@dataclass(frozen=True)
class Work:
    """One launch: operations, bytes that it reads and writes, each once, how many of these are constants, the type it multiplies.

    program_bytes: of everything the program touches; constants come back after so much else.
    """

    flops: int
    bytes: int
    constant_bytes: int
    program_bytes: int
    kind: str  # "fp32", "bf16" or "int8"

    @property
    def intensity(self) -> float:
        """Operations for each byte."""
        return self.flops / self.bytes if self.bytes else 0.0


@dataclass(frozen=True)
class Ceilings:
    """Operations a second by precision, and bytes a second by working set, for some number of threads."""

    peaks: Mapping[str, float]
    bandwidth: Bandwidth

    def seconds(self, work: Work) -> float:
        """The least time the work can take here: its arithmetic at the peak, or its bytes, whichever is longer.

        Values are read as fast as a working set of the launch's bytes, constants as one of the program's.
        """
        values = (work.bytes - work.constant_bytes) / self.bandwidth.rate(work.bytes)
        constants = work.constant_bytes / self.bandwidth.rate(work.program_bytes)
        return max(work.flops / self.peaks.get(work.kind, self.peaks["fp32"]), values + constants)


def works(program: Program) -> Iterator[tuple[Task, Work]]:
    """Every launch of a program, in order."""
    tasks = [task for step in program.steps if isinstance(step, NativeStep) for task in step.tasks]
    types = {location.buffer: location.spec.dtype for location in program.values.values()}
    sizes = [_sizes(task, program) for task in tasks]
    program_bytes = sum({buffer: size for each in sizes for buffer, size in each.items()}.values())
    for task, each in zip(tasks, sizes, strict=True):
        constants = sum(size for buffer, size in each.items() if buffer.space == "constants")
        yield task, Work(task.flops, sum(each.values()), constants, program_bytes, _kind(task, types))


def _sizes(task: Task, program: Program) -> dict[Buffer, int]:
    """Bytes of each operand that are touched. A kernel that gathers touches no more of an operand than it writes."""
    sizes = {buffer: buffer.nbytes for buffer in task.arguments}
    if any(op_type.startswith("Gather") for op_type in task.op_types):
        written = sum(program.values[name].buffer.nbytes for name in task.outputs if name in program.values)
        return {buffer: min(size, written or size) for buffer, size in sizes.items()}
    return sizes


def _kind(task: Task, types: Mapping[Buffer, str]) -> str:
    """What its products multiply, by the type of its operands; anything else computes in float32."""
    if not any(word in op_type for op_type in task.op_types for word in _PRODUCTS):
        return "fp32"
    read = {types[buffer] for buffer in task.arguments if buffer in types}
    if read & _BYTE_TYPES:
        return "int8"
    return "bf16" if "bfloat16" in read else "fp32"

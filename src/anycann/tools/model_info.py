"""What is in an offline model, as numbers: programs, engines, memory, arithmetic; and the text of `atc --mode=6`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
import shlex
from typing import Literal

from anycann.om.metadata import specs_from_json
from anycann.om.model import OfflineModel
from anycann.om.plan import HostStep, NativeStep, Program, RegionStep, Task, TensorSpec
from anycann.support.records import dataclass


@dataclass(frozen=True)
class ProgramInfo:
    """One program. `launches` are kernel calls of one run, `kernels` the different ones; `aicore` and `aicpu` count operators by type.

    peak_bytes: what a run needs beside inputs and outputs: arena, constants, and the largest scratch memory of a thread. region: the name
    of the graph it belongs to, "" for the model itself.
    """

    key: str
    inputs: tuple[TensorSpec, ...]
    launches: int
    kernels: int
    host_steps: int
    region_steps: int
    arena_bytes: int
    peak_bytes: int
    flops: int
    aicore: dict[str, int]
    aicpu: dict[str, int]
    region: str = ""


@dataclass(frozen=True)
class ModelInfo:
    """An offline model. Sizes in bytes; `code_bytes` by key of the target; `regions` counts the graphs compiled for shapes they meet."""

    name: str
    producer: str
    soc_version: str
    precision: str
    framework: str
    command: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    gears: tuple[object, ...]
    constants_bytes: int
    graph_bytes: int
    code_bytes: dict[str, int]
    regions: int
    programs: tuple[ProgramInfo, ...]

    def operators(self, engine: Literal["aicore", "aicpu"]) -> dict[str, int]:
        """How often each operator type runs there: in the first program, and in the first of each region; others differ in sizes only."""
        first = {program.region: program for program in reversed(self.programs)}
        return dict(sum((Counter[str](getattr(program, engine)) for program in first.values()), Counter[str]()))

    @property
    def peak_bytes(self) -> int:
        """Of the program that needs most."""
        return max((program.peak_bytes for program in self.programs), default=self.constants_bytes)

    def facts(self) -> dict[str, object]:
        """Everything as JSON data."""
        return {**asdict(self), "peak_bytes": self.peak_bytes}

    def lines(self) -> Iterator[str]:
        """The text of Ascend's `--mode=6` and `--display_model_info=1`."""
        yield "============ Display Model Info start ============"
        yield f"Original Atc command line: {self.command}"
        yield f"system   info: atc_version[{self.producer}], soc_version[{self.soc_version}], framework_type[{self.framework}]."
        sizes = f"memory_size[{self.peak_bytes - self.constants_bytes} B], weight_size[{self.constants_bytes} B]"
        yield f"resource info: {sizes}, stream_num[1], event_num[0]."
        yield (
            f"om       info: modeldef_size[{self.graph_bytes} B], weight_data_size[{self.constants_bytes} B], "
            f"tbe_kernels_size[{sum(self.code_bytes.values())} B], cust_aicpu_kernel_store_size[0 B], "
            f"task_info_size[{_task_info_bytes(self.programs)} B], so_store_size[0 B]."
        )
        yield "============ Display Model Info end   ============"


_FRAMEWORKS = {"3": "TensorFlow"}  # numbers of --framework


def _task_info_bytes(programs: Iterable[ProgramInfo]) -> int:
    """The rows of the native dispatcher: 32 bytes a launch."""
    return sum(32 * program.launches for program in programs)


def model_info(model: OfflineModel) -> ModelInfo:
    """Read the numbers off a model whose metadata have been checked."""
    metadata = model.metadata
    constants = int(model.constants.nbytes)
    programs = tuple(replace(program_info(key, program, constants), region=region) for region, key, program in _programs(model))
    gears = metadata["gears"]
    arguments = metadata["atc_arguments"]
    assert isinstance(gears, list)
    assert isinstance(arguments, Mapping)
    outputs = specs_from_json(metadata["outputs"], "outputs")
    if len(model.programs) == 1:
        known = next(iter(model.programs.values())).outputs  # every size is known there
        outputs = tuple(replace(spec, shape=made.shape) for spec, made in zip(outputs, known, strict=True))
    return ModelInfo(
        name=str(metadata["name"]),
        producer=str(metadata["producer"]),
        soc_version=str(metadata["soc_version"]),
        precision=str(metadata["precision"]),
        framework=_FRAMEWORKS.get(str(arguments.get("framework")), "Onnx"),
        command=command_text(arguments),
        inputs=specs_from_json(metadata["inputs"], "inputs"),
        outputs=outputs,
        gears=tuple(gears),
        constants_bytes=constants,
        graph_bytes=len(model.graph),
        code_bytes={target: sum(map(len, kernels.values())) for target, kernels in model.code.items()},
        regions=len(model.regions),
        programs=programs,
    )


def command_text(arguments: Mapping[str, object]) -> str:
    """The command line again, quoted for a shell."""
    return shlex.join(["atc", *(f"--{name}={value}" for name, value in arguments.items())])


def _programs(model: OfflineModel) -> Iterator[tuple[str, str, Program]]:
    """Region, key and program: of the gears in the order they were asked for, then of the regions."""
    gears = model.metadata["gears"]
    asked = [str(gear.get("key")) for gear in gears if isinstance(gear, Mapping)] if isinstance(gears, list) else []
    for key in dict.fromkeys((*(key for key in asked if key in model.programs), *model.programs)):
        yield "", key, model.programs[key]
    for name, region in model.regions.items():
        yield from ((name, key, program) for key, program in region.programs.items())


def program_info(key: str, program: Program, constants_bytes: int = 0) -> ProgramInfo:
    """The numbers of one program."""
    tasks = list(_tasks(program))
    scratch = max((task.scratch_bytes for task in tasks), default=0)
    return ProgramInfo(
        key=key,
        inputs=program.inputs,
        launches=len(tasks),
        kernels=len({task.symbol for task in tasks}),
        host_steps=sum(isinstance(step, HostStep) for step in program.steps),
        region_steps=sum(isinstance(step, RegionStep) for step in program.steps),
        arena_bytes=program.arena_bytes,
        peak_bytes=program.arena_bytes + constants_bytes + scratch,
        flops=sum(task.flops for task in tasks),
        aicore=dict(Counter(op_type for task in tasks for op_type in task.op_types)),
        aicpu=dict(Counter(step.op_type for step in program.steps if isinstance(step, HostStep))),
    )


def _tasks(program: Program) -> Iterator[Task]:
    for step in program.steps:
        if isinstance(step, NativeStep):
            yield from step.tasks

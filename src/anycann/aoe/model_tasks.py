"""The kernels of a model as tuning tasks: compile it once, and take down what each kernel is generated from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import onnx_ir as ir

from anycann.assembly import Planned
from anycann.codegen.space import Space, Tuned
from anycann.compiler import CompileOptions, Conversion, convert_model
from anycann.support.errors import UsageError
from anycann.support.records import dataclass
from anycann.tuning.identity import key_of
from anycann.tuning.task import TuningTask, spaces_of, task_of


@dataclass(frozen=True)
class ModelTasks:
    """What can be tuned of a model. tasks: schedules by key; algorithms: choices between generators by key. uses: kernels of each."""

    conversion: Conversion
    tasks: Mapping[str, TuningTask]
    algorithms: Mapping[str, Space[Any]]
    uses: Mapping[str, tuple[tuple[str, ...], ...]]  # names of the nodes of each kernel, by key of the task

    def only(self, names: Collection[str]) -> ModelTasks:
        """The tasks of these nodes. Raises UsageError for a name that no tuned kernel computes."""
        nodes = {key: {name for kernel in kernels for name in kernel} for key, kernels in self.uses.items()}
        known = set().union(*nodes.values())
        unknown = [name for name in names if name not in known]
        if unknown:
            raise UsageError(f"node {unknown[0]!r} has no kernel to tune; accepted: {', '.join(sorted(known)) or 'none in this model'}")
        kept = {key: task for key, task in self.tasks.items() if set(names) & nodes[key]}
        return replace(self, tasks=kept)


def model_tasks(model: ir.Model, options: CompileOptions, tuned: Tuned | None = None) -> ModelTasks:
    """Compile `model` with the choices of `tuned` (None: none), and say what its kernels could be tuned in.

    Raises UsageError if shapes are left open: there is nothing to measure then.
    """
    asked: dict[str, Space[Any]] = {}
    tasks: dict[str, TuningTask] = {}
    uses: dict[str, list[tuple[str, ...]]] = {}

    def watch(planned: Planned) -> None:
        choices = replace(planned.choices, tuned=tuned)
        for space in spaces_of(planned.recipe, planned.constants, choices):
            if space.is_algorithm:
                asked.setdefault(key_of(space), space)
        task = task_of(planned.recipe, planned.constants, choices, planned.nodes, planned.op_type)
        if task is not None:
            key = key_of(task.space)
            tasks.setdefault(key, task)
            uses.setdefault(key, []).append(planned.nodes)

    conversion = convert_model(model, replace(options, tuned=tuned or Unasked(), watch=watch))
    if not conversion.model.programs:
        raise UsageError("the model leaves shapes open, so there is nothing to measure; give them with --input_shape, or gears")
    return ModelTasks(conversion, tasks, asked, {key: tuple(kernels) for key, kernels in uses.items()})


class Unasked:
    """A bank that knows nothing: what is compiled with it is compiled by the defaults."""

    def find(self, space: Space[Any]) -> None:
        return None

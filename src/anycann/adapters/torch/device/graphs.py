"""`torch.npu.NPUGraph`: the operators that ran while it captured, which run again on the same memory when it is replayed.

What is captured is what torch dispatches to the npu, below autograd: forward and backward alike. An operator that makes new tensors puts
them, in a replay, into the memory of those it made when captured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
import itertools
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from anycann.adapters.torch.device import streams
from anycann.adapters.torch.device.graph_randomness import Randomness
from anycann.support.records import dataclass

_pools = itertools.count(1)
_capturing: list[NPUGraph] = []


@dataclass(frozen=True)
class _Call:
    """One operator with its arguments, and the tensors it made."""

    operator: Any
    args: tuple[Any, ...]
    keywords: dict[str, Any]
    result: Any

    def given(self, values: dict[str, Any]) -> _Call:
        """The call with other values for some of its arguments, by name."""
        names = [argument.name for argument in self.operator._schema.arguments[: len(self.args)]]
        args = tuple(values.get(name, value) for name, value in zip(names, self.args, strict=True))
        rest = {name: value for name, value in values.items() if name not in names}
        return _Call(self.operator, args, {**self.keywords, **rest}, self.result)

    def run(self) -> None:
        """Compute again, into the memory of the first result."""
        again = self.operator(*self.args, **self.keywords)
        for old, new in zip(tree_leaves(self.result), tree_leaves(again), strict=True):
            if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr() and old.numel():
                old.copy_(new)


class _Recorder(TorchDispatchMode):
    """Runs operators and keeps them in `calls`; views need no second run."""

    def __init__(self, calls: list[_Call], randomness: Randomness | None = None):
        super().__init__()
        self.calls, self.randomness = calls, randomness

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("a value of an npu tensor was asked for while a graph captures: replays could not ask again")
        if self.randomness is not None and kwargs:
            self.randomness.keep(kwargs.get("generator"))
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            self.calls.append(_Call(func, args, kwargs or {}, result))
        return result


@dataclass(frozen=True)
class TaskGroup:
    """The operators between `graph_task_group_begin` and `graph_task_group_end`, which later calls may replace."""

    graph: NPUGraph
    calls: list[_Call]


@dataclass
class _Group:
    """The calls of one group stand in the graph as one entry."""

    calls: list[_Call] = field(default_factory=list)

    def run(self) -> None:
        for call in self.calls:
            call.run()


class NPUGraph:
    """A sequence of operators on fixed memory: capture it once, then change the inputs in place and `replay` it."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._entries: list[Any] = []
        self._recorder: _Recorder | None = None
        self._randomness: Randomness | None = None
        self._generators: list[Any] = []
        self._pool: tuple[int, int] | None = None
        self._captured = False

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **unused: Any) -> None:
        """Capture operators from now on. Raises RuntimeError if a capture is under way, or was made before."""
        if _capturing:
            raise RuntimeError("a graph captures already")
        if self._captured:
            raise RuntimeError("this graph was captured; call reset() before capturing again")
        self._pool = pool or graph_pool_handle()
        self._randomness = Randomness(self._entries, self._generators)
        self._begin_recording(self._entries)
        _capturing.append(self)

    def capture_end(self) -> None:
        """The end of the capture. Raises RuntimeError if there is none."""
        if _capturing != [self]:
            raise RuntimeError("capture_end() without capture_begin()")
        _capturing.pop()
        self._end_recording()
        if self._randomness is not None:
            self._randomness.end()
        self._captured = True

    def _begin_recording(self, calls: list[Any]) -> None:
        self._recorder = _Recorder(calls, self._randomness)
        self._recorder.__enter__()

    def _end_recording(self) -> None:
        if self._recorder is not None:
            self._recorder.__exit__(None, None, None)
            self._recorder = None

    def replay(self) -> None:
        """Run all captured operators again. Raises RuntimeError if nothing was captured."""
        if not self._captured:
            raise RuntimeError("replay() before a successful capture")
        with torch.no_grad():
            for entry in self._entries:
                entry.run()

    def reset(self) -> None:
        """Forget what was captured, and let go of its memory."""
        self._entries, self._captured = [], False

    def register_generator_state(self, generator: Any) -> None:
        """Say before the capture that it will draw from `generator`, which is after it where it was."""
        self._generators.append(generator)

    def pool(self) -> tuple[int, int]:
        """The identifier of the graph's memory, for another graph's capture."""
        if self._pool is None:
            raise RuntimeError("pool() before a capture")
        return self._pool

    def update(self, cpu_update_input: Any) -> None:
        """Give captured operators new host arguments: `[{name: value}, ...]`, in the order of the operators that take such a name.

        Raises RuntimeError if there are more entries than such operators.
        """
        for number, values in enumerate(cpu_update_input):
            takers = [at for at, call in enumerate(self._entries) if isinstance(call, _Call) and _takes(call, values)]
            if number >= len(takers):
                raise RuntimeError(f"update: entry {number} names {', '.join(values)}, which {len(takers)} captured operators take")
            self._entries[takers[number]] = self._entries[takers[number]].given(values)

    def debug_dump(self, debug_path: str) -> None:
        """Write the names of the captured operators, one a line, into the file `debug_path`."""
        lines = [str(call.operator) for entry in self._entries for call in (entry.calls if isinstance(entry, _Group) else [entry])]
        Path(debug_path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _takes(call: _Call, values: dict[str, Any]) -> bool:
    return set(values) <= {argument.name for argument in call.operator._schema.arguments}


class graph:  # noqa: N801 - torch's name
    """`with torch.npu.graph(g):` captures what runs inside into `g`."""

    def __init__(
        self, npu_graph: NPUGraph, pool: Any = None, stream: Any = None, capture_error_mode: str = "global", **unused: Any
    ) -> None:
        self.graph, self.pool = npu_graph, pool
        self.stream = streams.StreamContext(stream if stream is not None else streams.Stream())
        self.capture_error_mode = capture_error_mode

    def __enter__(self) -> None:
        self.stream.__enter__()
        self.graph.capture_begin(pool=self.pool, capture_error_mode=self.capture_error_mode)

    def __exit__(self, *error: object) -> None:
        self.graph.capture_end()
        self.stream.__exit__(*error)


def graph_pool_handle() -> tuple[int, int]:
    """An identifier of memory that graphs share: all memory is one, so it only tells graphs apart."""
    return next(_pools), 0


def is_current_stream_capturing() -> bool:
    """Whether operators are captured now."""
    return bool(_capturing)


def make_graphed_callables(callables: Any, sample_args: Any, num_warmup_iters: int = 3, **unused: Any) -> Any:
    """`callables` (functions or modules, one or a tuple) as they are, tried with `sample_args`: a graph saves no launches here.

    Raises what they raise, and TypeError if there are not as many argument tuples as callables.
    """
    several = isinstance(callables, tuple)
    functions, arguments = (callables, sample_args) if several else ((callables,), (sample_args,))
    if len(functions) != len(arguments):
        raise TypeError(f"{len(functions)} callables with {len(arguments)} tuples of sample arguments")
    for function, args in zip(functions, arguments, strict=True):
        _try_function(function, args)
    return callables


def _try_function(function: Callable[..., Any], args: Any) -> None:
    """Call `function` once, and leave the buffers of a module as they were."""
    buffers = {name: buffer.clone() for name, buffer in function.named_buffers()} if isinstance(function, torch.nn.Module) else {}
    with torch.no_grad():
        function(*args)
        for name, value in buffers.items():
            function.get_buffer(name).copy_(value)  # type: ignore[attr-defined]


_groups: list[TaskGroup] = []
_updates: list[tuple[TaskGroup, _Recorder]] = []


def graph_task_group_begin(stream: Any) -> None:
    """The operators from now on form a group. Raises RuntimeError outside a capture."""
    if not _capturing or _groups:
        raise RuntimeError("graph_task_group_begin() needs a capture that is under way, and no other group")
    captured = _capturing[-1]
    captured._end_recording()
    entry = _Group()
    captured._entries.append(entry)
    captured._begin_recording(entry.calls)
    _groups.append(TaskGroup(captured, entry.calls))


def graph_task_group_end(stream: Any) -> TaskGroup:
    """The end of the group, which is returned for `graph_task_update_begin`."""
    if not _groups:
        raise RuntimeError("graph_task_group_end() without graph_task_group_begin()")
    group = _groups.pop()
    group.graph._end_recording()
    group.graph._begin_recording(group.graph._entries)
    return group


def graph_task_update_begin(stream: Any, handle: TaskGroup) -> None:
    """The operators from now on replace those of the group `handle`, which must be as many."""
    recorder = _Recorder([])
    recorder.__enter__()
    _updates.append((handle, recorder))


def graph_task_update_end(stream: Any) -> None:
    """The end of the update. Raises RuntimeError, and keeps the old operators, if there were more or fewer."""
    if not _updates:
        raise RuntimeError("graph_task_update_end() without graph_task_update_begin()")
    group, recorder = _updates.pop()
    recorder.__exit__(None, None, None)
    if [call.operator for call in recorder.calls] != [call.operator for call in group.calls]:
        raise RuntimeError(f"a group of {len(group.calls)} operators cannot be updated with {len(recorder.calls)} or with others")
    group.calls[:] = [_Call(new.operator, new.args, new.keywords, old.result) for new, old in zip(recorder.calls, group.calls, strict=True)]


def super_kernel_scope_begin(scope_name: str | None = None) -> None:
    """Operators from here on might be one kernel on Ascend: they are what they are here."""


def super_kernel_scope_end(scope_name: str | None = None) -> None:
    """The end of `super_kernel_scope_begin`."""

"""A graph as AOTAutograd calls it: programs are compiled when their arguments are met, and parameters that rest are built in.

A weight that is built in is packed once and read as its kernel likes it. It is looked at before every call: another tensor, another memory,
another version (PyTorch counts in-place changes) or other bytes in its middle, and the graph takes its weights as inputs, until they have
rested for some calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import ctypes
import threading
from typing import Any

import torch

from anycann.adapters.torch.graph.graph_program import GraphProgram, compile_graph
from anycann.adapters.torch.graph.report import GraphReport, note
from anycann.adapters.torch.graph.unchanged import sample_of, watch
from anycann.adapters.torch.graph.written import Run
from anycann.support.processors import available_processors

Watch = Callable[[GraphReport], None]
REST = 8  # calls with the same weights after which they are built in again
MOST_FROZEN = 64  # sets of weights that a graph is compiled for: the blocks of a network that are compiled one by one share a graph


class CompiledGraph:
    """Runs one graph. `fixed` are the positions of inputs that are weights: they are built in. Threads may call it at once."""

    def __init__(self, module: torch.fx.GraphModule, kind: str, fixed: Sequence[int] = (), watch: Watch | None = None):
        self._boxed_call = True  # AOTAutograd: arguments come as one list; in the object itself, for wrappers copy that
        self._module, self._kind, self._fixed, self._watch = module, kind, tuple(fixed), watch
        self._frozen: dict[int, Frozen] = {}
        self._plain: Run | None = None
        self._rested = REST  # weights are built in at the first call
        self._seen: tuple[Any, ...] = ()
        self._lock = threading.RLock()

    def __call__(self, args: list[Any]) -> list[Any]:
        """The outputs for the inputs; the list of inputs is emptied."""
        if not self._fixed:
            return (self._plain or self._compile_plain())(args)
        frozen = self._frozen.get(id(args[self._fixed[0]]))
        if frozen is not None and frozen.holds(args):
            return frozen.run(args)
        return self._run_changed(args)

    def _run_changed(self, args: list[Any]) -> list[Any]:
        """Weights that were not built in, or have changed since."""
        weights = [args[position] for position in self._fixed]
        state = tuple(_state(weight) for weight in weights)
        with self._lock:
            self._rested = self._rested + 1 if not self._seen or state == self._seen else 0
            self._seen = state
            first_time = id(weights[0]) not in self._frozen
            if self._rested >= REST or first_time:
                run = self._freeze(weights)
                return run(args)
            self._frozen[id(weights[0])].forget()
        return (self._plain or self._compile_plain())(args)

    def _freeze(self, weights: Sequence[torch.Tensor]) -> Run:
        given = [node for node in self._module.graph.nodes if node.op == "placeholder"]
        constants = {given[position]: weight for position, weight in zip(self._fixed, weights, strict=True)}
        program = self._compiled(constants)
        if len(self._frozen) >= MOST_FROZEN:
            del self._frozen[next(iter(self._frozen))]
        self._frozen[id(weights[0])] = Frozen(program.run, self._fixed, weights)
        return program.run

    def _compile_plain(self) -> Run:
        with self._lock:
            if self._plain is None:
                self._plain = self._compiled({}).run
            return self._plain

    def _compiled(self, constants: dict[torch.fx.Node, torch.Tensor]) -> GraphProgram:
        program = compile_graph(self._module.graph, constants, threads())
        report = GraphReport(self._kind, program, len(constants))
        note(report)
        if self._watch is not None:
            self._watch(report)
        return program


class Frozen:
    """A program with weights built in, and what they were. The tensors are held, so that no other one can have their place.

    `holds(args)` says whether these arguments have the weights that are built in.
    """

    def __init__(self, run: Run, positions: Sequence[int], weights: Sequence[torch.Tensor]):
        self.run = run
        self._weights = [_Weight(position, weight) for position, weight in zip(positions, weights, strict=True)]
        self.holds: Callable[[list[Any]], bool] = watch(positions, weights) or self._holds

    def _holds(self, args: Sequence[Any]) -> bool:
        for known in self._weights:
            weight = known.tensor
            if args[known.position] is not weight or _state(weight) != known.state:
                return False
        return True

    def forget(self) -> None:
        """The weights have changed: nothing holds any more."""
        self._weights = []
        self.holds = lambda args: False


class _Weight:
    """A weight as it was: the tensor, and what tells of changes.

    The bytes in its middle are for changes through `.data`, which torch does not count: whoever changes all of a weight changes them.
    """

    __slots__ = ("position", "state", "tensor")

    def __init__(self, position: int, tensor: torch.Tensor):
        self.position, self.tensor, self.state = position, tensor, _state(tensor)


def _state(tensor: torch.Tensor) -> tuple[Any, ...]:
    """The tensor's identity, version (tensors of inference mode have none), memory, and the bytes of the element in its middle."""
    address, size = sample_of(tensor)
    version = None if tensor.is_inference() else tensor._version
    return id(tensor), version, tensor.data_ptr(), ctypes.string_at(address, size)


def threads() -> int:
    """As many as PyTorch uses for one operator, and there are."""
    return max(1, min(torch.get_num_threads(), available_processors()))

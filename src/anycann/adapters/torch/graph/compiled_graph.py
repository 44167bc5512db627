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
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

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


# ---- open sizes
class OpenGraph:
    """A graph with symbolic sizes: each set of sizes that it meets makes a static graph, which is kept."""

    def __init__(self, module: torch.fx.GraphModule, kind: str, fixed: Sequence[int] = (), watch: Watch | None = None):
        self._boxed_call = True
        self._module, self._kind, self._fixed, self._watch = module, kind, fixed, watch
        self._graphs: dict[tuple[Any, ...], CompiledGraph] = {}
        self._lock = threading.RLock()

    def __call__(self, args: list[Any]) -> list[Any]:
        """The outputs for the inputs; the list of inputs is emptied."""
        key = tuple(tuple(arg.shape) if isinstance(arg, torch.Tensor) else arg for arg in args)
        graph = self._graphs.get(key)
        if graph is None:
            with self._lock:
                graph = self._graphs.get(key)
                if graph is None:
                    graph = CompiledGraph(static(self._module, args), self._kind, self._fixed, self._watch)
                    self._graphs[key] = graph
        return graph(args)


def is_open(module: torch.fx.GraphModule) -> bool:
    """Whether a graph has symbolic sizes."""
    return any(_is_symbolic(node.meta.get("val")) for node in module.graph.nodes if node.op == "placeholder")


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return True
    return isinstance(value, torch.Tensor) and any(isinstance(size, torch.SymInt) for size in (*value.shape, *value.stride()))


def static(module: torch.fx.GraphModule, args: Sequence[Any]) -> torch.fx.GraphModule:
    """The graph for the sizes of these arguments: traced again with them."""
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
    given = [mode.from_tensor(arg.detach(), static_shapes=True) if isinstance(arg, torch.Tensor) else arg for arg in args]
    copier = _Copier(mode, given)
    for node in module.graph.nodes:
        copier.copy(node)
    return torch.fx.GraphModule(module, copier.graph)


class _Copier:
    """Copies nodes with numbers in place of symbols. `given`: fake tensors and numbers for the inputs."""

    def __init__(self, mode: FakeTensorMode, given: Sequence[Any]):
        self.graph = torch.fx.Graph()
        self._mode, self._given = mode, iter(given)
        self._copies: dict[torch.fx.Node, Any] = {}

    def copy(self, node: torch.fx.Node) -> None:
        """The node in the static graph; what is a number there is nothing but this number to its readers."""
        if node.op == "output":
            self.graph.output(self._mapped(node.args[0]))
            return
        if node.op == "placeholder":
            self._made(node, next(self._given), self.graph.placeholder(node.name))
            return
        if node.op == "get_attr":
            self._made(node, node.meta.get("val"), self.graph.get_attr(str(node.target)))
            return
        args, kwargs = self._mapped(node.args), self._mapped(node.kwargs)
        with self._mode:
            value = node.target(*_values(args), **_values(kwargs))
        if isinstance(value, int | float):
            self._copies[node] = value
        else:
            self._made(node, value, self.graph.call_function(node.target, args, kwargs))

    def _made(self, node: torch.fx.Node, value: Any, made: torch.fx.Node) -> None:
        made.meta = {**node.meta, "val": value}
        self._copies[node] = value if isinstance(value, int | float) else made

    def _mapped(self, argument: Any) -> Any:
        return torch.fx.node.map_arg(argument, lambda node: self._copies[node])


def _values(argument: Any) -> Any:
    return torch.fx.node.map_arg(argument, lambda node: node.meta["val"])

"""A graph with open sizes: PyTorch computes sizes that are met once, a static program those that come again.

Everything behind this file is static, so that a program of the engine is for one set of sizes, and compiling one takes from a tenth of a
second to several. The graph itself, ATen operators with symbols for sizes, serves any size at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import threading
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.graph import _BoxedCodeGen

from anycann.adapters.torch.graph.compiled_graph import CompiledGraph, Watch
from anycann.adapters.torch.graph.written import called

AT_MEETING = 3  # a set of sizes is compiled when it is met so often; the first that a graph meets at once
MOST_COMPILED = 32  # sets of sizes that a graph has programs for, each with weights of its own; PyTorch computes the others
MOST_COUNTED = 1024  # sets of sizes whose meetings are counted; those that came first are forgotten
Sizes = tuple[Any, ...]


class OpenGraph:
    """Runs one graph with symbolic sizes. The positions `fixed` are as for `CompiledGraph`. Threads may call it at once."""

    def __init__(self, module: torch.fx.GraphModule, kind: str, fixed: Sequence[int] = (), watch: Watch | None = None):
        self._boxed_call = True
        self._module, self._kind, self._fixed, self._watch = module, kind, fixed, watch
        self._graphs: dict[Sizes, CompiledGraph] = {}
        self._met: dict[Sizes, int] = {}
        self._in_pytorch: Callable[[list[Any]], Any] | None = None
        self._lock = threading.RLock()

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        """The outputs for the inputs; the list of inputs is emptied."""
        sizes = tuple(tuple(arg.shape) if isinstance(arg, torch.Tensor) else arg for arg in args)
        run = self._graphs.get(sizes) or self._run_for(sizes, args)
        return run(args)

    def _run_for(self, sizes: Sizes, args: Sequence[Any]) -> Callable[[list[Any]], Sequence[Any]]:
        """What computes sizes that have no program yet."""
        with self._lock:
            if not self._is_to_be_compiled(sizes):
                self._in_pytorch = self._in_pytorch or boxed(self._module)
                return self._in_pytorch
            if sizes not in self._graphs:
                self._graphs[sizes] = CompiledGraph(static(self._module, args), self._kind, self._fixed, self._watch)
            return self._graphs[sizes]

    def _is_to_be_compiled(self, sizes: Sizes) -> bool:
        """Counts this meeting; whether it is the one at which sizes get their program."""
        met = self._met.get(sizes, 0) + 1
        if sizes not in self._met and len(self._met) >= MOST_COUNTED:
            del self._met[next(iter(self._met))]
        self._met[sizes] = met
        return not self._graphs or (met >= AT_MEETING and len(self._graphs) < MOST_COMPILED)


def boxed(module: torch.fx.GraphModule) -> Callable[[list[Any]], Any]:
    """The graph as a function of PyTorch's operators that takes a list, which it empties, so that inputs are freed after their last use."""
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    for node in graph.nodes:
        node.target = called(node)
    graph.set_codegen(_BoxedCodeGen())
    function: Callable[[list[Any]], Any] = torch.fx.GraphModule(module, graph).forward
    return function


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

"""A partitioned graph as one Python function: tensors are made, native programs called with addresses, PyTorch's operators called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import operator
from typing import Any

import torch
from torch.fx import Node

from anycann.adapters.torch.graph.engine_part import EnginePart
from anycann.adapters.torch.graph.partition import Part, views_between
from anycann.frontends.torch_fx.translate import Port

Run = Callable[[list[Any]], list[Any]]
_VIEWS_OF_SHAPE = ("aten.view.default", "aten._unsafe_view.default")  # of tensors that may lie otherwise than their fakes say


def written(graph: torch.fx.Graph, parts: Sequence[Part], compiled: Mapping[int, EnginePart], constants: Sequence[Node]) -> Run:
    """A function of a list of the graph's inputs (emptied, so that they can be freed) that gives a list of its outputs.

    compiled: by number of part. constants: inputs that nobody reads, being known.
    """
    writer = _Writer(graph, constants)
    for number, part in enumerate(parts):
        if part.engine:
            writer.engine(part, compiled[number], number)
        else:
            writer.pytorch(part)
    return writer.finish()


class _Writer:
    """Lines of the function, and what they name."""

    def __init__(self, graph: torch.fx.Graph, constants: Sequence[Node]):
        self._graph = graph
        self._names: dict[Node, str] = {}
        self._space: dict[str, Any] = {"empty_strided": torch.empty_strided, "as_port": _as_port}
        self._lines: list[tuple[str, list[Node]]] = []  # with what is made before, and read there
        self._given = [node for node in graph.nodes if node.op == "placeholder"]
        self._known: set[Node] = set()
        self._laid_out: set[Node] = set()  # those that lie as their ports say
        for number, node in enumerate(self._given):
            self._names[node] = f"_a{number}" if node not in constants else "_"
            self._known.add(node)

    # ---- parts
    def engine(self, part: Part, compiled: EnginePart, number: int) -> None:
        """Make the results, and call the native program with addresses."""
        for node, port in zip(part.inputs, compiled.inputs, strict=True):
            self._lay_out(node, port)
        for node, port in zip(part.outputs, compiled.outputs, strict=True):
            self._line(f"{self._name(node)} = {self._new(node, port)}", [])
            self._known.add(node)
            self._laid_out.add(node)
        self._space[f"part{number}"] = compiled.run_at if compiled.takes_addresses else compiled.run
        form = "{}.data_ptr()" if compiled.takes_addresses else "{}"
        inputs, outputs = (_tuple(form.format(self._name(node)) for node in nodes) for nodes in (part.inputs, part.outputs))
        self._line(f"part{number}({inputs}, {outputs})", [*part.inputs, *part.outputs])

    def pytorch(self, part: Part) -> None:
        """Call operators one after the other."""
        for node in part.nodes:
            self._make_known(node.all_input_nodes)
            self._call(node)
            for user in node.users:
                if user.target is operator.getitem and user.users:
                    self._call(user)

    def finish(self) -> Run:
        """The function."""
        results = self._graph.output_node().args[0]
        wanted = [node for node in results if isinstance(node, Node)]
        self._make_known(wanted)
        self._line(f"return [{', '.join(self._text(result) for result in results)}]", wanted)
        source = "\n    ".join(
            ["def run(args):", f"[{', '.join(self._names[n] for n in self._given)}] = args", "args.clear()", *self._freed()]
        )
        exec(compile(source, "<graph compiled by anycann>", "exec"), self._space)
        run: Run = self._space["run"]
        run.source = source  # type: ignore[attr-defined]
        return run

    # ---- lines
    def _make_known(self, nodes: Sequence[Node]) -> None:
        """Views are made where they are read first."""
        for view in views_between(nodes, self._known):
            self._call(view)

    def _call(self, node: Node) -> None:
        self._known.add(node)
        if node.target is operator.getitem:
            self._line(f"{self._name(node)} = {self._text(node.args[0])}[{node.args[1]}]", node.all_input_nodes)
            return
        arguments = [self._text(argument) for argument in node.args]
        arguments += [f"{key}={self._text(value)}" for key, value in node.kwargs.items()]
        self._line(f"{self._name(node)} = {self._named(called(node))}({', '.join(arguments)})", node.all_input_nodes)

    def _lay_out(self, node: Node, port: Port) -> None:
        """Make sure that an input lies as the program reads it."""
        if node in self._laid_out:
            return
        name = self._name(node)
        if port.order is None:
            self._line(f"if not {name}.is_contiguous(): {name} = {name}.contiguous()", [node])
        else:
            strides = tuple(node.meta["val"].stride())
            self._line(f"if {name}.stride() != {strides}: {name} = as_port({name}, {self._named(port)})", [node])

    def _new(self, node: Node, port: Port) -> str:
        fake = node.meta["val"]
        stride = fake.stride() if port.order is not None else torch._prims_common.make_contiguous_strides_for(fake.shape)
        where = "" if fake.device.type == "cpu" else f", device={self._named(fake.device)}"
        return f"empty_strided({tuple(fake.shape)}, {tuple(stride)}, dtype={self._named(fake.dtype)}{where})"

    def _line(self, text: str, reads: Sequence[Node]) -> None:
        self._lines.append((text, list(reads)))

    def _freed(self) -> list[str]:
        """The lines, each tensor let go of after the line that reads it last."""
        last = {node: number for number, (_, reads) in enumerate(self._lines) for node in reads}
        freed: dict[int, list[str]] = {}
        for node, number in last.items():
            freed.setdefault(number, []).append(self._names[node])
        unread = [self._names[node] for node in self._given if node not in last and self._names[node] != "_"]
        lines = [f"del {', '.join(unread)}"] if unread else []
        for number, (text, _) in enumerate(self._lines):
            lines.append(text)
            if number in freed and number + 1 < len(self._lines):
                lines.append(f"del {', '.join(dict.fromkeys(freed[number]))}")
        return lines

    # ---- names
    def _name(self, node: Node) -> str:
        return self._names.setdefault(node, f"v{len(self._names)}")

    def _text(self, value: Any) -> str:
        """An argument as Python."""
        if isinstance(value, Node):
            return self._name(value) if value.op != "get_attr" else self._named(attribute(value))
        if isinstance(value, tuple):
            return _tuple(self._text(item) for item in value)
        if isinstance(value, list):
            return f"[{', '.join(self._text(item) for item in value)}]"
        return repr(value) if value is None or type(value) in (bool, int, str) else self._named(value)

    def _named(self, value: Any) -> str:
        name = f"c{id(value)}"
        self._space[name] = value
        return name


def called(node: Node) -> Any:
    """What is called for a node: views become reshapes, which copy tensors that lie otherwise than the view needs."""
    return torch.ops.aten.reshape.default if str(node.target) in _VIEWS_OF_SHAPE else node.target


def attribute(node: Node) -> Any:
    """What a `get_attr` node names."""
    found: Any = node.graph.owning_module
    for name in str(node.target).split("."):
        found = getattr(found, name)
    return found


def _as_port(tensor: torch.Tensor, port: Port) -> torch.Tensor:
    """The tensor, copied so that it lies as `port` says."""
    assert port.order is not None
    inverse = [port.order.index(axis) for axis in range(len(port.order))]
    return tensor.permute(port.order).contiguous().permute(inverse)


def _tuple(texts: Any) -> str:
    items = list(texts)
    return f"({', '.join(items)},)" if items else "()"

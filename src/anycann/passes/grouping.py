"""Fusion: nodes that one kernel computes. A node joins the group of a producer if both fit into one loop nest.

conv -> Add -> Sigmoid -> Mul            one group: the convolution with its elementwise tail
ReduceMean -> Sub -> Pow -> ReduceMean   one group: two reductions and the writes, row by row
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
import math

import onnx_ir as ir

from anycann.graph.registry import NotLowered, Registry
from anycann.passes.partition import AICORE, Engine, lower_node
from anycann.te import tensor as te
from anycann.te.contractions import Recurrent, WeightGradient
from anycann.te.expression import Load, Op, Var
from anycann.te.nest import CannotFuse, Nest, build_nest, contractions, reductions
from anycann.te.routines import Routine
from anycann.te.tensor import Compute, Contraction, Reduction, Tensor
from anycann.te.traversal import walk

SERIAL_LIMIT = 1 << 18  # element operations a group may do on one thread because its reduction has too few rows to split
ROWS_TO_SPLIT = 8


@dataclass(eq=False)
class Group:
    """Nodes of one kernel, in order. `skipped`: (node name, why it did not join), for --explain.

    alone: a recurrent layer, a routine or a gradient of weights, which nothing joins; its results are row-major.
    """

    nodes: list[ir.Node]
    skipped: list[tuple[str, str]] = field(default_factory=list)
    alone: bool = False

    @property
    def outputs(self) -> list[ir.Value]:
        """Values used outside the group."""
        inside = set(self.nodes)
        return [
            value
            for node in self.nodes
            for value in node.outputs
            if value.is_graph_output() or any(use.node not in inside for use in value.uses())
        ]

    @property
    def inputs(self) -> list[ir.Value]:
        """Values made elsewhere."""
        own = {value for node in self.nodes for value in node.outputs}
        found = {v: None for node in self.nodes for v in node.inputs if v is not None and v not in own}
        return list(found)


def group_nodes(graph: ir.Graph, engines: dict[ir.Node, Engine], registry: Registry, fuse: bool = True) -> dict[ir.Node, Group]:
    """The group of every AiCore node."""
    if fuse:
        _one_for_each_reader(graph, engines)
    return _Grouper(engines, registry, fuse).run(graph)


def _one_for_each_reader(graph: ir.Graph, engines: dict[ir.Node, Engine]) -> None:
    """Dequantising costs less than keeping the result: every reader of a DequantizeLinear gets its own."""
    for node in list(graph):
        uses = list(node.outputs[0].uses()) if node.op_type == "DequantizeLinear" else []
        for use in uses[1:]:
            copy = ir.Node(
                node.domain, node.op_type, list(node.inputs), list(node.attributes.values()), name=f"{node.name}/{use.node.name}"
            )
            copy.outputs[0].name, copy.outputs[0].type = f"{node.outputs[0].name}/{use.node.name}:{use.idx}", node.outputs[0].type
            copy.outputs[0].shape = node.outputs[0].shape
            graph.insert_after(node, copy)
            engines[copy] = engines[node]
            use.node.replace_input_with(use.idx, copy.outputs[0])


class _Grouper:
    def __init__(self, engines: dict[ir.Node, Engine], registry: Registry, fuse: bool):
        self.engines, self.registry, self.fuse = engines, registry, fuse
        self.of: dict[ir.Node, Group] = {}
        self.waiting: set[ir.Node] = set()  # nodes that join the group of their only reader

    def run(self, graph: ir.Graph) -> dict[ir.Node, Group]:
        for node in graph:
            if self.engines[node].kind != AICORE:
                continue
            if self.fuse and self._waits(node):
                self.waiting.add(node)
            else:
                self._place(node)
        return self.of

    def _waits(self, node: ir.Node) -> bool:
        """True for a DequantizeLinear that its only reader computes from the integers."""
        readers = [use.node for use in node.outputs[0].uses()] if node.op_type == "DequantizeLinear" else []
        if len(readers) != 1 or node.outputs[0].is_graph_output() or readers[0].op_type == "Concat" or readers[0] not in self.engines:
            return False
        if self.engines[readers[0]].kind != AICORE:
            return False
        return not contractions(lower_node(readers[0], self.registry, {}))

    def _companions(self, node: ir.Node) -> list[ir.Node]:
        """The waiting producers of a node, which may join whatever it joins; those that it would compute often get a kernel now."""
        found = [p for p in dict.fromkeys(v.producer() for v in node.inputs if v is not None) if p in self.waiting]
        kept = []
        for producer in found:
            assert producer is not None
            self.waiting.discard(producer)
            alone = Group([producer])
            if self._why_not(alone, node) is None:
                kept.append(producer)
            else:
                self._place(producer)
        return kept

    def _place(self, node: ir.Node) -> None:
        companions = self._companions(node)
        anchors = contractions(lower_node(node, self.registry, {}))  # a convolution or product reads its operands from memory
        for group in self._candidates(node, companions) if self.fuse and not anchors else ():
            reason = self._why_not(group, node, companions)
            if reason is None:
                self._join(group, [*companions, node])
                return
            group.skipped.append((node.name or "", reason))
        alone = any(isinstance(anchor.operator, Recurrent | Routine | WeightGradient) for anchor in anchors)
        self._join(Group([], alone=alone), [*companions, node])

    def _join(self, group: Group, nodes: Sequence[ir.Node]) -> None:
        group.nodes += nodes
        self.of |= dict.fromkeys(nodes, group)

    def _candidates(self, node: ir.Node, companions: Sequence[ir.Node]) -> list[Group]:
        """Groups of the producers, the latest first."""
        producers = [v.producer() for v in node.inputs if v is not None]
        producers += [v.producer() for companion in companions for v in companion.inputs if v is not None and len(v.uses()) == 1]
        found = {self.of[p]: None for p in producers if p in self.of}
        return list(reversed(list(found)))

    def _why_not(self, group: Group, node: ir.Node, companions: Sequence[ir.Node] = ()) -> str | None:
        if node.op_type == "Concat" or group.nodes[-1].op_type == "Concat":
            return "a concatenation is written piece by piece"
        if group.alone:
            return "a recurrent layer, a routine and a gradient of weights are kernels of their own"
        if self._reaches(group, [*companions, node]):
            return "another operand depends on the group"
        trial = Group([*group.nodes, *companions, node])
        try:
            tensors = group_tensors(trial, self.registry)
            added = lower_node(node, self.registry, dict(tensors))
            nest = build_nest([tensors[v] for v in trial.outputs])
        except (CannotFuse, NotLowered) as why:
            return str(why)
        anchors = contractions([tensors[v] for v in trial.outputs])
        if anchors:
            return _anchor_problem(anchors, nest, added)
        return _read_problem(node, added, tensors, nest) or _reduction_problem(nest, [tensors[v] for v in trial.outputs])

    def _reaches(self, group: Group, nodes: Sequence[ir.Node]) -> bool:
        """True if an operand of nodes made outside the group depends on the group: joining would make a cycle."""
        inside = {*group.nodes, *nodes}
        stack = [p for node in nodes for v in node.inputs if v is not None and (p := v.producer()) is not None and p not in inside]
        seen: set[ir.Node] = set()
        while stack:
            current = stack.pop()
            if current in seen:
                continue
            seen.add(current)
            if current in inside:
                return True
            members = self.of[current].nodes if current in self.of else [current]
            for member in members:
                seen.add(member)
                stack += [p for v in member.inputs if v is not None and (p := v.producer()) is not None and p not in members]
        return False


def group_tensors(group: Group, registry: Registry) -> dict[ir.Value, Tensor]:
    """Every value of the group as a tensor expression over placeholders of what comes from outside."""
    known: dict[ir.Value, Tensor] = {}
    for node in group.nodes:
        for value, tensor in zip(node.outputs, lower_node(node, registry, known), strict=False):
            known[value] = _computed(tensor)
    return known


def _computed(tensor: Tensor) -> Tensor:
    """A tensor that can be written: a placeholder or a bare contraction gets an identity around it."""
    if isinstance(tensor, Compute | Reduction):
        return tensor
    return te.compute(tensor.shape, lambda *index: tensor[index])


def _anchor_problem(anchors: Sequence[Contraction], nest: Nest, added: Sequence[Tensor]) -> str | None:
    if len(anchors) > 1:
        return "a kernel computes one convolution or matrix product"
    if any(not isinstance(t, Compute) for t in added):
        return "a reduction follows a convolution or matrix product"
    for stage in nest.stages:
        for expr in walk(stage.body):
            if isinstance(expr, Load) and expr.tensor is anchors[0] and not _is_own_place(expr, nest.outer):
                return "the product is read at other places than it is written"
    return None


def _is_own_place(load: Load, outer: Sequence[Var]) -> bool:
    """Whether every axis of the tensor is read at its own loop, in order."""
    axes = [(index, extent) for index, extent in zip(load.indices, load.tensor.shape, strict=True) if extent != 1]
    return [index for index, _ in axes] == list(outer) and [extent for _, extent in axes] == [loop.extent for loop in outer]


def _read_problem(node: ir.Node, added: Sequence[Tensor], tensors: dict[ir.Value, Tensor], nest: Nest) -> str | None:
    """Joining must not compute elements of the group many times over; what is made of a row's reduction is computed once a row."""
    rows = math.prod(v.extent for v in nest.outer)
    for operand in node.inputs:
        inner = None if operand is None else tensors.get(operand)
        if operand is None or not isinstance(inner, Compute | Reduction) or (inner.size == rows and reductions([inner])):
            continue
        reads = sum(_reads(tensor, inner) for tensor in added)
        if reads > 1.5 * max(1, inner.size) and _cost(inner) > 1:
            return f"it reads each element of {operand.name!r} {reads / max(1, inner.size):.0f} times"
    return None


def _reads(tensor: Tensor, inner: Tensor) -> float:
    """How often `tensor` evaluates elements of `inner`, as one stage (stages of one row are weighed in _reduction_problem)."""
    most = 0.0
    seen: set[int] = set()
    stack = [tensor]
    while stack:
        current = stack.pop()
        if id(current) in seen or current is inner or not isinstance(current, Compute | Reduction):
            continue
        seen.add(id(current))
        times = current.size * (math.prod(v.extent for v in current.reduce_axes) if isinstance(current, Reduction) else 1)
        places = {tuple(id(i) for i in e.indices) for e in walk(current.body) if isinstance(e, Load) and e.tensor is inner}
        most = max(most, float(times * len(places)))
        stack += [e.tensor for e in walk(current.body) if isinstance(e, Load)]
    return most


_HEAVY = frozenset({"exp", "log", "tanh", "erf", "sigmoid", "pow", "sin", "cos", "softplus"})


def _cost(tensor: Tensor) -> int:
    """Operations of one element, with everything it is computed from."""
    if not isinstance(tensor, Compute | Reduction):
        return 0
    total = 0
    for expr in walk(tensor.body):
        total += (8 if expr.name in _HEAVY else 1) if isinstance(expr, Op) else 0
        total += _cost(expr.tensor) if isinstance(expr, Load) and isinstance(expr.tensor, Compute) else 0
        total += 1 if isinstance(expr, Load) and isinstance(expr.tensor, Reduction) else 0
    return total


def _reduction_problem(nest: Nest, outputs: Sequence[Tensor]) -> str | None:
    """A nest with a reduction must have rows to split, or be small."""
    if not any(stage.over for stage in nest.stages):
        return None
    rows = math.prod(v.extent for v in nest.outer)
    work = rows * sum(math.prod(v.extent for v in stage.over) for stage in nest.stages)
    if rows < ROWS_TO_SPLIT and work > SERIAL_LIMIT and any(isinstance(t, Compute) for t in outputs):
        return f"its reduction has only {rows} rows to split over threads"
    return None

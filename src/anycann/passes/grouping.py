"""Fusion: nodes that one kernel computes. A node joins the group of a producer if both fit into one loop nest.

conv -> Add -> Sigmoid -> Mul            one group: the convolution with its elementwise tail
ReduceMean -> Sub -> Pow -> ReduceMean   one group: two reductions and the writes, row by row
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import onnx_ir as ir

from anycann.graph.registry import NotLowered, Registry
from anycann.passes.fusion_limits import MOST_NODES, check_kernel
from anycann.passes.partition import AICORE, Engine, lower_node
from anycann.support.records import dataclass
from anycann.te import tensor as te
from anycann.te.contractions import Recurrent, WeightGradient
from anycann.te.nest import CannotFuse, build_nest, contractions
from anycann.te.routines import Routine
from anycann.te.tensor import Compute, Reduction, Tensor


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
        self.tensors: dict[Group, dict[ir.Value, Tensor]] = {}
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
            try:
                self._joined(Group([producer]), [node])
            except CannotFuse:
                self._place(producer)
            else:
                kept.append(producer)
        return kept

    def _place(self, node: ir.Node) -> None:
        nodes = [*self._companions(node), node]
        anchors = contractions(lower_node(node, self.registry, {}))  # a convolution or product reads its operands from memory
        for group in self._candidates(node, nodes[:-1]) if self.fuse and not anchors else ():
            try:
                tensors = self._joined(group, nodes)
            except CannotFuse as why:
                group.skipped.append((node.name or "", str(why)))
            else:
                self._join(group, nodes)
                self.tensors[group] = tensors
                return
        alone = any(isinstance(anchor.operator, Recurrent | Routine | WeightGradient) for anchor in anchors)
        self._join(Group([], alone=alone), nodes)

    def _join(self, group: Group, nodes: Sequence[ir.Node]) -> None:
        group.nodes += nodes
        self.of |= dict.fromkeys(nodes, group)

    def _candidates(self, node: ir.Node, companions: Sequence[ir.Node]) -> list[Group]:
        """Groups of the producers, the latest first."""
        producers = [v.producer() for v in node.inputs if v is not None]
        producers += [v.producer() for companion in companions for v in companion.inputs if v is not None and len(v.uses()) == 1]
        found = {self.of[p]: None for p in producers if p in self.of}
        return list(reversed(list(found)))

    def _joined(self, group: Group, nodes: Sequence[ir.Node]) -> dict[ir.Value, Tensor]:
        """The tensors of `group` with `nodes`, its companions before a node. Raises CannotFuse if they are better apart."""
        node = nodes[-1]
        if node.op_type == "Concat" or group.nodes[-1].op_type == "Concat":
            raise CannotFuse("a concatenation is written piece by piece")
        if group.alone:
            raise CannotFuse("a recurrent layer, a routine and a gradient of weights are kernels of their own")
        if len(group.nodes) + len(nodes) > MOST_NODES:
            raise CannotFuse(f"a kernel computes at most {MOST_NODES} nodes")
        if self._reaches(group, nodes):
            raise CannotFuse("another operand depends on the group")
        tensors = dict(self._tensors(group))
        try:
            added = _lower(nodes, self.registry, tensors)
        except NotLowered as why:
            raise CannotFuse(str(why)) from why
        outputs = [tensors[value] for value in Group([*group.nodes, *nodes]).outputs]
        check_kernel(node, added, tensors, outputs, build_nest(outputs))
        return tensors

    def _tensors(self, group: Group) -> dict[ir.Value, Tensor]:
        """`group_tensors`, kept: lowering all of a group for every node that joins would take the square of their number."""
        if group not in self.tensors:
            self.tensors[group] = group_tensors(group, self.registry)
        return self.tensors[group]

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
    _lower(group.nodes, registry, known)
    return known


def _lower(nodes: Sequence[ir.Node], registry: Registry, known: dict[ir.Value, Tensor]) -> list[Tensor]:
    """Add what nodes compute to the `known` tensors; the results of the last one as its operator gives them. Raises NotLowered."""
    lowered: list[Tensor] = []
    for node in nodes:
        lowered = lower_node(node, registry, known)
        known.update((value, _computed(tensor)) for value, tensor in zip(node.outputs, lowered, strict=False))
    return lowered


def _computed(tensor: Tensor) -> Tensor:
    """A tensor that can be written: a placeholder or a bare contraction gets an identity around it."""
    if isinstance(tensor, Compute | Reduction):
        return tensor
    return te.compute(tensor.shape, lambda *index: tensor[index])

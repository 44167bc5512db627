"""Values that kernels hand each other are stored as bfloat16 where the precision mode rounds them to it and the processor multiplies it.

group: Conv, Relu -> v        group: Conv, Relu, Cast -> v (bfloat16)
group: Add(v, ..)             group: Cast, Add(..)                  a product reads v itself, and widens nothing

A value stays float32 where something else than a kernel reads it, and where it is cut or joined in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import onnx_ir as ir

from anycann.graph.registry import NotLowered, Registry, static_type
from anycann.passes.grouping import Group
from anycann.passes.partition import AICORE, VIEW, Engine, captured_values, lower_node
from anycann.te import dtypes
from anycann.te.contractions import Convolution, MatMul
from anycann.te.nest import contractions

Use: TypeAlias = tuple[ir.Node, int]  # a node, and the number of the operand that it reads
_IN_PLACE = frozenset({"Concat", "Split", "Slice"})


def narrow_values(graph: ir.Graph, engines: dict[ir.Node, Engine], groups: dict[ir.Node, Group], registry: Registry) -> None:
    """Store float32 results of kernels as bfloat16, in place: Casts join the groups that make and read them."""
    captured = {value for node in graph for value in captured_values(node)}
    narrower = _Narrower(engines, groups, registry, captured)
    for group in dict.fromkeys(groups[node] for node in graph if node in groups):
        for value in group.outputs:
            if narrower.may_narrow(group, value):
                narrower.narrow(graph, group, value)


class _Narrower:
    def __init__(self, engines: dict[ir.Node, Engine], groups: dict[ir.Node, Group], registry: Registry, captured: set[ir.Value]):
        self.engines, self.groups, self.registry, self.captured = engines, groups, registry, captured

    def may_narrow(self, group: Group, value: ir.Value) -> bool:
        """True if only kernels read the value, all of which can widen it or multiply it as it is."""
        type_ = static_type(value)
        if group.alone or type_ is None or type_.dtype is not dtypes.float32 or len(type_.shape) < 2:
            return False
        if any(node.op_type in _IN_PLACE for node in group.nodes):
            return False
        return all(self._reads_narrow(use) for use in self._uses(value)) and not self._kept(value)

    def _uses(self, value: ir.Value) -> Iterator[Use]:
        """Who reads the elements of a value, in it or in views of it."""
        for use in value.uses():
            if use[0] in self.engines and self.engines[use[0]].kind == VIEW and use[1] == 0:
                yield from self._uses(use[0].outputs[0])
            else:
                yield use

    def _kept(self, value: ir.Value) -> bool:
        """True if the value or a view of it is wanted as it is."""
        views = [u[0].outputs[0] for u in value.uses() if u[0] in self.engines and self.engines[u[0]].kind == VIEW]
        return value.is_graph_output() or value in self.captured or any(self._kept(view) for view in views)

    def _reads_narrow(self, use: Use) -> bool:
        node, _ = use
        if node not in self.engines or self.engines[node].kind != AICORE or node.op_type in _IN_PLACE or self.groups[node].alone:
            return False
        products = self._products(node)
        return products is not None and (not products or self._multiplies(use, products[0]))

    def _multiplies(self, use: Use, product: object) -> bool:
        """True for the first operand of a product with known weights."""
        weights = use[0].inputs[1] if len(use[0].inputs) > 1 else None
        known = weights is not None and weights.const_value is not None
        return isinstance(product, Convolution | MatMul) and use[1] == 0 and known

    def _products(self, node: ir.Node) -> list[object] | None:
        try:
            return [each.operator for each in contractions(lower_node(node, self.registry, {}))]
        except NotLowered:
            return None

    def narrow(self, graph: ir.Graph, group: Group, value: ir.Value) -> None:
        """Cast at the end of the group that makes the value, and where it is read."""
        inside = set(group.nodes)
        outer = [use for use in value.uses() if use[0] not in inside]
        multiplying = {node for node, _ in self._uses(value) if self._products(node)}  # asked while the operands still agree
        stored = self._cast(graph, value, ir.DataType.BFLOAT16, "stored", group)
        producer = value.producer()
        assert producer is not None
        graph.insert_after(producer, stored)
        group.nodes.append(stored)
        self._hand_on(graph, outer, stored.outputs[0], multiplying)

    def _hand_on(self, graph: ir.Graph, uses: Sequence[Use], stored: ir.Value, multiplying: set[ir.Node]) -> None:
        """Let readers have the stored value: views and products as it is, others by a Cast in their group."""
        wide: dict[Group, ir.Value] = {}
        for use in uses:
            node, number = use
            if self.engines[node].kind == VIEW:
                node.replace_input_with(number, stored)
                view = node.outputs[0]
                view.type = ir.TensorType(ir.DataType.BFLOAT16)
                self._hand_on(graph, list(view.uses()), view, multiplying)
                continue
            if node in multiplying:
                node.replace_input_with(number, stored)
                continue
            group = self.groups[node]
            if group not in wide:
                cast = self._cast(graph, stored, ir.DataType.FLOAT, f"read/{node.name}", group)
                graph.insert_before(_first(graph, group), cast)
                group.nodes.insert(0, cast)
                wide[group] = cast.outputs[0]
            node.replace_input_with(number, wide[group])

    def _cast(self, graph: ir.Graph, value: ir.Value, dtype: ir.DataType, name: str, group: Group) -> ir.Node:
        node = ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(dtype))], name=f"{value.name}/{name}")
        node.outputs[0].name, node.outputs[0].type, node.outputs[0].shape = f"{value.name}/{name}", ir.TensorType(dtype), value.shape
        self.engines[node], self.groups[node] = Engine(AICORE), group
        return node


def _first(graph: ir.Graph, group: Group) -> ir.Node:
    members = set(group.nodes)
    return next(node for node in graph if node in members)

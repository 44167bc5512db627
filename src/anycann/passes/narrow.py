"""Values that kernels hand each other are stored as bfloat16 where the precision mode rounds them to it and the processor multiplies it.

group: Conv, Relu -> v        group: Conv, Relu, Cast -> v (bfloat16)
group: Add(v, ..)             group: Cast, Add(..)                  a product reads v itself, and widens nothing
Concat(v, w) -> c             Concat(v, w) -> c                     what is only moved is bfloat16 on both sides, or on none

A value stays float32 where something else than a kernel reads it. Attention by matrix tiles multiplies too; its query, key and value are
narrow together or not at all. Images are narrow wherever they are read. Of sequences and matrices
only products read a narrow copy: the sums along a transformer's residual connections, and what normalises them, keep 24 bits. The error
of BERT is 0.004 so and was 0.010, for two bytes an element.

group: Recurrent -> v          v has to stay float32 (a kernel that nothing joins makes it, the model shows it, the host reads it):
group: Recurrent(v, ..)        group: Cast -> c, for the products and the attention that read v
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import TypeAlias

import onnx_ir as ir

from anycann.graph.registry import NotLowered, Registry, static_type
from anycann.passes.grouping import Group
from anycann.passes.partition import AICORE, VIEW, Engine, captured_values, lower_node
from anycann.passes.precision import Kept, is_exact, kept_operators
from anycann.te import dtypes
from anycann.te.contractions import Attention, Convolution, MatMul, Recurrent
from anycann.te.nest import contractions

Use: TypeAlias = tuple[ir.Node, int]  # a node, and the number of the operand that it reads
IMAGE_RANK = 4
_ATTENDED = 3  # operands of an attention that are multiplied
_LEAST_USES = 32  # multiplications with an element that pay for its copy
_MOVED_OPERANDS = {"Concat": None, "Split": 1, "Slice": 1, "Transpose": 1}  # how many of the first operands are moved; None: all


def narrow_values(
    graph: ir.Graph,
    engines: dict[ir.Node, Engine],
    groups: dict[ir.Node, Group],
    registry: Registry,
    attends: Callable[[Attention], bool] = lambda operator: False,
) -> None:
    """Store float32 results of kernels as bfloat16, in place: Casts join the groups that make and read them.

    attends: whether an attention multiplies bfloat16 faster than float32.
    """
    captured = {value for node in graph for value in captured_values(node)}
    narrower = _Narrower(engines, groups, registry, captured, kept_operators(graph), attends)
    found = [values for values in narrower.families(graph) if all(narrower.may_narrow(value) for value in values)]
    multiplying = {node for values in found for value in values for node, _ in value.uses() if narrower.products(node)}
    for values in found:
        image = any(len(value.shape or ()) >= IMAGE_RANK for value in values)
        if image or any(node in multiplying for value in values for node, _ in value.uses()):
            for value in values:
                narrower.narrow(graph, value, multiplying, both=not image)
    narrower.copy_what_stayed_wide(graph)


class _Narrower:
    def __init__(
        self,
        engines: dict[ir.Node, Engine],
        groups: dict[ir.Node, Group],
        registry: Registry,
        captured: set[ir.Value],
        kept: Kept,
        attends: Callable[[Attention], bool],
    ):
        self.engines, self.groups, self.registry, self.captured, self.attends = engines, groups, registry, captured, attends
        self.kept = kept
        self._products: dict[ir.Node, list[object] | None] = {}

    def families(self, graph: ir.Graph) -> list[list[ir.Value]]:
        """The values that kernels make and others see, those together that are one another's elements: views of them, cut, or joined."""
        family: dict[ir.Value, list[ir.Value]] = {}
        for node in graph:
            for value in self._stored(node):
                family.setdefault(value, [value])
            together = [value for value in (*self._moved(node), *node.outputs) if value is not None] if self._moves(node) else []
            together = together or self._attended(node)
            for value in together:
                _join(family, together[0], value)
        return list({id(values): values for values in family.values()}.values())

    def _stored(self, node: ir.Node) -> Sequence[ir.Value]:
        """The outputs of a node that are kept in memory."""
        return [value for value in node.outputs if node in self.groups and value in self.groups[node].outputs]

    def _attended(self, node: ir.Node) -> list[ir.Value]:
        """The query, key and value of an attention that multiplies them as bfloat16."""
        products = self.products(node) if self.engines.get(node) == Engine(AICORE) else None
        attention = products[0] if products else None
        if not isinstance(attention, Attention) or not self.attends(attention):
            return []
        return [value for value in node.inputs[:_ATTENDED] if value is not None]

    def _moves(self, node: ir.Node) -> bool:
        """True for a node that hands elements on as they are: a view, or the cutting or joining of values in a kernel of its own."""
        engine = self.engines.get(node)
        if engine is None or engine.kind == VIEW:
            return engine is not None
        if engine.kind != AICORE or node.domain or node.op_type not in _MOVED_OPERANDS or len(self.groups[node].nodes) > 1:
            return False
        return node.op_type != "Transpose" or self._is_of_kernel(node.inputs[0])

    def _is_of_kernel(self, value: ir.Value | None) -> bool:
        """True if a kernel that can end in a Cast makes the value; a Transpose of another one stores it narrow itself."""
        producer = None if value is None else value.producer()
        if producer in self.engines and self.engines[producer].kind == VIEW:
            return self._is_of_kernel(producer.inputs[0])
        return producer in self.groups and not self.groups[producer].alone

    def _moved(self, node: ir.Node) -> Sequence[ir.Value | None]:
        return node.inputs[: 1 if self.engines[node].kind == VIEW else _MOVED_OPERANDS[node.op_type]]

    def may_narrow(self, value: ir.Value) -> bool:
        """True if a kernel makes the value and only kernels read it, all of which can widen it or multiply it as it is."""
        type_, producer = static_type(value), value.producer()
        if type_ is None or type_.dtype is not dtypes.float32 or producer is None or value.is_graph_output() or value in self.captured:
            return False
        if not self._moves(producer) and (producer not in self.groups or self.groups[producer].alone or len(type_.shape) < 2):
            return False
        return not is_exact(value) and all(self._reads_narrow(use) for use in value.uses())

    def _reads_narrow(self, use: Use) -> bool:
        node, number = use
        if node not in self.engines or node in self.kept:
            return False
        if self._moves(node):
            return node.inputs[number] in self._moved(node)
        if self.engines[node].kind != AICORE:
            return False
        products = self.products(node)
        if products is None or (not products and self.groups[node].alone):
            return False
        return not products or self._multiplies(use, products[0])

    def _multiplies(self, use: Use, product: object) -> bool:
        """True for the first operand of a product with known weights, and of a recurrent layer, which begins with one, and for what an
        attention multiplies."""
        weights = use[0].inputs[1] if len(use[0].inputs) > 1 else None
        known = weights is not None and weights.const_value is not None
        if isinstance(product, Recurrent):
            type_ = static_type(use[0].inputs[0]) if use[1] == 0 and use[0].inputs[0] is not None else None
            return type_ is not None and 0 not in type_.shape and type_.shape[-1] > 1
        if isinstance(product, Attention):
            return use[1] < _ATTENDED and self.attends(product)
        return isinstance(product, Convolution | MatMul) and use[1] == 0 and known

    def products(self, node: ir.Node) -> list[object] | None:
        """The products that a node is; None if no kernel computes it. Asked before anything changes, while operands agree."""
        if node not in self._products:
            try:
                self._products[node] = [each.operator for each in contractions(lower_node(node, self.registry, {}))]
            except NotLowered:
                self._products[node] = None
        return self._products[node]

    def narrow(self, graph: ir.Graph, value: ir.Value, multiplying: set[ir.Node], both: bool) -> None:
        """What moves it gives the narrow type to its outputs; another kernel gets a Cast at its end, and where the value is read.

        both: those that neither multiply nor move it go on reading what it was.
        """
        producer = value.producer()
        assert producer is not None
        if self._moves(producer):
            value.type = ir.TensorType(ir.DataType.BFLOAT16)
            self._hand_on(graph, list(value.uses()), value, multiplying)
            return
        group = self.groups[producer]
        inside = set(group.nodes)
        outer = [use for use in value.uses() if use[0] not in inside and not (both and self._reads_wide(use[0], multiplying))]
        if not outer:
            return
        stored = self._cast(graph, value, ir.DataType.BFLOAT16, "stored", group)
        graph.insert_after(producer, stored)
        group.nodes.append(stored)
        self._hand_on(graph, outer, stored.outputs[0], multiplying)

    def copy_what_stayed_wide(self, graph: ir.Graph) -> None:
        """A kernel of its own gives products and attention a narrow copy of what is still float32, where they multiply enough for it."""
        copies: dict[ir.Value, ir.Value] = {}
        for node in list(graph):
            for value, number in self._multiplied_wide(node):
                if value not in copies:
                    apart = Group([])
                    cast = self._cast(graph, value, ir.DataType.BFLOAT16, "copied", apart)
                    graph.insert_before(node, cast)
                    apart.nodes.append(cast)
                    copies[value] = cast.outputs[0]
                node.replace_input_with(number, copies[value])

    def _multiplied_wide(self, node: ir.Node) -> list[tuple[ir.Value, int]]:
        """The float32 operands of a node that it would multiply as bfloat16: all that an attention multiplies, or none."""
        products = self.products(node) if self.engines.get(node) == Engine(AICORE) and node not in self.kept else None
        if not products or any(value is not None and is_exact(value) for value in node.inputs[:_ATTENDED]):
            return []
        if isinstance(products[0], Attention):
            numbers = range(len(self._attended(node)))
        else:
            numbers = range(int(self._multiplies((node, 0), products[0]) and _uses_of_an_element(products[0]) >= _LEAST_USES))
        found = [(node.inputs[number], number) for number in numbers]
        return [(value, number) for value, number in found if value is not None and value.dtype == ir.DataType.FLOAT]

    def _reads_wide(self, node: ir.Node, multiplying: set[ir.Node]) -> bool:
        return not self._moves(node) and node not in multiplying

    def _hand_on(self, graph: ir.Graph, uses: Iterable[Use], stored: ir.Value, multiplying: set[ir.Node]) -> None:
        """Let readers have the stored value: what moves it and products as it is, others by a Cast in their group."""
        wide: dict[Group, ir.Value] = {}
        for node, number in uses:
            if not self._reads_wide(node, multiplying):
                node.replace_input_with(number, stored)
                continue
            group = self.groups[node]
            if group not in wide:
                apart = Group([]) if _interpolates(node) else group
                cast = self._cast(graph, stored, ir.DataType.FLOAT, f"read/{node.name}", apart)
                graph.insert_before(_first(graph, group), cast)
                apart.nodes.insert(0, cast)
                wide[group] = cast.outputs[0]
            node.replace_input_with(number, wide[group])

    def _cast(self, graph: ir.Graph, value: ir.Value, dtype: ir.DataType, name: str, group: Group) -> ir.Node:
        node = ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(dtype))], name=f"{value.name}/{name}")
        node.outputs[0].name, node.outputs[0].type, node.outputs[0].shape = f"{value.name}/{name}", ir.TensorType(dtype), value.shape
        self.engines[node], self.groups[node] = Engine(AICORE), group
        return node


def _interpolates(node: ir.Node) -> bool:
    """True for what reads an element several times and by computed places, which no processor gathers 16 bits wide: it is widened before.

    Three bilinear enlargements of 256 planes to 64 x 64 took 7.6 ms, then 3.6 (`python -m benchmarks.layers`).
    """
    return node.op_type == "Resize" and node.attributes.get_string("mode", "nearest") != "nearest"


def _uses_of_an_element(product: object) -> float:
    """How many multiplications a product with known weights does with each element of its first operand."""
    if isinstance(product, Recurrent):
        weights = product.operands[1]
        return 0 if weights is None else prod(weights.shape[:-1])
    if isinstance(product, MatMul):
        return product.b.shape[-2 if product.transpose_b else -1]
    assert isinstance(product, Convolution)
    if product.transposed:
        return prod(product.w.shape[1:])
    return prod(product.w.shape) * prod(product.out_size) / max(1, prod(product.x.shape[1:]))


def _join(family: dict[ir.Value, list[ir.Value]], one: ir.Value, other: ir.Value) -> None:
    """Make the families of two values one."""
    ours, theirs = family.setdefault(one, [one]), family.setdefault(other, [other])
    if ours is theirs:
        return
    ours.extend(theirs)
    for value in theirs:
        family[value] = ours


def _first(graph: ir.Graph, group: Group) -> ir.Node:
    members = set(group.nodes)
    return next(node for node in graph if node in members)

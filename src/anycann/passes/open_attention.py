"""Attention among the nodes that the host would compute for moving sizes, told by its operators alone.

MatMul(query, [Transpose] key) -> [Mul or Div by a constant] -> [Add mask] -> Softmax over keys -> MatMul(.., value)

Nothing else reads what is between. Which sizes it is given is checked whenever it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

import onnx_ir as ir

from anycann.graph.registry import TensorType
from anycann.support.records import dataclass
from anycann.te import dtypes

Nodes: TypeAlias = tuple[ir.Node, ...]
TypeOf: TypeAlias = Callable[[ir.Value], TensorType | None]


@dataclass(frozen=True)
class AttentionPart:
    """softmax(scale * query @ key + mask) @ value over rows of `depth` and `width` numbers, and the nodes of which it is made, in order.

    operands: query, key [.., depth, keys], value, and the mask if there is one. turned: the key comes as [.., keys, depth].
    """

    nodes: Nodes
    operands: tuple[ir.Value, ...]
    depth: int
    width: int
    scale: float
    turned: bool


def find_attention(nodes: Sequence[ir.Node], kept: Collection[ir.Value], type_of: TypeOf) -> dict[ir.Node, AttentionPart]:
    """Attention among nodes, by its last one. kept: values that are read by more than nodes. type_of: a value's in one of the calls."""
    pattern = _Pattern(set(nodes), kept, type_of)
    return {node: part for node in nodes if (part := pattern.ending_in(node)) is not None}


def with_attention(nodes: Nodes, found: Mapping[ir.Node, AttentionPart]) -> list[Nodes | AttentionPart]:
    """Some nodes in their order, with attention that was found where its last one is."""
    inside = {node for attention in found.values() for node in attention.nodes}
    parts: list[Nodes | AttentionPart] = []
    others: list[ir.Node] = []
    for node in nodes:
        if node in found:
            parts += [tuple(others), found[node]] if others else [found[node]]
            others = []
        elif node not in inside:
            others.append(node)
    return [*parts, tuple(others)] if others else parts


class _Pattern:
    def __init__(self, nodes: Collection[ir.Node], kept: Collection[ir.Value], type_of: TypeOf):
        self._nodes, self._kept, self._type_of = nodes, kept, type_of

    def ending_in(self, node: ir.Node) -> AttentionPart | None:
        """The attention whose last product `node` is."""
        softmax = self._made(node.inputs[0], "Softmax") if node.op_type == "MatMul" and not node.domain else None
        if softmax is None or not self._is_along_keys(softmax):
            return None
        added = self._made(softmax.inputs[0], "Add")
        if added is None:
            return self._of_scores(softmax.inputs[0], None, (softmax, node))
        found = (self._of_scores(added.inputs[place], added.inputs[1 - place], (added, softmax, node)) for place in (0, 1))
        return next((part for part in found if part is not None), None)

    def _of_scores(self, scores: ir.Value | None, mask: ir.Value | None, later: tuple[ir.Node, ...]) -> AttentionPart | None:
        """The attention of which these are the scores; `later` are its nodes behind them."""
        factor, scale = self._made(scores, "Mul Div"), 1.0
        if factor is not None:
            product, known = next(((factor.inputs[1 - n], s) for n in (1, 0) if (s := _scale(factor, n)) is not None), (None, None))
            if known is None:
                return None
            scores, scale, later = product, known, (factor, *later)
        first = self._made(scores, "MatMul")
        if first is None:
            return None
        turned = self._turned(first.inputs[1])
        nodes, key = ((first, *later), first.inputs[1]) if turned is None else ((turned, first, *later), turned.inputs[0])
        values = [value for value in (first.inputs[0], key, later[-1].inputs[1], mask) if value is not None]
        types = [self._type_of(value) for value in values]
        if any(type_ is None or type_.dtype is not dtypes.float32 or len(type_.shape) < 2 for type_ in types):
            return None
        depth, width = (0 if type_ is None else type_.shape[-1] for type_ in (types[0], types[2]))
        return AttentionPart(nodes, tuple(values), depth, width, scale, turned is not None) if depth and width else None

    def _turned(self, key: ir.Value | None) -> ir.Node | None:
        """The node that exchanges the last two axes of what becomes the key, if that is all it does."""
        node = self._made(key, "Transpose")
        perm = [] if node is None else list(node.attributes.get_ints("perm", []))
        rank = len(perm)
        return node if rank > 1 and perm == [*range(rank - 2), rank - 1, rank - 2] else None

    def _made(self, value: ir.Value | None, operators: str) -> ir.Node | None:
        """The node of the host that makes a value, if it is one of these and nothing but one node reads the value."""
        node = None if value is None else value.producer()
        if value is None or node is None or node not in self._nodes or node.domain or node.op_type not in operators.split():
            return None
        return None if value in self._kept or value.is_graph_output() or len(value.uses()) != 1 else node

    def _is_along_keys(self, softmax: ir.Node) -> bool:
        type_ = self._type_of(softmax.outputs[0])
        return type_ is not None and softmax.attributes.get_int("axis", -1) in (-1, len(type_.shape) - 1)


def _scale(node: ir.Node, place: int) -> float | None:
    """What a node multiplies by, if its operand at `place` is one known number; it adds no axes to scores, which have two at least."""
    value = node.inputs[place]
    constant = None if value is None else value.const_value
    if constant is None or constant.size != 1 or len(constant.shape) > 2 or (node.op_type == "Div" and place != 1):
        return None
    number = float(constant.numpy().reshape(-1)[0])
    return number if node.op_type == "Mul" else 1 / number if number else None

"""What stands behind an attention becomes the form of its result: heads split off the batch, and the order of the axes."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.rules.rule import Rule, new_node
from anycann.te.strided import Strided

VIEWS = ("query", "key", "value")


class ReshapeAttention(Rule):
    """Reshape(anycann.Attention) -> anycann.Attention with the leading axes of the new shape, where rows and columns stay."""

    anchors = frozenset({("", "Reshape")})

    def check(self, node: ir.Node) -> str | None:
        inner = _attention_before(node)
        if inner is None:
            return ""
        if len(inner.outputs[0].uses()) > 1 or inner.outputs[0].is_graph_output():
            return "the attention's result is also used as it is"
        return None if _split(node, inner) is not None else "it does not only cut the batch of the attention"

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        inner = _attention_before(node)
        assert inner is not None
        changed = _split(node, inner)
        assert changed is not None
        return [_with(inner, changed, node.outputs[0])]


class TransposeAttention(Rule):
    """Transpose(anycann.Attention) -> anycann.Attention whose result has that order."""

    anchors = frozenset({("", "Transpose")})

    def check(self, node: ir.Node) -> str | None:
        inner = _attention_before(node)
        if inner is None:
            return ""
        if len(inner.outputs[0].uses()) > 1 or inner.outputs[0].is_graph_output():
            return "the attention's result is also used as it is"
        order = _order(node)
        return None if order[-1] == len(order) - 1 else "it moves the columns of the attention's result"

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        inner = _attention_before(node)
        assert inner is not None
        before = inner.attributes.get_ints("order", ())
        return [_with(inner, {"order": [before[n] for n in _order(node)]}, node.outputs[0])]


def _order(node: ir.Node) -> tuple[int, ...]:
    type_ = static_type(node.outputs[0])
    rank = len(type_.shape) if type_ is not None else 0
    return tuple(node.attributes.get_ints("perm", tuple(range(rank))[::-1]))


def _attention_before(node: ir.Node) -> ir.Node | None:
    inner = node.inputs[0].producer() if node.inputs[0] is not None else None
    return inner if inner is not None and (inner.domain, inner.op_type) == ("anycann", "Attention") else None


def _split(node: ir.Node, inner: ir.Node) -> dict[str, object] | None:
    """The attributes of the attention with the leading axes that the reshape gives; None if its operands have no such views."""
    old, new = static_type(inner.outputs[0]), static_type(node.outputs[0])
    order = inner.attributes.get_ints("order", ())
    if old is None or new is None or old.shape[-2:] != new.shape[-2:] or list(order) != list(range(len(old.shape))):
        return None
    views = [inner.attributes.get_string(name, "") for name in VIEWS] + list(inner.attributes.get_strings("masks", ()))
    found = [view.reshaped((*new.shape[:-2], *view.shape[-2:])) for view in (Strided.parse(text) for text in views)]
    if any(view is None for view in found):
        return None
    texts = [str(view) for view in found]
    masks = {"masks": texts[len(VIEWS) :]} if len(texts) > len(VIEWS) else {}
    return {**dict(zip(VIEWS, texts, strict=False)), **masks, "order": list(range(len(new.shape)))}


def _with(inner: ir.Node, changed: dict[str, object], like: ir.Value) -> ir.Node:
    """The attention with some attributes changed and a result like that value."""
    attributes = {**{a.name: a.value for a in inner.attributes.values()}, **changed}
    made = new_node("Attention", inner.inputs, inner.name or "Attention", like, attributes)
    made.domain = "anycann"
    return made

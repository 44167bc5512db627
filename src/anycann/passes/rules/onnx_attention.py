"""ONNX's own attention (opset 23 on) becomes the device's, which reads heads where they lie and keys where several heads share them."""

from __future__ import annotations

from collections.abc import Sequence
import math

import numpy as np
import onnx_ir as ir

from anycann.graph.registry import TensorType, static_type
from anycann.passes.rules.attention import attention_nodes
from anycann.passes.rules.attention_pattern import Mask, Plan, mask_view
from anycann.passes.rules.rule import Rule, new_constant, new_node, stand_for, typed_node
from anycann.passes.rules.views import Origin, origin
from anycann.te import dtypes
from anycann.te.strided import Strided

QUERY, KEY, VALUE, MASK, PAST_KEY, PAST_VALUE, LENGTHS = range(7)
RESULT, PRESENT_KEY, PRESENT_VALUE, SCORES = range(4)
HEADS_FIRST = (0, 2, 1, 3)


class LowerAttention(Rule):
    """Attention(q, k, v, mask, past) -> anycann.Attention(q, Concat(past, k), Concat(past, v), mask)."""

    anchors = frozenset({("", "Attention")})

    def check(self, node: ir.Node) -> str | None:
        types = [static_type(_input(node, n)) for n in range(7)]
        if any(types[n] is None for n in (QUERY, KEY, VALUE)) or any(_input(node, n) and types[n] is None for n in range(7)):
            return "the shapes of its operands are only known when it runs"
        if any(type_ is not None and 0 in type_.shape for type_ in types[:3]):
            return "an operand has no elements"
        if types[LENGTHS] is not None or _is_used(node, SCORES):
            return "it takes lengths of its keys, or gives its scores"
        if any(t is not None and t.dtype not in (dtypes.float32, dtypes.float16, dtypes.bfloat16) for t in (*types[:3], *types[4:6])):
            return "its operands are no floats of up to 32 bits"
        mask, causal = types[MASK], node.attributes.get_int("is_causal", 0)
        if mask is not None and mask.dtype not in (dtypes.float32, dtypes.bool_):
            return f"its mask is {mask.dtype}"
        if node.attributes.get_float("softcap", 0.0) and (mask is not None or causal):
            return "its mask is added before the scores are capped"
        if (types[PAST_KEY] is None) != (types[PAST_VALUE] is None):
            return "it has past keys or past values, but not both"
        sizes = _Sizes.of(node)
        if mask is not None and mask.shape[-1] not in (1, sizes.past + sizes.keys):
            return "its mask does not cover all keys"
        return None

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        sizes, made = _Sizes.of(node), list[ir.Node]()
        sources = [_input(node, QUERY)]
        for number, past, present in ((KEY, PAST_KEY, PRESENT_KEY), (VALUE, PAST_VALUE, PRESENT_VALUE)):
            made += _present(graph, node, number, past, present, sizes)
            sources.append(made[-1].outputs[0] if made and _needs_present(node, past, present) else _input(node, number))
        query, key, value = (_origin(source, sizes, n == QUERY) for n, source in enumerate(sources))
        given = node.attributes.get_float("scale", 0.0) or 1 / math.sqrt(sizes.depth)
        mask = _mask(node, sizes)
        reach = sizes.past if node.attributes.get_int("is_causal", 0) else None
        cap = node.attributes.get_float("softcap", 0.0)
        plan = Plan(query, key, value, mask, given * query.factor * key.factor, cap, reach, empty_is_zero=False)
        result = node.outputs[RESULT]
        *before, attention = attention_nodes(graph, plan, node.name or "Attention", result)
        if sizes.heads_last:
            return [*made, *before, *_joined(graph, attention, sizes, result)]
        return [*made, *before, attention]


class _Sizes:
    """Heads of the queries and of the keys, rows of queries, new and past keys; heads_last: operands are [batch, steps, heads * size]."""

    def __init__(self, node: ir.Node, query: TensorType, key: TensorType, value: TensorType, past: TensorType | None):
        self.heads_last = len(query.shape) == 3
        self.batch, self.past = query.shape[0], 0 if past is None else past.shape[2]
        if self.heads_last:
            self.query_heads, self.heads = node.attributes.get_int("q_num_heads", 1), node.attributes.get_int("kv_num_heads", 1)
            self.rows, self.keys = query.shape[1], key.shape[1]
            self.depth, self.width = query.shape[2] // self.query_heads, value.shape[2] // self.heads
        else:
            self.query_heads, self.heads, self.rows, self.keys = query.shape[1], key.shape[1], query.shape[2], key.shape[2]
            self.depth, self.width = query.shape[3], value.shape[3]

    @classmethod
    def of(cls, node: ir.Node) -> _Sizes:
        query, key, value, past = (static_type(_input(node, n)) for n in (QUERY, KEY, VALUE, PAST_KEY))
        assert query is not None
        assert key is not None
        assert value is not None
        return cls(node, query, key, value, past)


def _input(node: ir.Node, number: int) -> ir.Value | None:
    return node.inputs[number] if number < len(node.inputs) else None


def _is_used(node: ir.Node, number: int) -> bool:
    return number < len(node.outputs) and (bool(node.outputs[number].uses()) or node.outputs[number].is_graph_output())


def _needs_present(node: ir.Node, past: int, present: int) -> bool:
    return _input(node, past) is not None or _is_used(node, present)


def _present(graph: ir.Graph, node: ir.Node, number: int, past: int, present: int, sizes: _Sizes) -> list[ir.Node]:
    """Nodes that make [batch, heads, past + keys, size], if somebody asks for it; it stands for the node's output."""
    if not _needs_present(node, past, present):
        return []
    made: list[ir.Node] = []
    new, before, name = _input(node, number), _input(node, past), f"{node.name}/present{number}"
    assert new is not None
    size = sizes.depth if number == KEY else sizes.width
    if sizes.heads_last:
        shape = (sizes.batch, sizes.keys, sizes.heads, size)
        made.append(_reshape(graph, new, shape, f"{name}/heads"))
        made.append(
            typed_node("Transpose", [made[-1].outputs[0]], f"{name}/turned", new, [shape[n] for n in HEADS_FIRST], perm=HEADS_FIRST)
        )
    elif before is None:
        made.append(new_node("Identity", [new], name, new))
    if before is not None:
        last = made[-1].outputs[0] if made else new
        shape = (sizes.batch, sizes.heads, sizes.past + sizes.keys, size)
        made.append(typed_node("Concat", [before, last], name, new, shape, axis=2))
    if present < len(node.outputs):
        stand_for(node.outputs[present], made[-1].outputs[0])
    return made


def _reshape(graph: ir.Graph, value: ir.Value, shape: Sequence[int], name: str) -> ir.Node:
    return typed_node("Reshape", [value, new_constant(graph, f"{name}/shape", np.array(shape, np.int64))], name, value, shape)


def _origin(value: ir.Value | None, sizes: _Sizes, is_query: bool) -> Origin:
    """[batch, query_heads, steps, size] of an operand, keys and values repeated for the heads that share them."""
    assert value is not None
    repeats = 1 if is_query else sizes.query_heads // sizes.heads
    heads = sizes.query_heads if is_query else sizes.heads

    def turn(view: Strided) -> Strided | None:
        if len(view.axes) == 3:
            batch, steps, columns = view.shape
            split = view.reshaped((batch, steps, heads, columns // heads))
            view = view if split is None else split.transposed(HEADS_FIRST)
        if len(view.axes) != 4:
            return None
        batch, _, steps, size = view.shape
        shared = view.reshaped((batch, heads, 1, steps, size))
        repeated = None if shared is None else shared.broadcast((batch, heads, repeats, steps, size))
        found = None if repeated is None else repeated.reshaped((batch, heads * repeats, steps, size))
        even = found is not None and all(axis.step is not None for axis in found.axes[-2:]) and found.axes[-1].step in (0, 1)
        return found if even else None

    found = origin(value, turn)
    assert found is not None, "a row-major tensor has such a view"
    return found


def _mask(node: ir.Node, sizes: _Sizes) -> tuple[tuple[Mask, Strided], ...]:
    value = _input(node, MASK)
    type_ = static_type(value)
    if value is None or type_ is None:
        return ()
    shape = (sizes.batch, sizes.query_heads, sizes.rows, sizes.past + sizes.keys)
    mask = Mask(value, shape, replaces=type_.dtype is dtypes.bool_, filling=-math.inf)
    return ((mask, mask_view(mask, shape)),)


def _joined(graph: ir.Graph, attention: ir.Node, sizes: _Sizes, result: ir.Value) -> list[ir.Node]:
    """The attention with heads behind steps, and the reshape that joins them."""
    attention.attributes["order"] = ir.AttrInt64s("order", HEADS_FIRST)
    attention.outputs[0].shape = ir.Shape((sizes.batch, sizes.rows, sizes.query_heads, sizes.width))
    joined = _reshape(graph, attention.outputs[0], (sizes.batch, sizes.rows, sizes.query_heads * sizes.width), f"{attention.name}/joined")
    joined.outputs[0].type = result.type
    return [attention, joined]

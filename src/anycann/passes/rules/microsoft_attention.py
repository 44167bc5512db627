"""Attention of ONNX Runtime's domain as ONNX's own, with the projection, the biases and the mask of keys written out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.rules.rule import Rule, constant_of, new_constant, new_node, typed_node

DOMAIN = "com.microsoft"
HIDDEN = -10000.0  # what is added for a key that is not to be seen, where the node does not say


class MultiHeadAttention(Rule):
    """MultiHeadAttention(q, k, v, b, mask, added, past) -> Attention(q + b1, k + b2, v + b3, added + Where(mask, 0, c), past)."""

    anchors = frozenset({(DOMAIN, "MultiHeadAttention")})

    def check(self, node: ir.Node) -> str | None:
        types = [static_type(_input(node, n)) for n in range(max(8, len(node.inputs)))]
        if any(t is None and v is not None for t, v in zip(types, node.inputs, strict=False)) or types[0] is None:
            return "the shapes of its operands are only known when it runs"
        if any(t is None or len(t.shape) != 3 for t in types[:3]):
            return "its operands are packed, or have heads of their own"
        if _input(node, 3) is not None and constant_of(_input(node, 3)) is None:
            return "its bias is computed at run time"
        if any(_input(node, n) is not None for n in range(8, len(node.inputs))):
            return "its cache is shared by past and present"
        return _mask_problem(node, 4, 3)

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        made: list[ir.Node] = []
        bias, operands = constant_of(_input(node, 3)), list[ir.Value]()
        at = 0
        for number in range(3):
            value = _input(node, number)
            type_ = static_type(value)
            assert value is not None
            assert type_ is not None
            if bias is not None:
                part = new_constant(graph, f"{node.name}/bias{number}", bias[at : at + type_.shape[-1]])
                made.append(new_node("Add", [value, part], f"{node.name}/biased{number}", value))
                at, value = at + type_.shape[-1], made[-1].outputs[0]
            operands.append(value)
        made += _mask(graph, node, 4, 5)
        mask = made[-1].outputs[0] if _input(node, 4) is not None else _input(node, 5)
        return [*made, _attention(node, [*operands, mask, _input(node, 6), _input(node, 7)])]


class PackedAttention(Rule):
    """com.microsoft.Attention(x, w, b, mask, added) -> Attention of the parts of x w + b."""

    anchors = frozenset({(DOMAIN, "Attention")})

    def check(self, node: ir.Node) -> str | None:
        types = [static_type(v) for v in node.inputs]
        if any(t is None and v is not None for t, v in zip(types, node.inputs, strict=True)):
            return "the shapes of its operands are only known when it runs"
        if _input(node, 4) is not None or len(node.outputs) > 1 or node.attributes.get_int("do_rotary", 0) != 0:
            return "it keeps past keys, or turns queries by their positions"
        return _mask_problem(node, 3, 1)

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        x, weights, bias = (_input(node, n) for n in range(3))
        data, matrix = static_type(x), static_type(weights)
        assert x is not None
        assert weights is not None
        assert data is not None
        assert matrix is not None
        batch, rows, _ = data.shape
        sizes = node.attributes.get_ints("qkv_hidden_sizes", ()) or (matrix.shape[1] // 3,) * 3
        made = [typed_node("MatMul", [x, weights], f"{node.name}/projected", x, (batch, rows, matrix.shape[1]))]
        if bias is not None:
            made.append(new_node("Add", [made[-1].outputs[0], bias], f"{node.name}/biased", made[-1].outputs[0]))
        parts = new_constant(graph, f"{node.name}/parts", np.array(sizes, np.int64))
        split = ir.Node("", "Split", [made[-1].outputs[0], parts], [ir.AttrInt64("axis", 2)], num_outputs=3, name=f"{node.name}/split")
        for number, (output, size) in enumerate(zip(split.outputs, sizes, strict=True)):
            output.name, output.type, output.shape = f"{node.name}/part{number}", x.type, ir.Shape((batch, rows, size))
        made += [split, *_mask(graph, node, 3, 5)]
        mask = made[-1].outputs[0] if _input(node, 3) is not None else _input(node, 5)
        return [*made, _attention(node, [*split.outputs, mask])]


def _input(node: ir.Node, number: int) -> ir.Value | None:
    return node.inputs[number] if number < len(node.inputs) else None


def _mask_problem(node: ir.Node, mask: int, results: int) -> str | None:
    type_, output = static_type(_input(node, mask)), node.outputs[results:]
    if any(value.uses() or value.is_graph_output() for value in output):
        return "it gives its scores"
    if type_ is not None and (len(type_.shape) not in (2, 3) or type_.dtype.is_float):
        return f"its mask of keys is {type_}"
    return None


def _mask(graph: ir.Graph, node: ir.Node, mask: int, added: int) -> list[ir.Node]:
    """Nodes that make numbers of the mask of keys ([batch, keys] or [batch, rows, keys]) and add the other mask, if there is one."""
    value, more, name = _input(node, mask), _input(node, added), f"{node.name}/keys"
    type_, data = static_type(value), static_type(_input(node, 0))
    if value is None or type_ is None or data is None:
        return []
    seen = new_node("Cast", [value], f"{name}/seen", value, {"to": int(ir.DataType.BOOL)})
    seen.outputs[0].type = ir.TensorType(ir.DataType.BOOL)
    hidden = np.array(node.attributes.get_float("mask_filter_value", HIDDEN), np.float32)
    choice = [new_constant(graph, f"{name}/{word}", number) for word, number in (("zero", np.array(0, np.float32)), ("hidden", hidden))]
    numbers = new_node("Where", [seen.outputs[0], *choice], name, value)
    numbers.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    shape = (type_.shape[0], *[1] * (4 - len(type_.shape)), *type_.shape[1:])
    form = new_constant(graph, f"{name}/shape", np.array(shape, np.int64))
    made = [seen, numbers, typed_node("Reshape", [numbers.outputs[0], form], f"{name}/heads", numbers.outputs[0], shape)]
    other = static_type(more)
    if more is not None and other is not None:
        whole = np.broadcast_shapes(shape, other.shape)
        made.append(typed_node("Add", [made[-1].outputs[0], more], f"{name}/added", made[-1].outputs[0], whole))
    return made


def _attention(node: ir.Node, inputs: Sequence[ir.Value | None]) -> ir.Node:
    """ONNX's attention of operands whose heads lie side by side."""
    heads = node.attributes.get_int("num_heads", 1)
    attributes: list[ir.Attr] = [ir.AttrInt64("q_num_heads", heads), ir.AttrInt64("kv_num_heads", heads)]
    attributes.append(ir.AttrInt64("is_causal", node.attributes.get_int("unidirectional", 0)))
    if node.attributes.get_float("scale", 0.0):
        attributes.append(ir.AttrFloat32("scale", node.attributes.get_float("scale", 0.0)))
    return ir.Node("", "Attention", list(inputs), attributes, num_outputs=len(node.outputs), name=node.name)

"""Attention of ONNX Runtime's domain: the types of its results. A rule (passes/rules/microsoft_attention.py) writes it as ONNX's own."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from anycann.graph.registry import TensorType, declare

DOMAIN = "com.microsoft"


def _infer_multi_head(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    """The result, present keys and values, and the scores."""
    operands = [inputs[n] if n < len(inputs) else None for n in range(8)]
    query, key, value, past = operands[0], operands[1], operands[2], operands[6]
    heads = node.attributes.get_int("num_heads", 1)
    assert query is not None
    batch, rows = query.shape[:2]
    if len(query.shape) == 5:
        keys, depth, width = rows, query.shape[4], query.shape[4]
    elif value is None:
        assert key is not None
        keys, depth, width = key.shape[1], key.shape[4], key.shape[4]
    else:
        keys = value.shape[2] if len(value.shape) == 4 else value.shape[1]
        depth, width = query.shape[2] // heads, value.shape[3] if len(value.shape) == 4 else value.shape[2] // heads
    total = keys + (0 if past is None else past.shape[2])
    shapes = [(batch, rows, heads * width), (batch, heads, total, depth), (batch, heads, total, width), (batch, heads, rows, total)]
    return [TensorType(query.dtype, shape) for shape in shapes][: len(node.outputs)]


def _infer_attention(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    """The result, and present keys and values in one tensor."""
    data, weights, past = inputs[0], inputs[1], inputs[4] if len(inputs) > 4 else None
    heads = node.attributes.get_int("num_heads", 1)
    assert data is not None
    assert weights is not None
    width = (node.attributes.get_ints("qkv_hidden_sizes", ()) or (weights.shape[1] // 3,))[-1]
    total = data.shape[1] + (0 if past is None else past.shape[3])
    present = (2, data.shape[0], heads, total, width // heads)
    return [TensorType(data.dtype, shape) for shape in ((*data.shape[:2], width), present)][: len(node.outputs)]


declare("MultiHeadAttention", domain=DOMAIN, infer=_infer_multi_head)
declare("Attention", domain=DOMAIN, infer=_infer_attention)

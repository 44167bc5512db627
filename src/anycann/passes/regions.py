"""Parts of a graph as graphs of their own: the bodies of control flow, and what can only be compiled once shapes are known."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx_ir as ir

from anycann.graph.registry import OPSET
from anycann.passes.partition import captured_values, free_values
from anycann.support.records import dataclass


@dataclass(frozen=True)
class Extracted:
    """A graph of its own. `captures`: outer values its trailing inputs stand for; `outputs`: what it computes."""

    model: ir.Model
    captures: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]


def extract_body(body: ir.Graph) -> Extracted:
    """The body of an If, Loop or Scan: its own inputs, then what it captures; known captures become initialisers."""
    outer = free_values(body)
    proto = ir.serde.serialize_graph(_without_initializers(body))  # type: ignore[arg-type]  # a view has no writable metadata
    captures = [v for v in outer if v.const_value is None]
    constants = [v for v in outer if v.const_value is not None] + list(body.initializers.values())
    return Extracted(_build(proto, captures, constants), tuple(captures), tuple(body.outputs))


def extract_nodes(graph: ir.Graph, nodes: Sequence[ir.Node], name: str) -> Extracted:
    """Some nodes of a graph; what they need from outside becomes inputs, what is needed of them outputs."""
    inside = set(nodes)
    made = {value for node in nodes for value in node.outputs}
    needed = {v: None for node in nodes for v in (*node.inputs, *captured_values(node)) if v is not None and v not in made}
    outputs = [
        value
        for node in nodes
        for value in node.outputs
        if value.is_graph_output() or any(use.node not in inside and use.node.graph is graph for use in value.uses())
    ]
    proto = onnx.GraphProto(name=name)
    proto.node.extend(ir.to_proto(node) for node in nodes)
    proto.output.extend(ir.to_proto(value) for value in outputs)
    captures = [v for v in needed if v.const_value is None]
    constants = [v for v in needed if v.const_value is not None]
    return Extracted(_build(proto, captures, constants), tuple(captures), tuple(outputs))


def _without_initializers(graph: ir.Graph) -> ir.GraphView:
    return ir.GraphView(graph.inputs, graph.outputs, nodes=tuple(graph), name=graph.name or "body")


def _build(proto: onnx.GraphProto, captures: Sequence[ir.Value], constants: Sequence[ir.Value]) -> ir.Model:
    """A model from the proto, with captures as further inputs and constants sharing their tensors."""
    for value in captures:
        info = proto.input.add()
        info.name = value.name or ""
        if value.type is not None:
            info.type.CopyFrom(ir.serde.serialize_type(value.type))
    del proto.value_info[:]
    placeholders = {value.name: value for value in constants}
    for name in placeholders:
        proto.input.add().name = name or ""
    graph = ir.from_proto(proto)
    assert isinstance(graph, ir.Graph)
    kept = []
    for value in graph.inputs:
        source = placeholders.get(value.name)
        if source is None:
            kept.append(value)
            continue
        value.const_value = source.const_value
        value.type, value.shape = source.type, source.shape
    constant_inputs = [v for v in graph.inputs if v.name in placeholders]
    graph.inputs[:] = kept
    for value in constant_inputs:
        graph.register_initializer(value)
    graph.opset_imports.update({"": OPSET})
    return ir.Model(graph, ir_version=10)

"""Source names: which nodes of the user's model a node stands for, kept through rewrites for errors and profiles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
import onnx_ir as ir

SOURCE = "source"  # the key in Node.metadata_props; several names are separated by newlines
SEPARATOR = "\n"


def source_names(node: ir.Node) -> tuple[str, ...]:
    """Names of the model's nodes that `node` computes; its own name when nothing was recorded."""
    recorded = node.metadata_props.get(SOURCE)
    if recorded:
        return tuple(recorded.split(SEPARATOR))
    return (node.name,) if node.name else ()


def set_sources(node: ir.Node, names: Iterable[str]) -> None:
    """Record that `node` computes the model's nodes `names` (repetitions are dropped, the order is kept)."""
    kept = dict.fromkeys(name.replace(SEPARATOR, " ") for name in names if name)
    if kept:
        node.metadata_props[SOURCE] = SEPARATOR.join(kept)


def inherit_sources(new_nodes: Iterable[ir.Node], old_nodes: Iterable[ir.Node]) -> None:
    """Give every node of `new_nodes` the sources of all `old_nodes`, which it replaces. A node without a name takes the first one's."""
    old_nodes = list(old_nodes)
    names = [name for node in old_nodes for name in source_names(node)]
    base = next((node.name for node in old_nodes if node.name), None)
    for node in new_nodes:
        set_sources(node, names)
        if not node.name and base:
            node.name = f"{base}/{node.op_type}"


def describe(node: ir.Node) -> str:
    """`node 'conv1' (Conv)` for error texts: source names, operator, and its domain when it is not the default one."""
    names = ", ".join(repr(name) for name in source_names(node)) or "without a name"
    return f"node {names} ({_operator(node.domain, node.op_type)})"


def describe_proto(node: onnx.NodeProto) -> str:
    """`describe` for a node that is still a protobuf message; one without a name is told by its first output."""
    outputs = [name for name in node.output if name]
    name = repr(node.name) if node.name or not outputs else f"that computes {outputs[0]!r}"
    return f"node {name} ({_operator(node.domain, node.op_type)})"


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """The graphs that are attributes of `node` (bodies of If, Loop, Scan, SequenceMap), not those nested deeper."""
    for attribute in node.attributes.values():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def all_graphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    """`graph`, then every graph nested in it at any depth."""
    yield graph
    for node in graph:
        for inner in subgraphs(node):
            yield from all_graphs(inner)


def _operator(domain: str, op_type: str) -> str:
    return f"{domain}.{op_type}" if domain not in ("", "ai.onnx") else op_type

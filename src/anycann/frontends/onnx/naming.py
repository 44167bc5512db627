"""Names: every node and value of a model gets one that is unique in the whole model, and every node remembers the one it came with."""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir

from anycann.graph.sources import all_graphs, set_sources, source_names


def name_everything(model: ir.Model) -> None:
    """Give names to nodes and values that have none and rename repeated ones, in subgraphs too.

    The names of the main graph's inputs, outputs and initialisers stay. A node without a name becomes `OpType_<n>`. The name a node had,
    or was given here, is kept as its source, so that every error and profile can name it.
    """
    _name_values(model.graph)
    name_nodes(model.graph)


def name_nodes(graph: ir.Graph) -> None:
    """`name_everything` for the nodes of `graph` and of its subgraphs."""
    taken = {node.name for node in graph.all_nodes() if node.name}
    used: set[str] = set()
    counts: Counter[str] = Counter()
    for node in graph.all_nodes():
        source = node.name
        if not source:
            node.name = source = _next_free(node.op_type, counts, taken)
        elif source in used:
            node.name = _next_free(source, counts, taken)
        used.add(node.name or "")
        taken.add(node.name or "")
        recorded = source_names(node)
        set_sources(node, recorded if recorded != (node.name,) else (source,))


def _name_values(graph: ir.Graph) -> None:
    kept = [*graph.inputs, *graph.initializers.values(), *graph.outputs]
    used = {value.name for value in kept if value.name}
    counts: Counter[str] = Counter()
    done = {id(value) for value in kept}
    for inner in all_graphs(graph):
        initialisers = [value for value in inner.initializers.values() if id(value) not in done]
        computed = [value for node in inner for value in node.outputs if id(value) not in done]
        inputs = [value for value in inner.inputs if id(value) not in done]
        for value in [*initialisers, *inputs, *computed]:
            if value.name == "" and not value.uses():
                continue  # an output nobody asked for
            if not value.name or value.name in used:
                value.name = _next_free(value.name or "value", counts, used)
            used.add(value.name)
            done.add(id(value))


def _next_free(base: str, counts: Counter[str], taken: set[str]) -> str:
    """`base_<n>`, the first that is not in `taken`."""
    while True:
        name = f"{base}_{counts[base]}"
        counts[base] += 1
        if name not in taken:
            return name

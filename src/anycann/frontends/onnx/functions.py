"""Functions of a model are inlined: each call becomes the nodes of the function's body, named after the call."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from anycann.frontends.onnx.check import NEWEST_OPSET
from anycann.frontends.onnx.naming import name_nodes
from anycann.frontends.onnx.upgrade import upgrade_graph
from anycann.graph.sources import set_sources, source_names
from anycann.support.errors import ModelError

INNER = "inner"  # metadata of a function's node while it is inlined: its own name
MAX_INLINED_NODES = 2_000_000  # functions that call functions double with every level: a bomb, not a model


def inline_functions(model: ir.Model) -> None:
    """Replace every call of a model's function by its body, in place. The model has no functions afterwards.

    A function written for another opset than the model's is brought to the newest one first, and the model with it.
    Raises ModelError when the bodies are too many nodes, or a call does not fit its function.
    """
    if not model.functions:
        return
    _check_size(model)
    _align_opsets(model)
    name_nodes(model.graph)
    for function in model.functions.values():
        for node in function.graph.all_nodes():
            node.metadata_props[INNER] = node.name or node.op_type
    try:
        InlinePass()(model)
    except Exception as error:
        reason = error.__cause__ or error
        raise ModelError(f"the model's functions cannot be inlined: {reason}") from error
    model.functions.clear()
    for node in model.graph.all_nodes():
        inner = node.metadata_props.pop(INNER, None)
        if inner:  # the pass gave the node the sources of the call
            set_sources(node, [f"{call}/{inner}" for call in source_names(node)])


def _check_size(model: ir.Model) -> None:
    sizes: dict[ir.OperatorIdentifier, int] = {}

    def size_of(graph: ir.Graph) -> int:
        return sum(call_size(node.op_identifier()) for node in graph.all_nodes())

    def call_size(operator: ir.OperatorIdentifier) -> int:
        function = model.functions.get(operator)
        if function is None:
            return 1
        if operator not in sizes:
            sizes[operator] = size_of(function.graph)
        return sizes[operator]

    total = size_of(model.graph)
    if total > MAX_INLINED_NODES:
        raise ModelError(f"the model's functions expand to {total} nodes; {MAX_INLINED_NODES} are accepted")


def _align_opsets(model: ir.Model) -> None:
    """Bring the model and its functions to one opset; other domains keep the version the model imports."""
    versions = {function.opset_imports[""] for function in model.functions.values() if "" in function.opset_imports}
    own = model.opset_imports.get("")
    if own is None and len(versions) == 1:
        own = model.opset_imports.setdefault("", *versions)
    if versions - {own}:
        upgrade_graph(model.graph, own or NEWEST_OPSET)
        model.opset_imports[""] = NEWEST_OPSET
        for function in model.functions.values():
            upgrade_graph(function.graph, function.opset_imports.get("", NEWEST_OPSET))
            function.opset_imports[""] = NEWEST_OPSET
    for function in model.functions.values():
        for domain, version in list(function.opset_imports.items()):
            function.opset_imports[domain] = model.opset_imports.setdefault(domain, version)

"""A frozen graph of TensorFlow to an `onnx_ir` model: nodes in order, each by its row of the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
import importlib
import os
from pathlib import Path
import pkgutil
from typing import Any, NoReturn, cast

import numpy as np
import onnx_ir as ir

from anycann.frontends.onnx.storage import map_file
from anycann.frontends.tensorflow.builder import Builder
from anycann.frontends.tensorflow.definition import OPERATORS, Call, Convert, Result
from anycann.frontends.tensorflow.graph import Edge, SourceGraph, SourceNode, read_graph
from anycann.frontends.tensorflow.layout import Tensor, channels_last
from anycann.frontends.tensorflow.values import Shape, numpy_dtype
from anycann.graph.sources import set_sources
from anycann.support.errors import ModelError, UnsupportedError, UsageError, context

IR_VERSION = 11
DEAD, MISSING = Tensor(dead=True), Tensor()  # what no condition leads to, and what an operator without a row would give
MERGES = ("Merge", "RefMerge")
FED = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})
LISTED = 8  # operators that an error names


def load_frozen_graph(
    source: str | os.PathLike[str] | bytes, shapes: Mapping[str, Shape] | None = None, outputs: Sequence[str] = ()
) -> ir.Model:
    """The model in a frozen GraphDef: a path or its bytes. Inputs are the placeholders, by their names.

    shapes: sizes of inputs, None for open ones, in place of those in the file; a PlaceholderWithDefault named here is an input, others
    have their default. outputs: `node` or `node:index`; none: the nodes that nobody reads. Outputs are called `node:index`.
    Raises ModelError for a damaged file; UnsupportedError for operators that are not there; UsageError for names that are not in the graph.
    """
    if isinstance(source, bytes):
        return _converted(read_graph(source), shapes or {}, outputs)
    path = Path(source)
    with context(f"while loading {path}"):
        return _converted(read_graph(bytes(map_file(path))), shapes or {}, outputs)


def _converted(graph: SourceGraph, shapes: Mapping[str, Shape], outputs: Sequence[str]) -> ir.Model:
    inputs = _inputs(graph, shapes)
    edges = tuple(graph.edge(text) for text in outputs) or graph.ends()
    builder, results = Builder(), cast("dict[str, Sequence[Tensor]]", {})
    missing: list[SourceNode] = []
    for name in inputs:  # those that no output needs too: a program feeds them by number
        results[name] = [Tensor(last=builder.input(name, _input_dtype(inputs[name]), _input_shape(inputs[name], shapes)))]
    needed = graph.needed(edges, frozenset(inputs))
    readers = Counter(edge.node for edge in (*edges, *(edge for node in needed for edge in node.inputs)))
    for node in needed:
        if node.name not in results:
            with context(f"while converting {node}"):
                results[node.name] = _results(builder, node, [_result(results, graph, edge) for edge in node.inputs], readers, missing)
    if any(_result(results, graph, edge) is MISSING for edge in edges):
        _refuse(missing)
    for edge in edges:
        builder.graph.outputs.append(_output(builder, edge, _result(results, graph, edge)))
    return ir.Model(builder.graph, ir_version=IR_VERSION, producer_name="tensorflow")


def _inputs(graph: SourceGraph, shapes: Mapping[str, Shape]) -> dict[str, SourceNode]:
    """The nodes that are fed. Raises UsageError for a shape of something else."""
    fed = {
        name: node
        for name, node in graph.nodes.items()
        if node.op in FED and (node.op != "PlaceholderWithDefault" or name in shapes)
    }  # fmt: skip
    unknown = [name for name in shapes if name not in fed]
    if unknown:
        raise UsageError(f"input {unknown[0]!r} is not in the model; accepted: {', '.join(fed)}")
    return fed


def _input_dtype(node: SourceNode) -> np.dtype[Any]:
    return numpy_dtype(cast(int, node.attributes.get("dtype", 1)))


def _input_shape(node: SourceNode, shapes: Mapping[str, Shape]) -> Shape | None:
    if node.name in shapes:
        return shapes[node.name]
    return cast("Shape | None", node.attributes.get("shape"))


def _refuse(missing: Sequence[SourceNode]) -> NoReturn:
    """Raise UnsupportedError with every operator that has no row."""
    counts = Counter(node.op for node in missing)
    words = ", ".join(f"{op} ({count}, the first is '{_first(missing, op)}')" for op, count in counts.most_common(LISTED))
    raise UnsupportedError(f"operators of TensorFlow that are not there: {words}")


def _first(nodes: Sequence[SourceNode], op: str) -> str:
    return next(node.name for node in nodes if node.op == op)


@cache
def operators() -> Mapping[str, Convert]:
    """The table, with the rows of every file."""
    package = importlib.import_module("anycann.frontends.tensorflow")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return OPERATORS


def _results(
    builder: Builder, node: SourceNode, operands: Sequence[Tensor], readers: Mapping[str, int], missing: list[SourceNode]
) -> Sequence[Tensor]:
    """What a node comes to. One without a row is added to `missing`: an error only if an output needs it in the end."""
    builder.source = node.name
    is_merge = node.op in MERGES
    alive = [tensor for tensor in operands if not tensor.dead]
    if operands and (not alive if is_merge else len(alive) < len(operands)):
        return [DEAD]
    if node.op not in operators():
        missing.append(node)
        return [MISSING]
    if MISSING in alive:
        return [MISSING]
    made = _made(Call(builder, node, operands, readers))
    builder.name_last(node.name)
    tensors = [
        item if isinstance(item, Tensor) else Tensor(last=item) for item in ([made] if isinstance(made, Tensor | ir.Value) else made)
    ]
    branches = frozenset(branch for tensor in operands for branch in tensor.branches)
    if branches and not is_merge:
        tensors = [Tensor(tensor.last, tensor.first, tensor.branches | branches) for tensor in tensors]
    return tensors


def _made(call: Call) -> Result:
    """What the row of the operator makes of the node. Raises ModelError where attributes or operands are not what its operator has."""
    try:
        return operators()[call.node.op](call)
    except (AssertionError, AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise ModelError(f"{call.node}: its attributes or operands are not those of the operator: {error}") from error


def _result(results: Mapping[str, Sequence[Tensor]], graph: SourceGraph, edge: Edge) -> Tensor:
    found = results[edge.node]
    if found[0] is DEAD or found[0] is MISSING:
        return found[0]
    if edge.index >= len(found):
        raise ModelError(f"{graph.nodes[edge.node]} has {len(found)} results here; result {edge.index} is read")
    return found[edge.index]


def _output(builder: Builder, edge: Edge, tensor: Tensor) -> ir.Value:
    """A value of its own, under the name of the edge."""
    if tensor.dead:
        raise UnsupportedError(f"output {edge}: a condition that is known beforehand does not lead there")
    builder.source = edge.node
    value = channels_last(builder, tensor)
    node = ir.Node("", "Identity", [value], name=f"{edge.node}/output_{edge.index}")
    set_sources(node, [edge.node])
    (made,) = node.outputs
    made.name, made.type, made.shape = str(edge), value.type, value.shape
    builder.graph.append(node)
    return made

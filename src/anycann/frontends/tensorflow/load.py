"""A frozen graph of TensorFlow to an `onnx_ir` model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import os
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx_ir as ir

from anycann.frontends.onnx.storage import map_file
from anycann.frontends.tensorflow.builder import Builder
from anycann.frontends.tensorflow.conversion import Conversion, refuse
from anycann.frontends.tensorflow.definition import MISSING
from anycann.frontends.tensorflow.frames import with_loops
from anycann.frontends.tensorflow.graph import Edge, SourceGraph, SourceNode, read_graph
from anycann.frontends.tensorflow.layout import Tensor, channels_last
from anycann.frontends.tensorflow.values import Shape, numpy_dtype
from anycann.graph.sources import set_sources
from anycann.support.errors import ModelError, UnsupportedError, UsageError, context

IR_VERSION = 11
LEFT_BEHIND = "unused_control_flow_input"  # placeholders that TensorFlow leaves where it freezes loops; nobody reads or feeds them
FED = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})


def load_frozen_graph(
    source: str | os.PathLike[str] | bytes, shapes: Mapping[str, Shape] | None = None, outputs: Sequence[str] = ()
) -> ir.Model:
    """The model in a frozen GraphDef: a path or its bytes. Inputs are the placeholders, by their names.

    shapes: sizes of inputs, None for open ones, in place of those in the file; a PlaceholderWithDefault named here is an input, others
    have their default. outputs: `node` or `node:index`; none: the nodes that nobody reads. Outputs are called `node:index`.
    Raises ModelError for a damaged file; UnsupportedError for operators that are not there; UsageError for names that are not in the graph.
    """
    if isinstance(source, bytes):
        return _converted(with_loops(read_graph(source)), shapes or {}, outputs)
    path = Path(source)
    with context(f"while loading {path}"):
        return _converted(with_loops(read_graph(bytes(map_file(path)))), shapes or {}, outputs)


def _converted(graph: SourceGraph, shapes: Mapping[str, Shape], outputs: Sequence[str]) -> ir.Model:
    inputs = _inputs(graph, shapes)
    edges = tuple(graph.edge(text) for text in outputs) or graph.ends()
    builder = Builder()
    given = {  # those that no output needs too: a program feeds them by number
        name: [Tensor(last=builder.input(name, _input_dtype(node), _input_shape(node, shapes)))] for name, node in inputs.items()
    }
    conversion = Conversion(builder, graph)
    try:
        results = conversion.run(edges, given)
    except RecursionError:
        raise ModelError("a function of the graph calls itself without end, or calls are nested too deeply") from None
    if any(result is MISSING for result in results):
        refuse(conversion.missing)
    for edge, result in zip(edges, results, strict=True):
        builder.graph.outputs.append(_output(builder, edge, result))
    return ir.Model(builder.graph, ir_version=IR_VERSION, producer_name="tensorflow")


def _inputs(graph: SourceGraph, shapes: Mapping[str, Shape]) -> dict[str, SourceNode]:
    """The nodes that are fed. Raises UsageError for a shape of something else."""
    read = {edge.node for node in graph.nodes.values() for edge in node.inputs}
    fed = {
        name: node
        for name, node in graph.nodes.items()
        if node.op in FED and (node.op != "PlaceholderWithDefault" or name in shapes)
        and not (name.startswith(LEFT_BEHIND) and name not in read)
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

"""Sparse tensors become dense ones: nothing after the front end knows them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from anycann.graph.sources import describe_proto
from anycann.support.errors import ModelError, UnsupportedError


def densified(model: onnx.ModelProto) -> onnx.ModelProto:
    """A checked model with its sparse initialisers and sparse `Constant` nodes made dense; `model` itself if it has none.

    Raises UnsupportedError for a sparse attribute of any other node, ModelError for indices out of range.
    """
    bodies = [model.graph.node, *(function.node for function in model.functions)]
    if not model.graph.sparse_initializer and not any(_has_sparse(node) for nodes in bodies for node in nodes):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _densify_graph(copy.graph)
    for function in copy.functions:
        for node in function.node:
            _densify_node(node)
    return copy


def _has_sparse(node: onnx.NodeProto) -> bool:
    for attribute in node.attribute:
        if attribute.HasField("sparse_tensor") or attribute.sparse_tensors:
            return True
        graphs = [attribute.g] if attribute.HasField("g") else attribute.graphs
        if any(graph.sparse_initializer or any(map(_has_sparse, graph.node)) for graph in graphs):
            return True
    return False


def _densify_graph(graph: onnx.GraphProto) -> None:
    for sparse in graph.sparse_initializer:
        graph.initializer.append(numpy_helper.from_array(dense(sparse), sparse.values.name))
    graph.ClearField("sparse_initializer")
    for node in graph.node:
        _densify_node(node)


def _densify_node(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.HasField("sparse_tensor") and node.op_type == "Constant":
            attribute.t.CopyFrom(numpy_helper.from_array(dense(attribute.sparse_tensor)))
            attribute.ClearField("sparse_tensor")
            attribute.name, attribute.type = "value", onnx.AttributeProto.TENSOR
        elif attribute.HasField("sparse_tensor") or attribute.sparse_tensors:
            raise UnsupportedError(f"{describe_proto(node)}: attribute {attribute.name!r} is a sparse tensor; dense tensors are accepted")
        for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            _densify_graph(graph)


def dense(sparse: onnx.SparseTensorProto) -> np.ndarray:
    """The dense array of a checked sparse tensor. Indices are linear, or one row of coordinates a value."""
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    result = np.zeros(tuple(sparse.dims), values.dtype)
    try:
        linear = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), result.shape)
        result.reshape(-1)[linear] = values
    except (ValueError, IndexError) as error:
        raise ModelError(f"sparse tensor {sparse.values.name!r}: an index is outside of dims {list(sparse.dims)}: {error}") from error
    return result

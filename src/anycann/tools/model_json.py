"""A graph as the JSON that `atc --mode=1` writes: operators with their inputs as `producer:index`, descriptions and attributes.

The fields are those of GE's model JSON that tools look at; weights are described, not written out.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import onnx
from onnx import helper

Json: TypeAlias = dict[str, Any]
_MAX_LISTED = 64  # elements of a constant that are written out


def model_json(model: onnx.ModelProto, with_shapes: bool = False) -> Json:
    """The model as GE's JSON: one graph, or several where bodies of control flow hang below it.

    `with_shapes` adds inferred shapes (`--dump_mode=1`) to operators whose shapes the file does not say.
    """
    if with_shapes:
        model = onnx.shape_inference.infer_shapes(model)
    graphs: list[Json] = []
    _add_graph(model.graph, graphs)
    opsets = {item.domain or "ai.onnx": item.version for item in model.opset_import}
    return {"name": model.graph.name, "version": model.ir_version, "producer": model.producer_name, "opset": opsets, "graph": graphs}


def _add_graph(graph: onnx.GraphProto, graphs: list[Json]) -> None:
    """Append `graph` and the graphs in its attributes."""
    types = {item.name: item.type for item in (*graph.value_info, *graph.input, *graph.output)}
    source = _sources(graph)
    place: Json = {"name": graph.name, "input": [item.name for item in graph.input], "output": [item.name for item in graph.output]}
    graphs.append(place)
    place["op"] = [
        *(_data_op(item) for item in graph.input if item.name not in {weight.name for weight in graph.initializer}),
        *(_const_op(weight) for weight in graph.initializer),
        *(_node_op(node, index, source, types, graphs) for index, node in enumerate(graph.node)),
        {"name": "Node_Output", "type": "NetOutput", "input": [source.get(item.name, item.name) for item in graph.output]},
    ]


def _sources(graph: onnx.GraphProto) -> dict[str, str]:
    """Value name -> `operator:index` that makes it."""
    source = {item.name: f"{item.name}:0" for item in (*graph.input, *graph.initializer)}
    for index, node in enumerate(graph.node):
        source |= {name: f"{node_name(node, index)}:{output}" for output, name in enumerate(node.output) if name}
    return source


def node_name(node: onnx.NodeProto, index: int) -> str:
    """The node's name, or one made of its type and place where it has none."""
    return node.name or f"{node.op_type}_{index}"


def _data_op(item: onnx.ValueInfoProto) -> Json:
    return {"name": item.name, "type": "Data", "output_desc": [_describe(item.type)]}


def _const_op(weight: onnx.TensorProto) -> Json:
    return {"name": weight.name, "type": "Const", "output_desc": [_tensor_description(weight)]}


def _node_op(node: onnx.NodeProto, index: int, source: dict[str, str], types: dict[str, onnx.TypeProto], graphs: list[Json]) -> Json:
    made: Json = {
        "name": node_name(node, index),
        "type": node.op_type,
        "input": [source.get(name, name) for name in node.input],
        "output": list(node.output),
        "output_desc": [_describe(types[name]) if name in types else {} for name in node.output],
    }
    if node.domain:
        made["domain"] = node.domain
    made["attr"] = [{"key": item.name, "value": _attribute(item, graphs)} for item in node.attribute]
    return made


def _describe(value: onnx.TypeProto) -> Json:
    """Dtype and shape, as far as they are known."""
    if not value.HasField("tensor_type"):
        return {"dtype": f"DT_{(value.WhichOneof('value') or 'undefined').removesuffix('_type').upper()}"}
    tensor = value.tensor_type
    made: Json = {"dtype": _dtype(tensor.elem_type), "layout": "ND"}
    if tensor.HasField("shape"):
        made["shape"] = {"dim": [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or -1 for dim in tensor.shape.dim]}
    return made


def _dtype(element: int) -> str:
    return f"DT_{onnx.TensorProto.DataType.Name(element)}"


def _tensor_description(tensor: onnx.TensorProto) -> Json:
    return {"dtype": _dtype(tensor.data_type), "layout": "ND", "shape": {"dim": list(tensor.dims)}}


def _attribute(attribute: onnx.AttributeProto, graphs: list[Json]) -> Any:
    """The value as JSON; a graph becomes its name and is appended to `graphs`, a tensor is described and listed if it is small."""
    value = helper.get_attribute_value(attribute)
    if attribute.type == onnx.AttributeProto.GRAPH:
        _add_graph(value, graphs)
        return {"graph": value.name}
    if attribute.type == onnx.AttributeProto.TENSOR:
        small = sum(1 for _ in value.dims) == 0 or _elements(value) <= _MAX_LISTED
        listed = {"data": onnx.numpy_helper.to_array(value).tolist()} if small and value.data_location == onnx.TensorProto.DEFAULT else {}
        return {**_tensor_description(value), **listed}
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, (int, float)):
        return value
    return [
        item.decode(errors="replace") if isinstance(item, bytes) else item if isinstance(item, (int, float)) else str(item)
        for item in value
    ]


def _elements(tensor: onnx.TensorProto) -> int:
    count = 1
    for size in tensor.dims:
        count *= size
    return count

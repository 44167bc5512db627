"""A graph as the JSON that `atc --mode=1` writes: operators with their inputs as `producer:index`, descriptions and attributes.

The fields are those of GE's model JSON that tools look at; weights are described, not written out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import onnx_ir as ir
from onnx_ir.passes import common

Json: TypeAlias = dict[str, Any]
_MAX_LISTED = 64  # elements of a constant that are written out


def model_json(model: ir.Model, with_shapes: bool = False) -> Json:
    """The model as GE's JSON: one graph, or several where bodies of control flow hang below it.

    `with_shapes` adds inferred shapes (`--dump_mode=1`) to operators whose shapes the file does not say.
    """
    if with_shapes:
        model = common.ShapeInferencePass()(model.clone()).model
    graphs: list[Json] = []
    _add_graph(model.graph, graphs)
    opsets = {domain or "ai.onnx": version for domain, version in model.opset_imports.items()}
    return {
        "name": model.graph.name or "",
        "version": model.ir_version,
        "producer": model.producer_name or "",
        "opset": opsets,
        "graph": graphs,
    }


def _add_graph(graph: ir.Graph, graphs: list[Json]) -> None:
    """Append `graph` and the graphs in its attributes."""
    place: Json = {"name": graph.name or "", "input": [value.name for value in graph.inputs], "output": [v.name for v in graph.outputs]}
    graphs.append(place)
    place["op"] = [
        *(_source_op(value, "Data") for value in graph.inputs),
        *(_source_op(value, "Const") for value in graph.initializers.values()),
        *(_node_op(node, graphs) for node in graph),
        {"name": "Node_Output", "type": "NetOutput", "input": [_source(value) for value in graph.outputs]},
    ]


def _source(value: ir.Value | None) -> str:
    """`operator:index` that makes the value; an input or weight is an operator of its own name."""
    if value is None:
        return ""
    node = value.producer()
    return f"{value.name}:0" if node is None else f"{node.name}:{value.index()}"


def _source_op(value: ir.Value, kind: str) -> Json:
    return {"name": value.name, "type": kind, "output_desc": [_describe(value)]}


def _node_op(node: ir.Node, graphs: list[Json]) -> Json:
    made: Json = {
        "name": node.name,
        "type": node.op_type,
        "input": [_source(value) for value in node.inputs],
        "output": [value.name for value in node.outputs],
        "output_desc": [_describe(value) for value in node.outputs],
        "attr": [{"key": name, "value": _attribute(item, graphs)} for name, item in node.attributes.items()],
    }
    if node.domain:
        made["domain"] = node.domain
    return made


def _describe(value: ir.Value) -> Json:
    """Dtype and shape, as far as they are known."""
    if value.type is None:
        return {}
    if not isinstance(value.type, ir.TensorType):
        return {"dtype": str(value.type)}
    made: Json = {"dtype": f"DT_{value.type.dtype.name}", "layout": "ND"}
    if value.shape is not None:
        made["shape"] = {"dim": [size if isinstance(size, int) else size.value or -1 for size in value.shape]}
    return made


def _attribute(attribute: ir.Attr, graphs: list[Json]) -> Any:
    """The value as JSON; a graph becomes its name and is appended to `graphs`, a tensor is described and listed if it is small."""
    if attribute.type == ir.AttributeType.GRAPH:
        body = attribute.as_graph()
        _add_graph(body, graphs)
        return {"graph": body.name or ""}
    if attribute.type == ir.AttributeType.TENSOR:
        return _tensor(attribute.as_tensor())
    value = attribute.value
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [_plain(item) for item in value]
    return _plain(value)


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, (int, float, str)) else str(value)


def _tensor(tensor: ir.TensorProtocol) -> Json:
    made: Json = {
        "dtype": f"DT_{tensor.dtype.name}",
        "layout": "ND",
        "shape": {"dim": [size for size in tensor.shape if isinstance(size, int)]},
    }
    if tensor.size <= _MAX_LISTED:
        made["data"] = tensor.numpy().tolist()
    return made

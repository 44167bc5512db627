"""Models of float16 compute in float32, as no kernel multiplies float16, and round what they store to it.

Kernels convert what they read of float16 again and again, and many algorithms are for float32 alone. So a value that was float16 is float32
that is rounded when a kernel stores it (`Weights.stored`), as in the precision mode float16: the same numbers, or, within a kernel, more
exact ones. Inputs and outputs of the model keep their type, and what a model computes in float32 stays as it is (`precision.Kept`). Tables
that rows are picked from stay float16: few are read, and some are half of a model.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx_ir as ir

from anycann.passes.precision import Kept, kept_operators, set_kept

HALVES = "halves"  # the pass by name
_NOTE = "anycann.halves"  # key in the metadata of a graph whose float32 was float16
_HALF, _FLOAT = ir.DataType.FLOAT16, ir.DataType.FLOAT
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm"})
_LEAST_PRODUCTS = 2  # a single operator converts its operands as it reads them
_BODIES = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


def widen_halves(graph: ir.Graph) -> list[str]:
    """Make float16 values float32, in a graph whose values have types, if it has products with known weights of float16."""
    why = _why_not(graph)
    if why is not None:
        return [why]
    floats = [node for node in graph if node.op_type != "Cast" and any(value.dtype == _FLOAT for value in node.outputs)]
    values = [value for node in graph for value in node.outputs if value.dtype == _HALF]
    tables = _tables(graph)
    for value in list(graph.inputs):
        if value.dtype == _HALF:
            _widen_input(graph, value)
    for node in list(graph):
        _widen_node(graph, node)
    for known in graph.initializers.values():
        if known.dtype == _HALF and known not in tables:
            assert known.const_value is not None
            known.const_value, known.type = _wide(known.const_value), ir.TensorType(_FLOAT)
    for value in values:
        value.type = ir.TensorType(_FLOAT)
    for number, output in enumerate(list(graph.outputs)):
        if output in values:
            _narrow_output(graph, number)
    for table in tables:
        for use in list(table.uses()):
            _widen_rows(graph, use.node)
    _keep(graph, floats)
    graph.metadata_props[_NOTE] = "1"
    return [f"{len(values)} values of float16 are float32, rounded where they are stored"]


def is_widened(graph: ir.Graph) -> bool:
    """True if what is float32 in the graph was float16."""
    return _NOTE in graph.metadata_props


# ---- which graphs
def _why_not(graph: ir.Graph) -> str | None:
    products = 0
    for node in graph:
        if any(attribute.type in _BODIES for attribute in node.attributes.values()):
            return "nothing changed: there are graphs within the graph"
        if any(value.dtype is None and value.uses() for value in node.outputs) or node.attributes.get_int("dtype", 0) == _HALF:
            return f"nothing changed: the type of what {node.name or node.op_type} makes is not known, or its own"
        weights = node.inputs[1] if node.op_type in _PRODUCTS and len(node.inputs) > 1 else None
        products += weights is not None and weights.const_value is not None and weights.dtype == _HALF
    if products < _LEAST_PRODUCTS:
        return f"nothing changed: {products} products with known weights of float16"
    return None if kept_operators(graph) == Kept() else "nothing changed: operators keep their types by order"


# ---- how
def _cast(value: ir.Value, to: ir.DataType, name: str) -> ir.Node:
    node = ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(to))], name=name)
    node.outputs[0].name, node.outputs[0].shape, node.outputs[0].type = name, value.shape, ir.TensorType(to)
    return node


def _widen_input(graph: ir.Graph, value: ir.Value) -> None:
    first, cast = next(iter(graph), None), _read_wide(value)
    if first is None:
        graph.append(cast)
    else:
        graph.insert_before(first, cast)


def _read_wide(value: ir.Value) -> ir.Node:
    """A cast to float32, for whoever reads a value."""
    uses, cast = list(value.uses()), _cast(value, _FLOAT, f"{value.name}/wide")
    for use in uses:
        use.node.replace_input_with(use.idx, cast.outputs[0])
    return cast


def _widen_node(graph: ir.Graph, node: ir.Node) -> None:
    """A cast to float16 rounds float32, and then is one to float32; known tensors of a node are widened."""
    for attribute in list(node.attributes.values()):
        if attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().dtype == _HALF:
            node.attributes[attribute.name] = ir.AttrTensor(attribute.name, _wide(attribute.as_tensor()))
    if node.op_type != "Cast" or node.attributes.get_int("to", 0) != _HALF:
        return
    source = node.inputs[0]
    assert source is not None
    if source.dtype == _FLOAT:
        narrow = _cast(source, _HALF, f"{node.outputs[0].name}/narrow")
        graph.insert_before(node, narrow)
        node.replace_input_with(0, narrow.outputs[0])
    node.attributes["to"] = ir.AttrInt64("to", int(_FLOAT))


_LARGE_BYTES = 1 << 16  # of float16; as float32 they are made when they are read, and not kept


class Widened(ir.LazyTensor):
    """A float16 tensor, its `source`, as float32."""

    def __init__(self, source: ir.TensorProtocol) -> None:
        super().__init__(partial(_as_float32, source), _FLOAT, ir.Shape(source.shape.numpy()), name=source.name, cache=False)
        self.source = source


def _as_float32(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    return ir.tensor(tensor.numpy().astype(np.float32), name=tensor.name)


def _wide(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    return _as_float32(tensor) if tensor.nbytes < _LARGE_BYTES else Widened(tensor)


def _tables(graph: ir.Graph) -> list[ir.Value]:
    """Large known values that nothing is done with but to pick rows."""

    def picked(value: ir.Value) -> bool:
        return all(use.node.op_type == "Gather" and use.idx == 0 for use in value.uses()) and value not in graph.outputs

    known = graph.initializers.values()
    return [v for v in known if v.dtype == _HALF and v.const_value is not None and v.const_value.nbytes >= _LARGE_BYTES and picked(v)]


def _widen_rows(graph: ir.Graph, gather: ir.Node) -> None:
    """What it picks from a table of float16, which was taken for float32, becomes that."""
    (rows,) = gather.outputs
    rows.type = ir.TensorType(_HALF)
    graph.insert_after(gather, _read_wide(rows))


def _narrow_output(graph: ir.Graph, number: int) -> None:
    """An output by its name and type, made of what is float32 now."""
    output = graph.outputs[number]
    name, output.name = output.name or "", f"{output.name}/wide"
    cast = _cast(output, _HALF, name)
    graph.append(cast)
    graph.outputs[number] = cast.outputs[0]


def _keep(graph: ir.Graph, nodes: list[ir.Node]) -> None:
    """What was float32 in the model is not rounded."""
    for node in nodes:
        node.name = node.name or node.outputs[0].name
    if nodes:
        set_kept(graph, Kept(frozenset(node.name for node in nodes if node.name)))

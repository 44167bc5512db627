"""What `--out_nodes`, `--output_type`, `--input_fp16_nodes` and `--keep_dtype` change in a graph, before it is compiled."""

from __future__ import annotations

import difflib

import onnx_ir as ir
from onnx_ir.passes import common

from anycann.passes.precision import set_kept
from anycann.support.errors import context
from anycann.tools.atc_errors import AtcUsageError
from anycann.tools.atc_kept import check_kept
from anycann.tools.atc_request import ConvertRequest
from anycann.tools.atc_values import NodeOutput, OutNodes, OutputTypes

_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE)


def apply_request(model: ir.Model, request: ConvertRequest) -> None:
    """Change `model` in place. Raises UsageError with Ascend's code for a node, output or input it does not have."""
    with context(f"while preparing {request.model}"):
        check_input_names(model.graph, request)
        select_outputs(model.graph, request.out_nodes)
        infer_output_types(model)
        cast_outputs(model.graph, request.output_types)
        narrow_inputs(model.graph, request.input_fp16_nodes)
        check_kept(request.kept, (node.name or "" for node in model.graph))
        set_kept(model.graph, request.kept)


def check_input_names(graph: ir.Graph, request: ConvertRequest) -> None:
    """Raise UsageError (E10016) for a name in --input_shape that is no input."""
    known = [value.name or "" for value in graph.inputs]
    for name in request.shapes:
        if name not in known:
            raise AtcUsageError("E10016", opname=_with_hint(name, known), parameter="input_shape")


def _with_hint(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"{name} (did you mean {near[0]}?)" if near else name


def select_outputs(graph: ir.Graph, wanted: OutNodes) -> None:
    """Return the wanted values instead of the model's outputs; nothing wanted keeps them. A tensor may be named like `node:index`."""
    if not (wanted.nodes or wanted.tensors):
        return
    values = [_tensor(graph, f"{item.node}:{item.index}") or _node_output(graph, item, "out_nodes") for item in wanted.nodes]
    for name in wanted.tensors:
        value = _tensor(graph, name)
        if value is None:
            raise AtcUsageError("E10016", opname=_with_hint(name, [v.name or "" for n in graph for v in n.outputs]), parameter="out_nodes")
        values.append(value)
    graph.outputs[:] = values


def infer_output_types(model: ir.Model) -> None:
    """Give outputs the types and shapes that the file does not say, as far as ONNX can infer them."""
    if any(value.type is None for value in model.graph.outputs):
        inferred = common.ShapeInferencePass()(model.clone()).model
        for value, known in zip(model.graph.outputs, inferred.graph.outputs, strict=True):
            value.type, value.shape = value.type or known.type, value.shape or known.shape


def _tensor(graph: ir.Graph, name: str) -> ir.Value | None:
    """The computed value of that name."""
    return next((value for node in graph for value in node.outputs if value.name == name), None)


def _node_output(graph: ir.Graph, wanted: NodeOutput, parameter: str) -> ir.Value:
    node = next((node for node in graph if node.name == wanted.node), None)
    if node is None:
        raise AtcUsageError("E10016", opname=_with_hint(wanted.node, [node.name or "" for node in graph]), parameter=parameter)
    if wanted.index >= len(node.outputs):
        reason = f"node {wanted.node} has {len(node.outputs)} outputs"
        raise AtcUsageError("E10001", value=f"{wanted.node}:{wanted.index}", parameter=f"--{parameter}", reason=reason)
    return node.outputs[wanted.index]


def cast_outputs(graph: ir.Graph, types: OutputTypes) -> None:
    """Convert all numeric outputs, or single ones, to the wanted type; names stay."""
    wanted = {
        _tensor(graph, f"{item.node}:{item.index}") or _node_output(graph, item, "output_type"): dtype for item, dtype in types.single
    }
    for value in wanted:
        if value not in list(graph.outputs):
            raise AtcUsageError("E10001", value=value.name, parameter="--output_type", reason="it is not an output of the model")
    for number, value in enumerate(list(graph.outputs)):
        dtype = types.all or wanted.get(value, "")
        is_tensor = value.type is None or isinstance(value.type, ir.TensorType)
        if dtype and is_tensor and value.dtype not in (ir.DataType[dtype_key(dtype)], ir.DataType.STRING):
            graph.outputs[number] = _append_cast(graph, value, ir.DataType[dtype_key(dtype)])


def dtype_key(dtype: str) -> str:
    """numpy's name of a type -> the name of onnx_ir.DataType."""
    return {"float32": "FLOAT", "float64": "DOUBLE"}.get(dtype, dtype.upper())


def _append_cast(graph: ir.Graph, value: ir.Value, to: ir.DataType) -> ir.Value:
    """A Cast of `value` that takes over its name."""
    name = value.name
    node = ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(to))], name=f"{name}/output_type")
    made = node.outputs[0]
    value.name, made.name = f"{name}/uncast", name
    made.type, made.shape = ir.TensorType(to), value.shape
    graph.append(node)
    return made


def narrow_inputs(graph: ir.Graph, names: tuple[str, ...]) -> None:
    """Take the named floating-point inputs in fp16; a Cast restores the dtype the model computes with."""
    inputs = {value.name or "": value for value in graph.inputs}
    for name in names:
        if name not in inputs:
            raise AtcUsageError("E10016", opname=_with_hint(name, list(inputs)), parameter="input_fp16_nodes")
        value = inputs[name]
        if value.dtype not in _FLOATS:
            reason = f"input {name} is of type {value.dtype}, not a floating-point one"
            raise AtcUsageError("E10001", value=name, parameter="--input_fp16_nodes", reason=reason)
        if value.dtype != ir.DataType.FLOAT16:
            _widen_after(graph, value)


def _widen_after(graph: ir.Graph, value: ir.Value) -> None:
    """fp16 input -> Cast to what it was -> everything that used it."""
    old = value.dtype
    assert old is not None
    uses = list(value.uses())
    node = ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(old))], name=f"{value.name}/input_fp16")
    made = node.outputs[0]
    made.name, made.type, made.shape = f"{value.name}/widened", ir.TensorType(old), value.shape
    value.type = ir.TensorType(ir.DataType.FLOAT16)
    first = next(iter(graph), None)
    graph.append(node) if first is None else graph.insert_before(first, node)
    for use in uses:
        use.node.replace_input_with(use.idx, made)
    for number, output in enumerate(list(graph.outputs)):
        if output is value:
            graph.outputs[number] = made

"""Shape inference of one node: ONNX's own for its operators, the definition's for ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx
import onnx_ir as ir

from anycann.graph.agreement import check_counts, check_sizes
from anycann.graph.registry import OPSET, Registry, TensorType, dtype_of, schema, static_type
from anycann.support.errors import ModelError
from anycann.support.records import dataclass

DATA_LIMIT = 1024  # elements of a constant operand shown to shape inference


@dataclass(frozen=True)
class Inferred:
    """What is known of an output: its type (None: nothing) and its shape (None: not even the rank; a size may be None)."""

    type: ir.TypeProtocol | None = None
    shape: tuple[int | None, ...] | None = None

    @classmethod
    def of(cls, type_: TensorType) -> Inferred:
        return cls(ir.TensorType(ir.DataType.from_numpy(type_.dtype.numpy)), type_.shape)


def infer_outputs(node: ir.Node, registry: Registry) -> list[Inferred]:
    """One answer for each output of the node, from the types and known values of its operands. Raises ModelError."""
    check_counts(node)
    found = _inferred(node, registry)
    check_sizes(node, [_sizes(value) for value in node.inputs], [_known(each.shape) for each in found])
    return found


def _sizes(value: ir.Value | None) -> tuple[int, ...] | None:
    """The shape of an operand, if all of it is known."""
    return None if value is None or value.shape is None else _known(tuple(value.shape))


def _known(shape: Sequence[object] | None) -> tuple[int, ...] | None:
    return None if shape is None or not all(isinstance(size, int) for size in shape) else tuple(shape)  # type: ignore[arg-type]


def _inferred(node: ir.Node, registry: Registry) -> list[Inferred]:
    operator = registry.of(node)
    if operator is not None and operator.infer is not None:
        return _by_definition(node, operator.infer)
    found = schema(node.domain, node.op_type)
    if found is None or any(v is not None and v.type is None for v in node.inputs):
        return [Inferred()] * len(node.outputs)
    try:
        types = onnx.shape_inference.infer_node_outputs(
            found, ir.serde.serialize_node(node), _input_types(node), _input_data(node), opset_imports=[onnx.helper.make_opsetid("", OPSET)]
        )
    except Exception as error:  # the library raises bare exceptions of several kinds
        raise ModelError(f"node {node.name!r} ({node.op_type}): {_first_line(error)}; its inputs: {_described(node)}") from error
    return [_complete(node, _from_proto(output, types.get(output.name or ""))) for output in node.outputs]


def _by_definition(node: ir.Node, infer: Callable[..., object]) -> list[Inferred]:
    inputs = [static_type(v) for v in node.inputs]
    if any(v is not None and t is None for v, t in zip(node.inputs, inputs, strict=True)):
        return [Inferred()] * len(node.outputs)
    known = [Inferred.of(type_) for type_ in infer(node, inputs)]  # type: ignore[attr-defined]
    return known + [Inferred()] * (len(node.outputs) - len(known))


def _from_proto(output: ir.Value, proto: onnx.TypeProto | None) -> Inferred:
    """An inferred type, with as many of its sizes as are known."""
    if proto is None or not proto.HasField("tensor_type"):
        return Inferred()
    type_ = ir.TensorType(ir.DataType(proto.tensor_type.elem_type))
    if not proto.tensor_type.HasField("shape"):
        return Inferred(type_)
    shape = tuple(d.dim_value if d.HasField("dim_value") else None for d in proto.tensor_type.shape.dim)
    if any(size is not None and size < 0 for size in shape):
        raise ModelError(f"value {output.name!r} would have the shape {list(shape)}")
    return Inferred(type_, shape)


def _complete(node: ir.Node, found: Inferred) -> Inferred:
    """With the sizes that a ConvTranspose states: ONNX leaves out those that are less than the image's."""
    stated = tuple(node.attributes.get_ints("output_shape", ())) if node.op_type == "ConvTranspose" else ()
    image = node.inputs[0].shape if stated and node.inputs[0] is not None else None
    if found.shape is None or image is None or len(found.shape) >= len(image) or min(stated) < 1:
        return found
    return Inferred(found.type, (*found.shape[:2], *stated[2 - len(image) :]))


def _input_types(node: ir.Node) -> dict[str, onnx.TypeProto]:
    types: dict[str, onnx.TypeProto] = {}
    for value in node.inputs:
        if value is None or value.type is None:
            continue
        shaped = value.shape if dtype_of(value.dtype) is not None or value.const_value is not None else None
        types[value.name or ""] = ir.serde.serialize_type(value.type) if shaped is None else _shaped(value)
    return types


def _shaped(value: ir.Value) -> onnx.TypeProto:
    assert value.shape is not None
    assert value.dtype is not None
    sizes = [size if isinstance(size, int) else None for size in value.shape]
    return onnx.helper.make_tensor_type_proto(int(value.dtype), sizes)


def _input_data(node: ir.Node) -> dict[str, onnx.TensorProto]:
    known = {v.name or "": v.const_value for v in node.inputs if v is not None and v.const_value is not None}
    small = {name: tensor for name, tensor in known.items() if tensor.size <= DATA_LIMIT and len(tensor.shape) <= 1}
    return {name: ir.serde.serialize_tensor(tensor) for name, tensor in small.items()}


def _first_line(error: BaseException) -> str:
    words = str(error).strip().removeprefix("[ShapeInferenceError] ").removeprefix("[TypeInferenceError] ")
    return words.splitlines()[0] if words else type(error).__name__


def _described(node: ir.Node) -> str:
    """The inputs with their types as far as they are known: `x FLOAT[2,N]`."""
    return ", ".join("none" if v is None else f"{v.name} {v.dtype or '?'}{v.shape or ''}" for v in node.inputs)

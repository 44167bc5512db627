"""A single operator of Ascend to an ONNX model: looked up, checked, built, and held against what was declared."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import difflib
from typing import Any

import onnx
import onnx_ir as ir

from anycann.frontends.ascend_ops import elementwise, images, products, reductions, shapes
from anycann.frontends.ascend_ops.builder import Builder, input_name, onnx_dtype
from anycann.frontends.ascend_ops.definition import TABLE, Operand, OperatorType, Required
from anycann.graph.agreement import check_counts
from anycann.om.operator_spec import OperandSpec, OperatorError, OperatorSpec
from anycann.support.errors import ModelError

FAMILIES = (elementwise, products, reductions, shapes, images)  # the files with rows
OPSET, IR_VERSION = 20, 10
PLAIN_FORMATS = ("ND", "NCHW", "NHWC", "HWCN", "NCDHW", "NDHWC", "NC", "NCL", "UNDEFINED")  # those whose sizes are the tensor's own
_KINDS: dict[str, tuple[type, ...]] = {
    "bool": (bool, int), "int": (int,), "float": (int, float), "string": (str,), "ints": (list, tuple), "floats": (list, tuple),
    "lists": (list, tuple), "dtype": (int,),
}  # fmt: skip


def operator_type(name: str) -> OperatorType:
    """The row of an operator. Raises OperatorError with the nearest name for one that is not in the tables."""
    if name not in TABLE:
        near = difflib.get_close_matches(name, TABLE, n=1)
        raise OperatorError(
            "type", f"operator {name} is not known" + (f"; did you mean {near[0]}?" if near else f" ({len(TABLE)} operators are)")
        )
    return TABLE[name]


def completed(spec: OperatorSpec) -> OperatorSpec:
    """`spec` with the defaults of its operator."""
    return dataclasses.replace(spec, defaults=operator_type(spec.op).defaults)


def operator_graph(spec: OperatorSpec) -> onnx.ModelProto:
    """The model of one operator: inputs x0, x1, ... (those that are there), outputs y0, y1, ...

    A constant of `spec` is an input all the same, so that it may be fed, and the graph does not look at it. Raises OperatorError.
    """
    builder, inferred = _built(spec)
    outputs = [_as_declared(builder, number, *inferred[number]) for number in range(len(spec.outputs))]
    return _model(
        builder,
        outputs,
        [onnx.helper.make_tensor_value_info(f"y{n}", onnx_dtype(o.dtype), _sizes(o, f"y{n}")) for n, o in enumerate(spec.outputs)],
    )


def inferred_shapes(spec: OperatorSpec) -> list[tuple[int, ...] | None]:
    """Shapes of the outputs as the inputs make them; -1 for an open size, None for an unknown rank. Raises OperatorError."""
    return [shape for _, _, shape in _built(spec)[1]]


def _built(spec: OperatorSpec) -> tuple[Builder, list[tuple[str, int, tuple[int, ...] | None]]]:
    """The nodes, and (value, ONNX dtype, shape) of each result."""
    kind = operator_type(spec.op)
    places, rest = _places(spec, kind)
    builder = Builder(spec, kind, places, rest, _attributes(spec, kind))
    results = kind.build(builder)
    values = [results] if isinstance(results, str) else results
    if not kind.outputs <= len(spec.outputs) <= max(len(values), kind.outputs):
        raise OperatorError("output", f"{spec.op} has {len(spec.outputs)} outputs declared; accepted: {kind.outputs} to {len(values)}")
    return builder, _infer(builder, values[: len(spec.outputs)])


# ---- what was given
def _places(spec: OperatorSpec, kind: OperatorType) -> tuple[dict[str, int], list[int]]:
    """Which input of the row each given one is, and the numbers of those that belong to its `*`."""
    fixed = [operand for operand in kind.inputs if not operand.many]
    least = sum(not operand.optional for operand in fixed)
    many = next((operand for operand in kind.inputs if operand.many), None)
    given = len(spec.inputs)
    if given < least + bool(many) or (many is None and given > len(fixed)):
        words = ", ".join(f"{operand.name}{'?' * operand.optional}{'*' * operand.many}" for operand in kind.inputs)
        raise OperatorError("input", f"{spec.op} has {given} inputs; accepted: {words} (? may be left out, * stands for many)")
    rest = given - len(fixed) if many else 0
    places: dict[str, int] = {}
    members: list[int] = []
    dtypes: dict[str, str] = {}
    at = 0
    for operand in kind.inputs:
        for _ in range(rest if operand.many else 1):
            if at >= given:
                break
            if _is_there(spec, at, operand, dtypes, (*PLAIN_FORMATS, *kind.formats.get(operand.name, ()))):
                members += [at] if operand.many else []
                places |= {} if operand.many else {operand.name: at}
            at += 1
    return places, members


def _is_there(spec: OperatorSpec, number: int, operand: Operand, dtypes: dict[str, str], formats: tuple[str, ...]) -> bool:
    """False for an input that is left out. Raises OperatorError for one that must not be, and for what is not accepted."""
    given = spec.inputs[number]
    if not given.dtype:
        if not operand.optional:
            raise OperatorError("input", f"{spec.op}: input {number} ({operand.name}) is left out, and it is not optional")
        return False
    if given.format not in formats:
        words = f"input {number} ({operand.name}) is {given.format}; accepted: {', '.join(formats)}"
        raise OperatorError("input", f"{spec.op}: {words}")
    accepted = (dtypes[operand.shared],) if operand.shared in dtypes else operand.dtypes
    if given.dtype not in accepted:
        raise OperatorError("input", f"{spec.op}: input {number} ({operand.name}) is {given.dtype}; accepted: {', '.join(accepted)}")
    if operand.shared:
        dtypes[operand.shared] = given.dtype
    return True


def _attributes(spec: OperatorSpec, kind: OperatorType) -> dict[str, Any]:
    """Given attributes over defaults. Raises OperatorError for an unknown one, a missing one, and a value of another kind."""
    for name, value in spec.attributes.items():
        if name not in kind.attributes:
            near = difflib.get_close_matches(name, kind.attributes, n=1)
            known = f"did you mean {near[0]}?" if near else f"attributes: {', '.join(kind.attributes) or 'none'}"
            raise OperatorError("attribute", f"{spec.op} has no attribute {name}; {known}")
        if not isinstance(value, _KINDS[kind_of(kind.attributes[name])]):
            raise OperatorError("attribute", f"{spec.op}: {name} is {value!r}; accepted: {kind_of(kind.attributes[name])}")
    missing = [name for name, default in kind.attributes.items() if isinstance(default, Required) and name not in spec.attributes]
    if missing:
        raise OperatorError("attribute", f"{spec.op}: attribute {missing[0]} is missing")
    return {**kind.defaults, **spec.attributes}


def kind_of(default: object) -> str:
    """The kind of an attribute, by its default."""
    if isinstance(default, Required):
        return default.kind
    names: Mapping[type, str] = {bool: "bool", int: "int", float: "float", str: "string", tuple: "ints"}
    return names[type(default)]


# ---- what comes out
def _infer(builder: Builder, values: list[str]) -> list[tuple[str, int, tuple[int, ...] | None]]:
    """(value, ONNX dtype, shape) of each of `values`."""
    model = _model(builder, [], [onnx.helper.make_empty_tensor_value_info(value) for value in values])
    try:
        for node in ir.from_proto(model).graph:
            check_counts(node)
    except ModelError as error:
        raise OperatorError("attribute", f"{builder.spec.op}: {error}") from error
    try:
        graph = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True).graph
    except onnx.shape_inference.InferenceError as error:
        raise OperatorError("input", f"{builder.spec.op}: {_reason(error)}") from error
    found = []
    for value, info in zip(values, graph.output, strict=True):
        tensor = info.type.tensor_type
        shape = tuple(d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim) if tensor.HasField("shape") else None
        found.append((value, tensor.elem_type, shape))
    return found


def _reason(error: Exception) -> str:
    """The last sentence of what ONNX says."""
    return str(error).rpartition("]")[2].strip() or str(error)


def _as_declared(builder: Builder, number: int, value: str, dtype: int, shape: tuple[int, ...] | None) -> str:
    """`value` in the dtype and shape that were declared. Raises OperatorError if it cannot be."""
    declared = builder.spec.outputs[number]
    wanted = onnx_dtype(declared.dtype)
    if dtype not in (wanted, 0):
        if not builder.kind.casts:
            got = onnx.helper.tensor_dtype_to_np_dtype(dtype).name
            raise OperatorError("output", f"{builder.spec.op}: output {number} is declared {declared.dtype}; it comes to {got}")
        value = builder.cast(value, declared.dtype)
    if shape is None or _fits(declared.shape, shape):
        return value
    if -1 not in (*declared.shape, *shape) and _without_ones(declared.shape) == _without_ones(shape):
        return builder.node("Reshape", value, builder.constant(list(declared.shape)))
    raise OperatorError("output", f"{builder.spec.op}: output {number} is declared {list(declared.shape)}; it comes to {list(shape)}")


def _fits(declared: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return len(declared) == len(shape) and all(-1 in (a, b) or a == b for a, b in zip(declared, shape, strict=True))


def _without_ones(shape: tuple[int, ...]) -> list[int]:
    return [size for size in shape if size != 1]


def _model(builder: Builder, results: list[str], outputs: list[onnx.ValueInfoProto]) -> onnx.ModelProto:
    inputs = [_input(n, operand) for n, operand in enumerate(builder.spec.inputs) if operand.dtype]
    ends = [onnx.helper.make_node("Identity", [value], [f"y{n}"], f"output{n}") for n, value in enumerate(results)]
    graph = onnx.helper.make_graph([*builder.nodes, *ends], builder.spec.op, inputs, outputs, builder.constants)
    return onnx.helper.make_model(graph, ir_version=IR_VERSION, opset_imports=[onnx.helper.make_opsetid("", OPSET)])


def _input(number: int, operand: OperandSpec) -> onnx.ValueInfoProto:
    name = input_name(number)
    return onnx.helper.make_tensor_value_info(name, onnx_dtype(operand.dtype), _sizes(operand, name))


def _sizes(operand: OperandSpec, name: str) -> list[int | str]:
    return [size if size >= 0 else f"{name}_{axis}" for axis, size in enumerate(operand.shape)]

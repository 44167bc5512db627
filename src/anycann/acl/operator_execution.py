"""acl.op: running single operators in a stream, with handles for those that run often, and asking for shapes."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import itertools
import json
import math
from pathlib import Path
from typing import ClassVar

import numpy as np

from anycann.acl import types
from anycann.acl.codes import Code
from anycann.acl.data_buffers import DataBuffer
from anycann.acl.entries import refused, status, value, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.operator_attributes import attributes_of
from anycann.acl.operator_models import OPERATORS, OperatorModel, operator_call
from anycann.acl.process import PROCESS
from anycann.acl.runs import failure, run_program
from anycann.acl.tensor_descs import TensorDesc
from anycann.om.operator_spec import OperandSpec, OperatorSpec
from anycann.support.errors import AnyCANNError, describe
from anycann.support.records import dataclass

_dump_folders: dict[int, Path] = {}  # kind of arguments -> where calls are written
_dump_numbers = itertools.count()
AICORE_ARGUMENTS = 1


@status("acl.op.execute")
def execute(
    op_type: str, input_descs: list[int], inputs: list[int], output_descs: list[int], outputs: list[int], attr: int, stream: int
) -> None:
    """Run an operator on data buffers, in order with the tasks of `stream`."""
    model, call = _found(operator_call(op_type, input_descs, output_descs, attributes_of(attr)), inputs, stream)
    submit_operator(model, call, inputs, outputs, stream, ())


@status("acl.op.execute_v2")
def execute_v2(
    op_type: str, input_descs: list[int], inputs: list[int], output_descs: list[int], outputs: list[int], attr: int, stream: int
) -> None:
    """As execute; after the run, output descriptions say the shapes that came out."""
    model, call = _found(operator_call(op_type, input_descs, output_descs, attributes_of(attr)), inputs, stream)
    submit_operator(model, call, inputs, outputs, stream, [PROCESS.handles.get(desc, TensorDesc) for desc in output_descs])


def _found(call: OperatorSpec, inputs: Sequence[int], stream: int) -> tuple[OperatorModel, OperatorSpec]:
    """The model for a call, and the call; where sizes or axes must be known beforehand, with those that the data buffers hold now."""
    try:
        return OPERATORS.find(call), call
    except AclError as error:
        if error.code is not Code.OP_INPUT_NOT_MATCH or len(inputs) != len(call.inputs):
            raise
        PROCESS.stream(stream).synchronize()
        buffers = _buffers(inputs, call.inputs, "input")
        known = tuple(_with_values(operand, buffer) for operand, buffer in zip(call.inputs, buffers, strict=True))
        if known == call.inputs:
            raise
        call = dataclasses.replace(call, inputs=known)
        return OPERATORS.find(call), call


def submit_operator(
    model: OperatorModel, call: OperatorSpec, inputs: Sequence[int], outputs: Sequence[int], stream: int, descs: Sequence[TensorDesc]
) -> None:
    """Run `call` by its model in a stream. Raises AclError."""
    found = PROCESS.stream(stream)
    _write_call(call)
    run = _Run(model, call, _buffers(inputs, call.inputs, "input"), _buffers(outputs, call.outputs, "output"), descs)
    run.arrays()  # refuse now what cannot be read
    found.submit(run)


@dataclass
class _Run:
    """One run of an operator. Memory is looked at again when it comes to it."""

    model: OperatorModel
    call: OperatorSpec
    inputs: Sequence[DataBuffer]
    outputs: Sequence[DataBuffer]
    descs: Sequence[TensorDesc]  # of the outputs, to be told what came out

    def arrays(self) -> tuple[list[np.ndarray], list[np.ndarray | None]]:
        """The inputs, and where the outputs go; None for one of open size."""
        feeds = [_array(buffer, operand) for buffer, operand in zip(self.inputs, self.call.inputs, strict=True) if operand.dtype]
        places = [None if -1 in o.shape else _array(buffer, o) for buffer, o in zip(self.outputs, self.call.outputs, strict=True)]
        return feeds, places

    def __call__(self) -> None:
        feeds, places = self.arrays()
        try:
            program = self.model.program(self.call)
            told = program.program.outputs  # "object" where the values of inputs decide the shape
            places = [None if spec.dtype == "object" else place for spec, place in zip(told, places, strict=True)]
            values = run_program(program, feeds, places, self.model, self.call.op)
        except AnyCANNError as error:
            raise failure(error, self.model.where) from error
        for number, (result, place) in enumerate(zip(values, places, strict=True)):
            assert isinstance(result, np.ndarray)
            if place is None:
                self.outputs[number].array(result.dtype, result.shape)[...] = result
            elif result.shape != place.shape:
                place[...] = result.reshape(place.shape)
            if self.descs:
                self.descs[number].dims = list(result.shape)


def _array(buffer: DataBuffer, operand: OperandSpec) -> np.ndarray:
    """The tensor in a data buffer; a constant needs none."""
    if operand.constant is not None and not buffer.address:
        return np.array(operand.constant, types.numpy_dtype_of(types.data_type_of(operand.dtype))).reshape(operand.shape)
    if any(size < 0 for size in operand.shape):
        raise AclError(Code.INVALID_PARAM, f"a tensor is described as {operand}; accepted: sizes that are known when it runs")
    return buffer.array(types.numpy_dtype_of(types.data_type_of(operand.dtype)), operand.shape)


def _buffers(handles: Sequence[int], operands: Sequence[OperandSpec], role: str) -> list[DataBuffer]:
    if len(handles) != len(operands):
        raise AclError(Code.INVALID_PARAM, f"{len(handles)} {role} data buffers for {len(operands)} {role} tensor descriptions")
    return [PROCESS.handles.get(handle, DataBuffer) for handle in handles]


# ---- handles
@dataclass
class OperatorHandle:
    """An operator that was looked up once."""

    acl_word: ClassVar[str] = "operator handle"
    model: OperatorModel
    call: OperatorSpec


@value_and_status("acl.op.create_handle", returns="(handle, ret)")
def create_handle(op_type: str, input_descs: list[int], output_descs: list[int], attr: int) -> int:
    """An operator that is looked up now and run later."""
    return new_handle(operator_call(op_type, input_descs, output_descs, attributes_of(attr)))


def new_handle(call: OperatorSpec) -> int:
    """A handle for `call`, whose model is there. Raises AclError."""
    model = OPERATORS.find(call)
    if not call.is_open:
        model.program(call)  # so that the first run need not compile it
    return PROCESS.handles.add(OperatorHandle(model, call))


@value("acl.op.destroy_handle", failed=None, returns="None")
def destroy_handle(handle: int) -> None:
    """Forget an operator handle."""
    PROCESS.handles.remove(handle, OperatorHandle)


@status("acl.op.execute_with_handle")
def execute_with_handle(handle: int, inputs: list[int], outputs: list[int], stream: int) -> None:
    """Run the operator of a handle on data buffers, in order with the tasks of `stream`."""
    found = PROCESS.handles.get(handle, OperatorHandle)
    submit_operator(found.model, found.call, inputs, outputs, stream, ())


# ---- casts
@status("acl.op.cast")
def cast(source_desc: int, source: int, target_desc: int, target: int, truncate: int, stream: int) -> None:
    """Change the data type of a tensor; fractions are cut. truncate is reserved."""
    call = _cast_call(source_desc, target_desc)
    submit_operator(OPERATORS.find(call), call, [source], [target], stream, ())


@value_and_status("acl.op.create_handle_for_cast", returns="(handle, ret)")
def create_handle_for_cast(source_desc: int, target_desc: int, truncate: int) -> int:
    """A handle for a change of data type; see cast."""
    return new_handle(_cast_call(source_desc, target_desc))


def _cast_call(source_desc: int, target_desc: int) -> OperatorSpec:
    target = PROCESS.handles.get(target_desc, TensorDesc)
    return operator_call("Cast", [source_desc], [target_desc], {"dst_type": target.data_type})


# ---- open shapes
@status("acl.op.infer_shape")
def infer_shape(op_type: str, input_descs: list[int], inputs: list[int], count: int, output_descs: list[int], attr: int) -> None:
    """Write the shapes of the outputs into their descriptions; what depends on values is read from the data buffers of small integers."""
    from anycann import single_operator  # imports ONNX

    call = operator_call(op_type, input_descs, output_descs, attributes_of(attr))
    if count != len(output_descs):
        raise AclError(Code.INVALID_PARAM, f"{count} outputs and {len(output_descs)} output descriptions")
    buffers = _buffers(inputs, call.inputs, "input")
    known = tuple(_with_values(operand, buffer) for operand, buffer in zip(call.inputs, buffers, strict=True))
    try:
        shapes = single_operator.inferred_shapes(dataclasses.replace(call, inputs=known))
    except AnyCANNError as error:
        code = {"type": Code.OP_NOT_FOUND}.get(getattr(error, "part", ""), Code.INVALID_PARAM)
        raise AclError(code, describe(error)) from error
    for desc, shape in zip(output_descs, shapes, strict=True):
        PROCESS.handles.get(desc, TensorDesc).dims = [-2] if shape is None else list(shape)


_MOST_VALUES = 64  # an input with more integers is data, not sizes


def _with_values(operand: OperandSpec, buffer: DataBuffer) -> OperandSpec:
    """The operand as a constant, if it may be sizes or axes and its values are there."""
    usable = operand.dtype in ("int32", "int64") and -1 not in operand.shape and math.prod(operand.shape) <= _MOST_VALUES
    if operand.constant is not None or not usable or not buffer.address:
        return operand
    return dataclasses.replace(operand, constant=tuple(_array(buffer, operand).reshape(-1).tolist()))


@status("acl.op.update_params")
def update_params(op_type: str, input_descs: list[int], output_descs: list[int], attr: int) -> None:
    """Make ready what an operator needs for these shapes."""
    call = operator_call(op_type, input_descs, output_descs, attributes_of(attr))
    OPERATORS.find(call).program(call)


# ---- what was called, for atc
@status("acl.op.start_dump_args")
def start_dump_args(kind: int, folder: str) -> None:
    """From now on write each operator that is called into `folder`, as a list for atc --singleop. kind: 1 (operators of the AI Core)."""
    if kind != AICORE_ARGUMENTS:
        raise AclError(Code.INVALID_PARAM, f"kind of arguments is {kind}; accepted: 1")
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AclError(Code.INVALID_PARAM, f"{folder!r} cannot be made: {error}") from error
    _dump_folders[kind] = Path(folder)


@status("acl.op.stop_dump_args")
def stop_dump_args(kind: int) -> None:
    """End what start_dump_args began."""
    if _dump_folders.pop(kind, None) is None:
        raise AclError(Code.INVALID_PARAM, f"arguments of kind {kind} are not written; acl.op.start_dump_args begins it")


def _write_call(call: OperatorSpec) -> None:
    folder = _dump_folders.get(AICORE_ARGUMENTS)
    if folder is None:
        return
    entry = {
        "op": call.op,
        "input_desc": [_described(operand) for operand in call.inputs],
        "output_desc": [_described(operand) for operand in call.outputs],
        "attr": [{"name": name, "type": _kind(setting), "value": setting} for name, setting in call.attributes.items()],
    }
    (folder / f"{next(_dump_numbers)}_{call.op}.json").write_text(json.dumps([entry], indent=1), encoding="utf-8")


def _described(operand: OperandSpec) -> dict[str, object]:
    names = {"float32": "float", "float64": "double", "": "UNDEFINED"}
    return {"format": operand.format, "shape": list(operand.shape), "type": names.get(operand.dtype, operand.dtype)}


def _kind(setting: object) -> str:
    """The name of an attribute's kind in JSON."""
    if isinstance(setting, list):
        return f"list_{_kind(setting[0] if setting else 0)}"
    return {bool: "bool", int: "int", float: "float", str: "string"}[type(setting)]


_KERNELS = "kernels of the AI Core cannot run here"
refused("acl.op.register_compile_func", ("op_type", "function"), _KERNELS)
refused("acl.op.unregister_compile_func", ("op_type",), _KERNELS)
refused("acl.op.create_kernel", ("op_type", "kernel_id", "kernel_name", "data", "size", "engine", "deallocator"), _KERNELS)
refused("acl.op.set_kernel_args", ("desc", "kernel_id", "block_dim", "args", "size"), _KERNELS)

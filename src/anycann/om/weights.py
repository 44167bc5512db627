"""The graph section: a serialised ONNX model whose big tensors refer to bytes of the constants section of the same file.

A weight that a kernel packed without loss is there once: its location says how it lies in the packed one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
import math
from typing import Protocol, TypeAlias

from google.protobuf.message import DecodeError
import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from anycann.om.model import Bytes
from anycann.om.plan import Buffer
from anycann.support.arrangement import Arrangement
from anycann.support.errors import ModelError
from anycann.support.records import dataclass

LOCATION = "@constants"
SMALLEST_BYTES = 1024
_UNREADABLE = (DecodeError, ValueError, TypeError, KeyError, AttributeError, RuntimeError)

Change: TypeAlias = Callable[[ir.TensorProtocol], ir.TensorProtocol]


class ConstantSink(Protocol):
    """Where weights are collected, as in `ConstantPool`."""

    def add(self, array: npt.NDArray[np.uint8]) -> Buffer:
        """Keep the bytes and say where they lie in the constants."""


@dataclass(frozen=True)
class Stored:
    """Where a weight lies among the constants already, packed without loss."""

    buffer: Buffer
    arrangement: Arrangement


def store_graph(model: ir.Model, constants: ConstantSink, stored: Mapping[int, Stored] | None = None) -> bytes:
    """`model` as the graph section; tensors of 1 KiB and more go to `constants`, as ONNX lays out raw data. `model` is not changed.

    Tensors that are `stored`, by their id, are referred to where they are.
    """
    places = stored or {}

    def refer(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        if tensor.dtype == ir.DataType.STRING or tensor.nbytes < SMALLEST_BYTES:
            return tensor
        place = places.get(id(tensor))
        buffer, location = (constants.add(_raw(tensor)), LOCATION) if place is None else (place.buffer, f"{LOCATION}/{place.arrangement}")
        shape = ir.Shape(tensor.shape.numpy())
        return ir.ExternalTensor(
            location, buffer.offset_bytes, buffer.nbytes, tensor.dtype, shape=shape, name=tensor.name or "", doc_string=tensor.doc_string
        )

    copy = model.clone()
    _change_tensors(copy, refer)
    data: bytes = ir.to_proto(copy).SerializeToString(deterministic=True)
    return data


def load_graph(data: bytes, constants: Bytes, where: str) -> ir.Model:
    """The model in a graph section, its big tensors views of `constants`. Nothing but `constants` is read.

    Raises ModelError, beginning with `where`, for bytes that are no ONNX model and for a tensor that refers to anything else.
    """
    try:
        model: ir.Model = ir.from_proto(onnx.ModelProto.FromString(data))
    except _UNREADABLE as error:
        raise ModelError(f"{where} is no ONNX model: {type(error).__name__}: {error!s:.200}") from error
    _change_tensors(model, lambda tensor: _resolve(tensor, constants, where) if isinstance(tensor, ir.ExternalTensor) else tensor)
    return model


def _raw(tensor: ir.TensorProtocol) -> npt.NDArray[np.uint8]:
    """The bytes of `tensor` in ONNX's raw form, without a copy where memory has that form already."""
    if tensor.dtype.bitwidth >= 8:
        return np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8)
    return np.frombuffer(tensor.tobytes(), np.uint8)


def _resolve(tensor: ir.ExternalTensor, constants: Bytes, where: str) -> ir.TensorProtocol:
    dims = tuple(int(size) for size in tensor.shape if isinstance(size, int))
    what = f"{where}: tensor {tensor.name!r}, {tensor.dtype.name.lower()}{list(dims)}"
    location = str(tensor.location)
    if location.startswith(f"{LOCATION}/"):
        return _packed(tensor, dims, location.removeprefix(f"{LOCATION}/"), constants, what)
    if location != LOCATION:
        raise ModelError(f"{what} lies in {location!r}; accepted: {LOCATION}, the constants of the same file")
    needed = tensor.nbytes if tensor.dtype != ir.DataType.STRING and min(dims, default=0) >= 0 else -1
    offset, length = tensor.offset or 0, tensor.length
    if length != needed or offset < 0 or offset + needed > constants.nbytes:
        raise ModelError(f"{what} lies at {offset} with {length} bytes; accepted: {needed} bytes within {constants.nbytes}")
    raw = constants[offset : offset + needed]
    if tensor.dtype.bitwidth < 8:
        return ir.PackedTensor(raw, tensor.dtype, shape=dims, name=tensor.name)
    return ir.Tensor(raw.view(tensor.dtype.numpy()).reshape(dims), tensor.dtype, name=tensor.name, doc_string=tensor.doc_string)


def _packed(tensor: ir.ExternalTensor, dims: tuple[int, ...], text: str, constants: Bytes, what: str) -> ir.TensorProtocol:
    """A tensor that is put together from a packed one when it is asked for."""
    try:
        arrangement = Arrangement.parse(text)
    except ValueError as error:
        raise ModelError(f"{what} is arranged as {text!r:.200}: {error}") from None
    plain = tensor.dtype != ir.DataType.STRING and tensor.dtype.bitwidth >= 8
    if not plain or math.prod(arrangement.kept) != math.prod(dims) or min(dims, default=0) < 0:
        raise ModelError(f"{what} is arranged as {text!r:.200}; accepted: whole bytes an element, and as many elements as it has")
    dtype = tensor.dtype.numpy()
    needed, offset = math.prod(arrangement.split) * dtype.itemsize, tensor.offset or 0
    if tensor.length != needed or offset < 0 or offset + needed > constants.nbytes:
        raise ModelError(f"{what} lies packed at {offset} with {tensor.length} bytes; accepted: {needed} bytes within {constants.nbytes}")

    def restore() -> ir.TensorProtocol:
        array = arrangement.restore(constants[offset : offset + needed].view(dtype)).reshape(dims)
        return ir.Tensor(array, tensor.dtype, name=tensor.name, doc_string=tensor.doc_string)

    return ir.LazyTensor(restore, tensor.dtype, ir.Shape(dims), cache=True, name=tensor.name, doc_string=tensor.doc_string)


def _change_tensors(model: ir.Model, change: Change) -> None:
    """Replace every tensor of the model by what `change` makes of it: initialisers and attributes, in all subgraphs and functions."""
    for graph in _graphs(model):
        if isinstance(graph, ir.Graph):
            for value in graph.initializers.values():
                if value.const_value is not None:
                    value.const_value = change(value.const_value)
        for node in graph:
            for name, attribute in list(node.attributes.items()):
                if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                    node.attributes[name] = ir.AttrTensor(name, change(attribute.as_tensor()))
                elif attribute.type == ir.AttributeType.TENSORS and not attribute.is_ref():
                    node.attributes[name] = ir.AttrTensors(name, [change(tensor) for tensor in attribute.as_tensors()])


def _graphs(model: ir.Model) -> Iterator[ir.Graph | ir.Function]:
    """The graph, the functions, and every graph that a node of them holds."""
    waiting: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    while waiting:
        graph = waiting.pop(0)
        yield graph
        for node in graph:
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
                    waiting.append(attribute.as_graph())
                elif attribute.type == ir.AttributeType.GRAPHS and not attribute.is_ref():
                    waiting.extend(attribute.as_graphs())

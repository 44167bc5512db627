"""An ONNX model in any of the ways models come, as a checked `onnx_ir` model whose weights stay in their files."""

from __future__ import annotations

import os
from pathlib import Path

from google.protobuf.message import DecodeError
import onnx
import onnx_ir as ir
from onnx_ir.serde import TensorProtoTensor

from anycann.frontends.onnx.check import check_model
from anycann.frontends.onnx.defaults import fix_defaults, note_overridable
from anycann.frontends.onnx.functions import inline_functions
from anycann.frontends.onnx.naming import name_everything
from anycann.frontends.onnx.sparse import densified
from anycann.frontends.onnx.storage import Storage, map_file, stored_tensor
from anycann.frontends.onnx.wire import compact
from anycann.frontends.torch_fx.exported import holds_program, load_program
from anycann.graph.sources import all_graphs, describe
from anycann.support.errors import ModelError, UsageError, context

FOREIGN: tuple[tuple[bytes, str], ...] = (  # how files that are no ONNX models begin
    (b"\x1f\x8b", "a gzip file; decompress it first"),
    (b"PK\x03\x04", "a zip archive (a PyTorch checkpoint, perhaps); export the network to ONNX"),
    (b"version https://git-lfs", "a Git LFS pointer: the model itself was not downloaded"),
    (b"\x89HDF", "an HDF5 file (Keras, perhaps); export the network to ONNX"),
    (b"\x80\x02", "a Python pickle; export the network to ONNX"),
)


def load_model(source: str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model) -> ir.Model:
    """The model in `source`: a path, a serialised ModelProto, a ModelProto, or an `onnx_ir` model (which is copied, not changed).

    A path may also be that of a program of torch.export (frontends/torch_fx/exported.py).
    Functions are inlined, initialisers that are also inputs are constants (see defaults.py), nodes are sorted, and every node and value
    has a unique name.
    Weights of a file are memory-mapped: they are read when they are used. The opset is the model's own (see upgrade.py).
    Raises ModelError when the model is damaged, malformed or names files outside its folder; UnsupportedError when it asks for operators,
    types or versions unknown here; UsageError when `source` is none of the above.
    """
    if isinstance(source, ir.Model):
        return _finish(source.clone())
    if isinstance(source, onnx.ModelProto):
        return _finish(_from_proto(source, Storage(None, None)))
    if isinstance(source, (bytes, bytearray, memoryview)):
        content = memoryview(source).cast("B").toreadonly()
        return _finish(_from_proto(_parse(content), Storage(content, None)))
    if not isinstance(source, (str, os.PathLike)):
        raise UsageError(f"a model is a path, bytes, an onnx.ModelProto or an onnx_ir.Model; got {type(source).__name__}")
    path = Path(source)
    with context(f"while loading {path}"):
        if holds_program(str(path)):
            return _finish(load_program(str(path)))
        content = map_file(path)
        return _finish(_from_proto(_parse(content), Storage(content, path)))


def _parse(content: memoryview) -> onnx.ModelProto:
    """The ModelProto in `content`; big weights are left out and point into `content`."""
    head = bytes(content[:64])
    if not head:
        raise ModelError("the file is empty; an ONNX model is expected")
    for prefix, what in FOREIGN:
        if head.startswith(prefix):
            raise ModelError(f"not an ONNX model, but {what}")
    if head.lstrip()[:1] in (b"<", b"{") or all(32 <= byte < 127 or byte in b"\t\r\n" for byte in head):
        raise ModelError(f"not an ONNX model, but text that begins with {head[:24].decode('ascii', 'replace')!r}")
    try:
        model: onnx.ModelProto = onnx.ModelProto.FromString(compact(content))
    except DecodeError as error:
        raise ModelError(f"not an ONNX model, or a damaged one: {error}") from error
    return model


def _from_proto(proto: onnx.ModelProto, storage: Storage) -> ir.Model:
    check_model(proto)
    proto = densified(proto)
    _forget_maps(proto.graph)
    try:
        model = ir.from_proto(proto)
    except Exception as error:
        raise ModelError(f"the model cannot be read: {_innermost(error)}") from error
    for graph in [model.graph, *(function.graph for function in model.functions.values())]:
        _settle_tensors(graph, storage)
    return model


def _forget_maps(graph: onnx.GraphProto) -> None:
    """Results that are lists of maps have no type that `onnx_ir` knows; on the host they need none."""
    for value in (*graph.output, *graph.value_info):
        kind = value.type.sequence_type.elem_type if value.type.HasField("sequence_type") else value.type
        if kind.HasField("map_type"):
            value.ClearField("type")


def _finish(model: ir.Model) -> ir.Model:
    """Bring a checked model into the form everything after the front end relies on."""
    inline_functions(model)
    if "ai.onnx" in model.opset_imports:
        model.opset_imports.setdefault("", model.opset_imports.pop("ai.onnx"))
    note_overridable(model.graph, fix_defaults(model.graph), model.ir_version)
    for graph in all_graphs(model.graph):
        fix_defaults(graph)
        for node in graph:
            node.domain = "" if node.domain == "ai.onnx" else node.domain
        for value in [*graph.inputs, *(value for node in graph for value in node.outputs)]:
            _forget_negative_sizes(value)
    try:
        model.graph.sort()
    except ValueError as error:
        raise ModelError(f"nodes feed each other in a circle: {error}") from error
    name_everything(model)
    return model


def _settle_tensors(graph: ir.Graph, storage: Storage) -> None:
    """Replace tensors that are still messages, or places in a file, by arrays: the former are read, the latter are mapped."""
    for inner in all_graphs(graph):
        for value in inner.initializers.values():
            with context(f"in initialiser {value.name!r}"):
                value.const_value = None if value.const_value is None else _settled(value.const_value, storage)
        for node in inner:
            for name, attribute in list(node.attributes.items()):
                if attribute.is_ref() or attribute.type not in (ir.AttributeType.TENSOR, ir.AttributeType.TENSORS):
                    continue
                with context(f"in {describe(node)}, attribute {name!r}"):
                    node.attributes[name] = _settled_attribute(attribute, storage)


def _settled_attribute(attribute: ir.Attr, storage: Storage) -> ir.Attr:
    if attribute.type == ir.AttributeType.TENSOR:
        return ir.AttrTensor(attribute.name, _settled(attribute.as_tensor(), storage))
    return ir.AttrTensors(attribute.name, [_settled(tensor, storage) for tensor in attribute.as_tensors()])


def _settled(tensor: ir.TensorProtocol, storage: Storage) -> ir.TensorProtocol:
    if isinstance(tensor, ir.ExternalTensor):
        return stored_tensor(tensor, storage)
    if isinstance(tensor, TensorProtoTensor):
        return ir.Tensor(tensor.numpy(), tensor.dtype, name=tensor.name)
    return tensor


def _forget_negative_sizes(value: ir.Value) -> None:
    """Exporters write -1 for a size that is not known; here that is None."""
    if value.shape is not None and any(isinstance(size, int) and size < 0 for size in value.shape):
        value.shape = ir.Shape([None if isinstance(size, int) and size < 0 else size for size in value.shape])


def _innermost(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())[:300]

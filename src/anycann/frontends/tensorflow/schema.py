"""The messages of TensorFlow's GraphDef that an inference graph is made of, for protobuf.

Numbers and names are those of tensorflow/core/framework/{graph,node_def,attr_value,tensor,tensor_shape,function}.proto. A pool of its own
keeps them apart from a TensorFlow in the same process. Maps are repeated entries, which is what they are on the wire.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from anycann.support.errors import ModelError

PACKAGE = "anycann.tensorflow"
# message -> "number name type", with * behind a type that repeats
_MESSAGES: dict[str, tuple[str, ...]] = {
    "GraphDef": ("1 node NodeDef*", "2 library FunctionDefLibrary", "4 versions VersionDef"),
    "VersionDef": ("1 producer int32", "2 min_consumer int32"),
    "NodeDef": ("1 name string", "2 op string", "3 input string*", "4 device string", "5 attr AttrEntry*"),
    "AttrEntry": ("1 key string", "2 value AttrValue"),
    "AttrValue": (
        "1 list ListValue", "2 s bytes", "3 i int64", "4 f float", "5 b bool", "6 type int32", "7 shape TensorShapeProto",
        "8 tensor TensorProto", "9 placeholder string", "10 func NameAttrList",
    ),
    "ListValue": (
        "2 s bytes*", "3 i int64*", "4 f float*", "5 b bool*", "6 type int32*", "7 shape TensorShapeProto*", "8 tensor TensorProto*",
        "9 func NameAttrList*",
    ),
    "NameAttrList": ("1 name string", "2 attr AttrEntry*"),
    "TensorShapeProto": ("2 dim Dim*", "3 unknown_rank bool"),
    "Dim": ("1 size int64", "2 name string"),
    "TensorProto": (
        "1 dtype int32", "2 tensor_shape TensorShapeProto", "4 tensor_content bytes", "5 float_val float*", "6 double_val double*",
        "7 int_val int32*", "8 string_val bytes*", "10 int64_val int64*", "11 bool_val bool*", "13 half_val int32*",
        "16 uint32_val uint32*", "17 uint64_val uint64*",
    ),
    "FunctionDefLibrary": ("1 function FunctionDef*",),
    "FunctionDef": ("1 signature OpDef", "3 node_def NodeDef*"),
    "OpDef": ("1 name string",),
}  # fmt: skip
ONE_OF = {"AttrValue": "value"}  # exactly one field of these is set


def parse_graph(content: bytes) -> Any:
    """The GraphDef in `content`. Raises ModelError."""
    try:
        graph = _graph_class().FromString(content)
    except DecodeError as error:
        raise ModelError(f"not a GraphDef of TensorFlow, or a damaged one: {error}") from error
    if not graph.node:
        raise ModelError("the GraphDef has no nodes; a frozen graph of TensorFlow (.pb) is expected")
    if any(not node.op or not node.name for node in graph.node):
        raise ModelError("not a GraphDef of TensorFlow: a node has no name or no operator (a SavedModel must be frozen first)")
    return graph


@cache
def message_class(name: str) -> Any:
    """protobuf's class of a message."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


def _graph_class() -> Any:
    return message_class("GraphDef")


@cache
def _pool() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="anycann_tensorflow.proto", package=PACKAGE, syntax="proto3")
    for name, rows in _MESSAGES.items():
        message = file.message_type.add(name=name)
        if name in ONE_OF:
            message.oneof_decl.add(name=ONE_OF[name])
        for row in rows:
            _add_field(message, row, name in ONE_OF)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _add_field(message: Any, row: str, one_of: bool) -> None:
    number, name, kind = row.split()
    field = message.field.add(name=name, number=int(number))
    field.label = field.LABEL_REPEATED if kind.endswith("*") else field.LABEL_OPTIONAL
    kind = kind.rstrip("*")
    if kind in _MESSAGES:
        field.type, field.type_name = field.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    else:
        field.type = getattr(field, f"TYPE_{kind.upper()}")
    if one_of:
        field.oneof_index = 0

"""The messages of TensorFlow's GraphDef that an inference graph is made of, for protobuf.

Numbers and names are those of tensorflow/core/framework/{graph,node_def,attr_value,tensor,tensor_shape,function}.proto.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf.message import DecodeError

from anycann.support.errors import ModelError
from anycann.support.protobuf import message_classes

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
    "FunctionDef": ("1 signature OpDef", "3 node_def NodeDef*", "4 ret RetEntry*"),
    "OpDef": ("1 name string", "2 input_arg ArgDef*", "3 output_arg ArgDef*"),
    "ArgDef": ("1 name string",),
    "RetEntry": ("1 key string", "2 value string"),
}  # fmt: skip
_ONE_OF = {"AttrValue": "value"}  # exactly one field of these is set


def parse_graph(content: bytes) -> Any:
    """The GraphDef in `content`. Raises ModelError."""
    try:
        graph = message_class("GraphDef").FromString(content)
    except DecodeError as error:
        raise ModelError(f"not a GraphDef of TensorFlow, or a damaged one: {error}") from error
    if not graph.node:
        raise ModelError("the GraphDef has no nodes; a frozen graph of TensorFlow (.pb) is expected")
    if any(not node.op or not node.name for node in graph.node):
        raise ModelError("not a GraphDef of TensorFlow: a node has no name or no operator (a SavedModel must be frozen first)")
    return graph


def message_class(name: str) -> Any:
    """protobuf's class of a message."""
    return _classes()[name]


@cache
def _classes() -> dict[str, Any]:
    return message_classes("anycann.tensorflow", _MESSAGES, _ONE_OF)

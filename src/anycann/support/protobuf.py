"""Messages of protobuf from a table, for file formats that others define. Each format has a pool of its own: names cannot clash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def message_classes(package: str, messages: Mapping[str, Sequence[str]], one_of: Mapping[str, str] | None = None) -> dict[str, Any]:
    """protobuf's classes by message name.

    A field is "number name type", with * behind a type that repeats; a type is a message of the table or one of protobuf's own. Maps are
    repeated entries, enumerations int32: that is what they are on the wire. one_of: message -> the group all its fields belong to.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        if one_of and name in one_of:
            message.oneof_decl.add(name=one_of[name])
        for field in fields:
            _add_field(message, field, f".{package}.", messages, bool(one_of and name in one_of))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


def _add_field(message: Any, text: str, prefix: str, messages: Mapping[str, Sequence[str]], one_of: bool) -> None:
    number, name, kind = text.split()
    field = message.field.add(name=name, number=int(number))
    field.label = field.LABEL_REPEATED if kind.endswith("*") else field.LABEL_OPTIONAL
    kind = kind.rstrip("*")
    if kind in messages:
        field.type, field.type_name = field.TYPE_MESSAGE, f"{prefix}{kind}"
    else:
        field.type = getattr(field, f"TYPE_{kind.upper()}")
    if one_of:
        field.oneof_index = 0

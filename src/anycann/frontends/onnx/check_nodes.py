"""Is every node what its operator asks for: a known operator, its number of inputs and outputs, its attributes and their types."""

from __future__ import annotations

from collections.abc import Mapping
import difflib
from functools import cache

import onnx
from onnx import defs

from anycann.graph.registry import library
from anycann.graph.sources import describe_proto
from anycann.support.errors import ModelError, UnsupportedError

A = onnx.AttributeProto
SINGLE_FIELD = {A.TENSOR: "t", A.GRAPH: "g", A.SPARSE_TENSOR: "sparse_tensor", A.TYPE_PROTO: "tp"}  # these must have a value
LISTS = (A.FLOATS, A.INTS, A.STRINGS, A.TENSORS, A.GRAPHS, A.SPARSE_TENSORS, A.TYPE_PROTOS)
ATTRIBUTE_TYPES = frozenset((A.FLOAT, A.INT, A.STRING, *SINGLE_FIELD, *LISTS))


def check_node(node: onnx.NodeProto, opsets: Mapping[str, int], functions: frozenset[tuple[str, str]]) -> None:
    """Check `node` against its operator's schema at the versions `opsets` (domain -> version).

    `functions` are the model's own functions (domain, name). Raises UnsupportedError for an operator nobody knows, naming near ones,
    and ModelError for wrong arity or attributes.
    """
    domain = canonical_domain(node.domain)
    _check_attributes(node)
    if (domain, node.op_type) in functions:
        return
    if domain not in opsets:
        raise ModelError(f"{describe_proto(node)}: the model imports no opset of domain {domain!r}; it imports {dict(opsets)}")
    schema = find_schema(domain, node.op_type, opsets[domain])
    if schema is not None:
        _check_against(node, schema)
    elif (domain, node.op_type) not in known_extensions():
        raise UnsupportedError(f"{describe_proto(node)}: {_unknown(domain, node.op_type, opsets[domain])}")


def canonical_domain(domain: str) -> str:
    """The default domain has two spellings, "" and "ai.onnx"; this gives the first."""
    return "" if domain == "ai.onnx" else domain


@cache
def find_schema(domain: str, op_type: str, version: int) -> defs.OpSchema | None:
    """The operator's schema at `version`; for one that is deprecated there, its last living one; None if it has none."""
    try:
        schema = defs.get_schema(op_type, version, domain)
    except defs.SchemaError:
        return None
    if schema.deprecated and defs.has(op_type, schema.since_version - 1, domain):
        return find_schema(domain, op_type, schema.since_version - 1)
    return schema


@cache
def known_extensions() -> frozenset[tuple[str, str]]:
    """(domain, type) of operators outside the standard that have a reference or a lowering here."""
    from anycann.graph.reference import operators  # 0.05 s that most models do without

    references = {(operator.op_domain, operator.__name__) for operator in operators()}
    lowered = {(operator.domain, operator.op_type) for operator in library().all()}
    return frozenset(operator for operator in references | lowered if not defs.has(operator[1], operator[0]))


@cache
def _known_names() -> dict[str, list[str]]:
    """Every operator's name -> the domains that have it."""
    names: dict[str, list[str]] = {}
    for domain, op_type in sorted({(schema.domain, schema.name) for schema in defs.get_all_schemas()} | known_extensions()):
        names.setdefault(op_type, []).append(domain)
    return names


def _unknown(domain: str, op_type: str, version: int) -> str:
    """Why an operator is refused, and what its author may have meant."""
    names = _known_names()
    if domain in names.get(op_type, ()) and domain == "":
        since = defs.get_schema(op_type).since_version if defs.has(op_type) else version
        return f"operator {op_type} does not exist at opset {version}, which the model imports (the present form is of opset {since})"
    if op_type in names:
        return f"domain {domain!r} has no {op_type} known here; the domains {names[op_type]} have one"
    near = difflib.get_close_matches(op_type, names, n=3)
    hint = f"; near names: {', '.join(near)}" if near else ""
    domains = sorted({name for owners in names.values() for name in owners})
    return f"no operator {op_type} is known in domain {domain!r} (version {version}){hint}; known domains: {domains}"


def _check_attributes(node: onnx.NodeProto) -> None:
    """Each attribute has a name of its own, a known type, and a value in the field of that type."""
    seen = set()
    for attribute in node.attribute:
        where = f"{describe_proto(node)}: attribute {attribute.name!r}"
        if not attribute.name or attribute.name in seen:
            raise ModelError(f"{where} is given twice or has no name")
        seen.add(attribute.name)
        if attribute.type not in ATTRIBUTE_TYPES:
            raise ModelError(f"{where} has type {attribute.type}, which is none of ONNX's attribute types")
        if attribute.type == A.STRING and node.op_type != "Constant" and not _is_text(attribute.s):
            raise ModelError(f"{where} {attribute.s[:40]!r} is not UTF-8 text")
        field = SINGLE_FIELD.get(attribute.type)
        if field and not attribute.ref_attr_name and not attribute.HasField(field):
            raise ModelError(f"{where} is a {A.AttributeType.Name(attribute.type)} without a value")


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _check_against(node: onnx.NodeProto, schema: defs.OpSchema) -> None:
    """Arity and attributes of `node` against `schema`."""
    for kind, got, least, most in (
        ("inputs", len(node.input), schema.min_input, schema.max_input),
        ("outputs", len(node.output), schema.min_output, schema.max_output),
    ):
        if not least <= got <= most:
            accepted = f"{least} or more" if most > 1 << 20 else f"{least} to {most}"
            raise ModelError(f"{describe_proto(node)} has {got} {kind}; opset {schema.since_version} accepts {accepted}")
    given = {attribute.name for attribute in node.attribute}
    missing = [name for name, attribute in schema.attributes.items() if attribute.required and name not in given]
    if missing and node.op_type != "Constant":
        raise ModelError(f"{describe_proto(node)} lacks the attribute {missing[0]!r}, which opset {schema.since_version} requires")
    for attribute in node.attribute:
        _check_known_attribute(node, attribute, schema)


def _check_known_attribute(node: onnx.NodeProto, attribute: onnx.AttributeProto, schema: defs.OpSchema) -> None:
    if attribute.name.startswith("__") or attribute.name == "consumed_inputs":  # exporters' private marks, which ONNX tolerates
        return
    where = f"{describe_proto(node)}: attribute {attribute.name!r}"
    known = schema.attributes.get(attribute.name)
    if known is None:
        raise ModelError(f"{where} does not exist at opset {schema.since_version}; known are {sorted(schema.attributes)}")
    if attribute_type(known) != attribute.type and not attribute.ref_attr_name:
        raise ModelError(
            f"{where} is of type {A.AttributeType.Name(attribute.type)}; {A.AttributeType.Name(attribute_type(known))} is accepted"
        )


def attribute_type(attribute: defs.OpSchema.Attribute) -> int:
    """The type of a schema's attribute as a number of `AttributeProto.AttributeType`."""
    return int(attribute.type.value)  # type: ignore[attr-defined]  # an enumeration, which the stubs do not say
